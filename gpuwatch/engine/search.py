"""What to ask a market, and the one way to ask it: a cut page of offers that nobody accepts proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpuwatch.domain.market.offer import Identity, Offer
from gpuwatch.domain.market.pricing import Commission, listed_ceiling_usd
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.engine.row_budget import HUNT_ROWS
from gpuwatch.ports import Answer, Completeness, Query

F = TypeVar("F")
RENTAL_TYPES = {SpotPolicy.NO: (False,), SpotPolicy.ONLY: (True,), SpotPolicy.ANY: (False, True)}  # spot?
PAGE_ROWS = 64  # what a marketplace gives at once anyway (vastai.md §0)


def queries_for(watch: Watch, commission: Commission, limit: int | None = HUNT_ROWS) -> tuple[Query, ...]:
    """What to ask a market for one watch: one query per rental type that it wants.

    Only filters that marketplaces apply correctly are sent; the rest is checked here.
    """
    ceiling = listed_ceiling_usd(watch.max_price_usd_gpu_hour, watch.gpu_count_max, commission)
    return tuple(
        Query(
            gpus=watch.gpu_names,
            count_min=watch.gpu_count_min,
            count_max=watch.gpu_count_max,
            spot=spot,
            disk_gb=watch.disk_gb,
            max_listed_usd_hour=float(ceiling) * watch.rearm,
            verified=watch.verified or None,
            min_reliability=watch.min_reliability,
            limit=limit,
        )
        for spot in RENTAL_TYPES[watch.spot]
    )


def search_complete(
    search: Callable[[Query], Answer],
    query: Query,
    read: Callable[[Answer], F],
    is_enough: Callable[[F], object] = bool,
) -> tuple[Answer, F]:
    """Search as asked; if the answer was cut and what it shows is not enough, search again for every row.

    Args:
        search: asks the market; may raise ProviderError.
        read: what an answer shows; called once for each.
        is_enough: does that hold what is looked for? Default: anything at all.

    Returns:
        The last answer and what it shows.
    """
    answer = search(query)
    found = read(answer)
    if query.limit is None or answer.completeness is not Completeness.TRUNCATED or is_enough(found):
        return answer, found
    answer = search(msgspec.structs.replace(query, limit=None))
    return answer, read(answer)


def find_offer(search: Callable[[Query], Answer], query: Query, wanted: Identity) -> tuple[Answer, Offer | None]:
    """One offer as it is now; None: the answer does not hold it."""
    return search_complete(
        search, query, lambda answer: next((offer for offer in answer.offers if offer.identity == wanted), None)
    )
