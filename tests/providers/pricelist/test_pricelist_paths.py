"""Paths into foreign JSON."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.pricelist.declaration import (
    check_field_path,
    check_rows_path,
    count_entries,
    field_matches,
    field_value,
    first_value,
    rows_of,
)
from gpuwatch.providers.pricelist.declaration import first_text as text_of
from gpuwatch.testing.suite import case

NESTED = {"name": "all", "items": [{"id": "a", "prices": {"eu": {"usd": 1}, "us": {"usd": 2}}}, {"id": "b"}, 5, None]}


def test_a_row_remembers_what_it_lies_in() -> None:
    rows = rows_of(NESTED, "items.*.prices.*", "north")
    assert [(field_value(row, "@key"), field_value(row, "usd"), field_value(row, "../id")) for row in rows] == [
        ("eu", 1, "a"),
        ("us", 2, "a"),
    ]
    assert field_value(rows[0], "../../name") == "all"
    assert field_value(rows[0], ".") == {"usd": 1}
    assert field_value(rows[0], "@place") == "north"
    assert field_value(rows[0], "../../../name") is None


def test_a_star_goes_through_a_list_or_the_values_of_an_object() -> None:
    cases: list[Any] = [
        ([1, 2], "*", [1, 2]),
        ({"a": 1}, "*", [1]),
        ({"a": {"b": [3]}}, "a.b.*", [3]),
        ({"a": []}, "a.*", []),
    ]
    for value, path, found in cases:
        with case((value, path, found)):
            assert [field_value(row, ".") for row in rows_of(value, path)] == found


def test_no_list_where_the_rows_should_be_is_a_changed_format() -> None:
    cases: list[Any] = [None, 5, "text", {}, {"items": None}, {"items": "x"}, [], {"Items": []}]
    for value in cases:
        with case(value), pytest.raises(PayloadChanged):
            rows_of(value, "items.*.prices.*")


def test_the_first_path_with_something_counts() -> None:
    [row] = rows_of([{"a": None, "b": 0, "c": 7}], "*")
    assert first_value(row, ("a", "missing.x", "b", "c")) == 0
    assert first_value(row, ()) is None


def test_a_template_leaves_out_what_is_missing_and_is_nothing_if_all_is() -> None:
    [row] = rows_of([{"model": "h100", "ram": 80, "n": None, "bad": "\u202e\n"}], "*")
    assert text_of(row, ("{model} {socket} {ram}",)) == "h100 80"
    assert text_of(row, ("{n} {socket}", "model")) == "h100"
    assert text_of(row, ("{n}",)) is None
    assert text_of(row, ("bad",)) == "��"


def test_a_text_from_a_template_is_no_longer_than_any_other() -> None:
    [row] = rows_of([{"a": "x" * 5000, "b": "y" * 5000}], "*")
    assert len(text_of(row, ("{a} {b}",)) or "") == 120


def test_words_are_compared_as_texts_and_in_lists() -> None:
    [row] = rows_of([{"a": ["x", "consumption"], "b": False, "n": 0, "none": None}], "*")
    assert field_matches(row, "a", ("consumption",))
    assert not field_matches(row, "a", ("installation",))
    assert field_matches(row, "b", ("false",))
    assert field_matches(row, "n", ("0",))
    assert not field_matches(row, "none", ("none", "null"))


def test_a_page_is_full_of_the_outermost_entries() -> None:
    assert count_entries(NESTED, "items.*.prices.*") == 4
    assert count_entries({"items": 5}, "items.*") == 0


def test_what_is_no_path_to_rows_is_reported() -> None:
    cases: list[Any] = ["", "items", "items..x.*", ".*", "items.*.", "../*", "a.{b}.*"]
    for path in cases:
        with case(path), pytest.raises(ValueError, match="expected a path to rows"):
            check_rows_path(path)


def test_what_is_no_path_to_a_field_is_reported() -> None:
    cases: list[Any] = ["", "a..b", "a.", "/a", "../", "..", "{a..b}", "x {} y", "a.*"]
    for path in cases:
        with case(path), pytest.raises(ValueError, match="expected a path to a field"):
            check_field_path(path)


def test_hostile_nesting_and_keys_lead_nowhere() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    [row] = rows_of([deep], "*")
    assert field_value(row, ".".join(["a"] * 600)) is None
    assert field_value(row, "a.__class__") is None
