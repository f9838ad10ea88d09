"""The most that a launch or a quote can cost, on every face: the bound on which budgets admit it."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_CEILING
from typing import TYPE_CHECKING

from gpuwatch.domain.launches.launch import Intent, Launch, new_launch
from gpuwatch.domain.launches.money.budgets import WHOLE_LIFE, remaining_microusd
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import amount_text, usd

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch


def most_cost_microusd(launch: Launch, now: datetime) -> int | None:
    """The most that a launch can cost in all, commission included; None: it has no latest end.

    Its highest possible price until its latest end is proven, and the price of its disk until it must be running.
    """
    if launch.is_over or launch.dry_run:
        return cost_microusd(launch, now)
    if launch.max_runtime_s is None:
        return None
    return cost_microusd(launch, now) + remaining_microusd(launch, now, WHOLE_LIFE)


def quoted_launch(match: Match, watch: Watch, now: datetime) -> Launch:
    """The launch that an approval of this quote would begin now; `most_cost_microusd` says what it can cost."""
    return new_launch(Intent(watch=watch, match=match, launch_id="a" * 12, dry_run=False), 0, now)


def upper_text(microusd: int) -> str:
    """ "$4.25": an upper bound is rounded up."""
    return f"${amount_text(usd(microusd), rounding=ROUND_CEILING)}"
