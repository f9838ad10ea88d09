"""Plans the questions that all watches of a provider share: which are joined, and how often each is asked. Pure.

Turns and rows are rationed: searches are seconds apart, and a marketplace may count the rows that it returns. Joining
saves turns and may cost rows, those of a cheap GPU under the limit of a dear one. What is asked more often, and what is
joined, follows from one aim: the shortest mean time until a watch sees an offer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from gpuwatch.domain.market.query import Query, can_join, joined

# assumed: nobody waits for more than twice an even share because others are hot; what is known already waits twice as
# long as what is not (less often, and the slowest of twenty waits over five minutes)
HEAT_LEAST, HEAT_MOST = 0.3, 4.0
_PAGE_SHARE = 0.5  # assumed: of a page, filled by what is known; the rest is for what was listed since
_MIXES = (0.02, 0.25, 0.5, 0.75, 0.98)  # of rows and turns in the cost of a question; the best one is taken

Rows = Callable[[Query], float | None]  # how many rows an answer is expected to have; None: nothing is known


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What some watches need to know: one distinct query."""

    query: Query
    watches: tuple[str, ...]  # by name
    heat: float = 1.0  # how much more than others it is worth asking
    spares_rows: bool = True  # False: a machine is about to be rented, whatever the rows cost


class PollingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider allows, and what its owner wants."""

    poll_every_s: float  # the promise: no watch is asked more often, and none less often if that is possible
    search_interval_s: float  # between two searches; 0: no limit
    turns_share: float = 1.0  # of the searches, for these questions
    rows_per_s: float | None = None  # for these questions; None: no quota
    page_rows: int = 64
    can_join: bool = True  # the provider takes several GPU names in one search


class SharedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One search that serves several demands."""

    query: Query
    demands: tuple[Demand, ...]
    rows: float  # expected of an answer
    every_s: float = 0.0

    @property
    def watches(self) -> tuple[str, ...]:
        """By name, each once."""
        return tuple(dict.fromkeys(name for one in self.demands for name in one.watches))

    @property
    def heat(self) -> float:
        """That of its hottest demand."""
        return max(min(max(one.heat, HEAT_LEAST), HEAT_MOST) for one in self.demands)


class QueryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The questions of a provider."""

    questions: tuple[SharedQuery, ...]
    late: tuple[str, ...] = ()  # watches that are asked for less often than promised: turns or rows do not reach

    @property
    def round_s(self) -> float:
        """The longest time between two searches for the same question; 0: there is none."""
        return max((one.every_s for one in self.questions), default=0.0)


def plan_queries(demands: Sequence[Demand], rows_of: Rows, limits: PollingLimits) -> QueryPlan:
    """Join what can be joined as long as that shortens the mean wait, and share turns and rows.

    Args:
        demands: distinct queries.
        rows_of: of any query made of these; where it knows nothing, nothing is joined.
    """
    alone = [_alone(one, rows_of) for one in demands]
    best: Sequence[SharedQuery] = alone
    wait_s = _mean_wait_s(alone, limits)
    if limits.can_join:
        for fewer in _joins(alone, rows_of, limits):
            if wait_s <= limits.poll_every_s:
                break
            if (shorter_s := _mean_wait_s(fewer, limits)) < wait_s:
                best, wait_s = fewer, shorter_s
    # the quick figure is an upper bound: what is joined must not lose to what is not
    paced = min((_paced(one, limits) for one in (best, alone)), key=_paced_wait_s)
    late = [one for one in paced if one.every_s > limits.poll_every_s * (1 + 1e-9)]
    return QueryPlan(questions=tuple(paced), late=tuple(dict.fromkeys(name for one in late for name in one.watches)))


def split(question: SharedQuery) -> tuple[SharedQuery, SharedQuery]:
    """The two halves of a question that several demands share: by GPU where it has several, else by their limit."""
    by_gpu = sorted(question.demands, key=lambda one: (one.query.gpus, one.query.max_listed_usd_hour or math.inf))
    middle = len(by_gpu) // 2
    first, second = (_together(tuple(part), question) for part in (by_gpu[:middle], by_gpu[middle:]))
    return first, second


def _together(demands: tuple[Demand, ...], whole: SharedQuery) -> SharedQuery:
    query = demands[0].query if len(demands) == 1 else joined([one.query for one in demands], whole.query.limit)
    return SharedQuery(query=query, demands=demands, rows=whole.rows / 2, every_s=whole.every_s)


# --- what is joined ---------------------------------------------------------------------------------------------------


def _alone(demand: Demand, rows_of: Rows) -> SharedQuery:
    rows = (rows_of(demand.query) or 0.0) if demand.spares_rows else 0.0
    most = demand.query.limit
    return SharedQuery(query=demand.query, demands=(demand,), rows=rows if most is None else min(rows, most))


def _joins(alone: Sequence[SharedQuery], rows_of: Rows, limits: PollingLimits) -> Sequence[Sequence[SharedQuery]]:
    """Fewer questions each time: the limits of one GPU first; then always the two that need the fewest rows more."""
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
    """Queries that differ in their limit alone, as the one with the highest: that brings no row more than it does."""
    found: dict[Query, list[SharedQuery]] = {}
    for one in alone:
        found.setdefault(msgspec.structs.replace(one.query, max_listed_usd_hour=None), []).append(one)
    joint = (same if len(same) == 1 else _family(same, rows_of, limits) for same in found.values())
    return [one for questions in joint for one in questions]


def _family(same: Sequence[SharedQuery], rows_of: Rows, limits: PollingLimits) -> Sequence[SharedQuery]:
    """One question, even if nothing is known of the GPU; as they are, if the page is expected to be cut."""
    query = joined([one.query for one in same], limits.page_rows)
    demands = tuple(demand for one in same for demand in one.demands)
    rows = rows_of(query)
    if rows is not None and rows > limits.page_rows * _PAGE_SHARE:
        return same
    return [SharedQuery(query=query, demands=demands, rows=max(one.rows for one in same) if rows is None else rows)]


def _pair(
    one: SharedQuery, other: SharedQuery, rows_of: Rows, limits: PollingLimits
) -> tuple[float, SharedQuery] | None:
    """Both as one, and the rows that it costs more; None: they cannot be joined."""
    if not can_join(one.query, other.query):
        return None
    query = joined([one.query, other.query], limits.page_rows)
    rows = rows_of(query)
    if rows is None or rows > limits.page_rows * _PAGE_SHARE:
        return None
    both = SharedQuery(query=query, demands=one.demands + other.demands, rows=rows)
    return rows - one.rows - other.rows, both


# --- how often each is asked ------------------------------------------------------------------------------------------


def _costs(questions: Sequence[SharedQuery], limits: PollingLimits) -> tuple[float, list[float]]:
    """What one search takes of the turns of a second, and what each takes of the rows of a second."""
    turn = limits.search_interval_s / limits.turns_share
    if limits.rows_per_s is None:
        return turn, [0.0 for _ in questions]
    budget = max(limits.rows_per_s, 1e-9)
    return turn, [one.rows / budget for one in questions]


def _shapes(questions: Sequence[SharedQuery], limits: PollingLimits, mix: float) -> list[float]:
    """Intervals in proportion: what costs more is asked less often, what is hot more often.

    With the sum of cost / interval given, the mean of heat × interval is least at √(cost / heat).
    """
    turn, rows = _costs(questions, limits)
    return [
        math.sqrt(max((1 - mix) * turn + mix * row, 1e-9) / one.heat) for one, row in zip(questions, rows, strict=True)
    ]


def _use(intervals: Sequence[float], turn: float, rows: Sequence[float]) -> float:
    """The share of what is allowed that is used, of turns or of rows, whichever is more."""
    by_rows = sum(row / every_s for row, every_s in zip(rows, intervals, strict=True))
    return max(sum(turn / every_s for every_s in intervals), by_rows)


def _wait_s(questions: Sequence[SharedQuery], intervals: Sequence[float]) -> float:
    weights = [sum(one.heat * len(one.watches) for one in question.demands) for question in questions]
    return sum(weight * every_s for weight, every_s in zip(weights, intervals, strict=True)) / sum(weights)


def _paced_wait_s(questions: Sequence[SharedQuery]) -> float:
    return _wait_s(questions, [one.every_s for one in questions]) if questions else 0.0


def _mean_wait_s(questions: Sequence[SharedQuery], limits: PollingLimits) -> float:
    """The mean interval, weighted by heat; quickly, hence at most too long."""
    if not questions:
        return 0.0
    turn, rows = _costs(questions, limits)
    found = []
    for mix in _MIXES:
        shapes = _shapes(questions, limits, mix)
        scale = _use(shapes, turn, rows)
        found.append(_wait_s(questions, [max(limits.poll_every_s, scale * shape) for shape in shapes]))
    return min(found)


def _paced(questions: Sequence[SharedQuery], limits: PollingLimits) -> list[SharedQuery]:
    """Each question with its interval: at least `poll_every`, and together within turns and rows."""
    if not questions:
        return []
    turn, rows = _costs(questions, limits)
    best: tuple[float, list[float]] | None = None
    for mix in _MIXES:
        shapes = _shapes(questions, limits, mix)
        intervals = _scaled(shapes, turn, rows, limits.poll_every_s)
        wait_s = _wait_s(questions, intervals)
        if best is None or wait_s < best[0]:
            best = wait_s, intervals
    assert best is not None, "there is always a mix"
    return [msgspec.structs.replace(one, every_s=every_s) for one, every_s in zip(questions, best[1], strict=True)]


def _scaled(shapes: Sequence[float], turn: float, rows: Sequence[float], least_s: float) -> list[float]:
    """The shortest intervals of these proportions that use no more than is allowed, of turns and of rows."""
    scale = max(_least_scale(shapes, costs, least_s) for costs in ([turn] * len(shapes), rows))
    return [max(least_s, scale * shape) for shape in shapes]


def _least_scale(shapes: Sequence[float], costs: Sequence[float], least_s: float) -> float:
    """The least scale at which the sum of cost / max(least_s, scale × shape) is at most 1.

    The longer its shape, the sooner an interval grows beyond `least_s`: with the longest ones growing, the sum is
    (those that do not) + (those that do) / scale.
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
