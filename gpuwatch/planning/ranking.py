"""Offers, and cards that are only thought of, in the order of what a whole job costs on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuwatch.market.marks import is_slice
from gpuwatch.market.offer import Offer, OfferKind
from gpuwatch.market.pricing import Price
from gpuwatch.planning.job import JobCost, Traffic, cost_on, stage_of
from gpuwatch.planning.job_spec import JobSpec


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An offer with what the job costs there."""

    offer: Offer
    price: Price
    cost: JobCost


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Cheapest job first, by the worst case. `refused`: how many offers are out, by the reason."""

    placed: tuple[Placed, ...]
    refused: tuple[tuple[str, int], ...] = ()  # most frequent first

    @property
    def seen(self) -> int:
        """Offers that were looked at."""
        return len(self.placed) + sum(count for _, count in self.refused)


def ranked(
    job: JobSpec, offers: Iterable[tuple[Offer, Price]], traffic: Traffic, disk_gb: float | None = None
) -> Ranking:
    """The offers on which the job can be done, and why it cannot on the others."""
    placed, refused = [], Counter[str]()
    for offer, price in offers:
        cost = _cost(job, offer, price, traffic, disk_gb)
        if isinstance(cost, str):
            refused[cost] += 1
        else:
            placed.append(Placed(offer=offer, price=price, cost=cost))
    placed.sort(key=lambda one: (one.cost.microusd, one.cost.low.microusd, one.offer.provider, one.offer.offer_id))
    return Ranking(placed=tuple(placed), refused=tuple(refused.most_common()))


def _cost(job: JobSpec, offer: Offer, price: Price, traffic: Traffic, disk_gb: float | None) -> JobCost | str:
    if is_slice(offer):
        return "slices of a GPU"
    if offer.kind is OfferKind.HISTORY or not offer.rentable:
        return "not for rent now"
    if offer.terms.prepaid:
        return "paid for a term at once"
    if disk_gb is not None and offer.disk_free_gb is not None and offer.disk_free_gb < disk_gb:
        return f"less than {disk_gb:g} GB of disk are free"
    return cost_on(job, stage_of(offer, price, disk_gb), traffic)
