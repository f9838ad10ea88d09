"""Which questions the hunt at one provider asks: planned anew when what is wanted or known has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.market.query import Query
from gpuwatch.domain.watches.heat import heat_of
from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, QueryPlan, plan_queries
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.prices_on_sale import PricesOnSale
from gpuwatch.errors import StoreError

PLAN_EVERY = timedelta(minutes=1)  # what is on sale has changed by then
_HEAT_EVERY = timedelta(seconds=15)  # what is hot changes with every match


class QuestionPlanner:
    """Keeps a plan for as long as it is good.

    Args:
        prices: what the questions are expected to bring.
        arrivals: how much likelier than at other hours a query is to find something now.
        deadline: by when a watch must have rented; may raise StoreError.
    """

    def __init__(
        self,
        prices: PricesOnSale,
        arrivals: Callable[[Query, datetime], float] = lambda _query, _now: 1.0,
        deadline: Callable[[Watch, datetime], datetime | None] = lambda _watch, _now: None,
    ) -> None:
        self._prices = prices
        self._arrivals = arrivals
        self._deadline = deadline
        self._heats: dict[Query, float] = {}
        self._heated_at: datetime | None = None
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

    def heat(self, query: Query, watches: Sequence[Watch], now: datetime) -> float:
        """How much more than others a query is worth asking; computed once a minute."""
        if self._heated_at is None or not timedelta(0) <= now - self._heated_at < PLAN_EVERY:
            self._heats, self._heated_at = {}, now
        found = self._heats.get(query)
        if found is None:
            cheapest, arrivals = self._prices.cheapest_usd_hour(query), self._arrivals(query, now)
            left_s = self._least_left_s(watches, now)
            found = self._heats[query] = heat_of(query.max_listed_usd_hour, cheapest, left_s, arrivals)
        return found

    def _least_left_s(self, watches: Sequence[Watch], now: datetime) -> float | None:
        try:
            deadlines = [self._deadline(watch, now) for watch in watches]
        except StoreError:  # its limit is unknown then, and that is logged
            return None
        return min(((at - now).total_seconds() for at in deadlines if at is not None), default=None)

    def forget_plan(self) -> None:
        """What was expected did not come true: the next plan is a new one."""
        self._planned_at = None


def _ask_the_same(some: Sequence[Demand], others: Sequence[Demand]) -> bool:
    return [(one.query, one.watches) for one in some] == [(one.query, one.watches) for one in others]
