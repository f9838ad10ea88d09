"""Reads files of price rows: CSV (also gzipped) and Parquet, in the nine columns of `domain.history.price_rows`.

Each distinct text of a column is parsed once. Rows are returned in batches: a file may exceed the memory. Parquet is
read and written with pyarrow: the extra `analysis`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_columns import PriceColumns
from gpuwatch.domain.history.price_rows import (
    COLUMNS,
    InvalidCell,
    PriceRow,
    csv_cells,
    missing_columns,
    parse_price_row,
    read_moment,
    read_price,
)
from gpuwatch.domain.market.offer import unescape_formula
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint
from gpuwatch.storage.history.imports.price_cells import BATCH_ROWS, CellBatch, CellColumn, OnBytesRead, csv_batches

_TIME, _PRICE = COLUMNS.index("observed_at"), COLUMNS.index("price_usd_hour")
_OFFER_COLUMNS = [place for place in range(len(COLUMNS)) if place not in (_TIME, _PRICE)]
_VALID = {"observed_at": "2000-01-01T00:00:00Z", "price_usd_hour": "1"}  # for parsing an offer alone
_BEFORE_TIME = frozenset({"provider", "spot"})  # the first invalid cell counts, in the order of `parse_price_row`
_MAX_KEYS = 1 << 62
_MAX_LINES_LISTED = 5
_PARQUET = b"PAR1"
_ROWS_PER_GROUP = 100_000  # rows per row group
_BOOLEAN_TEXTS = {True: "true", False: "false"}


class SkippedRows(msgspec.Struct):
    """Unusable rows, by reason."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    lines: dict[str, list[int]] = msgspec.field(default_factory=dict)  # the first ones

    def add(self, reason: str, lines: Ints) -> None:
        """Add rows at these lines."""
        if len(lines):
            self.counts[reason] += len(lines)
            listed = self.lines.setdefault(reason, [])
            listed += lines[: _MAX_LINES_LISTED - len(listed)].tolist()


