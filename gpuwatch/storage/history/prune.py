"""Deletes rows whose time is over (`TABLE_ENDS`): in small transactions, so that a daemon can record in between.

Every step is repeatable: the next pass completes an interrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, literal, select, tuple_, update

from gpuwatch.domain.history.market_history import moment_of
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.domain.setup.history_keep import FOREVER, HistoryKeep
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_notes import lake_verified_until_s
from gpuwatch.storage.history.lake.lake_place import open_place
from gpuwatch.storage.history.pruned_totals import keep_totals
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.open_prices import lock_history
from gpuwatch.storage.history.recording.poll_writer import pack_days
from gpuwatch.storage.history.recording.recorded_polls import known_scopes, read_polls
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.history.table_ends import TABLE_ENDS, Horizons, TableEnd, horizons, is_kept_by_default
from gpuwatch.storage.setup.database import Database, release_free_pages
from gpuwatch.storage.setup.stored_values import from_ms
from gpuwatch.storage.setup.tables import history_state

ROWS_PER_STEP = 2000  # of a table, looked at or deleted in one transaction
STEPS_PER_RUN = 30
_PAGES_PER_STEP = 500
_FREE_SHARE = 0.05  # of the file, kept for new rows

_Key = tuple[Any, ...]


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted."""

    kept_from: datetime | None  # every moment from then on can still be reconstructed; None: every one
    intervals: int
    series: int
    polls: int
    alerts: int
    jobs: int
    rows: dict[str, int]  # by table, where any was


class SqlPruner:
    """Deletes what is over, a part of it with each run; a pass over all tables a day, if yesterday was polled.

    Args:
        keep: what the owner has set; None: by default, where the store was new, and nothing elsewhere.
        lake: as in the settings: what the market showed goes only if it is verified there; "": there is none.
    """

    def __init__(self, database: Database, keep: HistoryKeep | None, lake: str = "") -> None:
        self._database = database
        self._keep = keep
        self._lake = lake
        self._pass: Iterator[tuple[str, int]] = iter(())
        self._begun_on: int | None = None  # the UTC day

    def run(self, now: datetime) -> int:
        """Take the next steps; return how many rows were deleted. Raises StoreError: the next run begins a new pass."""
        deleted = 0
        for _ in range(STEPS_PER_RUN):
            try:
                step = next(self._pass, None)
            except StoreError:
                self._begun_on = None
                raise
            if step is not None:
                deleted += step[1]
            elif self._begun_on == now.toordinal():
                release_pages(self._database)
                break
            else:
                # if not, the clock may have jumped by years: all that has been recorded would be over
                has_polled = self._has_polled_yesterday(now)
                self._begun_on = now.toordinal()
                self._pass = self.steps(now) if has_polled else iter(())
        return deleted

    def _has_polled_yesterday(self, now: datetime) -> bool:
        """Whether the store has a poll that is one to two days old, or none at all."""
        until_s = seconds_since_1970(now - timedelta(days=1))
        with self._database.read() as connection:
            scopes = known_scopes(connection)
            return not scopes or any(read_polls(connection, [one], until_s - DAY_S, until_s) for one in scopes)

    def steps(self, now: datetime) -> Iterator[tuple[str, int]]:
        """One pass: yield a table and how many of its rows were deleted, after each transaction. Raises StoreError."""
        with self._database.read() as connection:
            until = self.horizons(connection, now)
        for end in TABLE_ENDS:
            is_over = end.is_over(until)
            after: _Key | None = None
            while is_over is not None:
                last, deleted = self._step(end, is_over, until, after)
                yield end.table.name, deleted
                if last is None:
                    break
                after = last

    def is_undecided(self) -> bool:
        """Whether nothing recorded is deleted, as the store is older than the setting. Raises StoreError."""
        with self._database.read() as connection:
            return self._keep is None and not is_kept_by_default(connection)

    def horizons(self, connection: Connection, now: datetime) -> Horizons:
        """Return until when rows may end now."""
        keep = self._keep
        if keep is None and is_kept_by_default(connection):
            keep = HistoryKeep()
        return horizons(connection, keep, now, self._verified_until_s(connection))

    def _verified_until_s(self, connection: Connection) -> float:
        """Return the last second of what is verified in the lake."""
        if not self._lake:
            return FOREVER
        verified_s = lake_verified_until_s(connection, open_place(self._lake).url)
        return -math.inf if verified_s is None else verified_s - 1

    def _are_still_over(self, connection: Connection, until: Horizons) -> bool:
        current = self.horizons(connection, from_ms(until.now_ms))
        spans = (current.intervals_s, until.intervals_s), (current.hourly_s, until.hourly_s)
        return all((latest or 0) >= (begun or 0) for latest, begun in spans)

    def _step(
        self, end: TableEnd, is_over: ColumnElement[bool], until: Horizons, after: _Key | None
    ) -> tuple[_Key | None, int]:
        """Delete among the next rows in the order of the primary key; return the last one's key, None at the end."""
        columns = list(end.table.primary_key)
        window = [] if after is None else [_compared(columns, after)[0]]
        query = select(*columns).where(*window).order_by(*columns).offset(ROWS_PER_STEP).limit(1)
        with self._database.read() as connection:
            row = connection.execute(query).first()
            last = None if row is None else tuple(row)
            if last is not None:
                window.append(_compared(columns, last)[1])
            # counted: for the first one alone, PostgreSQL may read the whole table instead of this part of it
            over = connection.execute(select(func.count()).select_from(end.table).where(*window, is_over)).scalar_one()
        if not over:
            return last, 0
        with self._database.write() as connection:
            # no series goes while a recorder brings it back, and nothing is counted by two that prune
            lock_history(connection)
            if end.is_history:
                if not self._are_still_over(connection, until):
                    return last, 0  # an import has changed old days since this pass began
                _note_horizon(connection, until)
            keep_totals(connection, end.table, [*window, is_over])
            return last, connection.execute(delete(end.table).where(*window, is_over)).rowcount


