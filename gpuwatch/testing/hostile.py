"""Spoils JSON like a hostile or broken server: values of wrong types, missing keys, endless nesting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

_DEEP: Final = "@deep@"
_DEEP_JSON: Final = b"[" * 200_000 + b"]" * 200_000
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, -0.0, 1e308, -1e308, 10**40, 2**63, 0.1, "", " ", "NaN", "Infinity", "-1", "1e999", "17",
    "x" * 5000, "\u202e\0\ud800", "<script>", "\x1b[31m", [], {}, [None], [[]], {"": None}, {"x": {"x": "x"}},
)  # fmt: skip
JUNK: Final[tuple[Any, ...]] = (None, 17, "x", [], True)


def spoiled(body: bytes, seed: int, rate: float) -> bytes:
    """Return the answer with hostile values in about `rate` of its places; anything but JSON stays unchanged."""
    value = _read(body)
    if value is None:
        return body
    dice = Random(seed)  # noqa: S311 - the same seed spoils the same places
    return _written(_spoil(value, dice, rate))


def with_junk(body: bytes) -> bytes:
    """Return the answer with invalid entries added to its lists of rows."""
    value = _read(body)
    if value is None:
        return body
    for rows in _lists_of_objects(value):
        rows[1:1] = JUNK
    return _written(value)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _written(value: Any) -> bytes:
    return json.dumps(value).encode().replace(f'"{_DEEP}"'.encode(), _DEEP_JSON)


def _spoil(value: Any, dice: Random, rate: float) -> Any:
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if dice.random() > rate / 4}
        return {_key(key, dice, rate): _spoil(inner, dice, rate) for key, inner in kept.items()}
    if isinstance(value, list):
        return [_spoil(inner, dice, rate) for inner in value]
    if dice.random() > rate:
        return value
    return _DEEP if dice.random() < 0.002 else dice.choice(VALUES)


def _key(key: str, dice: Random, rate: float) -> str:
    return f"{key}_" if dice.random() < rate / 20 else key


def _lists_of_objects(value: Any) -> Iterator[list[Any]]:
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list):
        inner = list(value)
        if value and all(isinstance(one, dict) for one in value):
            yield value
    for one in inner:
        yield from _lists_of_objects(one)
