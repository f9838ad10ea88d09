"""The rows of a data set: the lines of a file in bounded memory, and the objects in them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from gpuwatch.errors import UsageError

MAX_LINE_BYTES = 16 << 20  # a longer line is skipped

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


def skip_line(path: Path, offset: int) -> int:
    """The offset at which the first line after this one starts. Raises UsageError: the file cannot be read."""
    return next((line.after for line in read_lines(path, offset=offset)), offset)


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


# --- rows -----------------------------------------------------------------------------------------------------------


class UnusableLine(ValueError):
    """A line without usable text; the message is the reason, equal for all lines of a kind."""


def parse_content(content: bytes | None) -> Mapping[str, Any]:
    """Parse the content of a line as an object. Raises UnusableLine."""
    if content is None:
        raise UnusableLine("longer than 16 MiB")
    return parse_json_line(content)


def parse_json_line(line: bytes) -> Mapping[str, Any]:
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
        return json.loads(text, parse_constant=lambda name: {name: None})  # NaN is neither text nor null
    except (ValueError, RecursionError):
        raise UnusableLine("not JSON") from None
