"""The hourly rows of a segment, as `domain/history/hourly_rollup` computes them, for millions of them: arrays.

`tests/tools/test_year.py` compares them with the roll-up's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.year.market import Ints, Prices
from gpuwatch.domain.history.hourly_rollup import STEP
from gpuwatch.domain.setup.durations import HOUR_S


class HourRows(NamedTuple):
    """Columns of `hourly`."""

    hour: Ints
    min_microusd: Ints
    q1_microusd: Ints
    median_microusd: Ints
    q3_microusd: Ints
    offers: Ints
    offer_seconds: Ints
    sketch: list[bytes]


def hour_rows(
    prices: Prices, disk_microusd_hour: int, count: int, gaps: Sequence[tuple[int, int]], end_hour: int
) -> HourRows:
    """Aggregate a segment's prices, before `end_hour`."""
    until_s = np.where(prices.ended_s < 0, end_hour * HOUR_S, np.minimum(prices.ended_s, end_hour * HOUR_S))
    first = prices.from_s // HOUR_S
    lasting = np.maximum(0, (until_s - 1) // HOUR_S - first + 1)
    of = np.repeat(np.arange(len(first)), lasting)
    hour = first[of] + _ranks(lasting)
    begin, end = np.maximum(prices.from_s[of], hour * HOUR_S), np.minimum(until_s[of], (hour + 1) * HOUR_S)
    seconds = end - begin
    for gap_from, gap_to in gaps:
        seconds -= np.maximum(0, np.minimum(end, gap_to) - np.maximum(begin, gap_from))
    kept = seconds > 0
    of, hour, seconds = of[kept], hour[kept], seconds[kept]
    price = np.maximum(1, np.rint((prices.machine_microusd[of] + disk_microusd_hour) / count)).astype(np.int64)
    order = np.lexsort((price, hour))
    return _aggregate(hour[order], price[order], seconds[order], prices.series[of][order])


def _aggregate(hour: Ints, price: Ints, seconds: Ints, series: Ints) -> HourRows:
    """Aggregate what is sorted by hour and price."""
    starts = _starts(hour)
    sizes = np.diff(starts, append=len(hour))
    total = np.add.reduceat(seconds, starts)
    elapsed = np.cumsum(seconds)
    elapsed -= np.repeat(elapsed[starts] - seconds[starts], sizes)

    def quartile(number: int) -> Ints:
        reached = elapsed * 4 >= np.repeat(total, sizes) * number
        return price[starts + sizes - np.add.reduceat(reached.astype(np.int64), starts)]

    machines = int(series.max()) + 1
    distinct = np.unique(np.unique(hour * machines + series) // machines, return_counts=True)[1].astype(np.int64)
    sketch = _sketches(hour, price, seconds)
    return HourRows(hour[starts], price[starts], quartile(1), quartile(2), quartile(3), distinct, total, sketch)


def _sketches(hour: Ints, price: Ints, seconds: Ints) -> list[bytes]:
    step = np.rint(np.log(price) / math.log(STEP)).astype(np.int64)
    groups = _starts(hour * 100_000 + step)
    minutes = np.maximum(1, np.rint(np.add.reduceat(seconds, groups) / 60)).astype(np.int64)
    hour, step = hour[groups], step[groups]
    starts = _starts(hour)
    sizes = np.diff(starts, append=len(hour))
    most = np.maximum.reduceat(minutes, starts)
    width = np.where(most < 256, 1, np.where(most < 65_536, 2, 4))
    lengths = 5 + sizes - 1 + width * sizes
    ends = np.cumsum(lengths)
    offsets = ends - lengths
    packed = np.zeros(int(ends[-1]), np.uint8)
    packed[offsets] = width
    for at, value in ((1, step[starts]), (3, sizes)):
        packed[offsets + at], packed[offsets + at + 1] = value & 255, value >> 8 & 255
    rank, of = _ranks(sizes), np.repeat(np.arange(len(starts)), sizes)
    later = rank > 0
    steps_between = np.diff(step, prepend=0)[later]
    assert steps_between.size == 0 or steps_between.max() < 256, "prices of an hour are too far apart"
    packed[(offsets[of] + 4 + rank)[later]] = steps_between
    weights_at = offsets[of] + 4 + sizes[of] + width[of] * rank
    for byte in range(4):
        has_byte = width[of] > byte
        packed[weights_at[has_byte] + byte] = minutes[has_byte] >> 8 * byte & 255
    data = packed.tobytes()
    return [data[begin:end] for begin, end in zip(offsets.tolist(), ends.tolist(), strict=True)]


def _starts(ascending: Ints) -> Ints:
    """Return where each group of equal values begins."""
    return np.concatenate(([0], np.nonzero(np.diff(ascending))[0] + 1)).astype(np.int64)


def _ranks(sizes: Ints) -> Ints:
    """Return 0 … size - 1 for each group."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
