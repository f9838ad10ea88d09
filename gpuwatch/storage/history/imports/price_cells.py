"""Price files on their way in: the cells of CSV in batches, and the rows between two passes in a temporary file.

A batch holds for each column its distinct texts, and the index of each row's text. If the extra `analysis` is
installed, pyarrow reads CSV (also gzipped) in a seventh of the time. Python's own reader takes over where the two might
differ, so that the cells are the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np

from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_columns import PriceColumns
from gpuwatch.domain.history.price_rows import COLUMNS, PriceRow, missing_columns
from gpuwatch.errors import UsageError

OnBytesRead = Callable[[int, int], None]  # bytes done, total bytes
BATCH_ROWS = 100_000
_BLOCK_BYTES = 8 << 20
_MAX_BLOCK_BYTES = 8 * _BLOCK_BYTES  # an unclosed quote must not load the whole file into memory
_FIRST_LINE = 2  # after the header
_MAX_LINE_LENGTH = 100_000  # characters
_GZIP = b"\x1f\x8b"
_ROW = np.dtype([("offer", "<i4"), ("at_s", "<i8"), ("microusd", "<i8")])


class CellColumn(NamedTuple):
    """One column of a batch."""

    codes: Ints  # for each row the index of its text
    texts: Sequence[str]  # almost always distinct


class CellBatch(NamedTuple):
    """A batch of rows of a file."""

    columns: Sequence[CellColumn]  # in the order of COLUMNS
    lines: Ints  # line number of each row; in Parquet the row number, from 1


def csv_batches(path: Path, on_progress: OnBytesRead) -> Iterator[CellBatch]:
    """Yield the cells of CSV. Raises UsageError: the file cannot be read, or a column is missing."""
    try:
        row_count = yield from _arrow_cells(path, on_progress)
        if row_count is not None:
            yield from _plain_cells(path, on_progress, row_count)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as fault:
        raise UsageError(f"cannot read {path}: {fault}") from fault


def encode_column(values: Iterable[str]) -> CellColumn:
    """Build a column from its cells."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return CellColumn(np.array(codes, np.int64), list(numbers))


@contextmanager
def _binary(path: Path) -> Iterator[tuple[Any, IO[bytes]]]:
    """Open a file's unpacked bytes, and the file itself, to measure progress."""
    with path.open("rb") as raw:
        is_gzip = raw.read(2) == _GZIP
        raw.seek(0)
        yield gzip.GzipFile(fileobj=raw) if is_gzip else raw, raw


def _arrow_cells(path: Path, on_progress: OnBytesRead) -> Generator[CellBatch, None, int | None]:
    """Yield batches as long as pyarrow reads the file exactly like Python; return the number of rows (None: all)."""
    try:
        import pyarrow  # noqa: PLC0415 an extra
        from pyarrow import csv as arrow_csv  # noqa: PLC0415
    except ImportError:
        return 0
    names = _header(path)
    if missing_columns(names) or len(set(names)) < len(names):
        return 0
    kind, size, row_count = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), path.stat().st_size, 0
    try:
        with _binary(path) as (content, raw):
            for block in _blocks(content):
                table = arrow_csv.read_csv(
                    pyarrow.BufferReader(block),
                    arrow_csv.ReadOptions(block_size=len(block) + 1, use_threads=False),
                    arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                    arrow_csv.ConvertOptions(include_columns=COLUMNS, column_types=dict.fromkeys(COLUMNS, kind)),
                )
                for batch in table.to_batches():
                    columns = [
                        CellColumn(column.indices.to_numpy().astype(np.int64), column.dictionary.to_pylist())
                        for column in batch.columns
                    ]
                    if _has_special_cells(columns):
                        return row_count
                    yield CellBatch(columns, np.arange(row_count, row_count + batch.num_rows) + _FIRST_LINE)
                    row_count += batch.num_rows
                    on_progress(raw.tell(), size)
    except (pyarrow.ArrowException, OSError, EOFError, ValueError, zlib.error):
        return row_count  # Python's reader reports errors, if any
    return None


