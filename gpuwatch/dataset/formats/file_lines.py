"""One row of a file as a line of JSON, whatever the format of the file, and files of JSON lines themselves."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

MAX_LINE_BYTES = 16 << 20  # a longer line is skipped
TOO_LONG: Final = "longer than 16 MiB"
_PIECE = 1 << 20  # bytes


class DamagedFile(ValueError):
    """A file that breaks the rules of its format; the message says what is wrong, and where."""


class FileLine(NamedTuple):
    """One row. `content` is JSON, with its line end if the file has lines; a text says why the row cannot be read."""

    number: int  # from 0
    content: bytes | str
    length: int  # bytes in the file; of its JSON in Parquet and Arrow, whose rows have no size of their own
    after: int  # where the next line starts: a byte (uncompressed), in Parquet and Arrow a row


class RowCopier(Protocol):
    """Writes rows of a file to a new file of the same format, in their order."""

    def write(self, line: FileLine) -> None: ...

    def close(self) -> None:
        """Complete the file, which stays open."""


def is_packed(path: Path) -> bool:
    """Is it read through gzip?"""
    return path.suffix.lower() in {".gz", ".tgz"}


def open_bytes(path: Path, mode: str = "rb") -> IO[bytes]:
    """Open a file, through gzip if its name ends in .gz."""
    return gzip.open(path, mode) if is_packed(path) else path.open(mode)  # type: ignore[return-value]


def byte_extent(path: Path) -> int:
    """The size of a file in bytes; 0: unknown, because it is compressed."""
    return 0 if is_packed(path) else path.stat().st_size


def read_json_lines(path: Path, number: int, offset: int) -> Iterator[FileLine]:
    """The lines from one on, which starts at this byte."""
    with open_bytes(path) as file:
        file.seek(offset)
        while line := file.readline(MAX_LINE_BYTES + 1):
            length = len(line)
            if length > MAX_LINE_BYTES and not line.endswith(b"\n"):
                length += _skip_rest(file)
            offset += length
            yield FileLine(number, line if length <= MAX_LINE_BYTES else TOO_LONG, length, offset)
            number += 1


def _skip_rest(file: IO[bytes]) -> int:
    """Skip the rest of a line and return its length in bytes."""
    skipped = 0
    while part := file.readline(MAX_LINE_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


class ByteCopier:
    """Copies the bytes of rows. The source is read forwards once more, which gzip can do without starting over."""

    def __init__(self, source: Path, target: IO[bytes], end: bytes = b"") -> None:
        self._source, self._target, self._end = source, target, end
        self._file: IO[bytes] | None = None

    def write(self, line: FileLine) -> None:
        """Copy a row; a large one in pieces."""
        if self._file is None:
            self._file = open_bytes(self._source)
        self._file.seek(line.after - line.length)
        left = line.length
        while left and (piece := self._file.read(min(left, _PIECE))):
            self._target.write(piece)
            left -= len(piece)

    def close(self) -> None:
        self._target.write(self._end)
        if self._file is not None:
            self._file.close()


class JsonLineCopier(ByteCopier):
    """Copies lines, whose bytes are at hand unless they are too long for memory."""

    def write(self, line: FileLine) -> None:
        if isinstance(line.content, bytes):
            self._target.write(line.content)
        else:
            super().write(line)