class ReadRows(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a file. `skipped`: reason → unusable rows."""

    rows: list[PriceRow]
    skipped: Mapping[str, int]


def read_rows(path: Path) -> ReadRows:
    """Return all rows of a file. Raises UsageError: it cannot be read, or a column is missing."""
    reader = PriceFileReader(path)
    rows = [row for batch in reader.batches() for row in batch.rows()]
    return ReadRows(rows=rows, skipped=dict(reader.skipped.counts))


def read_columns(path: Path) -> tuple[PriceColumns, Mapping[str, int]]:
    """Return all rows of a file as columns, and its skipped rows by reason. Raises UsageError, as `read_rows`."""
    reader = PriceFileReader(path)
    batches = [(batch.offer, batch.at_s, batch.microusd) for batch in reader.batches()]
    empty = np.empty(0, np.int64)
    offer, at_s, microusd = (np.concatenate(part) for part in zip(*batches, strict=True)) if batches else (empty,) * 3
    columns = PriceColumns(offers=reader.offers, offer=offer, at_s=at_s, microusd=microusd)
    return columns, dict(reader.skipped.counts)


class PriceFileReader:
    """Reads a file in batches.

    Attributes:
        offers: the distinct offers read so far; grows from batch to batch.
        skipped: unusable rows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offers: list[PriceRow] = []
        self.skipped = SkippedRows()
        self._numbers: dict[tuple[str, ...], int] = {}  # number of each offer; negative: of a reason
        self._by_offer: dict[PriceRow, int] = {}
        self._faults: list[InvalidCell] = []
        self._fault_numbers: dict[str, int] = {}  # by text

    def batches(
        self, on_progress: OnBytesRead = lambda done, total: None, latest_s: int | None = None, late_reason: str = ""
    ) -> Iterator[PriceColumns]:
        """Yield the usable rows.

        Args:
            on_progress: called repeatedly with the bytes read and the total bytes.
            latest_s: later rows are skipped, with the reason `late_reason`.

        Raises:
            UsageError: it cannot be read, or a column is missing.
        """
        for batch in cell_batches(self._path, on_progress):
            rows, lines = self._read(batch)
            if latest_s is not None:
                is_late = rows.at_s > latest_s
                self.skipped.add(late_reason, lines[is_late])
                rows = rows.where(~is_late)
            yield rows

    def _read(self, batch: CellBatch) -> tuple[PriceColumns, Ints]:
        columns = batch.columns
        first, which = _distinct_rows([columns[place] for place in _OFFER_COLUMNS])
        offers = self._offers(columns, first)
        is_poll = np.array([number >= 0 and self.offers[number].is_poll for number in offers.tolist()], bool)[which]
        offer = offers[which]
        at_s = self._parsed(columns[_TIME], read_moment)
        price = self._parsed(columns[_PRICE], read_price)
        has_no_price = np.array([not text for text in columns[_PRICE].texts], bool)[columns[_PRICE].codes]
        price[is_poll & has_no_price] = 0
        is_early = np.array([fault.column in _BEFORE_TIME for fault in self._faults] + [False], bool)
        reason = np.full(len(offer), -1, np.int64)
        for invalid in (price, offer, at_s, np.where(is_early[-offer.clip(max=-1) - 1], offer, 0)):
            reason = np.where(invalid < 0, -invalid - 1, reason)
        for number in np.unique(reason[reason >= 0]).tolist():
            self.skipped.add(str(self._faults[number]), batch.lines[reason == number])
        valid = reason < 0
        rows = PriceColumns(offers=self.offers, offer=offer[valid], at_s=at_s[valid], microusd=price[valid])
        return rows, batch.lines[valid]

    def _offers(self, columns: Sequence[CellColumn], first: Ints) -> Ints:
        """Return the number of each row's offer; negative: the reason why the row is unusable."""
        cells = [
            [columns[place].texts[code] for code in columns[place].codes[first].tolist()] for place in _OFFER_COLUMNS
        ]
        numbers = []
        for texts in zip(*cells, strict=True):
            number = self._numbers.get(texts)
            if number is None:
                number = self._numbers[texts] = self._number(texts)
            numbers.append(number)
        return np.array(numbers, np.int64)

    def _number(self, texts: tuple[str, ...]) -> int:
        named_cells = zip((COLUMNS[place] for place in _OFFER_COLUMNS), map(unescape_formula, texts), strict=True)
        try:
            offer = replace(parse_price_row({**_VALID, **dict(named_cells)}), at_s=0, listed_microusd_hour=0)
        except InvalidCell as fault:
            return self._reason(fault)
        number = self._by_offer.setdefault(offer, len(self.offers))
        if number == len(self.offers):
            self.offers.append(offer)
        return number

    def _reason(self, fault: InvalidCell) -> int:
        """Return the negative number of a reason."""
        number = self._fault_numbers.setdefault(str(fault), len(self._faults))
        if number == len(self._faults):
            self._faults.append(fault)
        return -number - 1

    def _parsed(self, column: CellColumn, parse: Callable[[str], int]) -> Ints:
        """Return the value of each row's text; negative: the reason why there is none."""
        values = []
        for text in column.texts:
            try:
                values.append(parse(unescape_formula(text)))
            except InvalidCell as fault:
                values.append(self._reason(fault))
        return np.array(values, np.int64)[column.codes]


def cell_batches(path: Path, on_progress: OnBytesRead = lambda done, total: None) -> Iterator[CellBatch]:
    """Yield the cells of a file. Its first bytes, not its name, decide about its format.

    Args:
        on_progress: called repeatedly with the bytes (in Parquet: rows) read and the total.

    Raises:
        UsageError: it cannot be read, or a column is missing.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        with path.open("rb") as raw:
            is_parquet = raw.read(len(_PARQUET)) == _PARQUET
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault}") from fault
    if is_parquet:
        return parquet_batches(path, on_progress)
    return csv_batches(path, on_progress)


def _distinct_rows(columns: list[CellColumn]) -> tuple[Ints, Ints]:
    """Return the first row of each distinct combination of cells, in order, and each row's combination."""
    key = columns[0].codes
    size = len(columns[0].texts)
    for codes, texts in columns[1:]:
        if size * len(texts) >= _MAX_KEYS:
            unique, key = np.unique(key, return_inverse=True)
            size = len(unique)
        key, size = key * len(texts) + codes, size * len(texts)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[which]


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