def _blocks(content: IO[bytes]) -> Iterator[bytes]:
    """Split a file into parts of whole rows, each after the header: pyarrow's own reader reads a whole file ahead.

    Raises:
        ValueError: a quote stays open for too long.
    """
    header, rest = content.readline(_MAX_LINE_LENGTH), b""
    if header.count(b'"') % 2 or not header.endswith(b"\n"):
        yield header + content.read(_MAX_BLOCK_BYTES)
        if content.read(1):
            raise ValueError("the header line is incomplete")
        return
    while chunk := content.read(_BLOCK_BYTES):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if rest.count(b'"', 0, end) % 2:
            end = 0  # this line end is inside a cell
        if end:
            yield header + rest[:end]
            rest = rest[end:]
        elif len(rest) > _MAX_BLOCK_BYTES:
            raise ValueError("unclosed quote")
    if rest:
        yield header + rest


def _has_special_cells(columns: Sequence[CellColumn]) -> bool:
    """Whether a cell may contain a line end, or a row may be an empty line: both change line numbers."""
    if any("\n" in text or "\r" in text or "\0" in text for column in columns for text in column.texts):
        return True
    is_empty = [np.array([not text for text in texts], bool)[codes] for codes, texts in columns]
    return bool(np.logical_and.reduce(is_empty).any())


def _header(path: Path) -> list[str]:
    with _binary(path) as (content, _), io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
        return next(csv.reader(_lines(path, text)), [])


def _plain_cells(path: Path, on_progress: OnBytesRead, skipped: int) -> Iterator[CellBatch]:
    """Yield the remaining rows with Python's reader."""
    size = path.stat().st_size
    with _binary(path) as (content, raw), io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(_lines(path, text))
        names = next(filter(None, reader), [])
        if missing := missing_columns(names):
            raise UsageError(f"{path}: missing columns: {', '.join(missing)}")
        places = [len(names) - 1 - names[::-1].index(column) for column in COLUMNS]
        rows = islice(((reader.line_num, row) for row in reader if row), skipped, None)
        while chunk := list(islice(rows, BATCH_ROWS)):
            width = max(places) + 1
            padded = [row if len(row) >= width else [*row, *[""] * (width - len(row))] for _, row in chunk]
            cells = list(zip(*(row[:width] for row in padded), strict=True))
            yield CellBatch([encode_column(cells[place]) for place in places], np.array([line for line, _ in chunk]))
            on_progress(raw.tell(), size)
    on_progress(size, size)


def _lines(path: Path, text: IO[str]) -> Iterator[str]:
    """Yield lines of limited length: a file that is not CSV may be one line of gigabytes."""
    while line := text.readline(_MAX_LINE_LENGTH):
        if len(line) == _MAX_LINE_LENGTH:
            raise UsageError(
                f"{path}: a line has more than {_MAX_LINE_LENGTH:,} characters: this is not a file of price rows"
            )
        yield line


class SpooledRows:
    """Rows of 20 bytes each, in their order, on disk: first all are added, then parts are read."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed with this object
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._length

    def append(self, rows: PriceColumns) -> None:
        """Add rows."""
        packed = np.empty(len(rows.offer), _ROW)
        packed["offer"], packed["at_s"], packed["microusd"] = rows.offer, rows.at_s, rows.microusd
        self._file.write(packed.tobytes())
        self._length += len(packed)

    def part(self, offers: Sequence[PriceRow], start: int, end: int) -> PriceColumns:
        """Return the rows [start, end)."""
        packed = self._read(start, min(end, self._length))
        offer, at_s, microusd = (packed[name].astype(np.int64) for name in ("offer", "at_s", "microusd"))
        return PriceColumns(offers=offers, offer=offer, at_s=at_s, microusd=microusd)

    def parts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield parts of at least this many rows; consecutive rows of one moment stay together."""
        start = 0
        while start < self._length:
            end = min(start + rows, self._length)
            while end < self._length:
                moments = self._read(end - 1, min(end + rows, self._length))["at_s"]
                changes = np.flatnonzero(moments != moments[0])
                end += int(changes[0]) - 1 if len(changes) else len(moments) - 1
                if len(changes):
                    break
            yield start, end
            start = end

    def _read(self, start: int, end: int) -> Any:
        self._file.seek(start * _ROW.itemsize)
        return np.frombuffer(self._file.read((end - start) * _ROW.itemsize), _ROW)
