"""The price history: polls, and prices as intervals. One transaction per answer; unchanged offers cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from gpuwatch.domain.history.hourly_rollup import HOUR_S
from gpuwatch.domain.market.text import storable_text
from gpuwatch.ports import Answer
from gpuwatch.storage.history.recording.clock_steps import clock_stepped_back, step_back
from gpuwatch.storage.history.recording.history_state import load_open_prices, lock_history
from gpuwatch.storage.history.recording.hourly_aggregates import (
    EndedIntervalLog,
    aggregate_from_memory,
    aggregate_from_store,
    write_hour,
)
from gpuwatch.storage.history.recording.price_sources import split_by_source
from gpuwatch.storage.history.recording.recording import (
    RecordedCounts,
    apply_to_memory,
    seconds_since_1970,
    utc_day,
    write_answer,
)
from gpuwatch.storage.market.open_prices import NEVER, OpenPrices
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state, poll, quota_day

__all__ = ["RecordedCounts", "SqlHistoryRecorder"]

_MAX_HOURS_FROM_MEMORY = 6  # if polls lie further apart, hours are aggregated from the intervals
_ROLL_UP_DELAY_S = 300  # delay after the end of an hour before it is aggregated: a slow answer may still belong to it


class SqlHistoryRecorder:
    """Records polls. Long-lived: open prices are cached, and read again if another process wrote."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prices = OpenPrices()
        self._ended_log = EndedIntervalLog(since_s=0)
        self._lock = threading.Lock()  # one recording at a time in this process: they share the cache

    def record(self, answer: Answer, *, lane: str, gpu: str = "", spot: bool = False) -> RecordedCounts:
        """Record an answer; aggregate the previous hour, if it is over.

        Args:
            lane: "sweep": an offer that a complete answer lacks is gone; other lanes, such as "hunt", cover nothing.
            gpu: the requested model; "": all.
            spot: the requested rental type.

        Raises:
            StoreError: nothing was stored.
        """
        with self._lock:
            recorded = [self._record(part, lane, gpu, spot) for part in self._parts(answer, spot)]
            self._roll_up(seconds_since_1970(answer.observed_at))
            return RecordedCounts(*map(sum, zip(*recorded, strict=True)))

    def _parts(self, answer: Answer, spot: bool) -> list[Answer]:
        if self._prices.version == NEVER:
            with self._writing(seconds_since_1970(answer.observed_at)):
                pass  # loads the cache: the current offers of each kind
        return split_by_source(answer, lambda name: bool(self._prices.prices_of(name, int(spot)).models))

    def _record(self, answer: Answer, lane: str, gpu: str, spot: bool) -> RecordedCounts:
        with self._writing(seconds_since_1970(answer.observed_at)) as connection:
            self._follow_clock(connection, answer)
            written = write_answer(connection, self._prices, answer, lane, gpu, spot)
        self._ended_log.add(apply_to_memory(written, self._prices))
        return written.recorded

    def record_failure(
        self, provider: str, *, lane: str, gpu: str = "", spot: bool = False, at: datetime, error: str
    ) -> None:
        """Record that a search failed: a gap, never "no offers". Raises StoreError."""
        row = {
            "provider": storable_text(provider, 32),
            "lane": lane,
            "gpu": storable_text(gpu, 200),
            "spot": int(spot),
            "at_s": seconds_since_1970(at),
            "completeness": "failed",
            "error": storable_text(" ".join(error.split()), 500),
        }
        with self._database.write() as connection:
            connection.execute(insert(poll), row | dict.fromkeys(("covers", "rows", "skipped", "elapsed_ms"), 0))

    def rows_used(self, provider: str, now: datetime) -> int:
        """Return the number of rows received since 00:00 UTC. Raises StoreError."""
        query = select(quota_day.c.rows).where(quota_day.c.provider == provider, quota_day.c.day == utc_day(now))
        with self._database.read() as connection:
            return connection.execute(query).scalar() or 0

    def roll_up(self, now: datetime) -> None:
        """Aggregate complete hours without aggregates, even if nothing is recorded any more. Raises StoreError."""
        with self._lock, self._writing(seconds_since_1970(now)):
            pass  # loads the cache
        with self._lock:
            self._roll_up(seconds_since_1970(now))

    @contextmanager
    def _writing(self, at_s: int) -> Iterator[Connection]:
        """A transaction in which the cache matches the database; the cache is dropped if the transaction fails."""
        try:
            with self._database.write() as connection:
                if lock_history(connection) != self._prices.version:
                    self._load(connection, at_s)
                yield connection
        except BaseException:
            self._prices = OpenPrices()  # its changes were rolled back
            raise

    def _load(self, connection: Connection, at_s: int) -> None:
        self._prices = load_open_prices(connection)
        self._ended_log = EndedIntervalLog(since_s=at_s)

    def _follow_clock(self, connection: Connection, answer: Answer) -> None:
        at_s = seconds_since_1970(answer.observed_at)
        if clock_stepped_back(self._prices, answer.provider, at_s):
            step_back(connection, answer.provider, at_s)
            self._load(connection, at_s)

    def _roll_up(self, at_s: int) -> None:
        end_hour = (at_s - _ROLL_UP_DELAY_S) // HOUR_S
        if self._prices.next_hour is None or self._prices.next_hour >= end_hour:
            return
        with self._writing(at_s) as connection:
            first_hour = self._prices.next_hour
            if first_hour is None or first_hour >= end_hour:
                return
            if end_hour - first_hour <= _MAX_HOURS_FROM_MEMORY and self._ended_log.since_s <= first_hour * HOUR_S:
                hours = aggregate_from_memory(connection, first_hour, end_hour, self._prices, self._ended_log)
            else:
                hours = aggregate_from_store(connection, first_hour, end_hour, self._prices)
            for hour, rows in hours:
                write_hour(connection, hour, rows, self._prices)
            connection.execute(update(history_state).values(next_hour=end_hour))
        self._prices.next_hour = end_hour
        self._ended_log.drop_before(end_hour * HOUR_S)
