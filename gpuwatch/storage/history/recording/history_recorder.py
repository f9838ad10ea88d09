"""Records polls, and prices as intervals: one transaction per answer; unchanged offers cost nothing.

A clock that was wrong and stepped back is followed: the history must not contain entries from its future.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, select, update

from gpuwatch.domain.market.offer import storable_text
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.errors import StoreError
from gpuwatch.ports import Answer
from gpuwatch.storage.history.recording.hourly_aggregates import (
    EndedIntervalLog,
    aggregate_from_memory,
    aggregate_from_store,
    write_hour,
)
from gpuwatch.storage.history.recording.late_rows import note_late
from gpuwatch.storage.history.recording.open_prices import NEVER, OpenPrices, load_open_prices, lock_history
from gpuwatch.storage.history.recording.poll_writer import (
    move_polls_back,
    pack_next_day,
    write_polls,
)
from gpuwatch.storage.history.recording.price_sources import split_by_source
from gpuwatch.storage.history.recording.recorded_polls import LAST_S, known_scopes, packed_to_day, read_polls
from gpuwatch.storage.history.recording.recording import (
    RecordedCounts,
    apply_to_memory,
    seconds_since_1970,
    utc_day,
    write_answer,
)
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import history_state, hourly, price_interval, quota_day, segment, series

__all__ = ["RecordedCounts", "SqlHistoryRecorder"]
_MAX_HOURS_FROM_MEMORY = 6  # if polls lie further apart, hours are aggregated from the intervals
_ROLL_UP_DELAY_S = 300  # delay after the end of an hour before it is aggregated: a slow answer may still belong to it
_SMALL_STEP_S = 120  # after a smaller step back of the clock, recording waits
# A larger step is accepted, but only if little was written "later": a computer without a battery starts in 1970, and
# must not move months of history back to that year.
_MOVABLE_HOURS = 48


class SqlHistoryRecorder:
    """Records polls. Long-lived: open prices are cached, and read again if another process wrote."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prices = OpenPrices()
        self._ended_log = EndedIntervalLog(since_s=0)
        self._may_pack = False  # only whoever has aggregated an hour: most commands record a single answer
        self._packed_before_day = 0  # the polls of all earlier days are packed
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
            self._pack_day(seconds_since_1970(answer.observed_at))
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
            lock_history(connection)
            row |= dict.fromkeys(("covers", "rows", "skipped", "elapsed_ms"), 0)
            write_polls(connection, [row], packed_to_day(connection))

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

    def _pack_day(self, at_s: int) -> None:
        """Pack the polls of the next day that is over; only one for each answer: a store may have years of them."""
        over_s = at_s - _ROLL_UP_DELAY_S
        if not self._may_pack or self._packed_before_day >= over_s // DAY_S:
            return
        with self._writing(at_s) as connection:
            packed_to = pack_next_day(connection, over_s)
            if packed_to is not None:
                self._prices.packed_to = packed_to
                self._prices.version += 1
        if packed_to is None:
            self._packed_before_day = over_s // DAY_S

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
        self._prices.next_hour, self._may_pack = end_hour, True
        self._ended_log.drop_before(end_hour * HOUR_S)


def clock_stepped_back(prices: OpenPrices, provider: str, at_s: int) -> bool:
    """Whether the database contains entries from this clock's future."""
    return prices.newest_change_s(provider) > at_s + _SMALL_STEP_S


def step_back(connection: Connection, provider: str, at_s: int) -> None:
    """Handle a clock that was wrong and is now at `at_s`: move later entries to this moment.

    Raises:
        StoreError: too much was written later, so this clock must be the wrong one.
    """
    own_scopes = [scope for scope in known_scopes(connection) if scope[0] == provider]
    later = read_polls(connection, own_scopes, at_s + 1, LAST_S)  # also those without a row any more
    hours = {poll_s // HOUR_S for polls in later.values() for poll_s in polls.at_s}
    if len(hours) > _MOVABLE_HOURS:
        newest = datetime.fromtimestamp(max(hours) * HOUR_S, UTC)
        raise StoreError(
            f"the clock is or was wrong: the history reaches to {newest:%Y-%m-%d %H}:00 UTC; set the clock"
        )
    move_polls_back(connection, provider, at_s)
    _move_intervals(connection, provider, at_s)
    note_late(connection, provider, at_s)
    hour = at_s // HOUR_S
    connection.execute(delete(hourly).where(hourly.c.segment_id.in_(select(segment.c.id)), hourly.c.hour >= hour))
    connection.execute(update(history_state).where(history_state.c.next_hour > hour).values(next_hour=hour))
    # other processes must reload
    changed = {"version": history_state.c.version + 1, "rewritten": history_state.c.rewritten + 1}
    connection.execute(update(history_state).values(changed))


def _move_intervals(connection: Connection, provider: str, at_s: int) -> None:
    """Of what each machine cost from then on, keep the newest price if it is open, as one that began at that moment."""
    from_s, to_s = price_interval.c.seen_from_s, price_interval.c.seen_to_s
    own_series = (
        select(series.c.id).join(segment, segment.c.id == series.c.segment_id).where(segment.c.provider == provider)
    )
    is_own = price_interval.c.series_id.in_(own_series)
    newer = price_interval.alias()
    has_newer = (
        select(newer.c.series_id)
        .where(newer.c.series_id == price_interval.c.series_id, newer.c.seen_from_s > from_s)
        .exists()
    )
    connection.execute(delete(price_interval).where(is_own, from_s >= at_s, has_newer))
    connection.execute(delete(price_interval).where(is_own, from_s >= at_s, to_s.is_not(None)))
    connection.execute(update(price_interval).where(is_own, from_s > at_s).values(seen_from_s=at_s))
    connection.execute(update(price_interval).where(is_own, to_s >= at_s).values(seen_to_s=at_s - 1))
    connection.execute(update(price_interval).where(is_own, price_interval.c.ended_s > at_s).values(ended_s=at_s))
