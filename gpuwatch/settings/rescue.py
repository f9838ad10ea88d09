"""Settings for rescue mode: enough for a daemon to follow and end launches although the settings are invalid.

Beside the valid part (`best_effort`), the readable lines of a file that is not TOML count, and invalid or unreadable
parts keep their last valid value if a daemon stored it. Secrets are never stored, only where they were written: their
texts come from today's environment, credentials and secret files, and from the readable part of the settings file.
Nothing is rented with such settings.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gpuwatch.domain.setup.durations import EnvText
from gpuwatch.domain.watches.owner_names import owned_name, plain_name
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.errors import SettingsError
from gpuwatch.ports.settings import ChannelSection, Option, ProviderSection, parse_token
from gpuwatch.secret import Secret
from gpuwatch.settings.best_effort import UsableSettings, load_best_effort, with_disabled, without_part
from gpuwatch.settings.daily_warnings import read_private_file, write_private_file
from gpuwatch.settings.external_values import (
    ExternalValue,
    UnreadableValues,
    option_text,
    secret_at,
    secret_text,
    state_folder,
)
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath, option_specs_of, read_option, secret_options, spec_at
from gpuwatch.settings.sources import Sources, collect, merge_sources, parse_file

_NO_FILE = os.devnull  # an empty settings file


def load_for_rescue(
    config: str | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> UsableSettings:
    """The usable settings; nothing is rented with them.

    Raises:
        SettingsError: not even the address of the database is known.
    """
    unreadable: UnreadableValues = []
    lines: list[str] = []
    try:
        sources = collect(config, env, cwd, unreadable=unreadable)
    except SettingsError as error:
        lines += error.faults
        sources = collect(_NO_FILE, env, cwd, unreadable=unreadable)
    last_good = load_last_good(sources.env)
    tree, damaged = ({}, _ALL_TABLES) if lines else _parse_readable(sources, lines)
    merged, origins = merge_sources(tree, sources, unreadable)
    undamaged = _without_damaged(merged, damaged)
    database_url = {"database_url": last_good.database_url} if last_good is not None and last_good.database_url else {}
    try:
        usable, _ = load_best_effort(database_url | undamaged, sources, origins, unreadable)
    except SettingsError:  # the address of the database is invalid
        usable, _ = load_best_effort(undamaged | database_url, sources, origins, unreadable)
    settings = usable.settings
    lines += usable.lines
    if last_good is not None:
        settings = _with_last_good(settings, last_good, _CurrentSecrets(merged, origins), lines)
    return UsableSettings(settings, tuple(lines))


def _parse_readable(sources: Sources, lines: list[str]) -> tuple[dict[str, Any], _Damaged]:
    """The file's tables, and the tables that lost a line."""
    try:
        return parse_file(sources), frozenset()
    except SettingsError as error:
        lines += error.faults
    readable = readable_part(sources.content.decode("utf-8-sig", "replace"))
    numbers = ", ".join(map(str, readable.lines[:10])) + (", …" if len(readable.lines) > 10 else "")
    lines.append(f"{sources.display_name}: unreadable tables are ignored (line {numbers})")
    return readable.tree, readable.damaged


def _without_damaged(tree: dict[str, Any], damaged: _Damaged) -> dict[str, Any]:
    """A table that lost a line may no longer mean what its owner wrote, so it is ignored completely."""
    for table in damaged:
        if table[:1] == ("providers",):
            tree = with_disabled(tree, table)
        elif table:
            tree = without_part(tree, table)
    return tree


class _CurrentSecrets:
    """The secrets that can be read now.

    Args:
        tree: merged tables, not validated: all that can be read.
        origins: the keys that the file does not set.
    """

    def __init__(self, tree: Mapping[str, Any], origins: Mapping[KeyPath, ExternalValue]) -> None:
        self._tree = tree
        self._origins = origins

    def find(self, path: KeyPath, stored: Secret | None) -> Secret | None:
        """The secret of a key; if no source sets it, that of the secret file which held it before; None: none."""
        value: Any = self._tree
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        try:
            if value is not None:
                return secret_at(self._origins, path, _parsed(path, value))
            if stored is not None and stored.file:
                value = _parsed(path, EnvText(secret_text(Path(stored.file))))
                return Secret(option_text(value), origin=stored.origin, file=stored.file)
        except ValueError:
            pass  # it cannot be used, and is missed where it is needed
        return None

    def options(self, table: KeyPath, stored: Mapping[str, Secret]) -> dict[str, Secret]:
        """The secret options of one table."""
        found = {path[-1]: self.find(path, stored.get(path[-1])) for path in secret_options(table)}
        return {name: secret for name, secret in found.items() if secret is not None}


