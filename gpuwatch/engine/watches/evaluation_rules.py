"""What applies to the evaluation of all watches: which views are polled for each, and how old they may be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

from gpuwatch.domain.history.past_lows import PriceRank
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import cycle_members
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalTerms


class EvaluationRules(ApprovalTerms, frozen=True, kw_only=True):
    """What applies to all watches."""

    expected_views: Mapping[str, frozenset[tuple[str, bool]]]  # watch → the (provider, spot) that are polled for it
    max_age: timedelta  # an older view counts as blind
    views_of: Callable[[Watch], frozenset[tuple[str, bool]]] = lambda watch: frozenset()  # of a later watch
    links: Mapping[str, str]  # provider → URL of its console
    # the rank in the price history (True: of verified hosts alone), without reading it
    rank_of: Callable[[Offer, bool], PriceRank | None] = lambda offer, verified: None
    max_ages: Mapping[str, timedelta] = {}  # provider → its own maximum, according to its poll interval
    paced_ages: Mapping[str, timedelta] = {}  # provider → its maximum while a row quota slows its polls down
    emptied: Collection[str] = frozenset()  # providers whose answers became empty: "no match" is not proven there

    def age_of(self, provider: str) -> timedelta:
        """Return the maximum age of a provider's view; list prices, for instance, are polled a few times a day."""
        return max(self.max_ages.get(provider, self.max_age), self.paced_ages.get(provider, timedelta(0)))

    def paces(self, expected: frozenset[tuple[str, bool]]) -> frozenset[tuple[str, bool]]:
        """Return which of a watch's views define its poll cycle."""
        return cycle_members(expected, self.age_of) if self.max_ages else expected
