"""Exports the history as price rows, and writes them to a file: CSV, gzipped CSV or Parquet, complete or absent."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from gpuwatch.atomic_file import atomic_file
from gpuwatch.domain.history.market_history import CompletePoll, MarketFilter
from gpuwatch.domain.history.price_rows import COLUMNS, PriceRow, csv_cells
from gpuwatch.domain.history.row_conversion import PollScope, price_rows_of
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.domain.market.offer import OfferKind, escape_formula
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.storage.history.queries.stored_prices import read_covering_polls, read_market_history
from gpuwatch.storage.history.recording.price_sources import (
    is_imported_source,
    kind_of_source,
    matches_source,
    provider_of_source,
)
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def history_rows(
    database: Database,
    scope: MarketFilter,
    since: datetime,
    until: datetime,
    kinds: Mapping[str, OfferKind],
    *,
    with_imported: bool = False,
) -> Iterator[PriceRow]:
    """Yield the rows of a part of the history, by time. Raises StoreError.

    Args:
        kinds: provider → the kind of price that its rows need not state.
    """

    def names(name: str) -> bool:
        is_selected = scope.provider is None or matches_source(name, scope.provider)  # including list prices
        return is_selected and (with_imported or not is_imported_source(name))

    market_history = read_market_history(database, scope, since, until, names=names)
    polls: dict[PollScope, set[CompletePoll]] = {}
    for (source, gpu, spot), of_scope in read_covering_polls(database, scope, since, until, names=names).items():
        found = {CompletePoll(one.at_s, one.complete_to_microusd) for one in of_scope}
        for name in polled_gpus(gpu, scope):
            key = (provider_of_source(source), kind_of_source(source)), name, bool(spot)
            polls.setdefault(key, set()).update(found)
    return price_rows_of(market_history, polls, seconds_since_1970(since), kinds, REFERENCE_DISK_GB)


def polled_gpus(gpu: str, scope: MarketFilter) -> tuple[str, ...]:
    """Return the GPUs that a poll covers ("": all) in a file about some: it must claim nothing about the others."""
    return (gpu,) if gpu or scope.gpus is None else scope.gpus


def check_export_target(path: Path, *, force: bool) -> None:
    """Raise UsageError if the path cannot be written, or an existing file would be lost."""
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: expected a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write {path}; choose a file in an existing folder")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; choose another file, or replace it with --force")


def write_rows(path: Path, rows: Iterable[PriceRow]) -> int:
    """Write a file, or replace it; return its number of rows. Without rows none is written.

    Raises:
        UsageError: the file name's ending is unknown, or Parquet is not installed.
        GpuwatchError: it cannot be written; no partial file is left behind.
    """
    write, remaining = _writer(path), iter(rows)
    first = list(itertools.islice(remaining, 1))
    if not first:
        return 0
    try:
        with atomic_file(path) as part, part.open("wb") as file:
            return write(file, itertools.chain(first, remaining))
    except OSError as error:
        raise GpuwatchError(f"cannot write {path}: {error.strerror or error}") from error


def write_csv(file: IO[str], rows: Iterable[PriceRow]) -> int:
    """Write rows as text; return how many."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    written = 0
    for written, row in enumerate(rows, 1):  # noqa: B007 the count is needed
        writer.writerow(map(escape_formula, csv_cells(row)))
    return written


def _writer(path: Path) -> Callable[[IO[bytes], Iterable[PriceRow]], int]:
    if path.suffix == ".parquet":
        from gpuwatch.storage.history.imports.price_file_rows import write_parquet  # noqa: PLC0415 an extra, and slow to import

        return write_parquet
    return _write_gzip if path.suffix == ".gz" else _write_plain


def _write_plain(file: Any, rows: Iterable[PriceRow]) -> int:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        return write_csv(text, rows)


def _write_gzip(file: IO[bytes], rows: Iterable[PriceRow]) -> int:
    """Open gzip output without a time or a file name: equal rows give equal files."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as gzip_file:
        return _write_plain(gzip_file, rows)
