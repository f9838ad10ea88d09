"""Any foreign value becomes a value of ours or None."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.validation import at, decode_json, number, objects, usd_hour, whole, word
from gpuwatch.testing.suite import case

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
NOTHING = [None, True, False, "", " ", "x", "NaN", "nan", "inf", "-Infinity", "1e999", [], {}, [1], {"a": 1}]


def test_what_is_not_json_is_a_changed_payload_that_names_its_provider() -> None:
    cases: list[Any] = [b"", b"<html>", b"{", b'{"a": NaN}', b'"\xff"', b'"\\ud800"', b"[" * 200_000]
    for body in cases:
        with case(body), pytest.raises(PayloadChanged, match=r"^acme: the answer is not JSON$"):
            decode_json(body, "acme")


def test_what_is_no_number_is_none() -> None:
    cases: list[Any] = [*NOTHING, float("nan"), float("inf"), 10**400]
    for value in cases:
        with case(value):
            assert number(value) is None
            assert whole(value) is None
            assert usd_hour(value) is None


def test_a_number_may_stand_in_a_text() -> None:
    cases: list[Any] = [(1, 1.0), (2.5, 2.5), ("2.5", 2.5), (" 3 ", 3.0), ("-1e2", -100.0)]
    for value, expected in cases:
        with case((value, expected)):
            assert number(value) == expected


def test_a_number_outside_its_bounds_is_none() -> None:
    assert (number(4, 4, 5), number(5, 4, 5)) == (4.0, 5.0)
    assert (number(3.999, 4, 5), number(5.001, 4, 5)) == (None, None)
    assert number(2e15) is None


def test_a_whole_number_has_no_fraction_and_is_not_negative() -> None:
    cases: list[Any] = [(8, 8), (8.0, 8), ("8", 8), (8.5, None), (-1, None), (10**8, None)]
    for value, expected in cases:
        with case((value, expected)):
            assert whole(value) == expected


def test_a_price_is_above_zero_and_what_somebody_would_ask() -> None:
    cases: list[Any] = [(0.01, 0.01), ("2.39", 2.39), (0, None), (-0.0, None), (1e-9, None), (-1, None), (10_001, None)]
    for value, expected in cases:
        with case((value, expected)):
            assert usd_hour(value) == expected


def test_a_word_is_cleaned_cut_and_not_empty() -> None:
    assert word(" H100\n\x1b[31m ") == "H100��[31m"
    assert word("\u202eevil") == "�evil"
    assert word("x" * 500, 10) == "x" * 9 + "…"
    assert [word(value) for value in (None, 7, "", "  ", [], {"a": "b"})] == [None] * 6


def test_objects_are_the_objects_of_a_list() -> None:
    assert objects([{"a": 1}, None, 7, "x", [], {}]) == [{"a": 1}, {}]
    assert [objects(value) for value in (None, {"a": 1}, "x", 7)] == [[]] * 4


def test_a_path_ends_where_a_key_is_missing() -> None:
    value = {"a": {"b": {"c": 7}}}
    assert at(value, "a", "b", "c") == 7
    assert at(value) == value
    assert [at(value, *path) for path in (("x",), ("a", "x"), ("a", "b", "c", "d"))] == [None] * 3
    assert at([1], "a") is None


@given(JSON)
def test_no_value_breaks_a_reader(value: object) -> None:
    for read in (number, whole, usd_hour, word, objects, at):
        found = read(value)
        assert found is None or found == value or isinstance(found, (int, float, str, list))
    assert at(value, "a", "b") is None or isinstance(value, dict)
