"""What a machine cost that failed its check, from the order to its proven end: to reclaim at the provider. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd

# what `verify` finds, and a machine that the provider sold but that never came to life
BAD_MACHINE = (EndReason.NOT_AS_PROMISED, EndReason.NO_SSH, EndReason.TOO_SLOW, EndReason.NOT_READY, EndReason.BROKEN)


class Reclaim(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch on a bad machine took."""

    launch: Launch
    ended_at: datetime
    lasted: timedelta  # from the order to the proven end
    microusd: int  # as the provider bills it: without the commission on top

    @property
    def why(self) -> str:
        """What was wrong with the machine."""
        return self.launch.end_reason or ""


def reclaim_of(launch: Launch) -> Reclaim | None:
    """Return what a launch that has ended is to be reclaimed for; None: nothing, or its end is not proven yet."""
    began, ended = launch.requested_at or launch.intended_at, launch.ended_at
    is_bad = launch.is_over and launch.instance_id is not None and launch.ended_because(*BAD_MACHINE)
    if launch.dry_run or ended is None or not is_bad:
        return None
    billed = cost_microusd(launch, ended, listed=True)
    return Reclaim(launch=launch, ended_at=ended, lasted=max(ended - began, timedelta(0)), microusd=billed)


def reclaims(launches: Iterable[Launch], begin: datetime, end: datetime) -> list[Reclaim]:
    """Return those whose machine was ended in [begin, end), oldest first."""
    found = (reclaim_of(launch) for launch in launches)
    within = [one for one in found if one is not None and begin <= one.ended_at < end]
    return sorted(within, key=lambda one: (one.ended_at, one.launch.launch_id))


class ReclaimSum(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reclaimed at one provider."""

    provider: str
    machines: int
    microusd: int


def reclaim_sums(found: Iterable[Reclaim]) -> list[ReclaimSum]:
    """Return the sum of each provider, the highest first."""
    by_provider: dict[str, list[Reclaim]] = {}
    for one in found:
        by_provider.setdefault(one.launch.provider, []).append(one)
    sums = [
        ReclaimSum(provider=name, machines=len(own), microusd=sum(one.microusd for one in own))
        for name, own in by_provider.items()
    ]
    return sorted(sums, key=lambda one: (-one.microusd, one.provider))
