"""Plans the queries that the watches of a provider share: which are joined, and how often each is sent. Pure.

Searches and rows are limited: a provider requires seconds between searches, and may count the rows that it returns.
Joining saves searches and may cost rows: those of a cheap GPU under the limit of an expensive one. The plan minimises
the mean time until a watch sees an offer, weighted by the priority of each watch's queries (`query_priority`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from gpuwatch.domain.market.search_query import Query, can_join, joined

# assumed: no query waits for more than twice an even share because others have priority (with less, the slowest of
# twenty waits over five minutes)
MIN_PRIORITY, MAX_PRIORITY = 0.3, 4.0
_PAGE_SHARE = 0.5  # assumed: share of a page that known offers may fill; the rest is for newly listed ones
_MIXES = (0.02, 0.25, 0.5, 0.75, 0.98)  # shares of rows and searches in the cost of a query; the best one is used

Rows = Callable[[Query], float | None]  # expected number of rows of an answer; None: unknown

NEAR = 0.10  # assumed: an offer whose price exceeds the limit by less may soon be under it
SOON_S = 6 * 3600.0  # assumed: from then on, each remaining hour counts more
_STEP = 0.25  # a smaller change does not require a new plan
_LEAST, _MOST = 1.0, 4.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of some watches: one distinct query."""

    query: Query
    watches: tuple[str, ...]  # names
    priority: float = 1.0
    respects_row_budget: bool = True  # False: a machine is about to be rented, at any cost in rows


class PollingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a provider and of its owner."""

    poll_every_s: float  # the target: no watch is polled more often, and if possible none less often
    search_interval_s: float  # between two searches; 0: no limit
    turns_share: float = 1.0  # share of the searches for these queries
    rows_per_s: float | None = None  # for these queries; None: no quota
    page_rows: int = 64
    can_join: bool = True  # the provider accepts several GPU names in one search


class SharedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One search that serves several demands."""

    query: Query
    demands: tuple[Demand, ...]
    rows: float  # expected rows of an answer
    every_s: float = 0.0

    @property
    def watches(self) -> tuple[str, ...]:
        """The names of its watches, without duplicates."""
        return tuple(dict.fromkeys(name for demand in self.demands for name in demand.watches))

    @property
    def priority(self) -> float:
        """The highest priority of its demands."""
        return max(min(max(demand.priority, MIN_PRIORITY), MAX_PRIORITY) for demand in self.demands)


class QueryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The queries to a provider."""

    queries: tuple[SharedQuery, ...]
    late: tuple[str, ...] = ()  # watches that are polled less often than the target, for lack of searches or rows

    @property
    def round_s(self) -> float:
        """The longest time between two searches for the same query; 0: there is no query."""
        return max((query.every_s for query in self.queries), default=0.0)


def plan_queries(demands: Sequence[Demand], rows_of: Rows, limits: PollingLimits) -> QueryPlan:
    """Join queries as long as that shortens the mean wait, and distribute searches and rows.

    Args:
        demands: distinct queries.
        rows_of: for any query made of the demands; where it returns None, nothing is joined.
    """
    alone = [_alone(demand, rows_of) for demand in demands]
    best: Sequence[SharedQuery] = alone
    wait_s = _mean_wait_s(alone, limits)
    if limits.can_join:
        for fewer in _joins(alone, rows_of, limits):
            if wait_s <= limits.poll_every_s:
                break
            if (shorter_s := _mean_wait_s(fewer, limits)) < wait_s:
                best, wait_s = fewer, shorter_s
    # the quick figure is an upper bound: joining must not be worse than not joining
    paced = min((_paced(one, limits) for one in (best, alone)), key=_paced_wait_s)
    late = [one for one in paced if one.every_s > limits.poll_every_s * (1 + 1e-9)]
    return QueryPlan(queries=tuple(paced), late=tuple(dict.fromkeys(name for one in late for name in one.watches)))


def split(shared: SharedQuery) -> tuple[SharedQuery, SharedQuery]:
    """Split a query that several demands share into two: by GPU if it has several, else by limit."""
    by_gpu = sorted(
        shared.demands, key=lambda demand: (demand.query.gpus, demand.query.max_listed_usd_hour or math.inf)
    )
    middle = len(by_gpu) // 2
    first, second = (_together(tuple(part), shared) for part in (by_gpu[:middle], by_gpu[middle:]))
    return first, second


def _together(demands: tuple[Demand, ...], whole: SharedQuery) -> SharedQuery:
    query = demands[0].query if len(demands) == 1 else joined([demand.query for demand in demands], whole.query.limit)
    return SharedQuery(query=query, demands=demands, rows=whole.rows / 2, every_s=whole.every_s)


# --- joining ----------------------------------------------------------------------------------------------------------


def _alone(demand: Demand, rows_of: Rows) -> SharedQuery:
    rows = (rows_of(demand.query) or 0.0) if demand.respects_row_budget else 0.0
    most = demand.query.limit
    return SharedQuery(query=demand.query, demands=(demand,), rows=rows if most is None else min(rows, most))


def _joins(alone: Sequence[SharedQuery], rows_of: Rows, limits: PollingLimits) -> Sequence[Sequence[SharedQuery]]:
    """Ever fewer queries: first join the limits of one GPU, then always the two that add the fewest rows."""
    families = _families(alone, rows_of, limits)
    living = dict(enumerate(families))
    pairs = {
        (a, b): pair
        for a in living
        for b in living
        if a < b and (pair := _pair(living[a], living[b], rows_of, limits)) is not None
    }
    stages: list[Sequence[SharedQuery]] = [families]
    while pairs:
        (a, b), (_, both) = min(pairs.items(), key=lambda item: (item[1][0], item[0]))
        new = len(families) + len(stages)
        del living[a], living[b]
        pairs = {key: pair for key, pair in pairs.items() if not {a, b} & set(key)}
        for c, other in living.items():
            if (pair := _pair(other, both, rows_of, limits)) is not None:
                pairs[c, new] = pair
        living[new] = both
        stages.append(list(living.values()))
    return stages


def _families(alone: Sequence[SharedQuery], rows_of: Rows, limits: PollingLimits) -> list[SharedQuery]:
    """Replace queries that differ only in their limit by the one with the highest, which returns no more rows."""
    found: dict[Query, list[SharedQuery]] = {}
    for shared in alone:
        found.setdefault(msgspec.structs.replace(shared.query, max_listed_usd_hour=None), []).append(shared)
    joint = (same if len(same) == 1 else _family(same, rows_of, limits) for same in found.values())
    return [query for queries in joint for query in queries]


def _family(same: Sequence[SharedQuery], rows_of: Rows, limits: PollingLimits) -> Sequence[SharedQuery]:
    """Join into one query, even if nothing is known of the GPU, unless the page is expected to be truncated."""
    query = joined([one.query for one in same], limits.page_rows)
    demands = tuple(demand for one in same for demand in one.demands)
    rows = rows_of(query)
    if rows is not None and rows > limits.page_rows * _PAGE_SHARE:
        return same
    return [SharedQuery(query=query, demands=demands, rows=max(one.rows for one in same) if rows is None else rows)]


def _pair(
    one: SharedQuery, other: SharedQuery, rows_of: Rows, limits: PollingLimits
) -> tuple[float, SharedQuery] | None:
    """The joined query, and the additional rows; None: they cannot be joined."""
    if not can_join(one.query, other.query):
        return None
    query = joined([one.query, other.query], limits.page_rows)
    rows = rows_of(query)
    if rows is None or rows > limits.page_rows * _PAGE_SHARE:
        return None
    both = SharedQuery(query=query, demands=one.demands + other.demands, rows=rows)
    return rows - one.rows - other.rows, both


# --- intervals --------------------------------------------------------------------------------------------------------


def _costs(queries: Sequence[SharedQuery], limits: PollingLimits) -> tuple[float, list[float]]:
    """The share of the searches per second that one search uses, and each query's share of the rows per second."""
    turn = limits.search_interval_s / limits.turns_share
    if limits.rows_per_s is None:
        return turn, [0.0 for _ in queries]
    budget = max(limits.rows_per_s, 1e-9)
    return turn, [query.rows / budget for query in queries]


def _shapes(queries: Sequence[SharedQuery], limits: PollingLimits, mix: float) -> list[float]:
    """Relative intervals: expensive queries are sent less often, those with high priority more often.

    For a given sum of cost / interval, the mean of priority × interval is lowest at √(cost / priority).
    """
    turn, rows = _costs(queries, limits)
    return [
        math.sqrt(max((1 - mix) * turn + mix * row, 1e-9) / query.priority)
        for query, row in zip(queries, rows, strict=True)
    ]


def _use(intervals: Sequence[float], turn: float, rows: Sequence[float]) -> float:
    """The used share of searches or rows, whichever is higher."""
    by_rows = sum(row / every_s for row, every_s in zip(rows, intervals, strict=True))
    return max(sum(turn / every_s for every_s in intervals), by_rows)


