"""The plan of a provider's hunt queries, made again when demands or knowledge change.

Plans the day's rows at a provider, so that the quota is never used up: two lanes share the remaining rows.

The *hunt* queries each watch for a few rows at or under the threshold: without offers at that price it costs nothing.
A watch that stays matched costs its rows at every poll, so it is polled less often, unless it is about to rent: such
polls may use a quarter of the rows that are left, so that no day ends without rows. The *sweep* reads everything for
the history and uses the rest. Pure: rows and times in, plan out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gpuwatch.domain.market.search_query import Query
from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, QueryPlan, plan_queries, query_priority
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.sale_prices import PricesOnSale
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


HUNT_ROWS = 10  # only the cheapest offers matter to a watch
HUNT_SHARE = 0.5  # share of the remaining rows that is reserved for hunts until the reset
SWEEP_EVERY_MIN_S = 300.0  # minimum for "auto"
_SWEEP_GUESS_ROWS = 500  # until a sweep was counted
_HURRY_SHARE = 0.25  # of an even day's rows until the reset; below the rest of it, every query is paced
DAY_S = 86_400.0


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's rows are used from now to the reset."""

    rows_per_day: int  # 0: no quota
    rows_used: int
    rows_left: int | None  # None: no quota
    resets_at: datetime
    sweep_every_s: float | None  # None: no sweep before the reset, for lack of rows
    matched_every_s: float  # poll interval of a watch that stays matched
    hunt_rows_per_s: float | None = None  # available to hunts until the reset; None: no quota
    may_hurry: bool = True  # enough rows are left for polls at full pace of watches that are about to rent

    @property
    def spent(self) -> bool:
        """Whether no rows are left."""
        return self.rows_left is not None and self.rows_left <= 0


def next_reset(now: datetime) -> datetime:
    """Return the next 00:00 UTC (source: vastai.md §0, reset of the search quota)."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1)


class RowDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a provider's lanes would use."""

    rows_per_day: int  # 0: no quota
    poll_every_s: float
    matched_rows: int = 0  # rows of one poll of every query that currently returns rows
    sweep_rows: int | None = None  # rows of the last complete sweep; None: unknown
    sweep_every_s: float | None = None  # the owner's interval; None: "auto"


def plan_rows(demand: RowDemand, rows_used: int, now: datetime) -> RowPlan:
    """Divide the rest of the day's rows."""
    resets_at = next_reset(now)
    if not demand.rows_per_day:
        return RowPlan(
            rows_per_day=0,
            rows_used=rows_used,
            rows_left=None,
            resets_at=resets_at,
            # list prices that are polled a few times a day need no sweep every five minutes
            sweep_every_s=demand.sweep_every_s or max(SWEEP_EVERY_MIN_S, demand.poll_every_s),
            matched_every_s=demand.poll_every_s,
        )
    left = max(0, demand.rows_per_day - rows_used)
    rest_s = (resets_at - now).total_seconds()
    return RowPlan(
        rows_per_day=demand.rows_per_day,
        rows_used=rows_used,
        rows_left=left,
        resets_at=resets_at,
        sweep_every_s=_sweep_every_s(left, rest_s, demand),
        matched_every_s=_matched_every_s(left, rest_s, demand),
        hunt_rows_per_s=left * HUNT_SHARE / rest_s,
        may_hurry=_may_hurry(left, rest_s, demand),
    )


def matched_pace_s(rows_per_day: int, queries: int) -> float:
    """Return how often matching queries can be polled with a whole day's rows, at a full page each; 0: no quota."""
    return queries * HUNT_ROWS * DAY_S / (rows_per_day * HUNT_SHARE) if rows_per_day else 0.0


def paced_age(rows_per_day: int, queries: int) -> timedelta:
    """Return how old an answer may become while so many queries match: until twice their pace."""
    return timedelta(seconds=2 * matched_pace_s(rows_per_day, queries))


def _may_hurry(left: int, rest_s: float, demand: RowDemand) -> bool:
    """Whether enough is left after the next round to poll on until the reset."""
    after = left - max(demand.matched_rows, HUNT_ROWS)
    return after > 0 and after >= demand.rows_per_day * rest_s / DAY_S * (1 - _HURRY_SHARE)


def _matched_every_s(left: int, rest_s: float, demand: RowDemand) -> float:
    polls = left * HUNT_SHARE / demand.matched_rows if demand.matched_rows else float("inf")
    return max(demand.poll_every_s, rest_s / polls if polls >= 1 else DAY_S)


def _sweep_every_s(left: int, rest_s: float, demand: RowDemand) -> float | None:
    cost = max(1, demand.sweep_rows if demand.sweep_rows is not None else _SWEEP_GUESS_ROWS)
    sweeps = int(left * (1 - HUNT_SHARE) // cost)
    if sweeps < 1:  # one complete sweep may still fit if the hunts leave enough
        return rest_s if left >= 2 * cost else None
    return max(rest_s / sweeps, demand.sweep_every_s or SWEEP_EVERY_MIN_S)
