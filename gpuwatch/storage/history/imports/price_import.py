"""Adds prices that others recorded to the history, separate from our own polls.

A file contains observations and polls (`history_of_rows`). They are merged with the stored ones: the order
of files does not matter, importing a file twice changes nothing, and one may fill the gaps of another. A file is
imported in parts, each in one transaction with its roll-ups: after an interruption the next import continues, and a
daemon can record in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from sqlalchemy import Connection, update

from gpuwatch.domain.history.feed_checks import FeedChecks, PriceJump
from gpuwatch.domain.history.price_columns import OfferIndex, PriceColumns, PriceSource, RowSurvey
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import UsageError
from gpuwatch.storage.history.imports.import_batches import ImportBatch
from gpuwatch.storage.history.imports.import_merge import MergeCounts, merge_batch
from gpuwatch.storage.history.imports.import_rollup import replace_aggregates
from gpuwatch.storage.history.imports.price_cells import BATCH_ROWS, SpooledRows
from gpuwatch.storage.history.imports.price_file_rows import PriceFileReader
from gpuwatch.storage.history.prune import mark_undecided
from gpuwatch.storage.history.recording.late_rows import note_late
from gpuwatch.storage.history.recording.open_prices import OpenPrices, load_ids, lock_history
from gpuwatch.storage.history.recording.poll_writer import pack_days
from gpuwatch.storage.history.recording.recorded_polls import known_scopes, packed_to_day, read_polls
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state

PART_ROWS = 100_000  # a second's work: a recording daemon waits at most that long
_MAX_POLLS = 10_000_000
IN_THE_FUTURE = "observed_at: later than now"

ImportKinds = tuple[OfferKind | None, Mapping[str, OfferKind]]  # of all prices; by provider, if the file states none
OnProgress = Callable[[str, int, int], None]  # step, progress, total


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a file's rows: rows = new + known + twice + skipped."""

    rows: int  # of offers; rows of polls are counted separately
    new: int
    known: int  # already stored
    duplicates: int  # repeated for one offer and moment; the cheapest counts
    skipped: Mapping[str, int]  # reason → rows
    skipped_lines: Mapping[str, Sequence[int]]  # reason → the first lines, at most five
    polls: int  # new moments at which a GPU and rental type was polled
    first_s: int | None  # of all usable rows
    last_s: int | None
    sources: Mapping[PriceSource, int]  # provider and kind → rows
    jumps: Sequence[PriceJump]  # of whole GPU families
    rate_cards: Sequence[str]  # providers whose live prices never move


def import_file(
    database: Database,
    path: Path,
    kinds: ImportKinds,
    now_s: int,
    *,
    dry_run: bool = False,
    on_progress: OnProgress = lambda what, done, total: None,
) -> ImportReport:
    """Merge a file into the history.

    Args:
        dry_run: only count; write nothing.

    Raises:
        UsageError: the file cannot be read; nothing was written.
        StoreError: the database failed; parts may be stored, and the same import continues from there.
    """
    reader = PriceFileReader(path)
    with SpooledRows() as rows:
        for batch in reader.batches(partial(on_progress, "reading"), latest_s=now_s, late_reason=IN_THE_FUTURE):
            rows.append(batch)
        index = OfferIndex(reader.offers, kinds[1], kinds[0])
        survey = RowSurvey(index)
        for start in range(0, len(rows), BATCH_ROWS):
            survey.add(rows.part(reader.offers, start, start + BATCH_ROWS))
        _check(path, survey)
        if survey.first_s is not None and not dry_run:  # before the first row: the daemon may be pruning
            mark_undecided(database, survey.first_s, now_s)
        merged, checks = MergeCounts(), FeedChecks(index)
        for start, end in rows.parts(PART_ROWS):
            part = rows.part(reader.offers, start, end)
            checks.add(part)
            merged += _import_part(database, part, survey, dry_run=dry_run)
            on_progress("importing", end, len(rows))
    if not dry_run:
        pack_days(database, now_s)
    return _report(reader, survey, merged, checks)


def _report(reader: PriceFileReader, survey: RowSurvey, merged: MergeCounts, checks: FeedChecks) -> ImportReport:
    sources = {source: about.rows for source, about in survey.sources.items()}
    return ImportReport(
        rows=sum(sources.values()) + reader.skipped.counts.total(),
        new=merged.new,
        known=merged.known,
        duplicates=merged.duplicates,
        skipped=dict(reader.skipped.counts),
        skipped_lines=dict(reader.skipped.lines),
        polls=merged.polls,
        first_s=survey.first_s,
        last_s=survey.last_s,
        sources=sources,
        jumps=checks.jumps,
        rate_cards=checks.rate_cards({source: about.moments for source, about in survey.sources.items()}),
    )


def own_poll_span(database: Database, provider: str, from_s: int, to_s: int) -> tuple[datetime, datetime] | None:
    """Return the first and the last of our own polls of a provider in a period, or None. Raises StoreError."""
    with database.read() as connection:
        scopes = [scope for scope in known_scopes(connection) if scope[0] == provider]
        polls = read_polls(connection, scopes, from_s, to_s + 1, covering=True).values()
    if not polls:
        return None
    first, last = min(of_scope.at_s[0] for of_scope in polls), max(of_scope.at_s[-1] for of_scope in polls)
    return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)


def _check(path: Path, survey: RowSurvey) -> None:
    """Raise UsageError for too many polls: each moment is a poll of each GPU, and a wrong column gives millions."""
    for about in survey.sources.values():
        if not about.has_explicit_polls and len(about.gpus) * len(about.moments) > _MAX_POLLS:
            raise UsageError(
                f"{path}: too many polls, {len(about.gpus):,} GPUs at {len(about.moments):,} times:"
                " check that gpu_name_raw is a GPU name in every row"
            )


def _import_part(database: Database, rows: PriceColumns, survey: RowSurvey, *, dry_run: bool) -> MergeCounts:
    index = survey.index
    source = index.source[rows.offer]
    batches = []
    for number in dict.fromkeys(source[np.sort(np.unique(source, return_index=True)[1])].tolist()):
        name = index.sources[number]
        batches.append(ImportBatch(rows.where(source == number), index, name, survey.sources[name]))
    if dry_run:
        with database.read() as connection:
            return _merge_all(connection, batches, dry_run=True)
    with database.write() as connection:
        lock_history(connection)
        return _merge_all(connection, batches, dry_run=False)


def _merge_all(connection: Connection, batches: list[ImportBatch], *, dry_run: bool) -> MergeCounts:
    ids = OpenPrices()  # only names and ids: the current offers are not needed
    load_ids(connection, ids)
    ids.packed_to = packed_to_day(connection)
    total = MergeCounts()
    for batch in batches:
        merged = merge_batch(connection, ids, batch, dry_run=dry_run)
        if len(merged.changed_s) and not dry_run:
            own_segments = {number: segment for segment, number in ids.segments.items() if segment[0] == batch.name}
            replace_aggregates(connection, own_segments, merged.changed_s)
            note_late(connection, batch.name, int(min(merged.changed_s)))
        total += merged
    if len(total.changed_s) and not dry_run:  # others must reload names and ids
        changed = {"version": history_state.c.version + 1, "rewritten": history_state.c.rewritten + 1}
        connection.execute(update(history_state).values(changed))
    return total
