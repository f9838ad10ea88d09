"""Parquet and Arrow (IPC files and streams), read with pyarrow a few rows at a time.

Their rows have no place in the file: a row is found by its number, and a copy is written with the same schema. Columns
keep their types and metadata; groups of rows are cut anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

from gpuwatch.dataset.formats.cell_json import row_json
from gpuwatch.dataset.formats.file_lines import DamagedFile, FileLine, is_packed
from gpuwatch.dataset.onnx_models import import_extra

PARQUET_MAGIC, ARROW_MAGIC, STREAM_MAGIC = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_BATCH_ROWS: Final = 512
_BATCH_BYTES: Final = 32 << 20  # rows with pictures: fewer at a time
_GROUP_BYTES: Final = 64 << 20  # of a group of rows in a copy
_GROUP_ROWS: Final = 65_536
_MAX_COLUMN_BYTES: Final = 2 << 30  # of a column in a group of rows, which pyarrow may hold whole
_CODECS: Final = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "UNCOMPRESSED": "none"}

Batches = Iterator[tuple[int, Any]]  # the number of the first row, and the rows


class ColumnFile:
    """A file of columns: Parquet, an Arrow file, or an Arrow stream.

    Args:
        magic: the first bytes, which say which of them it is.
    """

    def __init__(self, path: Path, magic: bytes) -> None:
        if is_packed(path):
            raise DamagedFile("Parquet and Arrow in a .gz; unpack it first")
        self._path, self._magic = path, magic
        self._arrow = import_extra("pyarrow", extra="analysis")
        self._ipc = import_extra("pyarrow.ipc", extra="analysis")

    def extent(self) -> int:
        """The number of rows; 0: unknown."""
        with self._opened() as file:
            if self._magic == PARQUET_MAGIC:
                return int(file.metadata.num_rows)
            if self._magic == ARROW_MAGIC:
                return sum(file.get_batch(index).num_rows for index in range(file.num_record_batches))
            return 0

    def lines(self, number: int, offset: int) -> Iterator[FileLine]:
        """The rows from one on."""
        with self._refused():
            for first, batch in self.batches(offset):
                for row, content in enumerate(self._contents(batch), first):
                    yield FileLine(number, content, len(content) if isinstance(content, bytes) else 0, row + 1)
                    number += 1

    def batches(self, start: int) -> Batches:
        """Rows from one on, a few at a time. Raises DamagedFile: pyarrow cannot read them."""
        with self._opened() as file:
            first = 0
            for count, batches in self._groups(file):
                if count is not None and first + count <= start:
                    first += count
                    continue
                begin = first
                for batch in batches():
                    batch.validate(full=True)
                    at_once = _rows_at_once(batch.nbytes, batch.num_rows)
                    for at in range(max(0, start - first), batch.num_rows, at_once):
                        yield first + at, batch.slice(at, at_once)
                    first += batch.num_rows
                if count is not None and first - begin != count:
                    raise DamagedFile(f"{first - begin:,} rows where it states {count:,}")

    def table(self, batches: list[Any]) -> Any:
        """Some rows as one table."""
        return self._arrow.Table.from_batches(batches).combine_chunks()

    def new_writer(self, target: IO[bytes]) -> Any:
        """A writer of such a file, with this one's schema and, in Parquet, its compression."""
        with self._opened() as file:
            if self._magic != PARQUET_MAGIC:
                new = self._ipc.new_file if self._magic == ARROW_MAGIC else self._ipc.new_stream
                return new(target, file.schema, options=self._ipc.IpcWriteOptions(unify_dictionaries=True))
            groups = file.metadata
            stated = groups.row_group(0).column(0).compression if groups.num_row_groups and groups.num_columns else ""
            writer = import_extra("pyarrow.parquet", extra="analysis").ParquetWriter
            return writer(target, file.schema_arrow, compression=_CODECS.get(stated, "zstd"))

    def _groups(self, file: Any) -> Iterator[tuple[int | None, Callable[[], Iterator[Any]]]]:
        """Groups of rows: how many, and the rows."""
        if self._magic == PARQUET_MAGIC:
            for index in range(file.num_row_groups):
                group = file.metadata.row_group(index)
                sizes = [group.column(column).total_uncompressed_size for column in range(group.num_columns)]
                if max(sizes, default=0) > _MAX_COLUMN_BYTES:
                    raise DamagedFile(f"row group {index + 1} has a column of more than 2 GiB; write smaller groups")
                rows = _rows_at_once(sum(sizes), group.num_rows)
                yield group.num_rows, lambda index=index, rows=rows: file.iter_batches(rows, [index])  # type: ignore[misc]
        elif self._magic == ARROW_MAGIC:
            for index in range(file.num_record_batches):
                yield None, lambda index=index: iter([file.get_batch(index)])  # type: ignore[misc]
        else:
            yield None, lambda: iter(file)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The reader of pyarrow. Raises DamagedFile."""
        with self._refused():
            if self._magic == PARQUET_MAGIC:
                parquet = import_extra("pyarrow.parquet", extra="analysis").ParquetFile
                with parquet(self._path, page_checksum_verification=True) as file:  # where the file has checksums
                    yield file
                return
            with self._arrow.memory_map(str(self._path)) as source:
                reader = self._ipc.open_file if self._magic == ARROW_MAGIC else self._ipc.open_stream
                with reader(source) as file:
                    yield file

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """What pyarrow refuses is named. Raises DamagedFile."""
        try:
            yield
        except (self._arrow.ArrowException, ValueError, OverflowError, MemoryError) as error:
            raise DamagedFile(" ".join(str(error).split())[:300] or type(error).__name__) from error

    def _contents(self, batch: Any) -> Iterator[bytes | str]:
        """Each row as JSON, or why it has none."""
        batch = self._with_plain_columns(batch)
        try:
            rows = batch.to_pylist()
        except (
            Exception
        ):  # one value that Python does not hold, of whatever type the conversion raises; its row is found
            rows = [_one_row(batch, at) for at in range(batch.num_rows)]
        yield from (row if isinstance(row, str) else row_json(row) for row in rows)

    def _with_plain_columns(self, batch: Any) -> Any:
        """Times as numbers, which Python always holds; columns of one name with a name each."""
        names: list[str] = []
        for name in batch.schema.names:
            names.append(name if name not in names else f"{name} ({len(names) + 1})")
        return self._arrow.RecordBatch.from_arrays(list(map(self._plain_column, batch.columns)), names=names)

    def _plain_column(self, column: Any) -> Any:
        kinds = self._arrow.types
        if not kinds.is_temporal(column.type) or kinds.is_interval(column.type):
            return column
        return column.view(self._arrow.int32() if column.type.bit_width == 32 else self._arrow.int64())


def _rows_at_once(size: int, rows: int) -> int:
    """How many of so many rows of this size, together, are in memory at once."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))


