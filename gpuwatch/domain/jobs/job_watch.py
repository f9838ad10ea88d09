"""A job as a watch: while it is queued, hunted, admitted, approved and guarded like any other watch. Pure.

While it runs, and its file has `relocate`, only cheaper offers like its machine are observed (`watch_for_a_move`), and
`judged_move` says whether it would pay to continue on one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal

import msgspec

from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import PILOT_ITEMS
from gpuwatch.domain.launches.money.bids_and_relocation import Relocation, RemainingWork, cheapest_move
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.money import MICRO, dollars, threshold_microusd, usd
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.market.traffic import Traffic
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec, LaunchSpec
from gpuwatch.domain.watches.watch import AutoPrice, SpotPolicy, Watch
from gpuwatch.domain.watches.windows import is_open

ASSUMED_HOURS = 24.0  # hours of work if a job does not state them (assumed)
START_H = 0.2  # hours from the order to the first command: image, start, loading (assumed)
_MARGIN = 1.5  # a run may take this many times its estimate before its instance is ended (assumed)
_LEAST_RUNTIME_S = 600.0
_CENT = Decimal("0.000001")
_NEAR_END_H = 1.0  # a job that may be done within this time stays where it is (assumed)
_MOVES_WITHIN = timedelta(hours=24)
_OBSERVED_BEFORE = timedelta(minutes=10)  # offers are observed this long before `after` is over


def work_hours_left(job: Job) -> float:
    """Maximum hours of work left in its step, from the estimate and the progress."""
    return _estimate_h(job.definition) * (1 - min(job.progress or 0.0, 0.99))


def hours_to_end(job: Job) -> float:
    """Maximum hours until the job is done, once it has an instance: also those of the step that follows."""
    following = job.definition.then
    return work_hours_left(job) + (0.0 if following is None else START_H + _estimate_h(following))


def _estimate_h(definition: JobDefinition) -> float:
    return ASSUMED_HOURS if definition.hours is None else definition.hours.high


def latest_start(job: Job) -> datetime | None:
    """The latest start that meets the deadline if the estimates are right; None: no deadline."""
    return None if job.deadline is None else job.deadline - timedelta(hours=hours_to_end(job))


def latest_spot_wait(job: Job) -> datetime | None:
    """Until when a job with `spot = "first"` can wait for a spot offer: a machine on demand, ordered then, still meets
    the deadline. None: it has another `spot`, or no deadline.
    """
    start = latest_start(job)
    waits = start is not None and job.definition.resources.spot is SpotPolicy.FIRST
    return start - timedelta(hours=START_H) if waits and start is not None else None


def price_cap(job: Job) -> Decimal:
    """The highest price per GPU-hour that the job's limits allow, in USD: the strictest of them.

    For `max_usd`, it is the money left divided by the hours left and the time until its end is proven. Of several
    machines, each has its share of what the limits allow together.
    """
    limit, resources, nodes = job.definition.limit, job.definition.resources, job.definition.nodes
    caps = [resources.max_price_usd_gpu_hour]
    if limit.max_price_usd_gpu_hour is not None:
        caps.append(limit.max_price_usd_gpu_hour)
    if limit.max_usd_hour is not None:
        caps.append(limit.max_usd_hour / nodes / priced_units(resources.gpu_count_min))
    if limit.max_usd is not None:
        billed_h = work_hours_left(job) + END_PROVEN_S / 3600
        usd_hour = max(usd_left(job) or Decimal(0), _CENT) / nodes / Decimal(str(billed_h))
        caps.append(usd_hour / priced_units(resources.gpu_count_max))  # so that the largest offer can finish, too
    return max(min(caps).quantize(_CENT, ROUND_FLOOR), _CENT)


def usd_left(job: Job) -> Decimal | None:
    """The money left of `limit.max_usd`; None: there is no such limit."""
    if job.definition.limit.max_usd is None:
        return None
    return job.definition.limit.max_usd - Decimal(job.spent_microusd) / 1_000_000


def max_runtime_s(job: Job, limit_usd_gpu_hour: Decimal, now: datetime) -> float:
    """The maximum billed time of one run: as stated, not beyond the deadline, and never more than the money left.

    Without `max_runtime`, it is one and a half times the hours left.
    """
    spec = job.definition
    bounds = [work_hours_left(job) * 3600 * _MARGIN if spec.max_runtime_s is None else spec.max_runtime_s]
    if job.deadline is not None:
        bounds.append((job.deadline - now).total_seconds())
    left = usd_left(job)
    if left is not None:
        most_usd_hour = float(limit_usd_gpu_hour) * priced_units(spec.resources.gpu_count_max) * spec.nodes
        if spec.limit.max_usd_hour is not None:
            most_usd_hour = min(most_usd_hour, float(spec.limit.max_usd_hour))
        bounds.append(float(left) / most_usd_hour * 3600 - END_PROVEN_S)  # it is charged until its end is proven
        return max(min(bounds), 60.0)
    return max(min(bounds), _LEAST_RUNTIME_S)


def pilot_items(definition: JobDefinition) -> tuple[str, ...]:
    """Items of `require` that the job's pilot measures after renting, without duplicates."""
    if definition.pilot is None:
        return ()
    return tuple(item for item in dict.fromkeys(definition.resources.require) if item in PILOT_ITEMS)


