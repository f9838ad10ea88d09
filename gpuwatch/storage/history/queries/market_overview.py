"""The data of a page about the whole market, in few queries: each GPU's lowest price per hour, and all its prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, CursorResult, bindparam, func, select

from gpuwatch.domain.history.gpu_status import NEVER, GpuHistory, OfferIntervalColumns
from gpuwatch.domain.history.hourly_rollup import (
    HourlyAggregate,
    Segment,
)
from gpuwatch.domain.history.market_history import COVERAGE_S, MarketFilter
from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_periods import poll_windows
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.market.money import HOURS_A_MONTH, REFERENCE_DISK_GB
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.hourly_aggregates import (
    COUNTS_IN_SPAN,
    hours_in,
    matching_segments,
    unfinished_hours,
)
from gpuwatch.storage.history.recording.price_sources import is_imported_source, provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import read_covering_times
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import hourly, price_interval, series

_LOWS = (
    select(hourly.c.hour, func.min(hourly.c.min_microusd))
    .where(hourly.c.segment_id.in_(bindparam("segments", expanding=True)))
    .where(hourly.c.hour >= bindparam("first_hour"), hourly.c.hour < bindparam("end_hour"))
    .group_by(hourly.c.hour)
)
_PRICES = (
    select(
        series.c.id,
        price_interval.c.seen_from_s,
        func.coalesce(price_interval.c.seen_to_s, NEVER),
        func.coalesce(price_interval.c.ended_s, NEVER),
        price_interval.c.machine_microusd_hour,
        func.coalesce(price_interval.c.disk_microusd_gb_month, 0),
    )
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(series.c.segment_id == bindparam("segment"), COUNTS_IN_SPAN)
)
_ROWS_AT_ONCE = 4096
_Running = Mapping[int, Mapping[int, HourlyAggregate]]
_PollTimes = dict[tuple[str, str, int], Ints]  # name, GPU, spot → times of polls


class _OverviewSpan(NamedTuple):
    start_s: int
    end_s: int

    @property
    def hours(self) -> range:
        return range(self.start_s // HOUR_S, -(-self.end_s // HOUR_S))


def read_gpu_price_history(
    database: Database, scope: MarketFilter, since: datetime, until: datetime, rates: Mapping[str, float]
) -> Iterator[GpuHistory]:
    """Yield each GPU that was polled in this time; the prices of the whole market at once would take too much memory.

    Args:
        rates: provider → price ÷ listed price; 1 if missing.

    Raises:
        StoreError: the database cannot be read.
    """
    with database.read() as connection:
        yield from _gpu_histories(
            connection, scope, _OverviewSpan(seconds_since_1970(since), seconds_since_1970(until)), rates
        )


def _gpu_histories(
    connection: Connection, scope: MarketFilter, span: _OverviewSpan, rates: Mapping[str, float]
) -> Iterator[GpuHistory]:
    assert not scope.verified  # the stored hours do not know which hosts are
    segments = matching_segments(connection, scope)
    polls = _poll_times(connection, segments, span)
    running = unfinished_hours(connection, segments, span.hours[0], span.end_s)
    by_gpu: dict[str, dict[int, Segment]] = {}
    for number, segment in segments.items():
        if len(polls[_scope(segment)]):
            by_gpu.setdefault(segment[1], {})[number] = segment
    for gpu, own_segments in sorted(by_gpu.items()):
        scopes = _scopes(own_segments)
        polled = [number for number, (source, *_) in enumerate(scopes) if not is_imported_source(source)]
        current = polled or list(range(len(scopes)))  # an import is not a poll: it counts only if nobody polled
        current.sort(key=lambda number: -int(polls[scopes[number]][-1]))
        yield GpuHistory(
            gpu=gpu,
            series=_series(connection, own_segments, span, polls, (running, rates)),
            intervals=_offer_intervals(connection, own_segments, span, polls, rates),
            covered=[poll_windows(polls[scope], span.end_s) for scope in scopes],
            polled_s=int(polls[scopes[current[0]]][-1]),
            source=scopes[current[0]][0],
            current=current,
            is_imported=not polled,
        )


def _scope(segment: Segment) -> tuple[str, str, int]:
    return segment[0], segment[1], segment[3]


def _scopes(segments: Mapping[int, Segment]) -> list[tuple[str, str, int]]:
    return sorted({_scope(segment) for segment in segments.values()})


def _poll_times(connection: Connection, segments: Mapping[int, Segment], span: _OverviewSpan) -> _PollTimes:
    """Return the covering polls of each part; a poll of all models counts for each."""
    scopes = _scopes(segments)
    read = {scope for name, gpu, spot in scopes for scope in ((name, gpu, spot), (name, "", spot))}
    times = read_covering_times(connection, read, span.start_s - COVERAGE_S, span.end_s)
    none = np.empty(0, np.int64)
    return {
        (name, gpu, spot): np.union1d(times.get((name, gpu, spot), none), times.get((name, "", spot), none))
        for name, gpu, spot in scopes
    }


def _series(
    connection: Connection,
    segments: Mapping[int, Segment],
    span: _OverviewSpan,
    polls: _PollTimes,
    context: tuple[_Running, Mapping[str, float]],
) -> PriceSeries:
    running, rates = context
    first_hour, end_hour = span.hours[0], span.hours[-1] + 1
    no_price = np.iinfo(np.int64).max
    lows, polled = np.full(end_hour - first_hour, no_price), np.zeros(end_hour - first_hour, bool)
    by_rate: dict[float, list[int]] = {}
    for number, segment in segments.items():
        by_rate.setdefault(rates.get(provider_of_source(segment[0]), 1.0), []).append(number)
    for rate, numbers in by_rate.items():
        hours_asked = {"segments": numbers, "first_hour": first_hour, "end_hour": end_hour}
        stored = hours_in(connection).execute(_LOWS, hours_asked)
        unfinished = ((hour, row.min_microusd) for one in numbers for hour, row in running.get(one, {}).items())
        for hours, prices in (int_columns(stored, 2), int_columns(unfinished, 2)):
            np.minimum.at(lows, hours - first_hour, np.rint(prices * rate).astype(np.int64))
    for scope in _scopes(segments):
        for lag_s in range(0, COVERAGE_S, HOUR_S):
            polled[_within((polls[scope] + lag_s) // HOUR_S - first_hour, len(polled))] = True
        polled[_within((polls[scope] + COVERAGE_S - 1) // HOUR_S - first_hour, len(polled))] = True
    polled |= lows != no_price
    return PriceSeries(
        first_hour=first_hour,
        lows=[None if low == no_price else low for low in lows.tolist()],
        polled=polled.tolist(),
        source="the store",
    )


def _within(hours: Ints, count: int) -> Ints:
    return hours[(hours >= 0) & (hours < count)]


def _offer_intervals(
    connection: Connection,
    segments: Mapping[int, Segment],
    span: _OverviewSpan,
    polls: _PollTimes,
    rates: Mapping[str, float],
) -> OfferIntervalColumns:
    parts = []
    scopes = _scopes(segments)
    for number, segment in segments.items():
        rows = connection.execute(_PRICES, {"segment": number, "since_s": span.start_s, "until_s": span.end_s})
        table = int_columns(rows, 6)
        rate = rates.get(provider_of_source(segment[0]), 1.0) / segment[2]
        scope = _scope(segment)
        parts.append(_offer_intervals_of(table, polls[scope], rate, scopes.index(scope), span.end_s))
    return OfferIntervalColumns(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _offer_intervals_of(columns: Ints, polls: Ints, rate: float, scope: int, end_s: int) -> OfferIntervalColumns:
    listing, from_s, to_s, ended_s, machine, disk = columns[:, np.lexsort((columns[1], columns[0]))]
    before = np.searchsorted(polls, from_s, side="left") - 1
    listed = machine + np.rint(disk * REFERENCE_DISK_GB / HOURS_A_MONTH)
    return OfferIntervalColumns(
        listing=listing,
        from_s=from_s,
        before_s=np.where(before >= 0, polls[np.maximum(before, 0)], NEVER),
        seen_s=np.where(to_s == NEVER, np.maximum(from_s, polls[-1]), to_s),
        ended_s=np.where(ended_s < end_s, ended_s, NEVER),
        polled_s=np.full(len(listing), polls[-1]),
        price=np.rint(listed * rate).astype(np.int64),
        scope=np.full(len(listing), scope),
    )


def int_columns(rows: Iterable[Sequence[int]], count: int) -> Ints:
    """Return the columns of rows of integers; `np.array(rows)` takes forty times as long on SQLAlchemy's rows.

    Args:
        rows: the result itself: a list of a million rows takes the garbage collector a second.
    """
    if isinstance(rows, CursorResult):  # integers need no conversion, and SQLAlchemy's rows take as long as the read
        rows = chain.from_iterable(iter(partial(rows.cursor.fetchmany, _ROWS_AT_ONCE), []))
    return np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, count).T
