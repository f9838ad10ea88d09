"""The aggregate of an hour: listed GPU prices, weighted by the time each was on offer. Intervals in, rows out. Pure.

A price counts only as long as polls prove it: a covering poll proves what it showed until the next one, and for at most
`COVERAGE_S`. So a gap means neither "no offers" nor "unchanged".

The prices of an hour are kept as a sketch: weights in steps of 1 %, so that the median of any set of hours is accurate
to half a step. As bytes: `width, first step, count`, the gaps between steps (a byte each), the weights (1, 2 or 4
bytes). Weights are minutes: seconds would double the size without changing a median.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.setup.durations import HOUR_S

STEP = 1.01
_LOG_STEP = math.log(STEP)
_HEAD = struct.Struct("<BhH")  # bytes of a weight, first step, number of steps
_MUST_SWAP = sys.byteorder == "big"

_TYPES = {1: "B", 2: "H", 4: "I"}

_AT_S = attrgetter("at_s")
_PRICE = itemgetter(0)

SketchWeights = dict[int, int]  # step → minutes on offer

Segment = tuple[str, str, int, int]  # provider, GPU, count, spot
CoverScope = tuple[str, str, int]  # provider, GPU, spot


class PricedInterval(NamedTuple):
    """One price of one identity, from when it was first seen until it ended; `until_s` None: it is current."""

    segment_id: int
    series_id: int
    from_s: int
    until_s: int | None
    microusd: int  # listed price of the whole offer, with the reference disk


class CoveringPoll(NamedTuple):
    """A covering poll; `to_microusd`: it shows no dearer offers."""

    at_s: int
    to_microusd: int | None


class HourlyAggregate(NamedTuple):
    """A row of `hourly`, without the segment's id."""

    min_microusd: int
    q1_microusd: int
    median_microusd: int
    q3_microusd: int
    offers: int
    offer_seconds: int
    sketch: bytes


class HourlyRollup:
    """One hour of the market, or its part from `from_s` until `end_s`."""

    def __init__(
        self,
        hour: int,
        segments: Mapping[int, Segment],
        covers: Mapping[CoverScope, Sequence[CoveringPoll]],  # by time
        end_s: int,
        from_s: int = 0,
    ) -> None:
        self.start_s = max(hour * HOUR_S, from_s)
        self.end_s = min((hour + 1) * HOUR_S, end_s)
        self._segments = segments
        self._covers = covers
        self._polls: dict[CoverScope, tuple[Sequence[CoveringPoll], list[int]]] = {}  # of this hour, with their bounds
        self._windows: dict[tuple[CoverScope, int | None], list[tuple[int, int]]] = {}
        self.prices: dict[Segment, dict[int, int]] = {}  # GPU price → seconds on offer
        self._series: dict[Segment, set[int]] = {}

    def add(self, intervals: Iterable[PricedInterval]) -> None:
        """Add intervals."""
        for interval in intervals:
            segment = self._segments[interval.segment_id]
            seconds = self._seconds(interval, (segment[0], segment[1], segment[3]))
            if seconds <= 0:
                continue
            price = gpu_price(interval, segment)
            prices = self.prices.get(segment)
            if prices is None:
                prices = self.prices[segment] = {}
                self._series[segment] = set()
            prices[price] = prices.get(price, 0) + seconds
            self._series[segment].add(interval.series_id)

    def proves(self, interval: PricedInterval) -> bool:
        """Return whether an interval counts in this hour."""
        provider, gpu, _, spot = self._segments[interval.segment_id]
        return self._seconds(interval, (provider, gpu, spot)) > 0

    def rows(self) -> dict[Segment, HourlyAggregate]:
        """Return the row of each segment."""
        return {segment: _row(prices, len(self._series[segment])) for segment, prices in self.prices.items()}

    def _seconds(self, interval: PricedInterval, scope: CoverScope) -> int:
        """Return the seconds on offer within the hour, as far as polls prove them."""
        start = max(interval.from_s, self.start_s)
        end = self.end_s if interval.until_s is None else min(interval.until_s, self.end_s)
        if end <= start:
            return 0
        windows = self._windows_for(scope, interval.microusd)
        if windows == [(self.start_s, self.end_s)] or end <= interval.from_s + COVERAGE_S:
            return end - start
        first_window = (interval.from_s, interval.from_s + COVERAGE_S)  # the poll that first saw it proves this itself
        return sum(max(0, min(b, end) - max(a, start)) for a, b in _union([first_window, *windows]))

    def _windows_for(self, scope: CoverScope, microusd: int) -> list[tuple[int, int]]:
        """Return the times within the hour for which polls prove offers at this price."""
        found = self._polls.get(scope)
        if found is None:
            found = self._polls[scope] = self._polls_for(scope)
        polls, bounds = found
        at = bisect_left(bounds, microusd)  # prices between the same bounds are covered by the same polls
        key = (scope, bounds[at] if at < len(bounds) else None)
        windows = self._windows.get(key)
        if windows is None:
            times = (one.at_s for one in polls if one.to_microusd is None or one.to_microusd >= microusd)
            clipped = ((max(at_s, self.start_s), min(at_s + COVERAGE_S, self.end_s)) for at_s in times)
            windows = self._windows[key] = _union([(a, b) for a, b in clipped if a < b])
        return windows

    def _polls_for(self, scope: CoverScope) -> tuple[Sequence[CoveringPoll], list[int]]:
        """Return the polls that may prove something within the hour, and the bounds among them, ascending."""
        polls = self._covers.get(scope, ())
        first = bisect_right(polls, self.start_s - COVERAGE_S, key=_AT_S)
        within = polls[first : bisect_left(polls, self.end_s, key=_AT_S)]
        return within, sorted({one.to_microusd for one in within if one.to_microusd is not None})


