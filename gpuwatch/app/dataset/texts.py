"""The text of a row: which fields hold it, and how they become one text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpuwatch.domain.market.text import clean
from gpuwatch.errors import UsageError

_SHAPES: tuple[
    tuple[str, ...], ...
] = (  # the first that fits; what comes after the first fields belongs to the text, too
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
_FITS = 0.9  # of the first rows
_NAMED, _KEPT = 8, 100  # fields in a line, and in the report
_SPOKEN = ("content", "value", "text")  # of one message


class UnusableLine(ValueError):
    """A line that holds no text; its text is the reason, the same for all lines of a kind."""


class FieldSelection(msgspec.Struct, frozen=True, kw_only=True):
    """How a file's rows are read."""

    fields: tuple[str, ...]
    guessed: bool
    others: tuple[str, ...] = ()  # fields that are not looked at


def parse_line(line: bytes) -> Mapping[str, Any]:
    """One line as an object. Raises NotARow."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        raise UnusableLine("empty line")
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: not UTF-8
        found = _parsed_slowly(line)
    if not isinstance(found, dict):
        raise UnusableLine("not a JSON object")
    return found


def _parsed_slowly(line: bytes) -> Any:
    """What Python writes and JSON has not: NaN, and half of a surrogate pair."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableLine("not UTF-8") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableLine("not JSON") from None


def row_text(row: Mapping[str, Any], fields: Sequence[str]) -> tuple[str, bytes]:
    """The text of a row, and a digest that no other parts have, even if they make the same text. Raises NotARow."""
    parts = [[_whole(part) for part in _spoken(row.get(field)) if part.strip()] for field in fields]
    text = "\n".join(part for field in parts for part in field)
    if not text:
        raise UnusableLine(f"no text in {', '.join(fields)}")
    return text, hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def _whole(part: str) -> str:
    """Without halves of surrogate pairs, which no encoding has."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode("utf-8")


def _spoken(value: Any) -> Iterable[str]:
    """A text, or what the messages of a conversation say, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, str):
                yield one
            elif isinstance(one, dict):
                yield from next(([one[key]] for key in _SPOKEN if isinstance(one.get(key), str)), _parts(one))


def _parts(message: Mapping[str, Any]) -> Iterable[str]:
    """A message whose content is in parts, as of models that see pictures."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def select_fields(rows: Sequence[Mapping[str, Any]], named: tuple[str, ...]) -> FieldSelection:
    """Which fields hold the text: those that were named, or those that a known shape of row has, or the longest.

    Args:
        rows: the first ones that are objects.

    Raises:
        UsageError: no field holds any text.
    """
    with_text = {field for row in rows for field in row if _has(row, field)}
    there = {field for row in rows for field in row}
    chosen = named or _known(rows) or _longest(rows)
    if not chosen or not with_text & set(chosen):
        seen = ", ".join(_named(with_text)[:_NAMED])
        raise UsageError(
            f"no text in {', '.join(named) or 'any field'} of the first {len(rows)} rows"
            + (f"; --field may name one of these: {seen}" if seen else "")
        )
    return FieldSelection(fields=chosen, guessed=not named, others=_named(there - set(chosen)))


def _named(fields: set[str]) -> tuple[str, ...]:
    """Names to be shown: whoever wrote the file chose them."""
    return tuple(clean(field) for field in sorted(fields)[:_KEPT])


def _known(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    for shape in _SHAPES:
        fitting = sum(all(_has(row, field) or (field == "input" and field in row) for field in shape) for row in rows)
        if rows and fitting >= _FITS * len(rows):
            return shape
    return ()


def _longest(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    lengths: dict[str, int] = {}
    for row in rows:
        for field in row:
            if isinstance(row[field], str) and row[field].strip():
                lengths[field] = lengths.get(field, 0) + len(row[field])
    return (max(lengths, key=lambda field: (lengths[field], field)),) if lengths else ()


def _has(row: Mapping[str, Any], field: str) -> bool:
    return any(part.strip() for part in _spoken(row.get(field)))
