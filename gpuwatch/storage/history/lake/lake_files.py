"""Writes one file of a lake from rows, and reads it back: rows, sums and bounds must be those that were written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_schema import (
    COMPRESSION,
    INSTALLATION_KEY,
    ROWS_PER_GROUP,
    VERSION_KEY,
    LakeDataset,
    arrow_schema,
    check_version,
    import_arrow,
)
from gpuwatch.storage.history.lake.lake_source import Rows


class PartTotals(NamedTuple):
    """What a file must still say when it is read back."""

    rows: int
    sums: tuple[int, ...]
    first_s: int | None
    last_s: int | None


def write_part(path: Path, dataset: LakeDataset, chunks: Iterable[Rows], install_id: str) -> PartTotals:
    """Write the rows to a file, some at a time; return what it holds. Raises OSError."""
    _, parquet = import_arrow()
    schema = arrow_schema(dataset, install_id)
    totals = _Totals(dataset)
    waiting: Rows = []
    with parquet.ParquetWriter(path, schema, compression=COMPRESSION) as writer:
        for rows in chunks:
            waiting += rows
            while len(waiting) >= ROWS_PER_GROUP:
                group, waiting = waiting[:ROWS_PER_GROUP], waiting[ROWS_PER_GROUP:]
                totals.add(group)
                writer.write_table(_table(schema, dataset, group))
        if waiting:
            totals.add(waiting)
            writer.write_table(_table(schema, dataset, waiting))
    return totals.result()


def verify_part(path: Path, dataset: LakeDataset, written: PartTotals) -> None:
    """Read a whole file back. Raises StoreError: it is not what was written."""
    pyarrow, parquet = import_arrow()
    totals = _Totals(dataset)
    try:
        with parquet.ParquetFile(path) as file:
            check_version(str(path), _note(file, VERSION_KEY))
            for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
                totals.add_batch(batch)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot read back what was written: {' '.join(str(error).split())[:200]}") from error
    if totals.result() != written:
        raise StoreError(f"{path}: read back, it differs from what was written; check the disk")


def installation_of(path: Path) -> str:
    """The installation that wrote a file; "": unknown, or another program did."""
    pyarrow, parquet = import_arrow()
    try:
        with parquet.ParquetFile(path) as file:
            return _note(file, INSTALLATION_KEY) or ""
    except (pyarrow.ArrowException, OSError, ValueError):
        return ""


def _note(file: Any, key: str) -> str | None:
    text = (file.schema_arrow.metadata or {}).get(key.encode())
    return None if text is None else text.decode(errors="replace")


class _Totals:
    def __init__(self, dataset: LakeDataset) -> None:
        self._dataset = dataset
        self._rows = 0
        self._sums = [0] * len(dataset.sums)
        self._moments: list[int] = []  # the first and the last

    def add(self, rows: Rows) -> None:
        """Add rows of the store."""
        self._rows += len(rows)
        for number, name in enumerate(self._dataset.sums):
            index = self._dataset.place(name)
            self._sums[number] += sum(row[index] or 0 for row in rows)
        index = self._dataset.place(self._dataset.moment)
        moments = [row[index] for row in rows] + self._moments
        self._moments = [min(moments), max(moments)]

    def add_batch(self, batch: Any) -> None:
        """Add rows of a file."""
        from pyarrow import compute  # noqa: PLC0415 an extra

        self._rows += batch.num_rows
        for number, name in enumerate(self._dataset.sums):
            self._sums[number] += compute.sum(batch.column(name)).as_py() or 0
        if batch.num_rows:
            bounds = compute.min_max(batch.column(self._dataset.moment).cast("int64")).as_py()
            moments = [bounds["min"] // 1000, bounds["max"] // 1000, *self._moments]
            self._moments = [min(moments), max(moments)]

    def result(self) -> PartTotals:
        """All of them."""
        first_s, last_s = self._moments or (None, None)
        return PartTotals(self._rows, tuple(self._sums), first_s, last_s)


def _table(schema: Any, dataset: LakeDataset, rows: Rows) -> Any:
    pyarrow, _ = import_arrow()
    arrays = []
    for column, field, values in zip(dataset.columns, schema, zip(*rows, strict=True), strict=True):
        if column.kind == "moment":
            milliseconds = [None if value is None else value * 1000 for value in values]
            arrays.append(pyarrow.array(milliseconds, pyarrow.int64()).cast(field.type))
        else:
            arrays.append(pyarrow.array(values, field.type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)
