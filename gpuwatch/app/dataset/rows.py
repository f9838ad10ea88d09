"""The rows of a data set: the lines of a file in bounded memory, and the text in their fields."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from gpuwatch.domain.market.text import clean
from gpuwatch.errors import UsageError

MAX_LINE_BYTES = 16 << 20  # a longer line is skipped
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
_MESSAGE_KEYS = ("content", "value", "text")


# --- lines ------------------------------------------------------------------------------------------------------------


class FileLine(NamedTuple):
    """One line. `content` includes its line end; None: the line is too long."""

    number: int  # from 0
    content: bytes | None
    length: int  # bytes
    after: int  # where the next line starts


def read_lines(path: Path, number: int = 0, offset: int = 0) -> Iterator[FileLine]:
    """Read from line `number` on, which starts at byte `offset` (uncompressed).

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with open_lines(path) as file:
            file.seek(offset)
            while line := file.readline(MAX_LINE_BYTES + 1):
                length = len(line)
                if length > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    length += _skip_rest(file)
                offset += length
                yield FileLine(number, line if length <= MAX_LINE_BYTES else None, length, offset)
                number += 1
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def open_lines(path: Path, mode: str = "rb") -> IO[bytes]:
    """Open a file, through gzip if its name ends in .gz."""
    return gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode)  # type: ignore[return-value]


def _skip_rest(file: IO[bytes]) -> int:
    """Skip the rest of a line and return its length in bytes."""
    skipped = 0
    while part := file.readline(MAX_LINE_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


# --- the text of a row ------------------------------------------------------------------------------------------------


class UnusableLine(ValueError):
    """A line without usable text; the message is the reason, equal for all lines of a kind."""


def parse_content(content: bytes | None) -> Mapping[str, Any]:
    """Parse the content of a line as an object. Raises UnusableLine."""
    if content is None:
        raise UnusableLine("longer than 16 MiB")
    return parse_line(content)


def parse_line(line: bytes) -> Mapping[str, Any]:
    """Parse one line as an object. Raises UnusableLine."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        raise UnusableLine("empty line")
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: not UTF-8
        row = _parse_leniently(line)
    if not isinstance(row, dict):
        raise UnusableLine("not a JSON object")
    return row


def _parse_leniently(line: bytes) -> Any:
    """Accept what Python writes although it is not JSON: NaN, and single surrogates."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableLine("not UTF-8") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableLine("not JSON") from None


def row_text(row: Mapping[str, Any], fields: Sequence[str]) -> tuple[str, bytes]:
    """The text of a row, and a digest that is unique to its parts, even if other parts join to the same text.

    Raises:
        UnusableLine: the fields contain no text.
    """
    value = row.get(fields[0])
    if len(fields) == 1 and isinstance(value, str) and value.isascii() and not value.isspace() and value:  # shortcut
        return value, hashlib.blake2b(msgspec.json.encode([[value]]), digest_size=16).digest()
    parts = [[_without_surrogates(part) for part in _texts_in(row.get(field)) if part.strip()] for field in fields]
    text = "\n".join(part for field in parts for part in field)
    if not text:
        raise UnusableLine(f"no text in {', '.join(fields)}")
    return text, hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def _without_surrogates(part: str) -> str:
    """Replace single surrogates, which no encoding accepts."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode("utf-8")


def _texts_in(value: Any) -> Iterable[str]:
    """A text, or the texts of a conversation's messages, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                yield item
            elif isinstance(item, dict):
                yield from next(([item[key]] for key in _MESSAGE_KEYS if isinstance(item.get(key), str)), _parts(item))


def _parts(message: Mapping[str, Any]) -> Iterable[str]:
    """The text parts of a message with several parts, as vision models have them."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


# --- the fields that contain the text ---------------------------------------------------------------------------------


class FieldSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are read and compared."""

    fields: tuple[str, ...]
    guessed: bool
    others: tuple[str, ...] = ()  # fields that are ignored


def select_fields(rows: Sequence[Mapping[str, Any]], field_names: tuple[str, ...]) -> FieldSelection:
    """Select the named fields, those of a known row format, or the longest one.

    Args:
        rows: the first rows that are objects.
        field_names: empty: select by the rows.

    Raises:
        UsageError: no field contains text.
    """
    with_text = {field for row in rows for field in row if _has_text(row, field)}
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
            all(_has_text(row, field) or (field == "input" and field in row) for field in shape) for row in rows
        )
        if rows and matching >= _FITS * len(rows):
            return shape
    return ()


def _longest_fields(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    lengths: dict[str, int] = {}
    for row in rows:
        for field in row:
            if isinstance(row[field], str) and row[field].strip():
                lengths[field] = lengths.get(field, 0) + len(row[field])
    return (max(lengths, key=lambda field: (lengths[field], field)),) if lengths else ()


def _has_text(row: Mapping[str, Any], field: str) -> bool:
    return any(part.strip() for part in _texts_in(row.get(field)))
