"""The floors are divided by the nouns: who knows the noun knows the folder (docs/architecture.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from tests.checkout import ROOT
from tools.house import FLOORS, NOUNS, is_entry, paths, repeated_names

MODULES_MAX, DEPTH_MAX, FILES_MAX = 15, 4, 10
each_floor = pytest.mark.parametrize("floor", FLOORS)

# What stands on a floor beside its nouns, and why no noun has it.
BESIDE = {
    "cli": {
        "base": "the class of every command",
        "commands": "the list of all commands",
        "options": "options that commands share",
        "output": "prints: lines, JSON, progress, pictures",
        "terminal_tables": "prints: tables",
        "chart": "prints: charts of characters",
        "html": "prints: the same as a page",
    },
    "web": {
        "now": "the first page: of all nouns at once",
        "approvals": "decisions of the owner, one a screen",
        "api": "the HTTP API: one list for all nouns",
        "security": "logins and keys",
        "static": "styles and scripts",
        "templates": "templates of all pages",
        "chart_axes": "ticks of large charts",
        "components": "parts that templates call: icons, states, money, times",
        "application": "joins all routes",
        "context": "what all requests share",
        "login": "logging in and out",
        "page": "the type of a page",
        "page_frame": "what surrounds every page",
        "page_routes": "the routes of all pages",
        "page_templates": "what all templates may call",
        "problems": "errors as answers",
        "request_guard": "checks of every request",
        "server": "the HTTP server and its thread",
        "serving": "the server as a part of the daemon, or alone",
    },
    "chat": {
        "telegram": "the interface to a messenger; actions do not know it",
        "chat_actions": "the list of all actions",
        "deciding": "actions on several nouns: they change something",
        "reading": "actions on several nouns: they only read",
        "interface": "finds and runs the interfaces to messengers",
        "replies": "the type of a reply",
    },
    "app": {
        "owner_audit": "the event that every change by the owner leaves, of whichever noun",
        "reader_text": "figures and times as text, in the reader's language and zone",
    },
    "engine": {},
    "storage": {"unit_of_work": "one transaction over the rows of several nouns"},
    "domain": {},
}
# One name for several modules that are not one noun's on several floors: what they have in common.
SAME_NAME = {
    "market": "the noun, the port of that name, and its side of each provider",
    "offers": "offers: as the owner lists them, and as providers' answers are parsed",
    "pauses": "pauses of watches, and their rows beside those of the alerts",
    "prerequisites": "the port, and its side of each provider",
    "server": "an HTTP server: of the web page, and of the marketplace on loopback",
    "store": "the port to the store, and its maintenance",
}
MARKETPLACES = {"providers", "emulator", "testing"}  # one part of several marketplaces has one name


def _names(folder: Path) -> set[str]:
    """Folders and modules directly below a folder."""
    shown = {one for one in folder.iterdir() if one.suffix == ".py" or _holds_files(one)}
    return {one.stem for one in shown if not one.name.startswith("_")}


def _holds_files(folder: Path) -> bool:
    """Whether it is more than what the bytecode of moved modules leaves behind."""
    return any(one.is_file() and one.suffix != ".pyc" for one in folder.rglob("*"))


@each_floor
def test_a_floor_is_divided_by_the_nouns_and_by_nothing_else(floor: str) -> None:
    assert _names(ROOT / "gpuwatch" / floor) - set(NOUNS) == set(BESIDE[floor])


def test_a_folder_holds_what_a_reader_takes_in_at_once() -> None:
    held = Counter(str(path.parent) for path in paths() if not is_entry(path))
    assert {folder: count for folder, count in held.items() if count > MODULES_MAX} == {}


def test_no_module_lies_deep() -> None:
    assert [str(path) for path in paths() if len(path.parts) > DEPTH_MAX] == []


@pytest.mark.parametrize("package", ["bootstrap", "daemon"])
def test_what_only_joins_and_runs_the_parts_is_small(package: str) -> None:
    assert len([path for path in paths() if path.parts[0] == package]) <= FILES_MAX


@each_floor
def test_the_tests_of_a_floor_lie_in_the_same_folders(floor: str) -> None:
    of_tests = {path.parent for path in paths("tests") if path.parts[0] == floor}
    assert {str(folder) for folder in of_tests if not (ROOT / "gpuwatch" / folder).is_dir()} == set()


def test_two_modules_of_one_name_are_one_thing_on_two_floors() -> None:
    """Or one part of several marketplaces. What else shares a name is listed above with its reason."""
    repeated = {stem: same for stem, same in repeated_names(paths()).items() if not _are_one_thing(same)}
    assert {stem: [str(path) for path in same] for stem, same in repeated.items() if stem not in SAME_NAME} == {}
    assert set(SAME_NAME) - set(repeated) == set(), "no longer repeated: remove from SAME_NAME"


def _are_one_thing(same: Sequence[PurePosixPath]) -> bool:
    floors = Counter(path.parts[0] for path in same if path.parts[0] not in MARKETPLACES)
    return len({_subject(path) for path in same}) == 1 and set(floors.values()) <= {1}


def _subject(path: PurePosixPath) -> str:
    """Return a module's noun; a port is named for its own. Elsewhere it is the package."""
    if path.parts[0] in FLOORS and path.parts[1] in NOUNS:
        return path.parts[1]
    if path.parts[0] in MARKETPLACES:
        return "marketplaces"
    return path.stem if path.parts[0] == "ports" and path.stem in NOUNS else path.parts[0]
