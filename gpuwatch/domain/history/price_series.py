"""Price series: the lowest price of each hour, and what follows from it. Pure.

- the series of a market history, its parts and its union with another;
- gaps, the time under a price, the rank of a price;
- periods (minutes, hours, days, weeks) of local time;
- slow markets, polled once a day or once a week, as series with a step of that length: a poll counts for three hours,
  so that by the hour seven of eight hours would be unknown, and no wait could be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum
from itertools import groupby, pairwise
from math import inf
from statistics import median
from typing import NamedTuple

import msgspec

from gpuwatch.domain.history.market_history import COVERAGE_S, MarketHistory, OfferInterval
from gpuwatch.domain.history.market_polls import complete_polls, poll_times
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.setup.durations import HOUR_S

_NEAR_HOURS = 1  # an hour without a poll takes the price of a neighbouring hour at most this far away

STEPS_H = {"hour": 1, "day": 24, "week": 168}
_LONGEST_STRETCH_H = 2 * COVERAGE_S // HOUR_S  # mean run of known hours; longer runs come from hourly polls
LEAST_KNOWN_SHARE = 0.25  # of the entries of a series; with fewer, too much is unknown (assumed)


class PriceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One value per hour, commission included, in micro-dollars per GPU-hour.

    `lows[i]` is the lowest price of hour `first_hour + i` (hours since 1970, UTC). None: nothing was on offer if
    `polled[i]`; otherwise there was no poll: a gap, never "no offers". With a longer step (`with_step`), an
    entry covers `step_h` hours. With an offset, hours begin so many seconds after those of UTC.
    """

    first_hour: int
    lows: Sequence[int | None]
    polled: Sequence[bool]
    source: str
    step_h: int = 1
    offset_s: int = 0

    @property
    def known(self) -> int:
        """Number of entries with a poll."""
        return sum(self.polled)

    def starts_at(self, index: int) -> datetime:
        """The start of an entry."""
        return datetime.fromtimestamp((self.first_hour + index * self.step_h) * HOUR_S + self.offset_s, UTC)


class PeriodLength(StrEnum):
    """Length of a period."""

    TEN_MINUTES = "10m"  # from the prices themselves: aggregates are hourly
    HOUR = "1h"
    TWO_HOURS = "2h"
    SIX_HOURS = "6h"
    DAY = "1d"
    WEEK = "1w"


PERIODS_S = {  # of periods that no zone moves
    PeriodLength.TEN_MINUTES: 600,
    PeriodLength.HOUR: HOUR_S,
    PeriodLength.TWO_HOURS: 2 * HOUR_S,
    PeriodLength.SIX_HOURS: 6 * HOUR_S,
}


class PricePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """A period. Without offers the prices are None; `polled` shows whether that is known.

    Prices are GPU prices in micro-dollars, weighted by time on offer; listed prices, unless the name says otherwise.
    """

    starts_at: datetime
    hours: int  # rounded: 0 for ten minutes
    polled: bool
    known_hours: int = 0  # hours with a poll, rounded
    offers: int = 0  # identities: the highest number in any hour of the period
    min_microusd: int | None = None
    min_with_commission_microusd: int | None = None
    q1_microusd: int | None = None
    median_microusd: int | None = None
    q3_microusd: int | None = None
    q1_with_commission_microusd: int | None = None
    median_with_commission_microusd: int | None = None
    q3_with_commission_microusd: int | None = None


