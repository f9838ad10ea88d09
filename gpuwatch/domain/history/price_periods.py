"""Prices per period, weighted by time on offer, as far as polls show it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.history.market_history import COVERAGE_S, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.history.market_polls import complete_polls, poll_times
from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_series import (
    PERIODS_S,
    PeriodLength,
    PeriodSpan,
    PricePeriod,
    PricePeriods,
    TimeShare,
    cut_series,
    period_spans,
    series_of,
)
from gpuwatch.domain.market.offer import ListedOffer
from gpuwatch.domain.setup.durations import HOUR_S

GpuPriceOf = Callable[[int, OfferInterval], float]
Windows = NDArray[np.int64]  # two columns: from, until; disjoint and in order
_QUARTER_HOUR_S = 900  # all offsets of time zones are multiples of it
_QUARTERS = (0.25, 0.5, 0.75)


class _IntervalHours(NamedTuple):
    """Intervals cut into hours, or smaller units where a period starts within an hour: columns, sorted by time."""

    hour: Ints  # since 1970, in units of the cut
    listing: Ints
    listed: Ints  # micro-dollars per GPU-hour
    priced: Ints  # commission included
    seconds: Ints


def price_periods_of(
    market_history: MarketHistory,
    listed: GpuPriceOf,
    priced: GpuPriceOf,
    every: PeriodLength,
    zone: tzinfo,
    until_s: int,
) -> PricePeriods:
    """The periods from the first hour with a poll to the last.

    Args:
        listed, priced: the GPU price of an interval without and with commission, in micro-dollars.
        until_s: nothing is known from this time on.
    """
    series = cut_series(series_of(market_history, priced), 0, -(-until_s // HOUR_S))
    if not series.lows:
        return PricePeriods(points=[], series=series)
    found = period_spans(series.first_hour, series.first_hour + len(series.lows), every, zone)
    spans = [span for span in found if span.start_s < until_s]
    polled_s = min(HOUR_S, PERIODS_S.get(every, HOUR_S))
    polled = _polled_units(market_history, until_s, polled_s)
    is_whole = all(span.start_s % polled_s == 0 for span in spans)
    unit_s = polled_s if is_whole else _QUARTER_HOUR_S
    intervals = _interval_hours(market_history, (listed, priced), until_s, unit_s)
    points = [_point(span, span.known_s(polled, polled_s), intervals, unit_s) for span in spans]
    return PricePeriods(points=points, series=series)


def _polled_units(market_history: MarketHistory, until_s: int, unit_s: int) -> set[int]:
    """The hours, or smaller units, since 1970 that a poll of any kind covers."""
    times = np.array(poll_times(complete_polls(market_history.polls)))
    windows = poll_windows(times, until_s).tolist()
    return {unit for from_s, to_s in windows for unit in range(from_s // unit_s, -(-to_s // unit_s))}


def time_under(
    market_history: MarketHistory,
    x_microusd: float,
    priced: GpuPriceOf,
    until_s: int,
    polls: Sequence[MarketPoll] | None = None,
) -> TimeShare:
    """How long something was on offer at or under a price, to the second.

    Args:
        polls: the polls whose results count; None: the complete ones.
    """
    windows = _windows(market_history, until_s, polls)
    spans: dict[tuple[str, str, bool], list[tuple[int, int]]] = {}
    for interval in market_history.intervals:
        if round(priced(interval.listing, interval)) <= x_microusd:
            scope = _scope(market_history.listings[interval.listing])
            spans.setdefault(scope, []).append((interval.from_s, _until(interval, until_s)))
    under = [
        _clipped(windows[scope], from_s, to_s)
        for scope in windows.keys() & spans.keys()
        for from_s, to_s in _union([np.array(spans[scope])]).tolist()  # joined first: they are few
    ]
    return TimeShare(
        under_s=_length(_union(under)),
        known_s=_length(_union(list(windows.values()))),
        method="time with an offer at or under it, of the time that looks vouch for (at most 3 h each)",
    )


def _point(span: PeriodSpan, known_s: int, intervals: _IntervalHours, unit_s: int) -> PricePeriod:
    known, starts_at = span.known_hours(known_s), datetime.fromtimestamp(span.start_s, UTC)
    first, after = np.searchsorted(intervals.hour, (span.start_s // unit_s, -(-span.end_s // unit_s)))
    mine = _IntervalHours(*(column[first:after] for column in intervals))
    if not len(mine.hour):
        return PricePeriod(starts_at=starts_at, hours=span.hours, polled=known_s > 0, known_hours=known)
    q1, median, q3 = _quartiles(mine.listed, mine.seconds)
    q1_priced, median_priced, q3_priced = _quartiles(mine.priced, mine.seconds)
    different = np.unique(np.stack((mine.hour, mine.listing)), axis=1)
    return PricePeriod(
        starts_at=starts_at,
        hours=span.hours,
        polled=True,
        known_hours=known,
        offers=int(np.unique(different[0], return_counts=True)[1].max()),
        min_microusd=int(mine.listed.min()),
        min_with_commission_microusd=int(mine.priced.min()),
        q1_microusd=q1,
        median_microusd=median,
        q3_microusd=q3,
        q1_with_commission_microusd=q1_priced,
        median_with_commission_microusd=median_priced,
        q3_with_commission_microusd=q3_priced,
    )


def _quartiles(prices: Ints, seconds: Ints) -> list[int]:
    order = np.argsort(prices, kind="stable")
    elapsed = np.cumsum(seconds[order])
    at = np.searchsorted(elapsed, np.asarray(_QUARTERS) * elapsed[-1], side="left")
    return [int(price) for price in prices[order][at]]


def _interval_hours(
    market_history: MarketHistory, prices: tuple[GpuPriceOf, GpuPriceOf], until_s: int, unit_s: int
) -> _IntervalHours:
    """Cut each interval into hours, or smaller units."""
    windows = _windows(market_history, until_s)
    by_scope: dict[tuple[str, str, bool], list[OfferInterval]] = {}
    for interval in market_history.intervals:
        by_scope.setdefault(_scope(market_history.listings[interval.listing]), []).append(interval)
    parts = [
        _cut(intervals, windows[scope], prices, until_s, unit_s)
        for scope, intervals in by_scope.items()
        if scope in windows
    ]
    if not parts:
        return _IntervalHours(*(np.empty(0, np.int64) for _ in _IntervalHours._fields))
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return _IntervalHours(*(column[order] for column in joined))


def _cut(
    intervals: list[OfferInterval], windows: Windows, prices: tuple[GpuPriceOf, GpuPriceOf], until_s: int, unit_s: int
) -> _IntervalHours:
    hours = np.unique(np.concatenate([np.arange(a // unit_s, (b - 1) // unit_s + 1) for a, b in windows]))
    from_s = np.array([interval.from_s for interval in intervals])
    to_s = np.array([_until(interval, until_s) for interval in intervals])
    listed, priced = (
        np.array([round(price(interval.listing, interval)) for interval in intervals]) for price in prices
    )
    first = np.searchsorted(hours, from_s // unit_s)
    counts = np.maximum(np.searchsorted(hours, (to_s - 1) // unit_s, side="right") - first, 0)
    who = np.repeat(np.arange(len(intervals)), counts)
    hour = hours[np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)]
    start, end = np.maximum(hour * unit_s, from_s[who]), np.minimum((hour + 1) * unit_s, to_s[who])
    seconds = np.where(end > start, covered_s(windows, end) - covered_s(windows, start), 0).astype(np.int64)
    kept = seconds > 0
    listing = np.array([interval.listing for interval in intervals])
    return _IntervalHours(*(column[kept] for column in (hour, listing[who], listed[who], priced[who], seconds)))


def poll_windows(times: Ints, until_s: int) -> Windows:
    """The time that polls cover, none later than `until_s`."""
    return _union([np.stack((times, np.minimum(times + COVERAGE_S, until_s)), axis=1)])


def covered_s(windows: Windows, at_s: Ints) -> NDArray[np.float64]:
    """The seconds before each moment that the polls cover."""
    edges = windows.ravel()
    elapsed = np.cumsum(np.diff(edges, prepend=edges[0]) * (np.arange(len(edges)) % 2))
    return np.interp(at_s, edges, elapsed)


def _windows(
    market_history: MarketHistory, until_s: int, polls: Sequence[MarketPoll] | None = None
) -> Mapping[tuple[str, str, bool], Windows]:
    """Scope of a listing → the time covered by its polls."""
    at: dict[tuple[str, str, bool], list[int]] = {}
    for poll in complete_polls(market_history.polls) if polls is None else polls:
        at.setdefault((poll.provider, poll.gpu, poll.spot), []).append(poll.at_s)
    found = {}
    for provider, gpu, spot in {_scope(listing) for listing in market_history.listings}:
        times = at.get((provider, gpu, spot), []) + at.get((provider, "", spot), [])
        if times:
            found[provider, gpu, spot] = poll_windows(np.array(times), until_s)
    return {scope: windows for scope, windows in found.items() if len(windows)}


def _scope(listing: ListedOffer) -> tuple[str, str, bool]:
    return listing.provider, listing.gpu, listing.spot


def _until(interval: OfferInterval, until_s: int) -> int:
    return until_s if interval.ended_s is None else min(interval.ended_s, until_s)


def _clipped(windows: Windows, from_s: int, until_s: int) -> Windows:
    first = np.searchsorted(windows[:, 1], from_s, "right")
    after = np.searchsorted(windows[:, 0], until_s, "left")
    cut = np.clip(windows[first : max(first, after)], from_s, max(from_s, until_s))
    return cut[cut[:, 1] > cut[:, 0]]


def _union(parts: list[Windows]) -> Windows:
    """The union of all windows."""
    spans = np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    starts = np.concatenate(([True], spans[1:, 0] > reach[:-1]))
    ends = np.concatenate((starts[1:], [True]))
    return np.stack((spans[starts, 0], reach[ends]), axis=1)


def _length(windows: Windows) -> int:
    return int((windows[:, 1] - windows[:, 0]).sum())
