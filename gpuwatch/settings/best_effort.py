"""Best-effort settings for stopping: invalid parts are ignored, so that they never prevent stopping a launch.

Nothing is rented with them. A provider with a doubtful address or key is ignored completely: at a wrong address an
instance would seem to be gone. The database must be right: another one contains no launch to stop.

Of a file that is not valid TOML, the readable part counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from gpuwatch import providers
from gpuwatch.domain.setup.fields import table_of
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.settings.external_values import ExternalValue, UnreadableValues
from gpuwatch.settings.interpolation import ResolvedSettings, resolve_references
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath
from gpuwatch.settings.settings_errors import InvalidSettings, Location, error_line
from gpuwatch.settings.sources import Sources
from gpuwatch.settings.validate import validate

# an option may set the account or the region to search
_CREDENTIAL_KEYS = ("base_url", "api_key", "previous_api_key", "options")
_DISABLED = {"enabled": False}
_REQUIRED = frozenset(name for name, field in table_of(Watch).model_fields.items() if field.is_required())


class BestEffortSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The valid part, without secrets; `lines` name the ignored parts, one each."""

    settings: Settings
    resolved: ResolvedSettings
    lines: tuple[str, ...]


def load_best_effort(
    tree: dict[str, Any],
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    unreadable: UnreadableValues,
    known_spellings: Collection[str] = (),
) -> BestEffortSettings:
    """The valid part of merged tables.

    Args:
        unreadable: values that could not be read at all.

    Raises:
        SettingsError: the database's address is wrong.
    """
    remaining = _RemainingTables(tree, sources, origins)
    for path, text in unreadable:
        remaining.ignore_value(path, text)
    while True:
        resolved = resolve_references(remaining.tree, sources)
        try:
            settings = validate(resolved, sources, origins, known_spellings)
        except InvalidSettings as error:
            previous_tree = remaining.tree
            remaining.remove_invalid(error.errors)
            if remaining.tree == previous_tree:  # the database, which must not be ignored
                raise
        else:
            return BestEffortSettings(
                settings=_alert_only(settings, remaining.left_out), resolved=resolved, lines=tuple(remaining.lines)
            )


def _alert_only(settings: Settings, left_out: Sequence[str]) -> Settings:
    watches = tuple(msgspec.structs.replace(watch, action=Action.ALERT) for watch in settings.watches)
    return msgspec.structs.replace(settings, dry_run=True, watches=watches, left_out=tuple(left_out))