class PricePeriods(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive periods, and the lowest price of each of their hours."""

    points: list[PricePeriod]
    series: PriceSeries


class UnobservedGap(msgspec.Struct, frozen=True, kw_only=True):
    """Hours without a poll."""

    starts_at: datetime
    hours: int


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the known time in which the cheapest offer was at or under a price."""

    under_s: int
    known_s: int
    method: str

    @property
    def share(self) -> float | None:
        """0 to 1; None: no time is known."""
        return self.under_s / self.known_s if self.known_s else None


class PeriodSpan(NamedTuple):
    """A period, in seconds since 1970."""

    start_s: int
    end_s: int

    @property
    def hours(self) -> int:
        """Its length, rounded to hours."""
        return round((self.end_s - self.start_s) / HOUR_S)

    def known_s(self, polled: Container[int], unit_s: int = HOUR_S) -> int:
        """The part of it that a poll covers. `polled`: hours, or other units, since 1970, UTC."""
        return sum(
            min(self.end_s, (unit + 1) * unit_s) - max(self.start_s, unit * unit_s)
            for unit in range(self.start_s // unit_s, -(-self.end_s // unit_s))
            if unit in polled
        )

    def known_hours(self, known_s: int) -> int:
        """`known_s`, rounded to hours: at least one if anything is known."""
        return min(self.hours, max(1, round(known_s / HOUR_S))) if known_s else 0


def gpu_pricer(
    market_history: MarketHistory, commissions: Mapping[str, Commission], disk_gb: float
) -> Callable[[int, OfferInterval], float]:
    """Return a function that prices a GPU-hour of an interval: micro-dollars, with commission and a disk of this size.

    Args:
        commissions: by provider; default: no commission.
    """
    rates = {name: float(commission.on_top_rate(None)) for name, commission in commissions.items()}

    def gpu_price(listing: int, interval: OfferInterval) -> float:
        who = market_history.listings[listing]
        return interval.listed_microusd_hour(disk_gb) * (1 + rates.get(who.provider, 0.0)) / who.gpu_count

    return gpu_price


def series_of(
    market_history: MarketHistory, gpu_price: Callable[[int, OfferInterval], float], offset_s: int = 0
) -> PriceSeries:
    """Build the series of a market history, up to the time from which nothing is known.

    Args:
        gpu_price: the GPU price of an interval of this listing, commission included, in micro-dollars.
        offset_s: seconds between the full hours of UTC and those of the series.
    """
    if market_history.starts_s is None or market_history.ends_s is None:
        return PriceSeries(first_hour=0, lows=(), polled=(), source=market_history.source)
    after_s = market_history.ends_s + COVERAGE_S
    if market_history.until_s is not None:
        after_s = max(market_history.starts_s + 1, min(after_s, market_history.until_s))
    first, last = (market_history.starts_s - offset_s) // HOUR_S, (after_s - 1 - offset_s) // HOUR_S
    polled = _polled_hours(market_history, first, last, offset_s)
    last = max((at for at, is_known in enumerate(polled) if is_known), default=0)
    lows: list[int | None] = [None] * (last + 1)
    for interval in market_history.intervals:
        price = max(1, round(gpu_price(interval.listing, interval)))  # never 0: other code divides by prices
        for hour in range(max(first, (interval.from_s - offset_s) // HOUR_S), last_hour(interval, offset_s) + 1):
            at = hour - first
            known = lows[at] if at <= last and polled[at] else -1
            if known is None or price < known:
                lows[at] = price
    return PriceSeries(
        first_hour=first, lows=lows, polled=polled[: last + 1], source=market_history.source, offset_s=offset_s
    )


def last_hour(interval: OfferInterval, offset_s: int = 0) -> int:
    """The last hour on offer: until the poll that missed it, or as long as the last poll counts."""
    lasts_s = interval.seen_s + COVERAGE_S
    return ((lasts_s if interval.ended_s is None else min(interval.ended_s, lasts_s)) - 1 - offset_s) // HOUR_S


def _polled_hours(market_history: MarketHistory, first: int, last: int, offset_s: int) -> list[bool]:
    times = poll_times(complete_polls(market_history.polls))
    hours: set[int] = set()
    for lag_s in (*range(0, COVERAGE_S, HOUR_S), COVERAGE_S - 1):
        hours.update([(at_s - offset_s + lag_s) // HOUR_S for at_s in times])
    return [hour in hours for hour in range(first, last + 1)]


def period_spans(first_hour: int, after_hour: int, every: PeriodLength, zone: tzinfo) -> Iterator[PeriodSpan]:
    """The periods of these hours (since 1970, UTC): days and weeks start at local midnight, weeks on Monday.

    In a zone with half hours, midnight lies within an hour of UTC.
    """
    start_s, after_s = first_hour * HOUR_S, after_hour * HOUR_S
    while start_s < after_s:
        end_s = min(_next_start_s(start_s, every, zone), after_s)
        yield PeriodSpan(start_s, end_s)
        start_s = end_s


def _next_start_s(at_s: int, every: PeriodLength, zone: tzinfo) -> int:
    if every in PERIODS_S:
        step_s = PERIODS_S[every]
        return at_s - at_s % step_s + step_s
    today = datetime.fromtimestamp(at_s, zone).date()
    days = 1 if every is PeriodLength.DAY else 7 - today.weekday()
    midnight = datetime.combine(today + timedelta(days=days), time(), zone)
    return max(int(midnight.timestamp()), at_s + 1)


def unobserved_gaps(series: PriceSeries) -> list[UnobservedGap]:
    """Gaps without a poll between hours with one."""
    found: list[UnobservedGap] = []
    at = 0
    for polled, hours in groupby(series.polled):
        length = len(list(hours))
        if not polled and 0 < at < len(series.polled) - length:
            found.append(UnobservedGap(starts_at=series.starts_at(at), hours=length))
        at += length
    return found


def hours_under(series: PriceSeries, x_microusd: float) -> TimeShare:
    """The share in whole hours: an hour counts if its lowest price was at or under the price."""
    under = sum(low is not None and low <= x_microusd for low in series.lows)
    return TimeShare(
        under_s=under * HOUR_S,
        known_s=series.known * HOUR_S,
        method="hours whose lowest price was at or under it, of the hours in which somebody looked",
    )


def lowest_before(series: PriceSeries, now: datetime, hours_back: int) -> int | None:
    """The lowest price of the hour this far back; None: nothing was on offer, or there is no poll near it."""
    at = int(now.timestamp()) // HOUR_S - hours_back - series.first_hour
    for near in (0, *(sign * step for step in range(1, _NEAR_HOURS + 1) for sign in (-1, 1))):
        if 0 <= at + near < len(series.lows) and series.polled[at + near]:
            return series.lows[at + near]
    return None


def percentile_rank(series: PriceSeries, price_microusd: float) -> float | None:
    """The share of the hours with offers that were cheaper than this; hours at exactly this price count half.

    The textbook percentile rank (mid-rank), 0 to 1: 0 is lower than ever before. None: nothing to compare with.
    """
    lows = [low for low in series.lows if low is not None]
    if not lows:
        return None
    return sum(1.0 if low < price_microusd else 0.5 if low == price_microusd else 0.0 for low in lows) / len(lows)


def cut_series(series: PriceSeries, from_hour: int, after_hour: int | None = None) -> PriceSeries:
    """The part from one hour up to, but not including, another."""
    start = min(max(0, from_hour - series.first_hour), len(series.lows))
    end = None if after_hour is None else max(start, after_hour - series.first_hour)
    return msgspec.structs.replace(
        series,
        first_hour=series.first_hour + start,
        lows=series.lows[start:end],
        polled=series.polled[start:end],
    )


def known_until(series: PriceSeries, now: datetime) -> PriceSeries:
    """The part up to now: the result of a poll counts for hours after it, but never beyond now."""
    return cut_series(series, series.first_hour, (int(now.timestamp()) - series.offset_s) // HOUR_S + 1)


def with_newer(series: PriceSeries, newer: PriceSeries) -> PriceSeries:
    """Merge a series with one read later: the lower price of each hour, and every poll of both."""
    if not newer.lows:
        return series
    if not series.lows:
        return newer
    first = min(series.first_hour, newer.first_hour)
    after = max(one.first_hour + len(one.lows) for one in (series, newer))
    lows: list[int | None] = [None] * (after - first)
    polled = [False] * (after - first)
    for one in (series, newer):
        for at, (low, is_polled) in enumerate(zip(one.lows, one.polled, strict=True), one.first_hour - first):
            known = lows[at]
            lows[at] = low if known is None or (low is not None and low < known) else known
            polled[at] = polled[at] or is_polled
    return msgspec.structs.replace(series, first_hour=first, lows=lows, polled=polled)


def step_name(step_h: int) -> str:
    """Return "hour", "day" or "week"."""
    return next(name for name, hours in STEPS_H.items() if hours == step_h)


def on_own_step(series: PriceSeries) -> PriceSeries:
    """The series by the hour, if polls cover a quarter of all hours; otherwise by the day or the week.

    At least half of the polls must come within four steps of the previous one. The series stays hourly if they do not,
    even by the week, or if it is an hourly history with long gaps.
    """
    starts = [
        hour for hour, is_known in enumerate(series.polled) if is_known and not (hour and series.polled[hour - 1])
    ]
    if series.known >= LEAST_KNOWN_SHARE * len(series.polled) or series.known > _LONGEST_STRETCH_H * len(starts):
        return series
    spacing = median(later - one for one, later in pairwise(starts)) if len(starts) > 1 else inf
    steps = (step_h for step_h in STEPS_H.values() if LEAST_KNOWN_SHARE * spacing <= step_h)
    return with_step(series, next(steps, 1))


def with_step(series: PriceSeries, step_h: int) -> PriceSeries:
    """The lowest price of each step, counted back from the newest hour; the last entry is the newest price."""
    hours = len(series.polled)
    if step_h == 1 or not hours:
        return series
    ends = range(hours, 0, -step_h)[::-1]
    parts = [slice(max(0, end - step_h), end) for end in ends]
    lows = [min((low for low in series.lows[part] if low is not None), default=None) for part in parts]
    newest = max((at for at, is_known in enumerate(series.polled) if is_known), default=hours - 1)
    if newest >= hours - step_h:
        lows[-1] = series.lows[newest]
    return msgspec.structs.replace(
        series,
        first_hour=series.first_hour + hours - len(parts) * step_h,
        lows=lows,
        polled=[any(series.polled[part]) for part in parts],
        step_h=step_h,
    )