def waiting_job_watch(job: Job, limit_usd_gpu_hour: Decimal, now: datetime) -> Watch:
    """The watch of a waiting job, at a limit in USD per GPU-hour (never above its `price_cap`).

    With a deadline, the limit is that of `max_price = "auto"`: computed from the price history and the time left until
    the latest start, and never above the given limit. It rises towards the given limit, which it reaches at the latest
    start. With `spot = "first"` it takes spot offers only until the latest start on demand (`spot_until`), at which the
    limit is reached; without a deadline, for `spot_for`.
    """
    limit = min(limit_usd_gpu_hour, price_cap(job))
    spot_until = latest_spot_wait(job)
    start = spot_until or latest_start(job)
    auto = AutoPrice(cap_usd_gpu_hour=limit, deadline_at=start) if start is not None and start > now else None
    resources = job.definition.resources
    launch = resources.launch or LaunchSpec()
    later = pilot_items(job.definition)  # these do not prevent renting
    budget = msgspec.structs.replace(resources.budget, max_usd_hour=job.definition.limit.max_usd_hour)
    return msgspec.structs.replace(
        resources,
        name=job.watch_name,
        max_price_usd_gpu_hour=limit,
        auto=auto,
        spot_until=spot_until,
        require=tuple(item for item in resources.require if item not in later),
        launch=msgspec.structs.replace(launch, max_active=1, max_total=0, max_runtime_s=max_runtime_s(job, limit, now)),
        budget=budget,
    )


# --- moving a running job ---------------------------------------------------------------------------------------------


def watch_for_a_move(job: Job, launch: Launch | None, now: datetime) -> Watch | None:
    """The watch that observes offers like the machine of a running job, cheap enough that moving could pay.

    None: its file has no `relocate`, or it has not run there for long enough. Nothing is ever decided about this watch.
    """
    wanted = job.definition.relocate
    if wanted is None or launch is None or job.state is not JobState.RUNNING or launch.running_at is None:
        return None
    if launch.state is not LaunchState.RUNNING or now + _OBSERVED_BEFORE < _stays_until(launch, None, wanted):
        return None
    highest = usd(launch.price_microusd_hour) / priced_units(launch.gpu_count) * (1 - Decimal(str(wanted.min_saving)))
    return msgspec.structs.replace(
        job.definition.resources,
        name=job.watch_name,
        gpu=(launch.gpu,),
        gpu_names=(launch.gpu,),
        gpu_count_min=launch.gpu_count,
        gpu_count_max=launch.gpu_count,
        spot=SpotPolicy.ONLY if launch.spot else SpotPolicy.NO,
        max_price_usd_gpu_hour=max(highest.quantize(_CENT, ROUND_FLOOR), _CENT),
        require=(),
        only_observed=True,
    )


class MoveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a running job when a move is judged.

    Attributes:
        ends_at: the forecast of its end, from its progress; None: it reports none.
        checkpoint_at: when its newest stored checkpoint was written; None: there is none.
        moved_at: when it moved before.
        ran_before_h: hours for which its earlier runs ran.
        limit_usd_gpu_hour: the job's limit once the old machine is paid.
        traffic: what a price of the job's watch contains, which is compared with that limit.
    """

    now: datetime
    limit_usd_gpu_hour: Decimal
    ends_at: tuple[datetime, datetime] | None = None
    checkpoint_at: datetime | None = None
    moved_at: tuple[datetime, ...] = ()
    ran_before_h: float = 0.0
    traffic: Traffic | None = None
    zone: str = "UTC"


class MoveVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a job should continue on another machine. `stays`: why not, in one line; None: moving pays."""

    found: Relocation | None = None
    stays: str | None = None


