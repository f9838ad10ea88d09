"""Files of price rows, read: CSV (also gzipped) and Parquet, in the nine columns of `analysis.price_rows`.

What a file is shows its first bytes, whatever it is called. Rows are handed out one by one: a file may be bigger than
the memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from gpuwatch.domain.analysis.price_rows import PriceRow, missing_columns, read_row
from gpuwatch.domain.market.text import unescape_formula
from gpuwatch.errors import UsageError

OnBytesRead = Callable[[int, int], None]  # bytes done, bytes in all
CsvCells = Mapping[str, str | None]

_LONGEST_LINE = 100_000  # letters
_PROGRESS_EVERY = 5000  # rows
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


class ReadRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds. `skipped`: reason → rows that could not be understood."""

    rows: list[PriceRow]
    skipped: Mapping[str, int]


def read_rows(path: Path) -> ReadRows:
    """All rows of a file.

    Raises:
        UsageError: it cannot be read, or a column is missing.
    """
    skipped: Counter[str] = Counter()
    rows = list(rows_in(path, skipped))
    return ReadRows(rows=rows, skipped=dict(skipped))


def rows_in(
    path: Path, skipped: Counter[str], on_progress: OnBytesRead = lambda done, total: None
) -> Iterator[PriceRow]:
    """The rows of a file, one after the other.

    Args:
        skipped: is added to: reason → rows that could not be understood.
        on_progress: called now and then with the bytes read, and all bytes.

    Raises:
        UsageError: it cannot be read, or a column is missing.
    """
    try:
        for cells in _cells(path, on_progress):
            try:
                row = read_row(cells)
            except ValueError as fault:
                skipped[str(fault)] += 1
            else:
                yield row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as fault:
        raise UsageError(f"{path}: it cannot be read: {fault}") from fault


def _cells(path: Path, on_progress: OnBytesRead) -> Iterator[CsvCells]:
    if not path.is_file():
        raise UsageError(f"{path}: it is not a file")
    with path.open("rb") as raw:
        first = raw.read(4)
        raw.seek(0)
        if first == _PARQUET:
            from gpuwatch.storage.parquet_files import parquet_cells  # noqa: PLC0415 an extra, and slow to come

            yield from parquet_cells(path, on_progress)
            return
        size = path.stat().st_size
        with _text(raw, zipped=first[:2] == _GZIP) as text:
            reader = csv.DictReader(_lines(path, text))
            if missing := missing_columns(reader.fieldnames or ()):
                raise UsageError(f"{path}: these columns are missing: {', '.join(missing)}")
            for number, cells in enumerate(reader):
                if not number % _PROGRESS_EVERY:
                    on_progress(raw.tell(), size)
                yield {column: unescape_formula(text) if text else text for column, text in cells.items() if column}
    on_progress(size, size)


@contextmanager
def _text(raw: IO[bytes], *, zipped: bool) -> Iterator[IO[str]]:
    inner: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
    with io.TextIOWrapper(inner, encoding="utf-8-sig", newline="") as text:
        yield text


def _lines(path: Path, text: IO[str]) -> Iterator[str]:
    """Lines of a bounded length: what is no CSV may be one line of gigabytes."""
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise UsageError(f"{path}: a line has more than {_LONGEST_LINE:,} letters: it does not contain price rows")
        yield line
