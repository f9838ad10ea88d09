"""A marketplace that sorts and truncates by the price of the whole offer, like real ones."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.providers.toolkit.post_processing import matching
from tests.builders import an_offer
from tests.engine.uow_fakes import NOON, an_answer


def machine(number: int, gpu_count: int, usd_hour: float, **changes: object) -> Offer:
    """An offer of its own machine, with the disk that every query here requests."""
    plain = {"offer_id": str(number), "machine_id": str(number), "quoted_usd_hour": usd_hour, "observed_at": NOON}
    return an_offer(gpu_count=gpu_count, **(plain | changes))


class CutMarket:
    """Returns at most `page` offers to a query with a limit, all offers to one without.

    Args:
        fails_from: number of the first search that is not answered; later ones are not answered either.
        states_price: whether it states up to which price it is complete; an unsorted one cannot.
        reads_all: whether everything can be read at all.
    """

    name = "vastai"

    def __init__(
        self,
        offers: Sequence[Offer],
        page: int,
        *,
        fails_from: int | None = None,
        states_price: bool = True,
        reads_all: bool = True,
    ) -> None:
        self.offers, self.page = tuple(offers), page
        self.fails_from, self.states_price, self.reads_all = fails_from, states_price, reads_all
        self.asked: list[Query] = []

    def search(self, query: Query) -> Answer:
        self.asked.append(query)
        if self.fails_from is not None and len(self.asked) >= self.fails_from:
            raise ProviderDown("vastai: HTTP 502")
        fitting = sorted(matching(self.offers, query), key=lambda one: (one.quoted_usd_hour, one.offer_id))
        rows = len(fitting) if query.limit is None and self.reads_all else min(query.limit or self.page, self.page)
        shown = fitting[:rows]
        if len(shown) == len(fitting) and self.reads_all:
            return an_answer(*shown)
        known_to = shown[-1].quoted_usd_hour if shown and self.states_price else None
        return an_answer(*shown, completeness=Completeness.TRUNCATED, complete_to=known_to)
