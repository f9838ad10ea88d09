"""A price over time in few figures: spans with quartiles, time under a price, gaps, changes, a place in its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import groupby

import msgspec

from gpuwatch.domain.analysis.price_series import HOUR_S, PriceSeries

_NEAR_HOURS = 1  # where nobody looked in the very hour, the price of the one before or after it stands for it


class PeriodLength(StrEnum):
    """How long a span is."""

    HOUR = "1h"
    DAY = "1d"
    WEEK = "1w"


class PricePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """A span of a price track. Without offers the prices are None; `looked` tells whether that is known.

    Prices are GPU prices in micro-dollars, by time on offer; listed, unless their name says otherwise.
    """

    starts_at: datetime
    hours: int
    polled: bool
    known_hours: int = 0  # in so many of them somebody looked
    offers: int = 0  # identities; the most that any hour of the span had
    min_microusd: int | None = None
    min_with_commission_microusd: int | None = None
    q1_microusd: int | None = None
    median_microusd: int | None = None
    q3_microusd: int | None = None
    q1_with_commission_microusd: int | None = None
    median_with_commission_microusd: int | None = None
    q3_with_commission_microusd: int | None = None


class PricePeriods(msgspec.Struct, frozen=True, kw_only=True):
    """Spans without a break, and the lowest price of each hour in them."""

    points: list[PricePeriod]
    series: PriceSeries


class UnobservedGap(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody looked."""

    starts_at: datetime
    hours: int


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the time that is known the cheapest was at or under a price."""

    under_s: int
    known_s: int
    method: str

    @property
    def share(self) -> float | None:
        """0 to 1; None: nothing is known."""
        return self.under_s / self.known_s if self.known_s else None


def hours_by_period(first_hour: int, after_hour: int, every: PeriodLength, zone: tzinfo) -> Iterator[list[int]]:
    """The hours (since 1970, UTC) of each span; days and weeks begin at local midnight, weeks on Monday."""
    for _, hours in groupby(range(first_hour, after_hour), key=_spanner(every, zone)):
        yield list(hours)


def _spanner(every: PeriodLength, zone: tzinfo) -> Callable[[int], object]:
    if every is PeriodLength.HOUR:
        return lambda hour: hour

    def day(hour: int) -> date:
        local = datetime.fromtimestamp(hour * HOUR_S, zone).date()
        return local if every is PeriodLength.DAY else local - timedelta(days=local.weekday())

    return day


def unobserved_gaps(series: PriceSeries) -> list[UnobservedGap]:
    """Where nobody looked, between hours in which somebody did."""
    found: list[UnobservedGap] = []
    at = 0
    for polled, hours in groupby(series.polled):
        length = len(list(hours))
        if not polled and 0 < at < len(series.polled) - length:
            found.append(UnobservedGap(starts_at=series.starts_at(at), hours=length))
        at += length
    return found


def hours_under(series: PriceSeries, x_microusd: float) -> TimeShare:
    """By hours: an hour counts if its lowest price was at or under the price."""
    under = sum(low is not None and low <= x_microusd for low in series.lows)
    return TimeShare(
        under_s=under * HOUR_S,
        known_s=series.known * HOUR_S,
        method="hours whose lowest price was at or under it, of the hours in which somebody looked",
    )


def lowest_before(series: PriceSeries, now: datetime, hours_back: int) -> int | None:
    """The lowest price of the hour that lies so long back; None: nothing was on offer, or nobody looked near it."""
    at = int(now.timestamp()) // HOUR_S - hours_back - series.first_hour
    for near in (0, *(sign * step for step in range(1, _NEAR_HOURS + 1) for sign in (-1, 1))):
        if 0 <= at + near < len(series.lows) and series.polled[at + near]:
            return series.lows[at + near]
    return None


def percentile_rank(series: PriceSeries, price_microusd: float) -> float | None:
    """In which share of the hours with offers it was cheaper than this; hours at this very price count half.

    The percentile rank of textbooks (mid-rank), 0 to 1: 0 is a price lower than ever. None: nothing to compare with.
    """
    lows = [low for low in series.lows if low is not None]
    if not lows:
        return None
    return sum(1.0 if low < price_microusd else 0.5 if low == price_microusd else 0.0 for low in lows) / len(lows)


def cut_series(series: PriceSeries, from_hour: int, after_hour: int | None = None) -> PriceSeries:
    """The part from an hour on, and before another."""
    start = min(max(0, from_hour - series.first_hour), len(series.lows))
    end = None if after_hour is None else max(start, after_hour - series.first_hour)
    return msgspec.structs.replace(
        series,
        first_hour=series.first_hour + start,
        lows=series.lows[start:end],
        polled=series.polled[start:end],
    )


def period_start(hours: Sequence[int]) -> datetime:
    """When a span begins."""
    return datetime.fromtimestamp(hours[0] * HOUR_S, UTC)
