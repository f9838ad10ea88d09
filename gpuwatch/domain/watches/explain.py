"""Explains why a watch does not match: the nearest offers, and which clauses rejected them by how much."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import Commission, OfferPrice
from gpuwatch.domain.watches.clause import Failure
from gpuwatch.domain.watches.match import failures, price_for
from gpuwatch.domain.watches.watch import Watch


class NearMiss(msgspec.Struct, frozen=True):
    """An offer that a watch rejected, with all clauses that rejected it."""

    offer: Offer
    price: OfferPrice
    failures: tuple[Failure, ...]

    @property
    def off(self) -> float:
        """The total distance; only for ordering."""
        return sum(failure.off for failure in self.failures)


def nearest(
    watch: Watch,
    offers: Iterable[Offer],
    commissions: Mapping[str, Commission],
    now: datetime,
    limit: int = 5,
) -> tuple[NearMiss, ...]:
    """Return the nearest of the rejected offers.

    Sorted by the right GPU, then the fewest clauses, then the smallest distance.
    """
    misses = []
    for offer in offers:
        price = price_for(watch, offer, commissions)
        refused = failures(watch, offer, price, now)
        if refused:
            misses.append(NearMiss(offer, price, refused))
    return tuple(heapq.nsmallest(limit, misses, key=_distance))


def _distance(miss: NearMiss) -> tuple[bool, int, float, float, str, str]:
    wrong_gpu = any(failure.clause == "gpu" for failure in miss.failures)
    gpu_price = miss.price.price_microusd_hour / miss.offer.gpu_count
    return (wrong_gpu, len(miss.failures), miss.off, gpu_price, miss.offer.provider, miss.offer.offer_id)
