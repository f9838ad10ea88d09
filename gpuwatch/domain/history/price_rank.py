"""The rank of a price among the hourly lowest prices of the last 30 days, as shown in an alert. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.domain.market.figure_text import count_text

WINDOW_DAYS = 30
MIN_DAYS = 7  # with offers at an hour of the day; with fewer, no statement about that hour
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
    """The lowest listed GPU prices of the hours with offers, in micro-dollars, ascending."""

    lows: Sequence[int]
    days: int
    by_hour: Mapping[int, int] = {}  # hour since 1970 → its lowest price


def rank_in(history: HourlyLows, gpu_microusd_hour: float) -> PriceRank | None:
    """The rank of a listed GPU price; None: fewer than `MIN_HOURS` hours to compare with."""
    if len(history.lows) < MIN_HOURS:
        return None
    cheaper, not_dearer = bisect_left(history.lows, gpu_microusd_hour), bisect_right(history.lows, gpu_microusd_hour)
    share = (cheaper + not_dearer) / 2 / len(history.lows)  # as `price_series.percentile_rank`, for sorted prices
    return PriceRank(share=share, hours=len(history.lows), days=history.days)


def arrivals_at(history: HourlyLows, gpu_microusd_hour: float, hour_of_day: int) -> float:
    """How much more likely a listed GPU price at or under this one was at this hour of the day (UTC) than at any hour.

    1.0 if too little is known: fewer than `MIN_DAYS` days, or no such price.
    """
    under = {hour: low <= gpu_microusd_hour for hour, low in history.by_hour.items()}
    then = [is_under for hour, is_under in under.items() if hour % 24 == hour_of_day]
    if len(then) < MIN_DAYS or not any(under.values()):
        return 1.0
    usual = sum(under.values()) / len(under)
    return (sum(then) + 2 * usual) / (len(then) + 2) / usual  # plus two average days: few days are weak evidence