class _RemainingTables:
    """Tables that shrink. The given tables do not change: the line numbers of errors refer to them."""

    def __init__(self, tree: dict[str, Any], sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> None:
        self._original, self._sources, self._origins = tree, sources, origins
        self._watch_numbers = list(range(len(_watches(tree))))  # of the remaining watches, in the file
        self.tree = tree
        self.lines: list[str] = []
        self.left_out: list[str] = []

    def ignore_value(self, path: KeyPath, text: str) -> None:
        """Ignore a value from outside the file that could not be read."""
        self.lines.append(f"{text}; ignored")
        if path[:1] == ("providers",):  # it may have been the provider's address
            self.tree = _without_invalid(self.tree, path[:2])

    def remove_invalid(self, errors: Sequence[tuple[Location, str]]) -> None:
        """Remove invalid parts, with a line for each."""
        parts = [_removable_part(self.tree, loc) for loc, _ in errors]
        for (loc, text), part in zip(errors, parts, strict=True):
            reason = error_line(self._in_file(loc), text, self._sources, self._original, self._origins)
            self.lines.append(f"{reason}; {_name(part)} is ignored")
        for part in dict.fromkeys(parts):
            self.tree = _without_invalid(self.tree, part)
        self._drop_watches()

    def _in_file(self, loc: Location) -> Location:
        if loc[0] == "watch" and len(loc) > 1 and isinstance(loc[1], int):
            return ("watch", self._watch_numbers[loc[1]], *loc[2:])
        return loc

    def _drop_watches(self) -> None:
        """Remove watches without any valid part."""
        watches = _watches(self.tree)
        removed = [number for number, watch in zip(self._watch_numbers, watches, strict=False) if watch is None]
        if removed:
            names = [
                one.get("name") for one in map(_watches(self._original).__getitem__, removed) if isinstance(one, dict)
            ]
            self.left_out += [name for name in names if isinstance(name, str)]
            self._watch_numbers = [number for number in self._watch_numbers if number not in removed]
            self.tree = self.tree | {"watch": [watch for watch in watches if watch is not None]}


def _removable_part(tree: Mapping[str, Any], loc: Location) -> Location:
    """The smallest part to remove because of an error; empty: none may be removed.

    For `[watch.launch]` it is only the one key: `before_stop` must run even if another secret is missing.
    """
    if loc[0] == "database_url":
        return ()
    max_depth = {"watch": 4 if loc[2:3] == ("launch",) else 3, "providers": 3, "web": 1}.get(str(loc[0]), 2)
    location = loc[:1]
    for key in loc[1:max_depth]:
        if not _has(_value_at(tree, location), key):
            break
        location = (*location, key)
    if location[0] == "watch" and len(loc) > 2 and (loc[2] in _REQUIRED or len(location) == 2):
        return location[:2]
    if loc[0] == "providers" and len(location) > 2 and _may_be_credential(str(location[2])):
        return location[:2]
    return location


def _without_invalid(tree: dict[str, Any], part: Location) -> dict[str, Any]:
    """The tables without one part. A provider is disabled instead, because some are enabled by default."""
    if part[:1] == ("providers",) and len(part) <= 2:
        return with_disabled(tree, part)
    tables: dict[str, Any] = without_part(tree, part)
    return tables


def with_disabled(tree: dict[str, Any], part: Location) -> dict[str, Any]:
    """The tables with one provider disabled; `("providers",)`: with all disabled."""
    table = tree.get("providers")
    others = {name: one for name, one in table.items() if name != part[-1]} if isinstance(table, dict) else {}
    disabled = [name for name in providers.names() if len(part) == 1 or name == part[1]]
    return tree | {"providers": others | dict.fromkeys(disabled, _DISABLED)}


def without_part(tree: Any, part: Location) -> Any:
    """A copy without one part; in a list None replaces it, so that the other indexes do not change."""
    if not part or not _has(tree, part[0]):
        return tree
    head, rest = part[0], part[1:]
    if isinstance(tree, list):
        return [(without_part(one, rest) if rest else None) if index == head else one for index, one in enumerate(tree)]
    return tree | {head: without_part(tree[head], rest)} if rest else {k: v for k, v in tree.items() if k != head}


def _has(tree: Any, key: int | str) -> bool:
    return key in tree if isinstance(tree, dict) else isinstance(tree, list) and isinstance(key, int)


def _value_at(tree: Any, path: Location) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _may_be_credential(key: str) -> bool:
    """Is this the address or the key, or a misspelling of either?"""
    return bool(get_close_matches(key.lower(), _CREDENTIAL_KEYS, n=1, cutoff=0.6))


def _name(part: Location) -> str:
    if part[:1] == ("watch",) and len(part) > 1:
        return ".".join(map(str, part[2:])) or "this watch"  # a key of the watch is named as in the error
    return ".".join(map(str, part)) or "nothing"


def _watches(tree: Mapping[str, Any]) -> list[Any]:
    watches = tree.get("watch")
    return watches if isinstance(watches, list) else []


# --- a file that is not valid TOML ------------------------------------------------------------------------------------


_POSITION = re.compile(r"\(at line (\d+), column \d+\)")
_HEADER = re.compile(r"\s*\[+\s*([^\[\]#=]*)")
_OPEN_HEADER = re.compile(r"\s*(\[{1,2})([\w.\-]+)(\]?)\s*")
_OPENING_BRACKET = re.compile(r"=\s*[\[{]")
_MAX_ATTEMPTS = 300


class ReadablePart(NamedTuple):
    """Tables without the unreadable lines.

    Attributes:
        damaged: tables that lost a line, such as ("providers", "vastai"); () is the part above the first table.
        lines: line numbers of the skipped lines, from 1.
    """

    tree: dict[str, Any]
    damaged: frozenset[tuple[str, ...]]
    lines: tuple[int, ...]


def readable_part(text: str) -> ReadablePart:
    """Parse the readable lines. A header without its closing bracket is repaired; for any other broken header the whole
    table is skipped, because its keys would join another table.
    """
    lines = text.splitlines()
    tables = _tables(lines)
    skipped: set[int] = set()
    repaired = _repair_headers(lines)
    for _ in range(_MAX_ATTEMPTS):
        try:
            tree = tomllib.loads(_blank_lines(lines, skipped), parse_float=Decimal)
        except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
            broken = _broken_line(lines, skipped, str(error))
            if broken is None:
                break
            skipped |= _table_lines(lines, broken) if _HEADER.match(lines[broken]) else {broken}
        else:
            damaged = skipped | repaired
            return ReadablePart(tree, frozenset(tables[i] for i in damaged), tuple(i + 1 for i in sorted(damaged)))
    return ReadablePart({}, frozenset(tables), tuple(range(1, len(lines) + 1)))


def _repair_headers(lines: list[str]) -> set[int]:
    """Close unclosed header brackets; returns the line numbers."""
    repaired = set()
    for i, line in enumerate(lines):
        header = _OPEN_HEADER.fullmatch(line)
        if header and header[1].count("[") > header[3].count("]"):
            lines[i] = header[1] + header[2] + "]" * header[1].count("[")
            repaired.add(i)
    return repaired


def _blank_lines(lines: list[str], skipped: set[int]) -> str:
    """Blank these lines, so that the line numbers do not change."""
    return "\n".join("" if i in skipped else line for i, line in enumerate(lines))


def _broken_line(lines: list[str], skipped: set[int], error: str) -> int | None:
    """The line to skip; the parser names the line where it noticed the error, which may be below an open bracket."""
    position = _POSITION.search(error)
    error_line = int(position[1]) - 1 if position else len(lines) - 1
    candidates = [i for i in range(min(error_line, len(lines) - 1), -1, -1) if i not in skipped and lines[i].strip()]
    if error.startswith("Unclosed"):
        return next((i for i in candidates if _OPENING_BRACKET.search(lines[i])), None)
    if position is None:  # an unterminated multi-line text
        unclosed = [i for i in candidates if lines[i].count('"""') % 2 or lines[i].count("'''") % 2]
        candidates = unclosed or candidates
    return candidates[0] if candidates else None


def _table_lines(lines: list[str], header: int) -> set[int]:
    end = next((i for i in range(header + 1, len(lines)) if _HEADER.match(lines[i])), len(lines))
    return set(range(header, end))


def _tables(lines: list[str]) -> list[tuple[str, ...]]:
    """The table of each line; for a watch and its subtables: ("watch",)."""
    tables: list[tuple[str, ...]] = []
    table: tuple[str, ...] = ()
    for line in lines:
        header = _HEADER.match(line)
        if header:
            parts = tuple(part.strip(" \"'") for part in header[1].split("."))
            table = ("watch",) if parts[0] == "watch" else parts[:2]
        tables.append(table)
    return tables
