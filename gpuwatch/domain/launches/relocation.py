"""Would it pay to move a running launch to an offer that costs less? Reported only; nothing is moved. Pure.

Compared is what the rest of its work costs: here at its price, and there with the set-up once more, while both bill at
least their minimum and whole steps. The old one would end first: never two at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.billing import billed_time
from gpuwatch.domain.launches.launch import Launch, LaunchState, Promise
from gpuwatch.domain.launches.runtime_rules import ends_by_itself_at
from gpuwatch.domain.planning.job_hours import JobSpec
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

NO_END = timedelta(hours=24)  # assumed where no `max_runtime` says how long it runs on
QUOTED_WITHIN = timedelta(minutes=10)  # an older quote is no finding; assumed


class Relocation(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. Costs in micro-dollars, of the work that is left."""

    match: Match
    stay_microusd: int
    move_microusd: int
    left: timedelta
    setup: timedelta
    assumed: tuple[str, ...]

    @property
    def saving_microusd(self) -> int:
        """What moving saves, after set-up and minimum billing."""
        return self.stay_microusd - self.move_microusd

    @property
    def share(self) -> float:
        """The saving as a part of what staying costs."""
        return self.saving_microusd / self.stay_microusd


def relocation(launch: Launch, watch: Watch, shown: Iterable[Match], now: datetime) -> Relocation | None:
    """Return the move that saves most, if it saves as much as `relocate` asks for; None: none does.

    Args:
        shown: what the market shows the watch. Only the launch's own GPU, count and rental type are compared: how fast
            the work would be elsewhere is not known.
    """
    wanted = watch.relocate
    if wanted is None or launch.state is not LaunchState.RUNNING or launch.running_at is None or launch.dry_run:
        return None
    if now - launch.running_at < timedelta(seconds=wanted.after_s):
        return None
    same = [match for match in shown if _is_alike(match, launch) and now - match.offer.observed_at <= QUOTED_WITHIN]
    best = min(same, key=lambda match: match.price.price_microusd_hour, default=None)
    found = None if best is None else _compared(launch, watch, best, now)
    return found if found is not None and found.share >= wanted.min_saving else None


def _is_alike(match: Match, launch: Launch) -> bool:
    offer = match.offer
    return (offer.gpu, offer.gpu_count, offer.spot) == (launch.gpu, launch.gpu_count, launch.spot)


def _compared(launch: Launch, watch: Watch, best: Match, now: datetime) -> Relocation | None:
    assert launch.running_at is not None
    ends_at = ends_by_itself_at(launch)
    left = NO_END if ends_at is None else ends_at - now
    if left <= timedelta(0) or not launch.price_microusd_hour:
        return None
    lived, setup = now - launch.running_at, _setup(launch, watch.job)
    before = billed_time(launch.promised, lived)  # what ends now is billed to its minimum, or to the end of its step
    stays = billed_time(launch.promised, lived + left) - lived
    price = best.price
    new = Promise(min_billing_s=price.min_billing_s, billing_step_s=price.billing_step_s)
    moved = _cost(before - lived, launch.price_microusd_hour) + _cost(
        billed_time(new, setup + left), price.price_microusd_hour
    )
    assumed = ["the new machine is as fast as this one", "its set-up takes as long"]
    if ends_at is None:
        assumed.append(f"it runs for another {NO_END.total_seconds() / 3600:g} h, as it has no max_runtime")
    return Relocation(
        match=best,
        stay_microusd=_cost(stays, launch.price_microusd_hour),
        move_microusd=moved,
        left=left,
        setup=setup,
        assumed=tuple(assumed),
    )


def _setup(launch: Launch, job: JobSpec | None) -> timedelta:
    """From the order until it ran, as it was here, and what the watch says of its job's own set-up and loading."""
    begun = launch.requested_at or launch.intended_at
    own = (launch.running_at or begun) - begun
    job_s = 0.0 if job is None else job.setup_s.high + job.load_s.high
    return max(own, timedelta(0)) + timedelta(seconds=job_s)


def _cost(billed: timedelta, microusd_hour: int) -> int:
    return round(billed / timedelta(hours=1) * microusd_hour)
