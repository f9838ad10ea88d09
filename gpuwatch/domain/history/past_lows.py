"""What the lowest prices of past hours say about a price: the limits of three clauses, and its rank. Pure.

- `new_low`, `drop_by` and `percentile`: the limit of each, from the hourly lowest prices of its span;
- `times_under`: how often the price was under a limit;
- `joined_lows`, `rank_price`, `rank_in`: the rank of a price among those of the last 30 days at all providers.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import Commission, price_of, price_text, usd
from gpuwatch.domain.setup.durations import HOUR_S, format_duration, format_moment
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE, PastLimit

if TYPE_CHECKING:
    from gpuwatch.domain.history.price_series import PriceSeries  # with numpy: a rank needs none
    from gpuwatch.domain.market.offer import Offer

PARTS = 30  # known time is counted in thirtieths of the span, so that one price a day makes a month of history
_LEAST_SHARE = 3  # a third of them must be known

WINDOW_DAYS = 30
MIN_DAYS = 7  # with offers at an hour of the day; with fewer, no statement about that hour
LEAST_HOURS_UNDER = 24  # known; with fewer, no statement about how often a price was under a limit
MIN_HOURS = 72  # with offers; with fewer, no statement about the month


class PriceRank(msgspec.Struct, frozen=True, kw_only=True):
    """A percentile rank and the data behind it."""

    share: float  # mid-rank, 0 to 1: 0 is lower than ever before
    hours: int  # hours with offers that the price was compared with
    days: int  # from the first of them to the last

    @property
    def text(self) -> str:
        """ "cheapest 4 % of 30 days (n = 702 hours)"."""
        if self.share == 0:
            rank = f"the lowest of {count_text(self.days, 'day')}"
        elif self.share > 0.5:
            rank = f"{math.floor(self.share * 100)} % of {count_text(self.days, 'day')} were cheaper"
        else:
            rank = f"cheapest {math.ceil(self.share * 100)} % of {count_text(self.days, 'day')}"
        return f"{rank} (n = {count_text(self.hours, 'hour')})"


class HourlyLows(msgspec.Struct, frozen=True):
    """The lowest GPU prices of the hours with offers, in micro-dollars, ascending."""

    lows: Sequence[int]
    days: int
    hours: Sequence[int] = ()  # the hour of each, since 1970; of one price, the earliest first


def new_low_limit(gpu: str, spot: bool, series: PriceSeries, span_s: float, now: datetime) -> PastLimit:
    """The lowest price of a GPU and rental type within the span up to now.

    Args:
        series: all stored prices of this GPU and rental type.
    """
    hours = _hours(series, span_s, now)
    lows = [(hour, low) for hour, low, _ in hours if low is not None]
    basis = _too_little((hour for hour, _, polled in hours if polled), span_s, now, "is known")
    if basis is None and not lows:
        basis = f"no offers within {format_duration(span_s)}, so there is no price to compare with"
    if basis is not None:
        return PastLimit(clause=NEW_LOW, gpu=gpu, spot=spot, microusd_gpu_hour=None, basis=basis)
    low, since = min(low for _, low in lows), _moment(lows[0][0])
    basis = f"${_text(low)}, the lowest of {count_text(len(lows), 'hour')} since {format_moment(since)}"
    return PastLimit(
        clause=NEW_LOW, gpu=gpu, spot=spot, microusd_gpu_hour=low, basis=basis, hours=len(lows), since=since
    )


def drop_limit(gpu: str, spot: bool, series: PriceSeries, by: float, span_s: float, now: datetime) -> PastLimit:
    """The price that is this share below the median within the span up to now.

    Args:
        series: the prices that fit the watch.
        by: 0.2 means 20 % below.
    """
    lows = [(hour, low) for hour, low, _ in _hours(series, span_s, now) if low is not None]
    basis = _too_little((hour for hour, _ in lows), span_s, now, "has a matching offer")
    if basis is not None:
        return PastLimit(clause=DROP_BY, gpu=gpu, spot=spot, microusd_gpu_hour=None, basis=basis)
    middle, since = median(low for _, low in lows), _moment(lows[0][0])
    most = middle * (1 - by)
    basis = (
        f"${_text(most)}, {by * 100:g} % below the median of ${_text(middle)}"
        f" (n = {count_text(len(lows), 'hour')} of {format_duration(span_s)}, since {format_moment(since)})"
    )
    return PastLimit(
        clause=DROP_BY, gpu=gpu, spot=spot, microusd_gpu_hour=most, basis=basis, hours=len(lows), since=since
    )


def percentile_limit(
    gpu: str, spot: bool, series: PriceSeries, percent: float, span_s: float, now: datetime
) -> PastLimit:
    """The highest price within the lowest `percent` of the prices in the span up to now.

    Args:
        series: the prices that fit the watch.
        percent: 5 means at or under the prices of the cheapest 5 % of the hours, rounded up.
    """
    lows = [(hour, low) for hour, low, _ in _hours(series, span_s, now) if low is not None]
    basis = _too_little((hour for hour, _ in lows), span_s, now, "has a matching offer")
    least = math.ceil(100 / percent - 1e-9)  # with fewer hours, the lowest part would be less than one hour
    if basis is None and len(lows) < least:
        basis = (
            f"too little history: {count_text(len(lows), 'hour')} have a matching offer; {percent:g} % requires {least}"
        )
    if basis is not None:
        return PastLimit(clause=PERCENTILE, gpu=gpu, spot=spot, microusd_gpu_hour=None, basis=basis)
    rank, since = math.ceil(len(lows) * percent / 100 - 1e-9), _moment(lows[0][0])
    most = sorted(low for _, low in lows)[rank - 1]
    basis = (
        f"${_text(most)}, the lowest {percent:g} %"
        f" (n = {count_text(len(lows), 'hour')} of {format_duration(span_s)}, since {format_moment(since)})"
    )
    return PastLimit(
        clause=PERCENTILE, gpu=gpu, spot=spot, microusd_gpu_hour=most, basis=basis, hours=len(lows), since=since
    )


def times_under(series: PriceSeries, microusd_gpu_hour: float) -> int | None:
    """How often the lowest price came to a limit or below it; None: it is known for less than a day.

    Such a time ends with an hour that a poll covers without such a price; hours that no poll covers end none.
    """
    known = [low for low, polled in zip(series.lows, series.polled, strict=True) if polled]
    if len(known) < LEAST_HOURS_UNDER:
        return None
    under = [low is not None and low <= microusd_gpu_hour for low in known]
    return sum(now and not before for before, now in zip([False, *under], under, strict=False))


def _hours(series: PriceSeries, span_s: float, now: datetime) -> list[tuple[int, int | None, bool]]:
    """The hours within the span up to now, with the lowest price of each, and whether a poll covers it."""
    first, last = int((now - timedelta(seconds=span_s)).timestamp()) // HOUR_S, int(now.timestamp()) // HOUR_S
    entries = zip(series.lows, series.polled, strict=True)
    numbered = ((series.first_hour + at, low, polled) for at, (low, polled) in enumerate(entries))
    return [entry for entry in numbered if first <= entry[0] <= last]


def _too_little(hours: Iterable[int], span_s: float, now: datetime, what: str) -> str | None:
    """Why the history is too short; None: it is long enough."""
    part_s, last = max(span_s / PARTS, HOUR_S), int(now.timestamp()) // HOUR_S
    known_s = min(len({int((last - hour) * HOUR_S // part_s) for hour in hours}) * part_s, span_s)
    if known_s * _LEAST_SHARE >= span_s:
        return None
    known, third = format_duration(round(known_s)), format_duration(round(span_s / _LEAST_SHARE))
    return f"too little history: {known} of {format_duration(span_s)} {what}, {third} required"


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * HOUR_S, UTC)


def _text(microusd: float) -> str:
    return price_text(usd(round(microusd)), most=6)


def joined_lows(parts: Iterable[tuple[HourlyLows, float]], first_hour: int = 0) -> HourlyLows:
    """The lowest price of each hour of several parts of the market, commission included.

    Args:
        parts: at least one, with its price ÷ listed price.
        first_hour: those before it are dropped.
    """
    by_hour: dict[int, int] = {}
    for part, rate in parts:
        for hour, listed in zip(part.hours, part.lows, strict=True):
            if hour >= first_hour:
                low = round(listed * rate)
                by_hour[hour] = min(low, by_hour.get(hour, low))
    hours = sorted(by_hour, key=lambda hour: (by_hour[hour], hour))
    days = -(-(max(hours) - min(hours) + 1) // 24) if hours else 0
    return HourlyLows(lows=array("q", (by_hour[hour] for hour in hours)), days=days, hours=array("i", hours))


def rank_price(offer: Offer, disk_gb: float, commission_rate: float) -> int:
    """The GPU price of an offer that its rank compares: with commission, and rounded as the stored hours are.

    Args:
        disk_gb: the disk that the history's prices include; not that of the watch.
    """
    listed = price_of(offer, disk_gb, Commission()).listed_microusd_hour
    return round(round(listed / offer.gpu_count) * (1 + commission_rate))


def rank_in(history: HourlyLows, gpu_microusd_hour: float) -> PriceRank | None:
    """The rank of a GPU price; None: fewer than `MIN_HOURS` hours to compare with."""
    if len(history.lows) < MIN_HOURS:
        return None
    cheaper, not_dearer = bisect_left(history.lows, gpu_microusd_hour), bisect_right(history.lows, gpu_microusd_hour)
    share = (cheaper + not_dearer) / 2 / len(history.lows)  # as `price_series.percentile_rank`, for sorted prices
    return PriceRank(share=share, hours=len(history.lows), days=history.days)


def arrivals_at(history: HourlyLows, gpu_microusd_hour: float, hour_of_day: int) -> float:
    """How much more likely a listed GPU price at or under this one was at this hour of the day (UTC) than at any hour.

    1.0 if too little is known: fewer than `MIN_DAYS` days, or no such price.
    """
    reached = bisect_right(history.lows, gpu_microusd_hour)
    then = [index < reached for index, hour in enumerate(history.hours) if hour % 24 == hour_of_day]
    if len(then) < MIN_DAYS or not reached:
        return 1.0
    usual = reached / len(history.hours)
    return (sum(then) + 2 * usual) / (len(then) + 2) / usual  # plus two average days: few days are weak evidence
