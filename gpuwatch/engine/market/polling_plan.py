"""Compares the searches that a provider's watches need with what its `search_interval` allows. Pure.

The hunt sends its queries one after the other, so the reaction to an offer takes as long as a round, whatever
`poll_every` says. Watches share queries where the provider allows it (`domain/watches/query_plan`). A waiting sweep
gets a fifth of the turns (`providers/toolkit/rate_limiter`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.search_query import Query
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, Rows, SharedQuery, plan_queries
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.row_budget import DAY_S, HUNT_ROWS, HUNT_SHARE, matched_pace_s
from gpuwatch.engine.market.watch_search import queries_for
from gpuwatch.ports import ProviderTerms

SWEEP_SHARE = 0.2  # maximum share of the turns while hunts wait

# A watch that matches was reported, so a slower pace is a warning only if a changed price is seen much later.
_PACE_KEPT, _SLOW_S = 10, 300.0

_ALL_SLOW_S = 1800.0


class PollingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned searches of one provider."""

    provider: str
    poll_every_s: float
    search_interval_s: float
    queries: int  # number of distinct queries of all watches
    shared_queries: tuple[SharedQuery, ...]  # the queries that are sent; fewer if some are joined
    hunts_a_minute: float  # needed for one round every `poll_every`
    sweeps_a_minute: float  # needed for the history; a GPU with several pages counts once
    round_s: float  # duration of a round; 0: no watch is polled here
    watches: tuple[str, ...]  # by name, in the order of the settings
    rows_per_day: int = 0  # 0: no quota

    @property
    def is_joined(self) -> bool:
        """Whether some watches share a joined query."""
        return len(self.shared_queries) < self.queries

    @property
    def available_a_minute(self) -> float | None:
        """The number of searches allowed per minute; None: unlimited."""
        return 60.0 / self.search_interval_s if self.search_interval_s > 0 else None

    @property
    def seen_within_s(self) -> Mapping[str, float]:
        """By watch: the longest time from the listing of a machine to its discovery, if the provider answers."""
        asked = {name: query.every_s for query in self.shared_queries for name in query.watches}
        return {name: asked.get(name, self.round_s) for name in self.watches}

    @property
    def warning(self) -> str | None:
        """A warning in one line if the plan cannot keep its pace, or None."""
        return "; ".join(filter(None, (self._searches_warning, self._rows_warning))) or None

    @property
    def _rows_warning(self) -> str | None:
        """If the day's rows do not last for polls of watches that match: a poll without offers costs none."""
        one_s, all_s = (matched_pace_s(self.rows_per_day, queries) for queries in (1, self.queries))
        if not self.queries or (
            one_s <= max(_PACE_KEPT * self.poll_every_s, _SLOW_S) and all_s <= max(self.poll_every_s, _ALL_SLOW_S)
        ):
            return None
        least = math.ceil(max(matched_pace_s(1, 1) / _SLOW_S, matched_pace_s(1, self.queries) / _ALL_SLOW_S))
        together = "" if self.queries == 1 else f", and each of {self.queries} every {_span(all_s)} if all match"
        return (
            f"{self.provider}: rows_per_day = {self.rows_per_day} is too few for poll_every = {self.poll_every_s:g} s: "
            f"a poll of a watch that matches costs up to {HUNT_ROWS} rows, and {HUNT_SHARE * 100:g} % of the rows are "
            f"for such polls, so it is polled every {_span(one_s)}{together}. "
            f"Set providers.{self.provider}.rows_per_day to {least} or more, as far as the provider allows"
        )

    @property
    def _searches_warning(self) -> str | None:
        """If the hunts alone take longer than `poll_every`."""
        alone_s = len(self.shared_queries) * self.search_interval_s
        if alone_s <= self.poll_every_s:
            return None
        searches = f"{count_text(len(self.shared_queries), 'query', 'queries')}, {self.search_interval_s:g} s apart"
        advice = "" if self.is_joined else "Give several GPUs to one watch, or "
        return (
            f"{self.provider}: poll_every = {self.poll_every_s:g} s is too short: its watches need {searches}, "
            f"{self.round_s:.0f} s per round including sweeps, so an offer is seen after up to {self.round_s:.0f} s. "
            f"{advice}{'set' if advice else 'Set'} providers.{self.provider}.poll_every to {self.round_s:.0f}s"
        )


def plan_polling(
    provider: ProviderTerms,
    watches: Sequence[Watch],
    commission: Commission,
    targets: int,
    sweep_every_s: float,
    rows_of: Rows | None = None,
) -> PollingPlan:
    """Plan the searches of a provider.

    Args:
        watches: the watches that are polled there.
        targets: number of (GPU, rental type) that a sweep reads.
        sweep_every_s: seconds between two sweeps.
        rows_of: estimates the rows of a query; None: this provider's queries are never joined.
    """
    by_query: dict[Query, list[str]] = {}
    for watch in watches:
        for query in queries_for(watch, commission):
            by_query.setdefault(query, []).append(watch.name)
    share = sweep_share(targets, sweep_every_s, provider.search_interval_s)
    demands = [Demand(query=query, watches=tuple(names)) for query, names in by_query.items()]
    shared_queries = _shared_queries(provider, demands, 1.0 - share, rows_of)
    return PollingPlan(
        provider=provider.name,
        poll_every_s=provider.poll_every_s,
        search_interval_s=provider.search_interval_s,
        queries=len(demands),
        shared_queries=shared_queries,
        hunts_a_minute=60.0 * len(shared_queries) / provider.poll_every_s,
        sweeps_a_minute=60.0 * targets / sweep_every_s,
        round_s=max((shared_query.every_s for shared_query in shared_queries), default=0.0),
        watches=tuple(watch.name for watch in watches),
        rows_per_day=provider.rows_per_day,
    )


def _shared_queries(
    provider: ProviderTerms, demands: Sequence[Demand], turns_share: float, rows_of: Rows | None
) -> tuple[SharedQuery, ...]:
    """Return the queries that answer all demands: joined, or one for each.

    Args:
        turns_share: the hunt's share of the turns.
    """
    if rows_of is None:
        round_s = max(provider.poll_every_s, len(demands) * provider.search_interval_s / turns_share)
        return tuple(
            SharedQuery(query=demand.query, demands=(demand,), rows=0.0, every_s=round_s) for demand in demands
        )
    limits = PollingLimits(
        poll_every_s=provider.poll_every_s,
        search_interval_s=provider.search_interval_s,
        turns_share=turns_share,
        rows_per_s=provider.rows_per_day * HUNT_SHARE / DAY_S if provider.rows_per_day else None,
    )
    return plan_queries(demands, rows_of, limits).queries


def sweep_share(targets: int, sweep_every_s: float | None, search_interval_s: float) -> float:
    """Return the sweeps' share of the turns: as many as they need, at most a fifth; None: no sweep is planned."""
    return 0.0 if sweep_every_s is None else min(SWEEP_SHARE, targets * search_interval_s / sweep_every_s)


def _span(seconds: float) -> str:
    return format_duration(round(seconds / 60) * 60) if seconds >= 60 else f"{seconds:.0f}s"
