"""Offers of several providers as one list: sorted, resold stock shown once, or grouped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.marks import is_slice
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import rank

SORTS: Final[Mapping[str, Callable[[Match], Any]]] = {
    "gpu-price": rank,
    "price": lambda match: (match.price.price_microusd_hour, *rank(match)),
    "provider": lambda match: (match.offer.provider, *rank(match)),
    "reliability": lambda match: (-(match.offer.reliability or 0.0), *rank(match)),
}
GROUPS: Final[Mapping[str, Callable[[Offer], str]]] = {
    "gpu": lambda offer: offer.gpu,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.place or "unknown",
}


class OfferGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of offers with one kind of price; whole GPUs and slices never share a group."""

    name: str
    kind: OfferKind
    is_slice: bool
    offers: int  # resold stock counts once
    cheapest: FoldedOffer[Match]
    median_microusd_gpu_hour: float


def sorted_offers(found: Iterable[Match], sort: str) -> list[FoldedOffer[Match]]:
    """Return every stock once, in order; slices after all whole GPUs, because their price is not that of a GPU.

    Args:
        sort: a key of SORTS.
    """
    by = SORTS[sort]
    return fold_resold(sorted(found, key=lambda match: (is_slice(match.offer), by(match))))


def group_offers(found: Iterable[Match], group_by: str) -> list[OfferGroup]:
    """Return the cheapest offer, the number and the median GPU price of each group; cheapest group first, slices last.

    Args:
        group_by: a key of GROUPS.
    """
    name_of = GROUPS[group_by]
    groups: dict[tuple[bool, str, OfferKind], list[FoldedOffer[Match]]] = {}
    for sorted_offer in sorted_offers(found, "gpu-price"):
        offer = sorted_offer.primary.offer
        groups.setdefault((is_slice(offer), name_of(offer), offer.kind), []).append(sorted_offer)
    made = [_group(name, kind, sliced, mine) for (sliced, name, kind), mine in groups.items()]
    return sorted(made, key=lambda one: (one.is_slice, one.cheapest.primary.price_microusd_gpu_hour, one.name))


def _group(name: str, kind: OfferKind, sliced: bool, mine: Sequence[FoldedOffer[Match]]) -> OfferGroup:
    return OfferGroup(
        name=name,
        kind=kind,
        is_slice=sliced,
        offers=len(mine),
        cheapest=mine[0],
        median_microusd_gpu_hour=median(one.primary.price_microusd_gpu_hour for one in mine),
    )
