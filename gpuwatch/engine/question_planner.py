"""Which questions the hunt at one provider asks: planned anew when what is wanted or known has changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, QueryPlan, plan_queries
from gpuwatch.engine.prices_on_sale import PricesOnSale

PLAN_EVERY = timedelta(minutes=1)  # what is on sale has changed by then
_HEAT_EVERY = timedelta(seconds=15)  # what is hot changes with every match


class QuestionPlanner:
    """Keeps a plan for as long as it is good.

    Args:
        prices: what the questions are expected to bring.
    """

    def __init__(self, prices: PricesOnSale) -> None:
        self._prices = prices
        self._plan = QueryPlan(questions=())
        self._planned_for: tuple[Demand, ...] = ()
        self._planned_at: datetime | None = None
        self._known_gpus = 0

    def plan(self, demands: Sequence[Demand], limits: PollingLimits, now: datetime) -> QueryPlan:
        """The questions for these demands, at this moment."""
        wanted = tuple(demands)
        known = self._prices.known_gpus
        every = PLAN_EVERY if self._planned_for == wanted else _HEAT_EVERY
        is_fresh = self._planned_at is not None and timedelta(0) <= now - self._planned_at < every
        if not is_fresh or self._known_gpus != known or not _ask_the_same(self._planned_for, wanted):
            self._plan = plan_queries(wanted, self._prices.expected_rows(), limits)
            self._planned_for, self._planned_at, self._known_gpus = wanted, now, known
        return self._plan

    def forget_plan(self) -> None:
        """What was expected did not come true: the next plan is a new one."""
        self._planned_at = None


def _ask_the_same(some: Sequence[Demand], others: Sequence[Demand]) -> bool:
    return [(one.query, one.watches) for one in some] == [(one.query, one.watches) for one in others]
