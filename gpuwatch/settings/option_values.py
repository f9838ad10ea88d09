"""Keys that one provider or plugin alone knows, judged by what it declares of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.ports.settings import Option

OptionError = tuple[str, str]  # key, what was expected


class HasOptions(Protocol):
    """A `ProviderInfo` or `NotifierInfo`."""

    @property
    def options(self) -> tuple[OptionSpec, ...]: ...


def read_options(info: HasOptions, given: Mapping[str, Any]) -> tuple[dict[str, Option], list[OptionError]]:
    """Every option with its value or default, and what is wrong with those that were given."""
    specs = {spec.name: spec for spec in info.options}
    values: dict[str, Option] = {spec.name: spec.default for spec in info.options}
    faults: list[OptionError] = []
    for key, value in given.items():
        if key not in specs:
            faults.append((key, _unknown(key, specs)))
            continue
        try:
            values[key] = read_option(specs[key], value)
        except ValueError as error:
            faults.append((key, str(error)))
    faults += [(spec.name, f"it is missing; expected: {spec.about}") for spec in info.options if _lacks(spec, given)]
    return values, faults


def read_option(spec: OptionSpec, value: Any) -> Option:
    """One value as its option needs it. Raises ValueError with what was expected."""
    found = spec.parse(value) if spec.parse is not None else _READ[spec.kind](value, spec)
    if spec.check is not None:
        spec.check(found)
    return found


def _lacks(spec: OptionSpec, given: Mapping[str, Any]) -> bool:
    return spec.needed and given.get(spec.name) is None


def _unknown(key: str, specs: Mapping[str, OptionSpec]) -> str:
    near = get_close_matches(key.lower(), specs, n=1, cutoff=0.6)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; expected one of {', '.join(specs)}" if specs else "unknown key; it has no options"


def _text(value: Any, spec: OptionSpec) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("expected text in quotes, on one line")
    if spec.choices and value not in spec.choices:
        raise ValueError(f"expected one of {', '.join(spec.choices)}")
    return value.strip()


def _texts(value: Any, spec: OptionSpec) -> tuple[str, ...]:
    if isinstance(value, str):  # one word, or as the environment gives a list
        value = [part.strip() for part in value.strip("[]").replace('"', "").split(",")]
    if not isinstance(value, Sequence) or not value:
        raise ValueError('expected a list of texts, such as ["one", "two"]')
    return tuple(_text(one, spec) for one in value)


def _number(value: Any, spec: OptionSpec) -> float:
    wrong = f"expected a {'whole number' if spec.kind == 'integer' else 'number'}{_bounds(spec)}"
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise ValueError(wrong) from None
    if not math.isfinite(number) or not _is_within(number, spec):
        raise ValueError(wrong)
    return number


def _integer(value: Any, spec: OptionSpec) -> int:
    number = _number(value, spec)
    if number != int(number):
        raise ValueError(f"expected a whole number{_bounds(spec)}")
    return int(number)


def _is_within(number: float, spec: OptionSpec) -> bool:
    return (spec.least is None or number >= spec.least) and (spec.most is None or number <= spec.most)


def _bounds(spec: OptionSpec) -> str:
    if spec.least is not None and spec.most is not None:
        return f" from {spec.least:g} to {spec.most:g}"
    return f" of at least {spec.least:g}" if spec.least is not None else ""


def _id(value: Any, spec: OptionSpec) -> str:
    """Text, or a whole number as its digits."""
    return _text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, spec)


def _switch(value: Any, _spec: OptionSpec) -> bool:
    found = {"true": True, "false": False}.get(str(value).lower()) if isinstance(value, bool | str) else None
    if found is None:
        raise ValueError("expected true or false")
    return found


_READ: Mapping[str, Callable[[Any, OptionSpec], Option]] = {
    "text": _text,
    "texts": _texts,
    "id": _id,
    "number": _number,
    "integer": _integer,
    "switch": _switch,
}
