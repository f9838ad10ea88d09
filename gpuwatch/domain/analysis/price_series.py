"""The lowest price of each hour: what the questions about waiting and about hours of the week are asked of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from gpuwatch.domain.analysis.market_history import MarketHistory, OfferInterval

HOUR_S = 3600
POLL_LASTS_S = 3 * HOUR_S  # what a look showed is taken for so until the next one, but no longer than this


class PriceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One value an hour, commission included, in micro-dollars per GPU-hour.

    `lows[i]` is the lowest price of hour `first_hour + i` (hours since 1970, UTC). None: nothing was on offer if
    `looked[i]`, else nobody looked, which is a gap and never "no offers".
    """

    first_hour: int
    lows: Sequence[int | None]
    polled: Sequence[bool]
    source: str

    @property
    def known(self) -> int:
        """In how many hours did somebody look?"""
        return sum(self.polled)

    def starts_at(self, index: int) -> datetime:
        """When an hour begins."""
        return datetime.fromtimestamp((self.first_hour + index) * HOUR_S, UTC)


def series_of(market_history: MarketHistory, gpu_price: Callable[[int, OfferInterval], float]) -> PriceSeries:
    """The series of a tape.

    Args:
        gpu_price: what a GPU-hour of a spell of this listing costs, commission included, in micro-dollars.
    """
    if market_history.starts_s is None or market_history.ends_s is None:
        return PriceSeries(first_hour=0, lows=(), polled=(), source=market_history.source)
    first, last = market_history.starts_s // HOUR_S, (market_history.ends_s + POLL_LASTS_S - 1) // HOUR_S
    polled = _looked(market_history, first, last)
    last = max((at for at, is_known in enumerate(polled) if is_known), default=0)
    lows: list[int | None] = [None] * (last + 1)
    for interval in market_history.intervals:
        price = max(
            1, round(gpu_price(interval.listing, interval))
        )  # many GPUs for a micro-dollar: prices are divided by
        for hour in range(max(first, interval.from_s // HOUR_S), _last_hour(interval) + 1):
            at = hour - first
            known = lows[at] if at <= last and polled[at] else -1
            if known is None or price < known:
                lows[at] = price
    return PriceSeries(first_hour=first, lows=lows, polled=polled[: last + 1], source=market_history.source)


def _last_hour(interval: OfferInterval) -> int:
    """The last hour that it was on offer in: to the look that missed it, or as long as the last look lasts."""
    lasts_s = interval.seen_s + POLL_LASTS_S
    return ((lasts_s if interval.gone_s is None else min(interval.gone_s, lasts_s)) - 1) // HOUR_S


def _looked(market_history: MarketHistory, first: int, last: int) -> list[bool]:
    polled = [False] * (last - first + 1)
    for poll in market_history.polls:
        if poll.proves_absence:
            for hour in range(poll.at_s // HOUR_S, (poll.at_s + POLL_LASTS_S - 1) // HOUR_S + 1):
                polled[hour - first] = True
    return polled
