"""The fields of a row that hold its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuwatch.dataset.text_rows import FieldSelection, has_text, texts_of
from gpuwatch.domain.market.text import clean
from gpuwatch.errors import UsageError

_SHAPES: tuple[tuple[str, ...], ...] = (  # the first that fits; its later fields also belong to the text
    ("messages",),
    ("conversations",),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("prompt", "chosen", "rejected"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("text",),
    ("content",),
)
_FITS = 0.9  # share of the first rows
_IN_ERROR, _IN_REPORT = 8, 100  # number of field names shown


def select_fields(rows: Sequence[Mapping[str, Any]], field_names: tuple[str, ...]) -> FieldSelection:
    """Select the named fields, those of a known row format, or the longest one.

    Args:
        rows: the first rows that are objects.
        field_names: empty: select by the rows.

    Raises:
        UsageError: no field contains text.
    """
    with_text = {field for row in rows for field in row if has_text(row, field)}
    present = {field for row in rows for field in row}
    selected = field_names or _known_shape(rows) or _longest_fields(rows)
    if not selected or not with_text & set(selected):
        seen = ", ".join(_names(with_text)[:_IN_ERROR])
        raise UsageError(
            f"no text in {', '.join(field_names) or 'any field'} of the first {len(rows)} rows"
            + (f"; --field may name one of these: {seen}" if seen else "")
        )
    return FieldSelection(fields=selected, guessed=not field_names, others=_names(present - set(selected)))


def _names(fields: set[str]) -> tuple[str, ...]:
    """Field names, safe to show: the author of the file chose them."""
    return tuple(clean(field) for field in sorted(fields)[:_IN_REPORT])


def _known_shape(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    for shape in _SHAPES:
        matching = sum(
            all(has_text(row, field) or (field == "input" and field in row) for field in shape) for row in rows
        )
        if rows and matching >= _FITS * len(rows):
            return shape
    return ()


def _longest_fields(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The field with the most text; an object or a list counts only if no field is a text itself."""
    for is_plain in (True, False):
        lengths: dict[str, int] = {}
        for row in rows:
            for field, value in row.items():
                if isinstance(value, str) or not is_plain:
                    lengths[field] = lengths.get(field, 0) + sum(map(len, texts_of([value])[0]))
        if any(lengths.values()):
            return (max(lengths, key=lambda field: (lengths[field], field)),)
    return ()