def gpu_price(interval: PricedInterval, segment: Segment) -> int:
    """Return micro-dollars per GPU."""
    return max(1, round(interval.microusd / segment[2]))


def lowest_prices(
    priced: list[tuple[int, PricedInterval]],
    segments: Mapping[int, Segment],
    covers: Mapping[CoverScope, Sequence[CoveringPoll]],
    hours: range,
) -> Iterator[tuple[int, int]]:
    """Yield the lowest price of whole hours and the hour: of those that `HourlyRollup` would count in it.

    The cheapest come first, and an hour that has its price is done: a month costs little more than a day.

    Args:
        priced: prices with their intervals; sorted in place.
    """
    rollups = [HourlyRollup(hour, segments, covers, hours.stop * HOUR_S) for hour in hours]
    following = list(range(len(hours) + 1))  # at each hour the next one without a price: itself, or a later one
    priced.sort(key=_PRICE)
    for price, interval in priced:
        end = len(hours) if interval.until_s is None else min(len(hours), -(-interval.until_s // HOUR_S) - hours.start)
        at = _next_open(following, min(len(hours), max(0, interval.from_s // HOUR_S - hours.start)))
        while at < end:
            if rollups[at].proves(interval):
                yield price, hours[at]
                following[at] = at + 1
            at = _next_open(following, at + 1)


def _next_open(following: list[int], at: int) -> int:
    found = at
    while following[found] != found:
        found = following[found]
    while following[at] != found:  # the next search takes the short way
        following[at], at = found, following[at]
    return found


def _union(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _row(prices: Mapping[int, int], offers: int) -> HourlyAggregate:
    sorted_prices = sorted(prices)
    total = sum(prices.values())
    weights: dict[int, int] = {}
    quarters: list[int] = []
    elapsed_s = 0
    for price in sorted_prices:
        seconds = prices[price]
        elapsed_s += seconds
        while len(quarters) < 3 and elapsed_s * 4 >= total * (len(quarters) + 1):
            quarters.append(price)
        step = step_of(price)
        weights[step] = weights.get(step, 0) + seconds
    return HourlyAggregate(
        sorted_prices[0], quarters[0], quarters[1], quarters[2], offers, total, encode_sketch(weights)
    )


def step_of(price_microusd: int) -> int:
    """Return the step of a price; its middle differs from the price by at most half a percent."""
    return round(math.log(max(price_microusd, 1)) / _LOG_STEP)


def price_of_step(step: int) -> int:
    """Return the middle of a step, in micro-dollars."""
    return round(math.exp(step * _LOG_STEP))


def encode_sketch(seconds: Mapping[int, int]) -> bytes:
    """Encode a sketch as bytes.

    Args:
        seconds: step → seconds on offer; at least one.
    """
    weights = {step: max(1, round(time / 60)) for step, time in seconds.items()}
    steps = sorted(weights)
    gaps, values = bytearray(), [weights[steps[0]]]
    for before, step in pairwise(steps):
        gap = step - before
        while gap > 255:  # a distant price: steps without weight bridge the gap
            gaps.append(255)
            values.append(0)
            gap -= 255
        gaps.append(gap)
        values.append(weights[step])
    packed_values = array("B" if max(values) < 256 else "H" if max(values) < 65_536 else "I", values)
    if _MUST_SWAP:
        packed_values.byteswap()
    return pack_sketch(steps[0], bytes(gaps), packed_values.tobytes())


def pack_sketch(first_step: int, gaps: bytes, weights: bytes) -> bytes:
    """Encode the parts of a sketch, as described at the top of the module."""
    count = len(gaps) + 1
    return _HEAD.pack(len(weights) // count, first_step, count) + gaps + weights


def merge_sketches(sketches: Iterable[bytes]) -> SketchWeights:
    """Merge sketches into one."""
    total: SketchWeights = {}
    get = total.get
    for sketch in sketches:
        width, first, count = _HEAD.unpack_from(sketch)
        start = _HEAD.size + count - 1
        weights = _weights(sketch[start : start + width * count], width)
        for step, weight in zip(accumulate(sketch[_HEAD.size : start], initial=first), weights, strict=True):
            total[step] = get(step, 0) + weight
    return total


def _weights(packed: bytes, width: int) -> Sequence[int]:
    if width == 1:
        return packed
    weights = array(_TYPES[width])
    weights.frombytes(packed)
    if _MUST_SWAP:
        weights.byteswap()
    return weights


def quantiles(weights: SketchWeights, shares: Sequence[float]) -> list[int]:
    """Return the prices (micro-dollars) under which these shares of the time lie; empty without any weight.

    Args:
        shares: in ascending order.
    """
    steps = sorted(step for step, weight in weights.items() if weight)
    if not steps:
        return []
    until = list(accumulate(weights[step] for step in steps))
    places = (bisect_left(until, until[-1] * share) for share in shares)
    return [price_of_step(steps[min(place, len(steps) - 1)]) for place in places]
