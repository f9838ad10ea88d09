"""Tables in layers, such as defaults, a group and a watch: which layer sets a key, and what becomes of lists. Pure.

Tables merge key by key, and the nearer layer wins. A list replaces the inherited one, unless it holds "...": that
stands for the inherited entries, in its place, and no entry comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

INHERITED = "..."  # in a list
KeyOf = tuple[str, ...]  # a key below the table: ("launch", "image")


class LayeredTable(msgspec.Struct, frozen=True):
    """The merged table, and for each key at any depth the number of the layer that sets it."""

    table: dict[str, Any]
    layer_of: dict[KeyOf, int]


def merge_layers(
    layers: Sequence[Mapping[str, Any]],
    tables: Collection[KeyOf],
    replaced_by: Callable[[Mapping[str, Any]], Iterable[KeyOf]],
) -> LayeredTable:
    """Merge tables; the later ones win. The given tables do not change.

    Args:
        tables: the keys that merge key by key; a table at another key is one value.
        replaced_by: the inherited keys that a layer replaces by other ones: two ways to say the same.
    """
    merged: dict[str, Any] = {}
    layer_of: dict[KeyOf, int] = {}
    for number, layer in enumerate(layers):
        for key in replaced_by(layer):
            _remove(merged, key)
            layer_of = {path: setter for path, setter in layer_of.items() if path[: len(key)] != key}
        merged = _merged(merged, layer, (), tables)
        layer_of |= dict.fromkeys(_keys(layer, (), tables), number)
    return LayeredTable(merged, layer_of)


def own_entries(value: Any) -> Any:
    """A table without the "..." in its lists, and without the lists that hold nothing else."""
    if isinstance(value, dict):
        return {name: own_entries(one) for name, one in value.items() if one != [INHERITED]}
    return [one for one in value if one != INHERITED] if isinstance(value, list) else value


def _merged(below: Mapping[str, Any], layer: Mapping[str, Any], path: KeyOf, tables: Collection[KeyOf]) -> Any:
    merged = dict(below)
    for name, value in layer.items():
        inherited = below.get(name)
        here = (*path, name)
        if isinstance(value, dict) and here in tables:
            merged[name] = _merged(inherited if isinstance(inherited, dict) else {}, value, here, tables)
        elif isinstance(value, list) and inherited is not None and INHERITED in value:
            merged[name] = _with_inherited(value, inherited if isinstance(inherited, list) else [inherited])
        else:
            merged[name] = value
    return merged


def _with_inherited(own: Iterable[Any], inherited: Iterable[Any]) -> list[Any]:
    entries: list[Any] = []
    for one in own:
        found = inherited if one == INHERITED else (one,)
        entries += [entry for entry in found if entry not in entries]
    return entries


def _keys(layer: Mapping[str, Any], path: KeyOf, tables: Collection[KeyOf]) -> Iterable[KeyOf]:
    for name, value in layer.items():
        here = (*path, name)
        yield here
        if isinstance(value, dict) and here in tables:
            yield from _keys(value, here, tables)


def _remove(table: dict[str, Any], key: KeyOf) -> None:
    *above, name = key
    for part in above:
        inner = table.get(part)
        if not isinstance(inner, dict):
            return
        table[part] = table = dict(inner)
    table.pop(name, None)
