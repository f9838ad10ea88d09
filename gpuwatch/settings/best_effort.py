"""The valid part of settings: invalid parts are ignored, so that they never prevent stopping a launch.

Nothing is rented with them. A provider with a doubtful address or key is ignored completely: at a wrong address an
instance would seem to be gone. The database must be right: another one contains no launch to stop.

A command that ends costs uses this part alone: its owner reads what is ignored. Rescue mode (`rescue`), in which a
daemon goes on without its owner, adds to it what was valid before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

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


class UsableSettings(msgspec.Struct, frozen=True):
    """The usable settings; `lines` name the errors and the parts that are ignored or kept from before, one each."""

    settings: Settings
    lines: tuple[str, ...] = ()


def load_best_effort(
    tree: dict[str, Any],
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    unreadable: UnreadableValues,
    known_spellings: Collection[str] = (),
) -> tuple[UsableSettings, ResolvedSettings]:
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
            return UsableSettings(_alert_only(settings, remaining.left_out), tuple(remaining.lines)), resolved


def _alert_only(settings: Settings, left_out: Mapping[str, str | None]) -> Settings:
    watches = tuple(msgspec.structs.replace(watch, action=Action.ALERT) for watch in settings.watches)
    return msgspec.structs.replace(settings, dry_run=True, watches=watches, left_out=dict(left_out))


class _RemainingTables:
    """Tables that shrink. The given tables do not change: the line numbers of errors refer to them."""

    def __init__(self, tree: dict[str, Any], sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> None:
        self._original, self._sources, self._origins = tree, sources, origins
        self._watch_numbers = list(range(len(_watches(tree))))  # of the remaining watches, in the file
        self.tree = tree
        self.lines: list[str] = []
        self.left_out: dict[str, str | None] = {}

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
            tables = [one for one in map(_watches(self._original).__getitem__, removed) if isinstance(one, dict)]
            groups = {one.get("name"): one.get("group") for one in tables}
            self.left_out |= {
                name: group if isinstance(group, str) else None
                for name, group in groups.items()
                if isinstance(name, str)
            }
            self._watch_numbers = [number for number in self._watch_numbers if number not in removed]
            self.tree = self.tree | {"watch": [watch for watch in watches if watch is not None]}


def _removable_part(tree: Mapping[str, Any], loc: Location) -> Location:
    """The smallest part to remove because of an error; empty: none may be removed.

    For `[watch.launch]` it is only the one key: `before_stop` must run even if another secret is missing.
    """
    if loc[0] == "database_url":
        return ()
    of_watch = 4 if loc[2:3] == ("launch",) else 3
    max_depth = {"watch": of_watch, "defaults": of_watch, "group": of_watch, "providers": 3, "web": 1}
    location = loc[:1]
    for key in loc[1 : max_depth.get(str(loc[0]), 2)]:
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
