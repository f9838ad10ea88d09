"""Adds prices that others recorded to the history: beside our own polls, never among them.

A file contains observations and polls (`analysis.history_from_rows`). They are merged with the stored ones, so
that the order of files does not matter, a file that comes twice changes nothing, and one may fill the gaps of another.
A file goes in by parts, each in a transaction of its own with its roll-ups: one that was cut off is finished by the
next try, and a daemon goes on recording in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, func, select, update

from gpuwatch.domain.analysis.history_from_rows import PriceSource, RowSurvey
from gpuwatch.domain.analysis.price_rows import PriceRow, offer_kind_of
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import UsageError
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import driver_executor
from gpuwatch.storage.history_recorder import take_history_turn
from gpuwatch.storage.hourly_aggregates import aggregate_again
from gpuwatch.storage.import_batches import ImportBatch
from gpuwatch.storage.import_merge import MergeCounts, merge
from gpuwatch.storage.open_prices import OpenPrices, load_ids
from gpuwatch.storage.price_files import rows_in
from gpuwatch.storage.tables import history_state, poll

PART_ROWS = 20_000  # a second's work: a daemon that records waits for so long at most
_MAX_POLLS = 10_000_000
IN_THE_FUTURE = "observed_at: later than now"

ImportKinds = tuple[
    OfferKind | None, Mapping[str, OfferKind]
]  # of all prices; by provider, where the file does not say it
OnProgress = Callable[[str, int, int], None]  # what is done, how far, of how much


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file's rows: rows = new + known + twice + skipped."""

    rows: int  # of offers; those that are polls are counted by themselves
    new: int
    known: int  # the store says so already
    twice: int  # of one offer at one moment; the cheapest counts
    skipped: Mapping[str, int]  # reason → rows
    looks: int  # new moments at which a GPU and rental type was polled
    first_s: int | None  # of all rows that were understood
    last_s: int | None
    sources: Mapping[PriceSource, int]  # provider and kind → rows


def import_file(
    database: Database,
    path: Path,
    kinds: ImportKinds,
    now_s: int,
    *,
    dry_run: bool = False,
    on_progress: OnProgress = lambda what, done, total: None,
) -> ImportReport:
    """Join a file with the history.

    Args:
        dry_run: count only; nothing is written.

    Raises:
        UsageError: the file cannot be read; nothing was written.
        StoreError: the database did not take it; parts of it may be in, and the same import goes on from there.
    """
    skipped: Counter[str] = Counter()
    survey = RowSurvey(kinds[1])
    span: set[int] = set()
    for row in _rows(path, skipped, (kinds[0], now_s), partial(on_progress, "reading")):
        survey.add(row)
        span = {min((row.at_s, *span)), max((row.at_s, *span))}
    _check(path, survey)
    merged = MergeCounts()
    for part in _parts(_rows(path, Counter(), (kinds[0], now_s), partial(on_progress, "importing"))):
        merged += _import_part(database, part, survey, dry_run=dry_run)
    rows = {source: about.rows for source, about in survey.sources.items()}
    return ImportReport(
        rows=sum(rows.values()) + sum(skipped.values()),
        new=merged.new,
        known=merged.known,
        twice=merged.twice,
        skipped=dict(skipped),
        looks=merged.polls,
        first_s=min(span, default=None),
        last_s=max(span, default=None),
        sources=rows,
    )


def own_poll_span(database: Database, provider: str, from_s: int, to_s: int) -> tuple[datetime, datetime] | None:
    """The first and the last of our own polls of a provider in a period; None without any. Raises StoreError."""
    mine = select(func.min(poll.c.at_s), func.max(poll.c.at_s)).where(poll.c.covers == 1, poll.c.provider == provider)
    with database.read() as connection:
        first, last = connection.execute(mine.where(poll.c.at_s.between(from_s, to_s))).one()
    return None if first is None else (datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC))


def _check(path: Path, survey: RowSurvey) -> None:
    """Each moment is a poll of each GPU: a column that is not a GPU name makes millions of them."""
    for about in survey.sources.values():
        if not about.has_explicit_polls and len(about.gpus) * len(about.moments) > _MAX_POLLS:
            raise UsageError(
                f"{path}: {len(about.gpus):,} GPUs at {len(about.moments):,} moments are too many polls:"
                " is gpu_name_raw the name of a GPU in every row?"
            )


def _rows(
    path: Path, skipped: Counter[str], terms: tuple[OfferKind | None, int], on_progress: Callable[[int, int], None]
) -> Iterator[PriceRow]:
    kind, now_s = terms
    for row in rows_in(path, skipped, on_progress):
        if row.at_s > now_s:
            skipped[IN_THE_FUTURE] += 1
        else:
            yield row if kind is None else replace(row, kind=kind)


def _parts(rows: Iterable[PriceRow]) -> Iterator[list[PriceRow]]:
    """Parts of a file; a moment is not split, as far as its rows stand together."""
    part: list[PriceRow] = []
    for row in rows:
        if len(part) >= PART_ROWS and row.at_s != part[-1].at_s:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _import_part(database: Database, rows: list[PriceRow], survey: RowSurvey, *, dry_run: bool) -> MergeCounts:
    by_source: dict[PriceSource, list[PriceRow]] = {}
    for row in rows:
        by_source.setdefault((row.provider, offer_kind_of(row, survey.kinds)), []).append(row)
    batches = [ImportBatch(some, survey, source) for source, some in by_source.items()]
    if dry_run:
        with database.read() as connection:
            return _merge_all(connection, batches, dry_run=True)
    with database.write() as connection:
        take_history_turn(driver_executor(connection))
        return _merge_all(connection, batches, dry_run=False)


def _merge_all(connection: Connection, batches: list[ImportBatch], *, dry_run: bool) -> MergeCounts:
    executor = driver_executor(connection)  # for the roll-up's own functions
    ids = OpenPrices()  # what is on offer now is not looked at: only names and numbers
    load_ids(executor, ids)
    total = MergeCounts()
    for batch in batches:
        merged = merge(connection, ids, batch, dry_run=dry_run)
        if merged.changed_s and not dry_run:
            aggregate_again(executor, ids, batch.name, merged.changed_s)
        total += merged
    if total.changed_s and not dry_run:  # others must read the names and numbers anew
        connection.execute(update(history_state).values(version=history_state.c.version + 1))
    return total