def _wait_s(queries: Sequence[SharedQuery], intervals: Sequence[float]) -> float:
    weights = [sum(demand.priority * len(demand.watches) for demand in shared.demands) for shared in queries]
    return sum(weight * every_s for weight, every_s in zip(weights, intervals, strict=True)) / sum(weights)


def _paced_wait_s(queries: Sequence[SharedQuery]) -> float:
    return _wait_s(queries, [query.every_s for query in queries]) if queries else 0.0


def _mean_wait_s(queries: Sequence[SharedQuery], limits: PollingLimits) -> float:
    """The mean interval, weighted by priority; a quick estimate that is never too low."""
    if not queries:
        return 0.0
    turn, rows = _costs(queries, limits)
    found = []
    for mix in _MIXES:
        shapes = _shapes(queries, limits, mix)
        scale = _use(shapes, turn, rows)
        found.append(_wait_s(queries, [max(limits.poll_every_s, scale * shape) for shape in shapes]))
    return min(found)


def _paced(queries: Sequence[SharedQuery], limits: PollingLimits) -> list[SharedQuery]:
    """Set the interval of each query: at least `poll_every`, and in total within the limits of searches and rows."""
    if not queries:
        return []
    turn, rows = _costs(queries, limits)
    best: tuple[float, list[float]] | None = None
    for mix in _MIXES:
        shapes = _shapes(queries, limits, mix)
        intervals = _scaled(shapes, turn, rows, limits.poll_every_s)
        wait_s = _wait_s(queries, intervals)
        if best is None or wait_s < best[0]:
            best = wait_s, intervals
    assert best is not None, "there is always a mix"
    return [msgspec.structs.replace(query, every_s=every_s) for query, every_s in zip(queries, best[1], strict=True)]


def _scaled(shapes: Sequence[float], turn: float, rows: Sequence[float], least_s: float) -> list[float]:
    """The shortest intervals of these proportions within the limits of searches and rows."""
    scale = max(_least_scale(shapes, costs, least_s) for costs in ([turn] * len(shapes), rows))
    return [max(least_s, scale * shape) for shape in shapes]


def _least_scale(shapes: Sequence[float], costs: Sequence[float], least_s: float) -> float:
    """The lowest scale at which the sum of cost / max(least_s, scale × shape) is at most 1.

    The longer the shape of an interval, the sooner it exceeds `least_s`. With the longest intervals above it, the sum
    is (the others' costs / least_s) + (their costs / shapes) / scale.
    """
    resting, growing = sum(costs) / least_s, 0.0
    if resting <= 1:
        return 0.0
    order = sorted(zip(shapes, costs, strict=True), reverse=True)
    scale = 0.0
    for number, (shape, cost) in enumerate(order, start=1):
        resting, growing = resting - cost / least_s, growing + cost / shape
        is_last = number == len(order)
        if not is_last and resting >= 1:
            continue
        scale = growing if is_last else growing / (1 - resting)
        if not is_last and scale * order[number][0] <= least_s:
            break
    return scale


def query_priority(
    limit_usd_hour: float | None, cheapest_usd_hour: float | None, deadline_left_s: float | None, arrivals: float
) -> float:
    """Return the priority, from 1 (normal) to 4.

    Args:
        limit_usd_hour: the listed limit of the query for the whole offer; None: no limit.
        cheapest_usd_hour: the cheapest offer that fits apart from its price; None: there is none, or it is unknown.
        deadline_left_s: seconds until it must have rented; None: no deadline.
        arrivals: how much more likely a price under the limit was at this hour of the day than at others.
    """
    found = _nearness(limit_usd_hour, cheapest_usd_hour) * _urgency(deadline_left_s) * min(max(arrivals, 1.0), 2.0)
    return min(max(round(found / _STEP) * _STEP, _LEAST), _MOST)


def _nearness(limit: float | None, cheapest: float | None) -> float:
    """Return 1 to 2: the nearer the cheapest offer is to the limit, the higher."""
    if limit is None or cheapest is None or limit <= 0:
        return 1.0
    return 1.0 + max(0.0, 1.0 - max(0.0, cheapest / limit - 1.0) / NEAR)


def _urgency(left_s: float | None) -> float:
    """Return 1 to 2: the less time is left, the higher."""
    return 1.0 if left_s is None else 1.0 + max(0.0, 1.0 - max(0.0, left_s) / SOON_S)
