"""Data for a page about the whole market, in few queries: each GPU's lowest price per hour, and all its prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from gpuwatch.domain.analysis.gpu_status import NEVER, GpuHistory, Ints, OfferIntervalColumns
from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.analysis.price_periods import poll_windows
from gpuwatch.domain.analysis.price_series import PriceSeries
from gpuwatch.domain.market.pricing import HOURS_A_MONTH
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB
from gpuwatch.storage.executor import Executor
from gpuwatch.storage.hourly_aggregates import matching_segments, unfinished_hours
from gpuwatch.storage.hourly_rollup import COVERAGE_S, HOUR_S, HourlyAggregate, Segment
from gpuwatch.storage.price_sources import is_imported_source, provider_of_source
from gpuwatch.storage.recording import seconds

_LOWS = "SELECT hour, min_microusd FROM hourly WHERE segment_id = ? AND hour >= ? AND hour < ?"
_POLLS = """SELECT provider, gpu, spot, at_s FROM poll WHERE covers = 1 AND at_s >= ? AND at_s < ? ORDER BY at_s"""
_PRICES = """SELECT s.id, p.seen_from_s, coalesce(p.seen_to_s, -1), p.machine_microusd_hour,
 coalesce(p.disk_microusd_gb_month, 0) FROM series s JOIN price_interval p ON p.series_id = s.id
 WHERE s.segment_id = ? AND p.seen_from_s < ? AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)"""

_Running = Mapping[int, Mapping[int, HourlyAggregate]]
_PollTimes = dict[tuple[str, str, int], Ints]  # name, GPU, spot → times of polls


class _OverviewSpan(NamedTuple):
    start_s: int
    end_s: int

    @property
    def hours(self) -> range:
        return range(self.start_s // HOUR_S, -(-self.end_s // HOUR_S))


def read_gpu_price_history(
    executor: Executor, scope: MarketFilter, since: datetime, until: datetime, rates: Mapping[str, float]
) -> list[GpuHistory]:
    """Return each GPU that was polled in this time.

    Args:
        rates: provider → price ÷ listed price; 1 if missing.
    """
    span = _OverviewSpan(seconds(since), seconds(until))
    segments = matching_segments(executor, scope)
    polls = _poll_times(executor, segments, span)
    running = unfinished_hours(executor, segments, span.hours[0], until)
    by_gpu: dict[str, dict[int, Segment]] = {}
    for number, segment in segments.items():
        if len(polls[_scope(segment)]):
            by_gpu.setdefault(segment[1], {})[number] = segment
    found = []
    for gpu, own_segments in sorted(by_gpu.items()):
        scopes = _scopes(own_segments)
        polled = [number for number, (source, *_) in enumerate(scopes) if not is_imported_source(source)]
        current = polled or list(range(len(scopes)))  # an import is not a poll: it counts only if nobody polled
        current.sort(key=lambda number: -int(polls[scopes[number]][-1]))
        history = GpuHistory(
            gpu=gpu,
            series=_series(executor, own_segments, span, polls, (running, rates)),
            intervals=_offer_intervals(executor, own_segments, span, polls, rates),
            covered=[poll_windows(polls[scope], span.end_s) for scope in scopes],
            polled_s=int(polls[scopes[current[0]]][-1]),
            source=scopes[current[0]][0],
            current=current,
            is_imported=not polled,
        )
        found.append(history)
    return found


def _scope(segment: Segment) -> tuple[str, str, int]:
    return segment[0], segment[1], segment[3]


def _scopes(segments: Mapping[int, Segment]) -> list[tuple[str, str, int]]:
    return sorted({_scope(segment) for segment in segments.values()})


def _poll_times(executor: Executor, segments: Mapping[int, Segment], span: _OverviewSpan) -> _PollTimes:
    """Return the covering polls of each part; a poll of all models counts for each."""
    times: dict[tuple[str, str, int], list[int]] = {}
    for name, gpu, spot, at_s in executor.rows(_POLLS, (span.start_s - COVERAGE_S, span.end_s)):
        times.setdefault((name, gpu, spot), []).append(at_s)
    poll_times: _PollTimes = {}
    for name, gpu, spot in _scopes(segments):
        covering_s = times.get((name, gpu, spot), []) + times.get((name, "", spot), [])
        poll_times[name, gpu, spot] = np.unique(np.array(covering_s, np.int64))
    return poll_times


def _series(
    executor: Executor,
    segments: Mapping[int, Segment],
    span: _OverviewSpan,
    polls: _PollTimes,
    context: tuple[_Running, Mapping[str, float]],
) -> PriceSeries:
    running, rates = context
    first_hour, end_hour = span.hours[0], span.hours[-1] + 1
    no_price = np.iinfo(np.int64).max
    lows, polled = np.full(end_hour - first_hour, no_price), np.zeros(end_hour - first_hour, bool)
    for number, segment in segments.items():
        rate = rates.get(provider_of_source(segment[0]), 1.0)
        rows = [*executor.rows(_LOWS, (number, first_hour, end_hour)), *_lows(running.get(number, {}))]
        if rows:
            hours, prices = np.array(rows, np.int64).T
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


def _lows(running: Mapping[int, HourlyAggregate]) -> list[tuple[int, int]]:
    return [(hour, row.min_microusd) for hour, row in running.items()]


def _within(hours: Ints, count: int) -> Ints:
    return hours[(hours >= 0) & (hours < count)]


def _offer_intervals(
    executor: Executor,
    segments: Mapping[int, Segment],
    span: _OverviewSpan,
    polls: _PollTimes,
    rates: Mapping[str, float],
) -> OfferIntervalColumns:
    parts = []
    scopes = _scopes(segments)
    for number, segment in segments.items():
        rows = executor.rows(_PRICES, (number, span.end_s, span.start_s))
        if rows:
            rate = rates.get(provider_of_source(segment[0]), 1.0) / segment[2]
            scope = _scope(segment)
            parts.append(_offer_intervals_of(rows, polls[scope], rate, scopes.index(scope)))
    if not parts:
        return OfferIntervalColumns(*(np.empty(0, np.int64) for _ in OfferIntervalColumns._fields))
    return OfferIntervalColumns(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _offer_intervals_of(rows: Sequence[tuple[int, ...]], polls: Ints, rate: float, scope: int) -> OfferIntervalColumns:
    """Set the ends of one part's intervals: the first covering poll after they were last seen, or the next price."""
    table = np.array(rows, np.int64)
    series, from_s, to_s, machine, disk = table[np.lexsort((table[:, 1], table[:, 0]))].T
    next_poll = np.searchsorted(polls, to_s, side="right")
    delisted_s = np.where(next_poll < len(polls), polls[np.minimum(next_poll, len(polls) - 1)], to_s + COVERAGE_S)
    is_replaced = np.append(series[1:] == series[:-1], [False])
    delisted_s = np.where(is_replaced, np.minimum(delisted_s, np.append(from_s[1:], [0])), delisted_s)
    is_current = ~is_replaced & ((to_s == NEVER) | (to_s >= polls[-1]))
    before = np.searchsorted(polls, from_s, side="left") - 1
    listed = machine + np.rint(disk * REFERENCE_DISK_GB / HOURS_A_MONTH)
    return OfferIntervalColumns(
        listing=series,
        from_s=from_s,
        before_s=np.where(before >= 0, polls[np.maximum(before, 0)], NEVER),
        seen_s=np.where(to_s == NEVER, np.maximum(from_s, polls[-1]), to_s),
        delisted_s=np.where(is_current, NEVER, delisted_s),
        polled_s=np.full(len(series), polls[-1]),
        price=np.rint(listed * rate).astype(np.int64),
        scope=np.full(len(series), scope),
    )
