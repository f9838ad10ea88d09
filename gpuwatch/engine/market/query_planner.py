"""The plan of a provider's hunt queries: which are joined, and how often each is sent.

Making a plan takes longer than the rest of a poll, so it is kept until other queries are wanted, or what is known of
the prices or what the provider allows has changed. Planning is pure (`domain/watches/query_plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.market.search_query import Query
from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, QueryPlan, plan_queries, query_priority
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.known_prices import PricesOnSale
from gpuwatch.errors import StoreError

PLAN_EVERY = timedelta(minutes=1)  # if offers or limits have changed by then
_AS_ALLOWED = 0.02  # the rest of the day's rows changes every second: a change below this share is ignored
_PRIORITY_EVERY = timedelta(seconds=15)  # a query's priority changes with every match


class QueryPlanner:
    """Keeps a plan while it is valid.

    Args:
        prices: estimates the rows of queries.
        arrivals: returns how much likelier a query is to find something now than at other hours.
        deadline: returns by when a watch must have rented; may raise StoreError.
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
        self._priorities: dict[Query, float] = {}
        self._priorities_at: datetime | None = None
        self._plan = QueryPlan(queries=())
        self._planned_for: tuple[Demand, ...] = ()
        self._planned_at: datetime | None = None
        self._known_gpus = self._seen_changes = 0
        self._limits: PollingLimits | None = None

    def plan(self, demands: Sequence[Demand], limits: PollingLimits, now: datetime) -> QueryPlan:
        """Return the plan for these demands at this moment."""
        wanted = tuple(demands)
        if not self._is_good(wanted, limits, now):
            self._plan = plan_queries(wanted, self._prices.expected_rows(), limits)
            self._planned_for, self._limits, self._planned_at = wanted, limits, now
            self._known_gpus, self._seen_changes = self._prices.known_gpus, self._prices.changes
        return self._plan

    def _is_good(self, wanted: tuple[Demand, ...], limits: PollingLimits, now: datetime) -> bool:
        """Whether the last plan is still valid: making one takes longer than the rest of a poll without offers."""
        if self._planned_at is None or self._limits is None or now < self._planned_at:
            return False
        if self._known_gpus != self._prices.known_gpus or not _ask_the_same(self._planned_for, wanted):
            return False
        if self._planned_for != wanted:
            return now - self._planned_at < _PRIORITY_EVERY
        if now - self._planned_at < PLAN_EVERY:
            return True
        return self._seen_changes == self._prices.changes and _allow_the_same(self._limits, limits)

    def priority(self, query: Query, watches: Sequence[Watch], now: datetime) -> float:
        """Return how urgent a query is compared with others; computed once a minute."""
        if self._priorities_at is None or not timedelta(0) <= now - self._priorities_at < PLAN_EVERY:
            self._priorities, self._priorities_at = {}, now
        found = self._priorities.get(query)
        if found is None:
            cheapest, arrivals = self._prices.cheapest_usd_hour(query), self._arrivals(query, now)
            left_s = self._least_left_s(watches, now)
            found = self._priorities[query] = query_priority(query.max_listed_usd_hour, cheapest, left_s, arrivals)
        return found

    def _least_left_s(self, watches: Sequence[Watch], now: datetime) -> float | None:
        try:
            deadlines = [self._deadline(watch, now) for watch in watches]
        except StoreError:  # its limit is unknown then, and that is logged
            return None
        return min(((at - now).total_seconds() for at in deadlines if at is not None), default=None)

    def forget_plan(self) -> None:
        """Discard the plan, because its estimates were wrong."""
        self._planned_at = None


def _ask_the_same(some: Sequence[Demand], others: Sequence[Demand]) -> bool:
    return [(demand.query, demand.watches) for demand in some] == [(one.query, one.watches) for one in others]


def _allow_the_same(some: PollingLimits, other: PollingLimits) -> bool:
    def is_near(one: float | None, than: float | None) -> bool:
        return one == than or (one is not None and than is not None and math.isclose(one, than, rel_tol=_AS_ALLOWED))

    rationed = msgspec.structs.replace(other, rows_per_s=some.rows_per_s, turns_share=some.turns_share)
    return (
        some == rationed and is_near(some.rows_per_s, other.rows_per_s) and is_near(some.turns_share, other.turns_share)
    )
