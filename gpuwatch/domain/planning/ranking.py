"""Offers, and cards that are only thought of, in the order of what a whole job costs on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuwatch.domain.market.marks import is_slice
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import OfferPrice
from gpuwatch.domain.planning.job import (
    JobCost,
    JobTraffic,
    cost_on,
    priced_gpus_of,
)
from gpuwatch.domain.planning.job_spec import JobSpec


class JobOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer with what the job costs there."""

    offer: Offer
    price: OfferPrice
    cost: JobCost


class JobRanking(msgspec.Struct, frozen=True, kw_only=True):
    """Cheapest job first, by the worst case. `refused`: how many offers are out, by the reason."""

    placed: tuple[JobOffer, ...]
    refused: tuple[tuple[str, int], ...] = ()  # most frequent first

    @property
    def seen(self) -> int:
        """Offers that were looked at."""
        return len(self.placed) + sum(count for _, count in self.refused)


def rank_offers(
    job: JobSpec, offers: Iterable[tuple[Offer, OfferPrice]], traffic: JobTraffic, disk_gb: float | None = None
) -> JobRanking:
    """The offers on which the job can be done, and why it cannot on the others."""
    placed, refused = [], Counter[str]()
    for offer, price in offers:
        cost = _cost(job, offer, price, traffic, disk_gb)
        if isinstance(cost, str):
            refused[cost] += 1
        else:
            placed.append(JobOffer(offer=offer, price=price, cost=cost))
    placed.sort(key=lambda one: (one.cost.microusd, one.cost.low.microusd, one.offer.provider, one.offer.offer_id))
    return JobRanking(placed=tuple(placed), refused=tuple(refused.most_common()))


def _cost(job: JobSpec, offer: Offer, price: OfferPrice, traffic: JobTraffic, disk_gb: float | None) -> JobCost | str:
    if is_slice(offer):
        return "slices of a GPU"
    if offer.kind is OfferKind.HISTORY or not offer.rentable:
        return "not for rent now"
    if offer.terms.prepaid:
        return "paid for a term at once"
    if disk_gb is not None and offer.disk_free_gb is not None and offer.disk_free_gb < disk_gb:
        return f"less than {disk_gb:g} GB of disk are free"
    return cost_on(job, priced_gpus_of(offer, price, disk_gb), traffic)
