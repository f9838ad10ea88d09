"""Limits out of the stored prices: `new_low`, `drop_by`, `percentile`. Pure; computed by `analysis.past_prices`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import Commission, OfferPrice, price_of

NEW_LOW, DROP_BY, PERCENTILE = "new_low", "drop_by", "percentile"
_TOLERANCE = 1e-6  # more than floating-point error, less than any price step


class PastLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What an offer of one GPU and rental type must cost to satisfy one clause."""

    clause: str  # NEW_LOW: under it; the others: at or under it
    gpu: str
    spot: bool
    microusd_gpu_hour: float | None  # None: nothing to compare with, so nothing satisfies the clause
    basis: str  # what it rests on, or why there is nothing to compare with
    hours: int = 0  # with offers, that it rests on
    since: datetime | None = None  # the first of them

    @property
    def of(self) -> str:
        """Its GPU and rental type."""
        return f"{self.gpu} spot" if self.spot else self.gpu

    @property
    def how(self) -> str:
        """How a price must compare with it."""
        return "under" if self.clause == NEW_LOW else "at or under"

    def is_met_by(self, microusd_gpu_hour: float, *, or_equal: bool) -> bool:
        """Whether a GPU price satisfies it, apart from what rounding may change."""
        if self.microusd_gpu_hour is None:
            return False
        slack = self.microusd_gpu_hour * _TOLERANCE + 1
        return microusd_gpu_hour <= self.microusd_gpu_hour + (slack if or_equal else -slack)


def comparable_microusd(offer: Offer, price: OfferPrice, disk_gb: float) -> float:
    """The GPU price as the history keeps it: with a disk of this size, and with the offer's commission."""
    rate = Commission(repr(price.commission_rate))
    return price_of(offer, disk_gb, rate).price_microusd_hour / offer.gpu_count


class PastComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What the history asks of the offers of one watch at this moment."""

    limits: tuple[PastLimit, ...]
    disk_gb: float  # that its prices include
    or_equal: bool = False  # a price equal to the lowest counts as a new low, too

    def unmet(self, offer: Offer, microusd_gpu_hour: float) -> PastLimit | None:
        """The first of the limits of an offer's GPU and rental type that it does not meet."""
        for limit in self.limits_of(offer):
            if not limit.is_met_by(microusd_gpu_hour, or_equal=self.or_equal or limit.clause != NEW_LOW):
                return limit
        return None

    def limits_of(self, offer: Offer) -> list[PastLimit]:
        """Those of an offer's GPU and rental type."""
        return [one for one in self.limits if (one.gpu, one.spot) == (offer.gpu, offer.spot)]


def is_compared(offer: Offer) -> bool:
    """Whether its price can be compared: kinds of price are never mixed, and the limits rest on live prices."""
    return offer.kind is OfferKind.LIVE
