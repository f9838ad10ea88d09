"""Defaults, groups and watches as layers of tables: the nearer wins, tables merge, lists replace or extend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.setup.layered_tables import INHERITED, KeyOf, LayeredTable, merge_layers, own_entries

TABLES = frozenset({("launch",), ("launch", "env")})
_VALUES = st.one_of(st.integers(0, 3), st.lists(st.sampled_from(["a", "b", "c", INHERITED]), max_size=4))
_LAUNCH = st.dictionaries(st.sampled_from(["image", "ports"]), _VALUES, max_size=2).flatmap(
    lambda launch: st.dictionaries(st.sampled_from("XYZ"), st.integers(0, 3), max_size=3).map(
        lambda env: launch | ({"env": env} if env else {})
    )
)
LAYER = st.dictionaries(st.sampled_from(["price", "regions"]), _VALUES, max_size=2).flatmap(
    lambda layer: _LAUNCH.map(lambda launch: layer | ({"launch": launch} if launch else {}))
)
LAYERS = st.lists(LAYER, min_size=1, max_size=4)


def merged(*layers: Mapping[str, Any]) -> LayeredTable:
    return merge_layers(layers, TABLES, lambda _layer: ())


def leaves(table: Mapping[str, Any], path: KeyOf = ()) -> Iterator[tuple[KeyOf, Any]]:
    for name, value in table.items():
        if (*path, name) in TABLES:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


@given(LAYERS)
def test_each_key_has_the_value_of_the_nearest_layer_that_sets_it(layers: list[dict[str, Any]]) -> None:
    found = merged(*layers)
    written = [dict(leaves(layer)) for layer in layers]
    for key, value in leaves(found.table):
        nearest = max(number for number, layer in enumerate(written) if key in layer)
        assert found.layer_of[key] == nearest
        own = written[nearest][key]
        if not isinstance(own, list) or INHERITED not in own:
            assert value == own
    assert dict(leaves(found.table)).keys() == {key for layer in written for key in layer}


@given(LAYERS)
def test_layers_that_set_nothing_change_nothing_and_none_is_changed(layers: list[dict[str, Any]]) -> None:
    before = repr(layers)
    assert merged({}, *layers, {}).table == merged(*layers).table
    assert repr(layers) == before


@given(LAYER, LAYER, LAYER)
def test_merging_in_two_steps_is_merging_at_once(outer: Any, middle: Any, own: Any) -> None:
    assert merged(merged(outer, middle).table, own).table == merged(outer, middle, own).table


@given(st.lists(st.sampled_from("abc"), unique=True), st.lists(st.sampled_from("bcd"), unique=True))
def test_the_inherited_entries_of_a_list_stand_where_the_dots_are_and_none_twice(old: Any, new: Any) -> None:
    found = merged({"regions": old}, {"regions": [*new, INHERITED]}).table["regions"]
    assert found == [*new, *(one for one in old if one not in new)]


@pytest.mark.parametrize(
    ("outer", "own", "regions"),
    [
        ({"regions": ["EU"]}, {"regions": ["NO"]}, ["NO"]),
        ({"regions": ["EU"]}, {"regions": []}, []),
        ({"regions": "EU"}, {"regions": ["...", "NO"]}, ["EU", "NO"]),
        ({}, {"regions": ["...", "NO"]}, ["...", "NO"]),  # nothing is inherited: the schema rejects it
        ({"regions": ["EU"]}, {"regions": "NO"}, "NO"),
    ],
)
def test_a_list_replaces_the_inherited_one_unless_it_names_it(outer: Any, own: Any, regions: Any) -> None:
    assert merged(outer, own).table["regions"] == regions


def test_a_table_that_is_one_value_is_replaced_as_a_whole() -> None:
    assert merged({"count": {"min": 1}}, {"count": {"max": 4}}).table == {"count": {"max": 4}}
    secret = merged({"launch": {"env": {"A": {"from_env": "X"}}}}, {"launch": {"env": {"A": {"from_file": "y"}}}})
    assert secret.table["launch"]["env"] == {"A": {"from_file": "y"}}


def test_another_way_to_say_the_same_replaces_the_inherited_one() -> None:
    def replaced(layer: Mapping[str, Any]) -> list[KeyOf]:
        return [("launch", "onstart_file")] if "onstart" in layer.get("launch", {}) else []

    found = merge_layers(({"launch": {"onstart_file": "a"}}, {"launch": {"onstart": "b"}}), TABLES, replaced)
    assert found.table == {"launch": {"onstart": "b"}}
    assert ("launch", "onstart_file") not in found.layer_of


def test_without_the_dots_a_table_holds_what_is_its_own() -> None:
    assert own_entries({"a": ["...", "x"], "b": ["..."], "c": {"d": ["..."], "e": 1}}) == {"a": ["x"], "c": {"e": 1}}