def judged_move(job: Job, run: JobRun, launch: Launch, offers: Iterable[Match], facts: MoveFacts) -> MoveVerdict:
    """Compare the rest of the work here with the cheapest offer like this machine, all costs of a move counted.

    The saving counts the least time that the work may still take, the deadline the most.
    """
    wanted, hours = job.definition.relocate, _hours_left(job, run, facts)
    assert wanted is not None
    if (early := next(_too_early(job, run, launch, wanted, facts), None)) is not None:
        return MoveVerdict(stays=early)
    if hours is None:
        text = "how long its work still takes is unknown: it reports no progress, and its file states no hours"
        return MoveVerdict(stays=text)
    if hours.low < _NEAR_END_H:
        return MoveVerdict(stays=f"it may be done within {format_duration(_NEAR_END_H * 3600)}")
    work = _work(job, run, launch, hours, facts)
    found = cheapest_move(launch, work, offers, facts.now)
    if found is None:
        return MoveVerdict(stays="no offer like its machine is cheap enough")
    return MoveVerdict(found=found, stays=next(_too_little(job, launch, found, hours, facts), None))


def _stays_until(launch: Launch, run: JobRun | None, wanted: JobRelocateSpec) -> datetime:
    began = launch.running_at or launch.intended_at
    if run is not None and run.held_from is not None:  # another job rented it
        began = max(began, run.held_from)
    return began + timedelta(seconds=wanted.after_s)


def _too_early(job: Job, run: JobRun, launch: Launch, wanted: JobRelocateSpec, facts: MoveFacts) -> Iterator[str]:
    if facts.now < _stays_until(launch, run, wanted):
        yield f"it has been on its machine for less than {format_duration(wanted.after_s)} (after)"
    moves = sum(facts.now - at < _MOVES_WITHIN for at in facts.moved_at)
    if moves >= wanted.max_per_day:
        times = "once" if moves == 1 else f"{moves} times"
        yield f"it moved {times} within 24 hours (max_per_day = {wanted.max_per_day})"
    if not is_open(job.definition.active, facts.now, facts.zone):
        yield "it could not start again now (active)"


def _hours_left(job: Job, run: JobRun, facts: MoveFacts) -> FigureRange | None:
    """The hours of work left, by the forecast of this run, else by the estimate and what is done of it."""
    if facts.ends_at is not None:
        low, high = ((at - facts.now).total_seconds() / 3600 for at in facts.ends_at)
        return FigureRange(low, high)
    hours = job.definition.hours
    if hours is None:
        return None
    if job.progress is not None:
        return FigureRange(hours.low * (1 - job.progress), hours.high * (1 - job.progress))
    ran = (facts.now - (run.started_at or facts.now)).total_seconds() / 3600
    # how much of the work of earlier runs was kept is unknown: all of it at best, none at worst
    return FigureRange(hours.low - ran - facts.ran_before_h, hours.high - ran)


def _work(job: Job, run: JobRun, launch: Launch, hours: FigureRange, facts: MoveFacts) -> RemainingWork:
    checkpoint, started_at = job.definition.checkpoint, run.started_at or facts.now
    repeated = facts.now - (facts.checkpoint_at or started_at)
    if checkpoint is not None:  # a move waits for a checkpoint that is not older
        repeated = min(repeated, timedelta(seconds=checkpoint.every_s))
    ordered_at = launch.requested_at or launch.intended_at
    setup = timedelta(hours=START_H) if run.held_from is not None else max(started_at - ordered_at, timedelta(0))
    basis = "its hours left are those of its file" if facts.ends_at is None else "it goes on as fast as so far"
    assumed = (basis, "the new machine is as fast as this one", "starting there takes as long as here, data included")
    return RemainingWork(
        left=timedelta(hours=hours.low),
        setup=setup,
        repeated=max(repeated, timedelta(0)),
        ending=timedelta(seconds=END_PROVEN_S),
        assumed=assumed,
    )


def _too_little(job: Job, launch: Launch, found: Relocation, hours: FigureRange, facts: MoveFacts) -> Iterator[str]:
    """Yield why the best move is not worth it, or would put the job at risk."""
    wanted, offer, price = job.definition.relocate, found.match.offer, found.match.price.rent_microusd_hour
    assert wanted is not None
    price += 0 if facts.traffic is None else facts.traffic.microusd_hour(offer)
    if found.saving_microusd <= 0 or found.share < wanted.min_saving:
        saves = (
            f"save {dollars(found.saving_microusd / MICRO)} ({found.share:.0%})"
            if found.saving_microusd > 0
            else "cost more"
        )
        yield f"moving to {offer.provider} would {saves}; min_saving is {wanted.min_saving:.0%}"
    if price > threshold_microusd(facts.limit_usd_gpu_hour, launch.gpu_count):
        yield "the offer is over the limit that the job would have after the move"
    # twice the time of the start: a first order may fail
    ready_at = facts.now + found.work.ending + 2 * found.work.setup + found.work.repeated
    if job.deadline is not None and ready_at + timedelta(hours=hours.high) > job.deadline:
        yield "its deadline would be at risk"
