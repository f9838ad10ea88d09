"""Options, validated by their declarations."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.ports.declarations import OptionSpec, web_address
from gpuwatch.ports.settings import Option
from gpuwatch.testing.suite import case
from tests.providers.declared_options import read_options


def short(value: Option) -> None:
    if len(str(value)) > 3:
        raise ValueError("expected at most three letters")


def of(spec: OptionSpec, value: Any) -> tuple[Any, list[str]]:
    values, faults = read_options((spec,), {spec.name: value})
    return values[spec.name], [text for _, text in faults]


def option(kind: Any, **values: Any) -> OptionSpec:
    return OptionSpec(name="x", kind=kind, about="What it is.", **values)


def test_a_value_is_read_as_its_kind() -> None:
    cases: list[Any] = [
        ("text", " a ", "a"),
        ("number", 3, 3.0),
        ("number", "2.5", 2.5),
        ("number", Decimal("0.25"), 0.25),
        ("switch", True, True),
        ("switch", "FALSE", False),
        ("texts", ["a", " b "], ("a", "b")),
        ("texts", "a, b", ("a", "b")),
        ("texts", '["a", "b"]', ("a", "b")),
    ]
    for kind, value, expected in cases:
        with case((kind, value, expected)):
            assert of(option(kind), value) == (expected, [])


def test_a_value_of_another_kind_is_a_fault_and_the_default_stays() -> None:
    cases: list[Any] = [
        ("text", 3), ("text", ""), ("text", "a\nb"), ("number", "x"), ("number", float("inf")), ("number", True),
        ("number", None), ("switch", 1), ("switch", "yes please"), ("texts", []), ("texts", [""]), ("texts", 7),
        ("texts", {"a": 1}), ("texts", "a,,b"),
    ]  # fmt: skip
    for kind, value in cases:
        with case((kind, value)):
            found, faults = of(option(kind, default=None), value)
            assert found is None
            [fault] = faults
            assert fault.startswith("expected ")


def test_choices_and_checks_bind() -> None:
    assert of(option("text", choices=("a", "b")), "c")[1] == ["expected one of a, b"]
    assert of(option("texts", choices=("a", "b")), ["a", "c"])[1] == ["expected one of a, b"]
    assert of(option("text", check=short), "abcd")[1] == ["expected at most three letters"]
    assert of(option("text", check=short), "abc") == ("abc", [])


def test_what_is_needed_and_not_given_is_a_fault() -> None:
    specs = (option("text", needed=True),)
    assert read_options(specs, {})[1] == [("x", "required key is missing; expected: What it is.")]
    assert read_options(specs, {"x": "a"}) == ({"x": "a"}, [])


VALUES: Any = st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=3)


@given(st.sampled_from(["text", "number", "switch", "texts"]), VALUES)
def test_every_value_is_taken_or_reported(kind: str, value: Any) -> None:
    found, faults = of(option(kind), value)
    assert (found is None) == bool(faults)


def test_an_address_is_one_that_can_be_asked() -> None:
    cases: list[Any] = ["ftp://a.example", "nope", "https://", "http:///x", "http://a b", "HTTPX://a"]
    for value in cases:
        with case(value):
            assert of(option("text", check=web_address), value)[1] == ["expected an http(s) address"]
            assert of(option("text", check=web_address), "https://a.example:8080/x.yml?y=1")[1] == []


def test_a_key_may_be_called_like_a_part_of_the_library() -> None:
    cases: list[Any] = ["copy", "json", "model_config", "_hidden"]
    for name in cases:
        with case(name):
            spec = OptionSpec(name=name, kind="text", about="What it is.", default="a")
            assert read_options((spec,), {name: "b"}) == ({name: "b"}, [])
            assert read_options((spec,), {"x": "b"})[1] == [("x", f"unknown key; expected one of {name}")]
