"""Spoils JSON like a hostile or broken server: values of wrong types, missing keys, endless nesting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

_NESTING_MARKER: Final = "@deep@"
_NESTED_JSON: Final = b"[" * 200_000 + b"]" * 200_000
HOSTILE_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, -0.0, 1e308, -1e308, 10**40, 2**63, 0.1, "", " ", "NaN", "Infinity", "-1", "1e999", "17",
    "x" * 5000, "\u202e\0\ud800", "<script>", "\x1b[31m", [], {}, [None], [[]], {"": None}, {"x": {"x": "x"}},
)  # fmt: skip
JUNK: Final[tuple[Any, ...]] = (None, 17, "x", [], True)


def corrupt_body(body: bytes, seed: int, rate: float) -> bytes:
    """Return the answer with hostile values in about `rate` of its places; anything but JSON stays unchanged."""
    value = _decode(body)
    if value is None:
        return body
    rng = Random(seed)  # noqa: S311 - the same seed spoils the same places
    return _encode(_corrupt(value, rng, rate))


def with_junk(body: bytes) -> bytes:
    """Return the answer with invalid entries added to its lists of rows."""
    value = _decode(body)
    if value is None:
        return body
    for rows in _lists_of_objects(value):
        rows[1:1] = JUNK
    return _encode(value)


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode().replace(f'"{_NESTING_MARKER}"'.encode(), _NESTED_JSON)


def _corrupt(value: Any, rng: Random, rate: float) -> Any:
    if isinstance(value, dict):
        items = {key: child for key, child in value.items() if rng.random() > rate / 4}
        return {_key(key, rng, rate): _corrupt(child, rng, rate) for key, child in items.items()}
    if isinstance(value, list):
        return [_corrupt(child, rng, rate) for child in value]
    if rng.random() > rate:
        return value
    return _NESTING_MARKER if rng.random() < 0.002 else rng.choice(HOSTILE_VALUES)


def _key(key: str, rng: Random, rate: float) -> str:
    return f"{key}_" if rng.random() < rate / 20 else key


def _lists_of_objects(value: Any) -> Iterator[list[Any]]:
    child: list[Any] = []
    if isinstance(value, dict):
        child = list(value.values())
    elif isinstance(value, list):
        child = list(value)
        if value and all(isinstance(one, dict) for one in value):
            yield value
    for one in child:
        yield from _lists_of_objects(one)