def _one_row(batch: Any, at: int) -> Any:
    try:
        return batch.slice(at, 1).to_pylist()[0]
    except Exception:  # it is counted and named as unusable
        return "a value that cannot be read"


class ColumnCopier:
    """Copies rows by their numbers, with the schema of the file."""

    def __init__(self, source: ColumnFile, target: IO[bytes]) -> None:
        self._source, self._target = source, target
        self._batches: Batches | None = None
        self._first, self._batch = 0, None
        self._chosen: list[int] = []
        self._pending: list[Any] = []
        self._writer: Any = None

    def write(self, line: FileLine) -> None:
        row = line.after - 1
        self._batches = self._batches or self._source.batches(row)
        while self._batch is None or row >= self._first + self._batch.num_rows:
            self._take()
            found = next(self._batches, None)
            if found is None:
                raise DamagedFile(f"row {row + 1:,} is gone: the file has changed")
            self._first, self._batch = found
        self._chosen.append(row - self._first)

    def close(self) -> None:
        self._take()
        self._flush()
        if self._writer is None:  # no row stays: a file with the same columns
            self._writer = self._source.new_writer(self._target)
        self._writer.close()

    def _take(self) -> None:
        """Keep the chosen rows of this batch until there are enough for a group."""
        runs = groupby(enumerate(self._chosen), lambda pair: pair[1] - pair[0])
        for _, run in runs:
            rows = [row for _, row in run]
            self._pending.append(self._batch.slice(rows[0], len(rows)))  # type: ignore[attr-defined]
        self._chosen = []
        rows_pending = sum(part.num_rows for part in self._pending)
        if rows_pending >= _GROUP_ROWS or sum(part.nbytes for part in self._pending) >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer = self._writer or self._source.new_writer(self._target)
            self._writer.write_table(self._source.table(self._pending))
        self._pending = []
