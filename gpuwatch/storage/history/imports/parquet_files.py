"""Reads and writes price rows in Parquet, with pyarrow: the extra `analysis`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpuwatch.domain.history.price_rows import COLUMNS, PriceRow, csv_cells, missing_columns
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint
from gpuwatch.storage.history.imports.price_cells import BATCH_ROWS, CellBatch, CellColumn

_ROWS_PER_GROUP = 100_000  # rows per row group
_BOOLEAN_TEXTS = {True: "true", False: "false"}


def import_arrow() -> tuple[Any, Any]:
    """Return `pyarrow` and `pyarrow.parquet`. Raises UsageError: the extra is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"Parquet requires pyarrow: {install_hint('analysis')}; or use CSV") from error
    return pyarrow, parquet


def parquet_batches(path: Path, on_progress: Any) -> Iterator[CellBatch]:
    """Yield the cells as text; a time without a zone is UTC. Raises UsageError."""
    pyarrow, parquet = import_arrow()
    try:
        with parquet.ParquetFile(path) as file:
            if missing := missing_columns(file.schema_arrow.names):
                raise UsageError(f"{path}: missing columns: {', '.join(missing)}")
            done_rows, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(COLUMNS)):
                columns = [_column(pyarrow, batch.column(name)) for name in COLUMNS]
                yield CellBatch(columns, np.arange(done_rows + 1, done_rows + 1 + batch.num_rows))
                done_rows += batch.num_rows
                on_progress(done_rows, total)
    except (pyarrow.ArrowException, ValueError) as fault:
        raise UsageError(f"cannot read {path}: {' '.join(str(fault).split())}") from fault


def _column(pyarrow: Any, column: Any) -> CellColumn:
    """Convert each distinct value to text once."""
    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode(null_encoding="encode")
    texts = [text or "" for text in _texts(pyarrow, column.dictionary)]
    codes = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return CellColumn(codes.astype(np.int64), [*texts, ""])


def write_parquet(file: IO[bytes], rows: Iterable[PriceRow]) -> int:
    """Write rows with typed columns; return how many. Equal rows give equal files."""
    pyarrow, parquet = import_arrow()
    schema = _schema(pyarrow)
    source, written = iter(rows), 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while chunk := list(islice(source, _ROWS_PER_GROUP)):
            columns = zip(*map(_values, chunk), strict=True)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            written += len(chunk)
    return written


def _schema(pyarrow: Any) -> Any:
    text = pyarrow.string()
    kinds = {
        "observed_at": pyarrow.timestamp("ms", "UTC"),
        "gpu_count": pyarrow.int32(),
        "gpu_mem_gib": pyarrow.float64(),
        "spot": pyarrow.bool_(),
        "price_usd_hour": pyarrow.float64(),
    }
    return pyarrow.schema([(name, kinds.get(name, text)) for name in COLUMNS])


def _values(row: PriceRow) -> tuple[Any, ...]:
    converted = {
        "observed_at": datetime.fromtimestamp(row.at_s, UTC),
        "gpu_count": row.gpu_count or None,
        "gpu_mem_gib": row.gpu_memory_gib,
        "spot": row.spot,
        "price_usd_hour": row.listed_microusd_hour / 1e6 if row.listed_microusd_hour else None,
    }
    return tuple(converted.get(name, text) for name, text in zip(COLUMNS, csv_cells(row), strict=True))


def _texts(pyarrow: Any, column: Any) -> list[str | None]:
    kind = column.type
    if pyarrow.types.is_timestamp(kind):
        return [_moment(value) for value in column.cast(pyarrow.timestamp("us", kind.tz), safe=False).to_pylist()]
    return [_text(value) for value in column.to_pylist()]


def _moment(value: datetime | None) -> str | None:
    if value is None:
        return None
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _BOOLEAN_TEXTS[value]
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value).removesuffix(".0")  # pandas writes a missing value as NaN
    return str(value)
