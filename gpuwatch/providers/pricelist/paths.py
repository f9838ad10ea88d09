"""Paths into untrusted JSON: to rows, and from a row to its fields. Pure.

A path to rows is keys separated by dots; `*` goes through a list or the values of an object: "items.*.prices.*". A row
keeps its context. A path to a field starts at the row; `../` is the parent (the object that the preceding `*` went
through), `@key` the row's own key, `.` the row itself, `@place` the requested place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.validation import at, word

ROWS_MAX: Final = 200_000
TEXT_MAX: Final = 120
_ROWS_PATH = re.compile(r"(?:[\w@ -]+|\*)(?:\.(?:[\w@ -]+|\*))*")
_FIELD_PATH = re.compile(r"@place|(?:\.\./){0,5}(?:@key|\.|[\w -]+(?:\.[\w -]+)*)")
_BRACES = re.compile(r"\{([^{}]*)\}")

Row = tuple[tuple[str, Any], ...]  # key and value of all parents of the row, outermost first; the last is the row


class _Field(NamedTuple):
    parents_up: int
    keys: tuple[str, ...]


def check_rows_path(path: str) -> None:
    """Check a path to rows. Raises ValueError."""
    if not _ROWS_PATH.fullmatch(path) or "*" not in path.split("."):
        raise ValueError(f"rows: expected a path to rows, such as data.*.prices.*, not {path!r}")


def check_field_path(path: str) -> None:
    """Check a path, or a template with paths in braces. Raises ValueError."""
    for one in _BRACES.findall(path) if "{" in path else [path]:
        if not _FIELD_PATH.fullmatch(one):
            raise ValueError(f"expected a path to a field, such as price.hourly or ../id, not {path!r}")


def rows_of(value: object, path: str, place: str = "") -> list[Row]:
    """Return all rows of an answer.

    Raises:
        PayloadChanged: the path leads to no list or object, or there are far too many rows.
    """
    rows: list[Row] = [((place, value),)]
    for level, keys in enumerate(_levels(path)):
        if level == 0 and not isinstance(at(value, *keys), list | dict):
            raise PayloadChanged(f"no rows at {path}")
        children: list[Row] = []
        for row in rows:
            children += [(*row, pair) for pair in _children(at(row[-1][1], *keys))]
            if len(children) > ROWS_MAX:
                raise PayloadChanged(f"more than {ROWS_MAX} rows")
        rows = children
    return rows


def count_entries(value: object, path: str) -> int:
    """Return the number of entries of the outermost list or object of rows, to detect a full page."""
    rows = at(value, *_levels(path)[0])
    return len(rows) if isinstance(rows, list | dict) else 0


def field_value(row: Row, path: str) -> Any:
    """Return the value at a path, relative to a row; None: nothing."""
    if path == "@place":
        return row[0][0] or None
    parents_up, keys = _parse_path(path)
    if parents_up >= len(row):
        return None
    key, value = row[-1 - parents_up]
    if keys == ("@key",):
        return key
    return value if keys == (".",) else at(value, *keys)


def first_value(row: Row, paths: Sequence[str]) -> Any:
    """Return the value at the first path that has one."""
    return next((found for path in paths if (found := field_value(row, path)) is not None), None)


def template_texts(row: Row, templates: Sequence[str]) -> Iterator[str]:
    """Return the cleaned texts of templates for a row, in order; leaves out texts without a value.

    A template without braces is a path.
    """
    for template in templates:
        filled = _BRACES.sub(lambda found: _text(field_value(row, found[1])), template) if "{" in template else None
        cleaned = _text(" ".join(filled.split())) if filled is not None else _text(field_value(row, template))
        if cleaned:
            yield cleaned


def first_text(row: Row, templates: Sequence[str]) -> str | None:
    """Return the first of `template_texts`."""
    return next(template_texts(row, templates), None)


def field_matches(row: Row, path: str, wanted: Sequence[str]) -> bool:
    """Whether a field, or an entry if it is a list, is one of these texts. A boolean is "true" or "false"."""
    value = field_value(row, path)
    return any(_value_text(one) in wanted for one in (value if isinstance(value, list) else [value]))


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = format(value) if abs(value) < 10**18 else ""
    return word(value, TEXT_MAX) or ""


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else _text(value)


@cache
def _levels(path: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys before each `*`."""
    levels, keys = [], list[str]()
    for step in path.split("."):
        if step == "*":
            levels.append(tuple(keys))
            keys = []
        else:
            keys.append(step)
    return tuple(levels)


@cache
def _parse_path(path: str) -> _Field:
    parents_up = 0
    while path.startswith("../"):
        parents_up, path = parents_up + 1, path[3:]
    return _Field(parents_up, (path,) if path == "." else tuple(path.split(".")))


def _children(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return [("", one) for one in value] if isinstance(value, list) else []