def _compared(columns: list[Any], key: _Key) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Whether a row comes after a key, and whether it does not."""
    if len(columns) == 1:
        return columns[0] > key[0], columns[0] <= key[0]
    values = tuple_(*(literal(value, column.type) for value, column in zip(key, columns, strict=True)))
    return tuple_(*columns) > values, tuple_(*columns) <= values


def _note_horizon(connection: Connection, until: Horizons) -> None:
    """Tell readers, before the first row goes, since when prices are exact."""
    if until.intervals_s is None:
        return
    is_later = func.coalesce(history_state.c.kept_from_s, -1) < until.intervals_s
    connection.execute(update(history_state).where(is_later).values(kept_from_s=until.intervals_s))


def prune(database: Database, keep: timedelta | HistoryKeep, now: datetime, lake: str = "") -> PruneReport:
    """Delete all that is over now; aggregates all hours and packs all days first.

    Args:
        keep: a duration: of everything but hourly prices.
        lake: as of `SqlPruner`.

    Raises:
        StoreError: the database failed; earlier deletions remain.
    """
    SqlHistoryRecorder(database).roll_up(now)
    pack_days(database, seconds_since_1970(now))
    if isinstance(keep, timedelta):
        keep_s = keep.total_seconds()
        keep = HistoryKeep(polls_s=keep_s, intervals_s=keep_s, hourly_s=FOREVER)
    rows: dict[str, int] = {}
    pruner = SqlPruner(database, keep, lake)
    with database.read() as connection:
        until = pruner.horizons(connection, now)
    for table, deleted in pruner.steps(now):
        if deleted:
            rows[table] = rows.get(table, 0) + deleted
    release_pages(database, steps=None)
    return PruneReport(
        kept_from=moment_of(until.intervals_s),
        intervals=rows.get("price_interval", 0),
        series=rows.get("series", 0),
        polls=rows.get("poll", 0),
        alerts=rows.get("alert", 0),
        jobs=rows.get("job", 0),
        rows=rows,
    )


def mark_undecided(database: Database, oldest_s: int, now_s: int) -> None:
    """Leave it to the owner how long rows stay, if an import brings some that the default would delete.

    Raises StoreError.
    """
    if oldest_s < now_s - HistoryKeep().intervals_s:
        with database.write() as connection:
            connection.execute(update(history_state).values(kept_by_default=0))


def release_pages(database: Database, steps: int | None = 4) -> None:
    """Give free pages of SQLite's file back to the disk, in small transactions. PostgreSQL reuses its own.

    A file that an older gpuwatch made keeps its free pages for new rows, until `store prune --vacuum`.
    """
    if not database.is_sqlite:
        return
    while steps != 0:
        with database.read() as connection:
            names = ("auto_vacuum", "page_count", "freelist_count")
            mode, pages, free = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)
        if mode != 2 or free <= max(_FREE_SHARE * pages, _PAGES_PER_STEP):
            return
        with database.write() as connection:
            release_free_pages(connection, _PAGES_PER_STEP)
        steps = None if steps is None else steps - 1