def _parsed(path: KeyPath, value: Any) -> Option:
    """As in valid settings, but a key may be a number. Raises ValueError."""
    spec = spec_at(path)
    return parse_token(str(value)) if spec is None else read_option(spec, value)


def _with_last_good(current: Settings, last_good: Settings, secrets: _CurrentSecrets, lines: list[str]) -> Settings:
    """The ignored parts, with their last valid values and today's secrets; what launches would have run is unknown."""
    replace = msgspec.structs.replace
    providers = {
        name: replace(
            one,
            api_key=secrets.find(("providers", name, "api_key"), one.api_key),
            previous_api_key=secrets.find(("providers", name, "previous_api_key"), one.previous_api_key),
            secrets=secrets.options(("providers", name, "options"), one.secrets),
        )
        for name, one in last_good.providers.items()
        if name not in current.providers
    }
    channels = {
        name: replace(one, secrets=secrets.options(("notify", name), one.secrets))
        for name, one in last_good.channels.items()
        if name not in current.channels
    }
    owner = last_good.owner  # whose launches are active, whatever is written now
    present = [replace(watch, name=owned_name(owner, plain_name(watch.name))) for watch in current.watches]
    names = {watch.name for watch in present}
    watches = [replace(watch, action=Action.ALERT) for watch in last_good.watches if watch.name not in names]
    kept = replace(
        current,
        owner=owner,
        providers=current.providers | _usable("providers", providers, lines),
        channels=current.channels | _usable("notify", channels, lines),
        watches=(*present, *watches),
    )
    lines += [f'watch "{watch.name}" keeps its last valid settings' for watch in watches]
    return kept


def _usable(section: str, tables: Mapping[str, _Table], lines: list[str]) -> dict[str, _Table]:
    """Those that have all secrets without which they cannot be built. A provider without a key can be built."""
    usable = {}
    for name, table in tables.items():
        specs = option_specs_of((section, name, "options") if section == "providers" else (section, name))
        missing = [spec.name for spec in specs if spec.secret and spec.needed and spec.name not in table.secrets]
        if missing:
            lines.append(f"[{section}.{name}] is ignored: {missing[0]} is not where it was written, nor anywhere else")
        else:
            lines.append(f"[{section}.{name}] keeps its last valid settings")
            usable[name] = table
    return usable


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


# --- the last valid settings of the daemon, in the state folder -------------------------------------------------------


FILE = "last-settings.bin"


def store_last_good(settings: Settings, env: Mapping[str, str]) -> None:
    """Store them, readable for this user only; errors are ignored, because this is only a fallback."""
    try:
        folder = state_folder(env)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(folder / FILE, msgspec.msgpack.encode(_storable(settings), enc_hook=_place_of))
    except (OSError, TypeError, ValueError, SettingsError):  # the latter: a user without a home folder
        return


def load_last_good(env: Mapping[str, str]) -> Settings | None:
    """The stored settings, whose secrets have no text; None: none, or stored by a version with another format."""
    try:
        body = read_private_file(state_folder(env) / FILE)
    except SettingsError:
        return None
    if body is None:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Settings, dec_hook=_without_text)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None


def _storable(settings: Settings) -> Settings:
    """The settings without an address that holds a password, and without what launches run: it may hold secrets."""
    url = settings.database_url
    return msgspec.structs.replace(
        settings,
        database_url="" if "@" in url else url,
        watches=tuple(_without_contents(watch) for watch in settings.watches),
    )


def _without_contents(watch: Watch) -> Watch:
    if watch.launch is None:
        return watch
    contents = dict.fromkeys(("onstart", "ssh_key", "registry", "on_running", "before_stop", "on_ended"))
    launch = msgspec.structs.replace(watch.launch, env={}, secret_env={}, **contents)
    return msgspec.structs.replace(watch, launch=launch)


def _place_of(secret: Any) -> dict[str, str]:
    """A secret as it is stored: where it is written, without its text."""
    if not isinstance(secret, Secret):
        raise TypeError(type(secret).__name__)
    return {"origin": secret.origin, "file": secret.file}


def _without_text(_type: type, place: Any) -> Secret:
    return Secret(origin=place["origin"], file=place["file"])


_Table = TypeVar("_Table", ProviderSection, ChannelSection)
_Damaged = frozenset[tuple[str, ...]]  # tables, such as ("providers", "vastai")
_ALL_TABLES: _Damaged = frozenset({("providers",), ("notify",)})  # a key from the environment may belong to any of them
