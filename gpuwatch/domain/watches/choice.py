"""Which of the offers that a watch accepts is best, and which rejected ones come nearest. Pure.

- `best_first`: by preference, then by a tie-breaking rule. A larger machine spreads the disk price over more GPUs, so
  with a range of counts nearly the largest machine would be rented for a fraction of a percent. Within `tie` of the
  best, the total price decides, then quality.
- `nearest`: why a watch does not match: the nearest offers, and which clauses rejected them by how much;
  `nearest_by_price`: the cheapest of those that only the price limit rejects.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import takewhile
from typing import Final

import msgspec

from gpuwatch.domain.market.money import MAX_USD_HOUR, Commission, OfferPrice
from gpuwatch.domain.market.offer import Offer, priced_units
from gpuwatch.domain.watches.computed_limits import Failure
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import accepts, failures, match_of, price_for, rank
from gpuwatch.domain.watches.watch import Action, Prefer, Watch

_TIE_OF_RENTING: Final = 0.01
_ANY_PRICE_USD: Final = Decimal(MAX_USD_HOUR)
_QUALITIES: Final = (  # names for `_quality`, in its order; after them: `rank`
    "the lower total price", "the higher reliability", "the verified host", "NVLink", "the faster download",
    "the faster upload", "the higher placement score",
)  # fmt: skip

_PREFERRED: Final = {
    Prefer.CHEAPEST_GPU: "the lower GPU price",
    Prefer.CHEAPEST_TOTAL: "the lower total price",
    Prefer.FASTEST_PER_DOLLAR: "more TFLOP/s per dollar",
}


class OfferComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking of the matches, and how it was decided."""

    ordered: list[Match]  # the best first
    tied: int  # number of matches that count as equal by preference
    rule: str  # why the first match precedes the second


class NearMiss(msgspec.Struct, frozen=True):
    """An offer that a watch rejected, with all clauses that rejected it."""

    offer: Offer
    price: OfferPrice
    failures: tuple[Failure, ...]

    @property
    def off(self) -> float:
        """The total distance; only for ordering."""
        return sum(failure.off for failure in self.failures)


def tie_of(watch: Watch) -> float:
    """Return how close prices count as equal, as a fraction. By default, a watch that only alerts has no tolerance."""
    if watch.tie is not None:
        return watch.tie
    return 0.0 if watch.action is Action.ALERT else _TIE_OF_RENTING


def is_by_gpu_price(watch: Watch) -> bool:
    """Return whether the lowest GPU price is best. If so, a truncated page with a match contains the best one."""
    by_price = watch.max_job_cost_usd is None and watch.prefer is Prefer.CHEAPEST_GPU
    return by_price and watch.traffic is None  # providers sort by prices without traffic


def best_first(watch: Watch, found: Iterable[Match]) -> list[Match]:
    """Return the matches, best first. If the cost of the whole job is compared, it alone decides."""
    if watch.max_job_cost_usd is not None:
        return sorted(found, key=rank)
    if watch.prefer is Prefer.CHEAPEST_GPU:  # by which matches are ranked anyway
        ranked = sorted(found, key=rank)
    else:
        ranked = sorted(found, key=lambda match: (preferred(watch, match), *rank(match)))
    if len(ranked) < 2 or (watch.tie is None and watch.action is Action.ALERT):
        return ranked
    most = preferred(watch, ranked[0]) * (1 + tie_of(watch)) + 1e-6  # floating-point error
    if not math.isfinite(most):
        return ranked
    near = list(takewhile(lambda match: preferred(watch, match) <= most, ranked))
    return [*sorted(near, key=_quality), *ranked[len(near) :]]


def compare(watch: Watch, found: Iterable[Match]) -> OfferComparison:
    """Return the ordered matches, how many were tied, and the rule that decided, for display."""
    ordered = best_first(watch, found)
    if len(ordered) < 2:
        return OfferComparison(ordered=ordered, tied=len(ordered), rule="it is the only one")
    is_job = watch.max_job_cost_usd is not None
    figures = [match.figure if is_job else preferred(watch, match) for match in ordered]
    most = min(figures) * (1 + (0.0 if is_job else tie_of(watch))) + 1e-6
    tied = sum(figure <= most for figure in figures)
    what = "the lower total job cost" if is_job else _PREFERRED[watch.prefer]
    if tied < 2:
        return OfferComparison(ordered=ordered, tied=1, rule=what)
    first, second = ordered[:2]
    rule = None
    if not is_job and math.isfinite(most) and not (watch.tie is None and watch.action is Action.ALERT):
        pairs = zip(_QUALITIES, _quality(first), _quality(second), strict=False)
        rule = next((name for name, one, other in pairs if one != other), None)
    if rule is None and figures[0] < figures[1]:
        rule = what
    return OfferComparison(ordered=ordered, tied=tied, rule=rule or _by_rank(first, second))


def preferred(watch: Watch, match: Match) -> float:
    """Return the figure to minimise: GPU price, total price, or price of a TFLOP/s (infinite: unknown)."""
    if watch.prefer is Prefer.CHEAPEST_TOTAL:
        return float(match.price.price_microusd_hour)
    if watch.prefer is Prefer.FASTEST_PER_DOLLAR:
        return match.price_microusd_gpu_hour / _tflops(match.offer.gpu)
    return match.figure


def _tflops(gpu: str) -> float:
    """Dense 16-bit TFLOP/s by the data sheet; if unknown, almost 0, so that the offer comes last."""
    from gpuwatch.domain.plan.roofline import card_specs_of  # noqa: PLC0415 - few watches need the data sheets

    specs = card_specs_of(gpu)
    return (specs.fp16_tflops if specs else None) or math.ulp(0.0)


def _quality(match: Match) -> tuple[object, ...]:
    offer = match.offer
    return (
        match.price.price_microusd_hour,
        -(offer.reliability or 0.0),
        not offer.verified,
        not offer.nvlink,
        -(offer.download_mbps or 0.0),
        -(offer.upload_mbps or 0.0),
        -(offer.terms.placement_score or 0),
        *rank(match),
    )


def _by_rank(one: Match, other: Match) -> str:
    if (one.offer.reliability or 0.0) > (other.offer.reliability or 0.0):
        return _QUALITIES[1]
    return "the order of their names, as nothing else distinguishes them"


def nearest_by_price(
    watch: Watch, offers: Iterable[Offer], commissions: Mapping[str, Commission], now: datetime
) -> Match | None:
    """Return the cheapest offer that only the price limit rejects; None: there is none, or a price is not its limit."""
    if watch.unlimited or watch.max_job_cost_usd is not None:
        return None
    names, low, high = frozenset(watch.gpu_names), watch.gpu_count_min, watch.gpu_count_max
    above = [
        match_of(watch, offer, price_for(watch, offer, commissions))
        for offer in offers
        if offer.gpu in names and low <= offer.gpu_count <= high
    ]
    at_any_price = msgspec.structs.replace(watch, max_price_usd_gpu_hour=_ANY_PRICE_USD)
    return next((one for one in sorted(above, key=rank) if accepts(at_any_price, one.offer, one.price, now)), None)


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
    gpu_price = miss.price.price_microusd_hour / priced_units(miss.offer.gpu_count)
    return (wrong_gpu, len(miss.failures), miss.off, gpu_price, miss.offer.provider, miss.offer.offer_id)
