"""Best-effort settings for stopping: invalid parts are ignored, so that they never prevent stopping a launch.

Nothing is rented with them. A provider with a doubtful address or key is ignored completely: at a wrong address an
instance would seem to be gone. The database must be right: another one contains no launch to stop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from gpuwatch import providers
from gpuwatch.domain.watches.schema import WatchTable
from gpuwatch.domain.watches.watch import Action
from gpuwatch.settings.errors import InvalidSettings, Location, error_line
from gpuwatch.settings.interpolation import ResolvedSettings, resolve
from gpuwatch.settings.model import Settings
from gpuwatch.settings.options import KeyPath
from gpuwatch.settings.sources import ExternalValue, Sources, UnreadableValues
from gpuwatch.settings.validate import validate

_IN_DOUBT = ("base_url", "api_key", "previous_api_key", "options")  # an option may set the account or region to search
_OFF = {"enabled": False}
_NEEDED = frozenset(name for name, field in WatchTable.model_fields.items() if field.is_required())


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
    rest = _RemainingTables(tree, sources, origins)
    for path, text in unreadable:
        rest.lose(path, text)
    while True:
        resolved = resolve(rest.tree, sources)
        try:
            found = validate(resolved, sources, origins, known_spellings)
        except InvalidSettings as error:
            before = rest.tree
            rest.leave_out(error.found)
            if rest.tree == before:  # the database, which must not be ignored
                raise
        else:
            return BestEffortSettings(
                settings=_harmless(found, rest.left_out), resolved=resolved, lines=tuple(rest.lines)
            )


def _harmless(settings: Settings, left_out: Sequence[str]) -> Settings:
    watches = tuple(msgspec.structs.replace(watch, action=Action.ALERT) for watch in settings.watches)
    return msgspec.structs.replace(settings, dry_run=True, watches=watches, left_out=tuple(left_out))


class _RemainingTables:
    """Tables that shrink. The given tables do not change: the line numbers of errors refer to them."""

    def __init__(self, tree: dict[str, Any], sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> None:
        self._whole, self._sources, self._origins = tree, sources, origins
        self._numbers = list(range(len(_watches(tree))))  # of the remaining watches, in the file
        self.tree = tree
        self.lines: list[str] = []
        self.left_out: list[str] = []

    def lose(self, path: KeyPath, text: str) -> None:
        """Ignore a value from outside the file that could not be read."""
        self.lines.append(f"{text}; ignored")
        if path[:1] == ("providers",):  # it may have been the provider's address
            self.tree = _without(self.tree, path[:2])

    def leave_out(self, found: Sequence[tuple[Location, str]]) -> None:
        """Remove invalid parts, with a line for each."""
        cuts = [_cut(self.tree, loc) for loc, _ in found]
        for (loc, text), cut in zip(found, cuts, strict=True):
            reason = error_line(self._in_file(loc), text, self._sources, self._whole, self._origins)
            self.lines.append(f"{reason}; {_name(cut)} is ignored")
        for cut in dict.fromkeys(cuts):
            self.tree = _without(self.tree, cut)
        self._drop_watches()

    def _in_file(self, loc: Location) -> Location:
        if loc[0] == "watch" and len(loc) > 1 and isinstance(loc[1], int):
            return ("watch", self._numbers[loc[1]], *loc[2:])
        return loc

    def _drop_watches(self) -> None:
        """Remove watches without any valid part."""
        left = _watches(self.tree)
        gone = [number for number, watch in zip(self._numbers, left, strict=False) if watch is None]
        if gone:
            names = [one.get("name") for one in map(_watches(self._whole).__getitem__, gone) if isinstance(one, dict)]
            self.left_out += [name for name in names if isinstance(name, str)]
            self._numbers = [number for number in self._numbers if number not in gone]
            self.tree = self.tree | {"watch": [watch for watch in left if watch is not None]}


def _cut(tree: Mapping[str, Any], loc: Location) -> Location:
    """The smallest part to remove because of an error; empty: none may be removed.

    For `[watch.launch]` it is only the one key: `before_stop` must run even if another secret is missing.
    """
    if loc[0] == "database_url":
        return ()
    most = {"watch": 4 if loc[2:3] == ("launch",) else 3, "providers": 3, "web": 1}.get(str(loc[0]), 2)
    there = loc[:1]
    for part in loc[1:most]:
        if not _has(_at(tree, there), part):
            break
        there = (*there, part)
    if there[0] == "watch" and len(loc) > 2 and (loc[2] in _NEEDED or len(there) == 2):
        return there[:2]
    if loc[0] == "providers" and len(there) > 2 and _is_in_doubt(str(there[2])):
        return there[:2]
    return there


def _without(tree: dict[str, Any], cut: Location) -> dict[str, Any]:
    """The tables without one part. A provider is disabled instead, because some are enabled by default."""
    if cut[:1] == ("providers",) and len(cut) <= 2:
        return switched_off(tree, cut)
    found: dict[str, Any] = removed(tree, cut)
    return found


def switched_off(tree: dict[str, Any], cut: Location) -> dict[str, Any]:
    """The tables with one provider disabled; `("providers",)`: with all disabled."""
    table = tree.get("providers")
    kept = {name: one for name, one in table.items() if name != cut[-1]} if isinstance(table, dict) else {}
    known = [name for name in providers.names() if len(cut) == 1 or name == cut[1]]
    return tree | {"providers": kept | dict.fromkeys(known, _OFF)}


def removed(tree: Any, cut: Location) -> Any:
    """A copy without one part; in a list None replaces it, so that the other indexes do not change."""
    if not cut or not _has(tree, cut[0]):
        return tree
    head, rest = cut[0], cut[1:]
    if isinstance(tree, list):
        return [(removed(one, rest) if rest else None) if i == head else one for i, one in enumerate(tree)]
    return tree | {head: removed(tree[head], rest)} if rest else {k: v for k, v in tree.items() if k != head}


def _has(tree: Any, part: int | str) -> bool:
    return part in tree if isinstance(tree, dict) else isinstance(tree, list) and isinstance(part, int)


def _at(tree: Any, path: Location) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _is_in_doubt(key: str) -> bool:
    """Is this the address or the key, or a misspelling of either?"""
    return bool(get_close_matches(key.lower(), _IN_DOUBT, n=1, cutoff=0.6))


def _name(cut: Location) -> str:
    if cut[:1] == ("watch",) and len(cut) > 1:
        return ".".join(map(str, cut[2:])) or "this watch"  # a key of the watch is named as in the error
    return ".".join(map(str, cut)) or "nothing"


def _watches(tree: Mapping[str, Any]) -> list[Any]:
    found = tree.get("watch")
    return found if isinstance(found, list) else []
