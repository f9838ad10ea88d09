"""For a launch that runs: the next bid when it was outbid, and whether moving to a cheaper offer would pay. Pure.

A bid is in micro-dollars an hour, listed, for the GPUs only.

The comparison is about the cost of the remaining work: on the current instance, and on a new one with its set-up, with
the minimum billing and the billing steps of both. Hours are compared without traffic on both sides. Traffic is counted
once: here the upload that is still to come, there the download again and the upload. The old instance would end first,
so the two never run together. A launch of a watch is never moved, only reported; a job may move (`jobs.job_watch`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from math import isfinite

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.end_rules import ends_by_itself_at
from gpuwatch.domain.launches.launch import Launch, LaunchState, Promise
from gpuwatch.domain.launches.money.launch_costs import billed_time
from gpuwatch.domain.market.money import MICRO, microusd
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.market.traffic import Traffic
from gpuwatch.domain.plan.job_hours import JobSpec
from gpuwatch.domain.watches.computed_limits import bid_ceiling_microusd, bid_for_price
from gpuwatch.domain.watches.decide import Match, current_quotes
from gpuwatch.domain.watches.launch_spec import BidSpec
from gpuwatch.domain.watches.watch import Watch

NO_END = timedelta(hours=24)  # assumed remaining time without a `max_runtime`


def next_bid(launch: Launch, instance: Instance, bid: BidSpec | None) -> int | None:
    """Return the next bid after being outbid; None: do not bid more, or the bid is high enough and only has to win."""
    if bid is None:
        return None
    ceiling = admitted_bid_ceiling(launch, bid)
    now = launch.bid_microusd_hour or _microusd(instance.bid_usd_hour) or 0
    least = _microusd(instance.min_bid_usd_hour)
    if least is not None and now >= least:
        return None
    step = round(Fraction(bid.step_usd_gpu_hour) * priced_units(launch.gpu_count) * MICRO)
    wanted = min(ceiling, max(least or 0, now + max(step, 1)))
    return wanted if wanted > now and wanted >= (least or 0) else None


def is_underbid(launch: Launch, instance: Instance) -> bool:
    """Whether it still runs although its bid is under the lowest one that wins: it may be stopped at any moment."""
    bid, least = _microusd(instance.bid_usd_hour) or launch.bid_microusd_hour, _microusd(instance.min_bid_usd_hour)
    runs = launch.spot and instance.state is InstanceState.RUNNING
    return runs and bid is not None and least is not None and bid < least


def admitted_bid_ceiling(launch: Launch, bid: BidSpec) -> int:
    """Return the highest allowed bid in micro-dollars: `bid.max` without commission and disk.

    Never more than at the launch's admission: no budget covers a `bid.max` that was raised later.
    """
    rate, disk = launch.promised.commission_rate, launch.disk_microusd_hour
    admitted = bid_for_price(Fraction(launch.bound_microusd_hour), rate, disk)
    return min(admitted, bid_ceiling_microusd(bid, launch.gpu_count, rate, disk))


def _microusd(usd: float | None) -> int | None:
    return None if usd is None or not isfinite(usd) else microusd(repr(usd))


class RemainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """What is still to do, and what a move would add.

    Attributes:
        left: the time that the work still takes.
        setup: from the order of the new machine until it goes on there.
        repeated: work since the newest checkpoint, which is done again.
        ending: how long the old machine is billed after the decision.
    """

    left: timedelta
    setup: timedelta
    repeated: timedelta = timedelta(0)
    ending: timedelta = timedelta(0)
    assumed: tuple[str, ...] = ()


class Relocation(msgspec.Struct, frozen=True, kw_only=True):
    """A cheaper place for a launch. Costs in micro-dollars, for the remaining work."""

    match: Match
    cost_here_microusd: int
    cost_there_microusd: int
    work: RemainingWork

    @property
    def saving_microusd(self) -> int:
        """The saving after set-up and minimum billing."""
        return self.cost_here_microusd - self.cost_there_microusd

    @property
    def share(self) -> float:
        """The saving relative to the cost of staying."""
        return self.saving_microusd / self.cost_here_microusd


def relocation(launch: Launch, watch: Watch, offers: Iterable[Match], now: datetime) -> Relocation | None:
    """Return the move that saves most, if it saves at least what `relocate` requires; None: there is none.

    Args:
        offers: the offers that the watch sees. Only those with the launch's own GPU, count and rental type are
            compared, because the speed of others is unknown.
    """
    wanted = watch.relocate
    if wanted is None or launch.state is not LaunchState.RUNNING or launch.running_at is None or launch.dry_run:
        return None
    if now - launch.running_at < timedelta(seconds=wanted.after_s):
        return None
    found = cheapest_move(launch, launched_work(launch, watch.job, now), offers, now)
    return found if found is not None and found.share >= wanted.min_saving else None


def cheapest_move(launch: Launch, work: RemainingWork, offers: Iterable[Match], now: datetime) -> Relocation | None:
    """Compare a running launch with the cheapest offer of its own GPU, count and rental type; None: there is none."""
    if work.left <= timedelta(0) or not launch.price_microusd_hour or launch.running_at is None:
        return None
    lived = now - launch.running_at
    same = (_compared(launch, work, match, lived) for match in current_quotes(offers, now) if _is_alike(match, launch))
    return min(same, key=lambda found: found.cost_there_microusd, default=None)


def _is_alike(match: Match, launch: Launch) -> bool:
    offer = match.offer
    return (offer.gpu, offer.gpu_count, offer.spot) == (launch.gpu, launch.gpu_count, launch.spot)


def _compared(launch: Launch, work: RemainingWork, match: Match, lived: timedelta) -> Relocation:
    before = billed_time(launch.promised, lived + work.ending)  # its minimum and its last step are billed
    stays = billed_time(launch.promised, lived + work.left) - lived
    price, rent = match.price, match.price.rent_microusd_hour
    new = Promise(min_billing_s=price.min_billing_s, billing_step_s=price.billing_step_s)
    there = billed_time(new, work.setup + work.repeated + work.left)
    moved = _cost(before - lived, launch.price_microusd_hour) + _cost(there, rent)
    promised = launch.promised
    again = Traffic(promised.download_gb, promised.upload_gb)
    unknown = tuple(f"the price of its {direction} there is unknown" for direction in again.unpriced(match.offer))
    to_come = Traffic(0.0, promised.upload_gb).microusd(promised)
    return Relocation(
        match=match,
        cost_here_microusd=_cost(stays, launch.price_microusd_hour) + to_come,
        cost_there_microusd=moved + again.microusd(match.offer),
        work=msgspec.structs.replace(work, assumed=(*work.assumed, *unknown)),
    )


def launched_work(launch: Launch, job: JobSpec | None, now: datetime) -> RemainingWork:
    """The rest of a launch's own time, by `max_runtime`; a new machine is assumed to be set up as quickly."""
    ends_at = ends_by_itself_at(launch)
    assumed = ["the new machine is as fast as this one", "its set-up takes as long"]
    if ends_at is None:
        assumed.append(f"it runs for another {NO_END.total_seconds() / 3600:g} h, as it has no max_runtime")
    left = NO_END if ends_at is None else ends_at - now
    return RemainingWork(left=left, setup=_setup(launch, job), assumed=tuple(assumed))


def _setup(launch: Launch, job: JobSpec | None) -> timedelta:
    """The time from the order until it ran, as measured here, plus the job's own set-up and loading."""
    begun = launch.requested_at or launch.intended_at
    own = (launch.running_at or begun) - begun
    job_s = 0.0 if job is None else job.setup_s.high + job.load_s.high
    return max(own, timedelta(0)) + timedelta(seconds=job_s)


def _cost(billed: timedelta, microusd_hour: int) -> int:
    return round(billed / timedelta(hours=1) * microusd_hour)
