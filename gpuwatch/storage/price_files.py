"""Files of price rows: CSV (also gzipped) and Parquet, in the nine columns of `analysis.price_rows`."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpuwatch.analysis.price_rows import COLUMNS, PriceRow, read_row
from gpuwatch.errors import UsageError


class ReadRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds. `skipped`: reason → rows that could not be understood."""

    rows: list[PriceRow]
    skipped: Mapping[str, int]


def read_rows(path: Path) -> ReadRows:
    """All rows of a file.

    Raises:
        UsageError: it cannot be read, or a column is missing.
    """
    rows: list[PriceRow] = []
    skipped: Counter[str] = Counter()
    try:
        for cells in _cells(path):
            try:
                rows.append(read_row(cells))
            except ValueError as fault:
                skipped[str(fault)] += 1
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as fault:
        raise UsageError(f"{path}: it cannot be read: {fault}") from fault
    return ReadRows(rows=rows, skipped=dict(skipped))


def _cells(path: Path) -> Iterator[dict[str, str | None]]:
    with (
        gzip.open(path, "rt", encoding="utf-8", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8", newline="") as file
    ):
        reader = csv.DictReader(file)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"{path}: these columns are missing: {', '.join(missing)}")
        yield from reader
