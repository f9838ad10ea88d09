"""Where each GPU's price stands among those of 30 days, and its last week by the hour; for all GPUs at once."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.app.history.svg_small import NOTHING_ON_SALE
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.past_lows import MIN_HOURS
from gpuwatch.domain.market.price_rank import PriceRange, Standing, price_range_of, standing_of
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.language import translate as _
from gpuwatch.storage.history.queries.gpu_lows import GpuLows, read_gpu_lows

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

RANK_DAYS = 30
WEEK_HOURS = 7 * 24
_KEPT_FOR = timedelta(minutes=5)
_VERIFIED_KEPT_FOR = timedelta(minutes=30)  # computed from the prices of 30 days, which takes seconds


class GpuRank(msgspec.Struct, frozen=True, kw_only=True):
    """The past of one GPU, in micro-dollars per GPU-hour, commission included.

    Attributes:
        lows: the lowest price of each hour with offers, ascending.
        spread: None: too few hours with offers to compare with.
        week: the lowest price of each of the last hours, oldest first: None: not polled; `NOTHING_ON_SALE`.
        ends_hour: the hour since 1970 that follows them.
    """

    lows: Sequence[int] = ()
    spread: PriceRange | None = None
    week: tuple[float | None, ...] = ()
    ends_hour: int = 0

    def share_below(self, now: float) -> float | None:
        """The share of the hours that were cheaper than a price, which itself counts half; None: too little history."""
        if self.spread is None:
            return None
        return (bisect_left(self.lows, now) + bisect_right(self.lows, now)) / 2 / len(self.lows)

    def standing(self, now: float) -> Standing | None:
        """Whether a price is cheap, usual or dear; None: too little history."""
        return None if self.spread is None else standing_of(self.spread, now)

    def text(self, now: float) -> str:
        """ "Cheapest 9 %", "Usual", "Dearer than 81 %", "Too little history"."""
        share, standing = self.share_below(now), self.standing(now)
        if share is None:
            return _("Too little history")
        if standing is Standing.CHEAP:
            return _("Cheapest {percent} %").format(percent=max(1, math.ceil(100 * share)))
        if standing is Standing.DEAR:
            return _("Dearer than {percent} %").format(percent=min(99, math.floor(100 * share)))
        return _("Usual")


def market_ranks(settings: Settings, scope: MarketFilter, now: datetime) -> Mapping[str, GpuRank]:
    """The ranks of every GPU with a price in 30 days, in whole hours that are over. Raises StoreError."""
    rates = _rates(settings)
    with open_store_read_only(settings) as database:
        end_hour = int(now.timestamp()) // HOUR_S
        found, end_hour = read_gpu_lows(database, scope, end_hour, RANK_DAYS * 24, WEEK_HOURS, rates)
    return {gpu: rank_of(one, end_hour) for gpu, one in found.items()}


def _rates(settings: Settings) -> Mapping[str, float]:
    """Provider → price ÷ listed price."""
    return {name: 1 + float(commission.on_top_rate(None)) for name, commission in all_commissions(settings).items()}


def rank_of(past: GpuLows, end_hour: int) -> GpuRank:
    """The rank of what was read; `end_hour` follows the last hour."""
    lows = sorted(past.lows.values())
    return GpuRank(
        lows=lows,
        spread=price_range_of(lows) if len(lows) >= MIN_HOURS else None,
        week=tuple(
            None if hour in past.unpolled else past.lows.get(hour, NOTHING_ON_SALE)
            for hour in range(end_hour - WEEK_HOURS, end_hour)
        ),
        ends_hour=end_hour,
    )


class RecentRanks:
    """`market_ranks` for pages that many clients open: they change once an hour."""

    def __init__(self) -> None:
        self._recent: RecentReadings[Mapping[str, GpuRank]] = RecentReadings(_KEPT_FOR)
        self._recent_verified: RecentReadings[Mapping[str, GpuRank]] = RecentReadings(_VERIFIED_KEPT_FOR)

    def ranks(self, settings: Settings, scope: MarketFilter, now: datetime) -> Mapping[str, GpuRank]:
        """`market_ranks`, at most ten minutes old; of verified hosts at most an hour. Raises StoreError.

        Args:
            scope: a rental type, and whether only verified hosts count.
        """
        recent = self._recent_verified if scope.verified else self._recent
        key = settings.database_url, scope.spot
        return recent.reading(key, _rates(settings), now, lambda: market_ranks(settings, scope, now))
