"""The lines of a file one after another, whatever is in them, in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from gpuwatch.errors import UsageError

MAX_LINE_BYTES = 16 << 20  # bytes of one line; a longer one is passed over


class FileLine(NamedTuple):
    """One line. `content` holds its end, too; None: it is too long."""

    number: int  # from 0
    content: bytes | None
    length: int  # bytes
    after: int  # where the next one begins


def read_lines(path: Path, number: int = 0, offset: int = 0) -> Iterator[FileLine]:
    """From line `number` on, which begins at byte `offset` (of what a compressed file holds).

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with open_lines(path) as file:
            file.seek(offset)
            while line := file.readline(MAX_LINE_BYTES + 1):
                length = len(line)
                if length > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    length += _passed_over(file)
                offset += length
                yield FileLine(number, line if length <= MAX_LINE_BYTES else None, length, offset)
                number += 1
    except (OSError, EOFError, zlib.error) as fault:
        raise UsageError(f"{path}: it cannot be read: {getattr(fault, 'strerror', None) or fault}") from fault


def open_lines(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked if it is gzipped."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _passed_over(file: IO[bytes]) -> int:
    """The rest of a line. Returns its bytes."""
    passed = 0
    while part := file.readline(MAX_LINE_BYTES):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed
