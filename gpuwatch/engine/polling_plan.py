"""What the watches of a provider need of its searches, against what its `search_interval` allows. Pure.

All queries of the hunt are asked in a round, one after the other, so that the reaction to an offer is as slow as a
round is long, whatever `poll_every` says. While a sweep waits it gets a fifth of the turns (`toolkit/rate_limiter`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.search import queries_for
from gpuwatch.ports import ProviderSettings

SWEEP_SHARE = 0.2  # of the turns, at most, while the hunts want the others


class PollingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The searches of one provider, planned."""

    provider: str
    poll_every_s: float
    search_interval_s: float
    queries: int  # of a round of the hunt: distinct ones of all watches
    hunts_a_minute: float  # needed for a round every `poll_every`
    sweeps_a_minute: float  # needed for the history; a GPU with several pages counts once
    round_s: float  # how long a round takes; 0: no watch is polled here
    watches: tuple[str, ...]  # by name, in the order of the settings

    @property
    def available_a_minute(self) -> float | None:
        """How many searches may be made; None: as many as are wanted."""
        return 60.0 / self.search_interval_s if self.search_interval_s > 0 else None

    @property
    def seen_within_s(self) -> Mapping[str, float]:
        """By watch: how long after it is on offer a machine is seen at the latest, if the provider answers."""
        return dict.fromkeys(self.watches, self.round_s)

    @property
    def warning(self) -> str | None:
        """One line if the hunts alone take longer than `poll_every`; None: they do not."""
        alone_s = self.queries * self.search_interval_s
        if alone_s <= self.poll_every_s:
            return None
        searches = f"{self.queries} queries, {self.search_interval_s:g} s apart"
        return (
            f"{self.provider}: poll_every = {self.poll_every_s:g} s cannot be kept: its watches need {searches}, "
            f"{self.round_s:.0f} s a round with the sweeps; an offer is seen after up to {self.round_s:.0f} s. Give "
            f"several GPUs to one watch, or set providers.{self.provider}.poll_every to {self.round_s:.0f}s"
        )


def plan_polling(
    provider: ProviderSettings,
    watches: Sequence[Watch],
    commission: Commission,
    targets: int,
    sweep_every_s: float,
) -> PollingPlan:
    """Plan the searches of a provider.

    Args:
        watches: those that are polled there.
        targets: how many (GPU, rental type) a sweep reads.
        sweep_every_s: seconds between two sweeps.
    """
    queries = len({query for watch in watches for query in queries_for(watch, commission)})
    sweeps = 60.0 * targets / sweep_every_s
    share = sweep_share(targets, sweep_every_s, provider.search_interval_s)
    alone_s = queries * provider.search_interval_s
    return PollingPlan(
        provider=provider.name,
        poll_every_s=provider.poll_every_s,
        search_interval_s=provider.search_interval_s,
        queries=queries,
        hunts_a_minute=60.0 * queries / provider.poll_every_s,
        sweeps_a_minute=sweeps,
        round_s=max(provider.poll_every_s, alone_s / (1.0 - share)) if queries else 0.0,
        watches=tuple(watch.name for watch in watches),
    )


def sweep_share(targets: int, sweep_every_s: float | None, search_interval_s: float) -> float:
    """The share of the turns that sweeps take: as many as they need, a fifth at most; None: none is due."""
    return 0.0 if sweep_every_s is None else min(SWEEP_SHARE, targets * search_interval_s / sweep_every_s)
