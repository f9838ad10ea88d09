"""Where a price stands among those of its history. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class PriceRange(NamedTuple):
    """The spread of prices, such as the lowest of each hour of 30 days."""

    low: float
    q1: float
    median: float
    q3: float
    high: float


class Standing(StrEnum):
    """How a price compares with its history."""

    CHEAP = "cheap"  # at or under the first quartile
    USUAL = "usual"
    DEAR = "dear"  # at or over the third quartile


def standing_of(history: PriceRange, now: float) -> Standing:
    """Where a price stands. One that is the median, too, because it hardly ever changes, is usual."""
    if now <= history.q1 and now < history.median:
        return Standing.CHEAP
    return Standing.DEAR if now >= history.q3 and now > history.median else Standing.USUAL


def price_range_of(prices: Sequence[float]) -> PriceRange:
    """The spread of at least one price; quartiles are those of `statistics.quantiles(method="inclusive")`."""
    ordered = sorted(prices)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        index = int(place)
        above = ordered[min(index + 1, len(ordered) - 1)]
        return ordered[index] + (above - ordered[index]) * (place - index)

    return PriceRange(ordered[0], at(0.25), at(0.5), at(0.75), ordered[-1])
