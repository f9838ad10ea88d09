"""The plan of the queue: which jobs look for an instance and at which limit, which wait for what, which could share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.watches.watch_status import WatchStatus, watch_statuses
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.bootstrap.job_building import min_billing_h
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_watch import START_H, latest_start, price_cap, waiting_job_watch, work_hours_left
from gpuwatch.domain.jobs.queue import QueuedJob, group_states, saving_usd, schedule
from gpuwatch.domain.jobs.shared_instance import Merge, SharedInstances, holders_of, launches_of
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.market.json_view import JsonView, Moment, number, rfc3339
from gpuwatch.domain.market.money import MICRO, dollars, price_text
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.domain.watches.windows import is_open, opens_at
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

ASSUMED = (
    "24 hours of work where a job states none",
    f"{START_H * 60:.0f} minutes from the order to the first command",
    "a spot machine is not interrupted, where the cost of both types is compared",
    "offers are those that the store saw last; a job that waits for its turn is not compared with them",
)


class SpotFirst(JsonView, frozen=True, kw_only=True):
    """The two costs of the work left of a job with `spot = "first"`, at the cheapest offers."""

    until: Annotated[
        Moment | None, Meta(description="It waits for a spot offer; null: for spot_for, from the first on demand.")
    ]
    spot_usd: Annotated[float | None, Meta(description="As spot; null: no offer is known.")]
    on_demand_usd: Annotated[float | None, Meta(description="On demand, at once; null: no offer is known.")]

    def text(self, zone: tzinfo) -> str:
        """Return it in one line."""
        spot, on_demand = ("unknown" if usd is None else dollars(usd) for usd in (self.spot_usd, self.on_demand_usd))
        until = "for spot_for" if self.until is None else f"until {format_moment(self.until, zone)}"
        return f"waits for a spot offer {until}: about {spot} as spot, {on_demand} on demand"


class PlannedStart(msgspec.Struct, frozen=True, kw_only=True):
    """One queued job.

    Attributes:
        limit_usd_gpu_hour: the highest price it accepts now.
        cap_usd_gpu_hour: the highest price that its limits ever allow.
        cheapest_usd_gpu_hour: the cheapest fitting offer at any price; None: none is known.
        when: what it waits for, one line.
        predicted_usd: at the cheapest offer if it would rent now, otherwise at the limit; a step that follows
            at its limit; never more than `most_usd`.
        most_usd: what all its steps can cost at most; None: its file states no `max_usd`.
    """

    queued: QueuedJob
    limit_usd_gpu_hour: float
    cap_usd_gpu_hour: float
    cheapest_usd_gpu_hour: float | None
    rents_now: bool
    when: str
    saving_usd: float
    predicted_usd: float
    most_usd: float | None = None
    spot_first: SpotFirst | None = None


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The current queue in order of rank."""

    at: datetime
    starts: tuple[PlannedStart, ...]
    merges: tuple[Merge, ...]
    dry_run: bool


def plan_jobs(settings: Settings) -> JobPlan:
    """What would run when, and why. Sends no request and writes nothing. Raises StoreError."""
    now, zone = real_now(), ZoneInfo(settings.timezone)
    with open_store_read_only(settings) as store:
        repository = SqlJobRepository(store)
        jobs = repository.open_jobs()
        holders = holders_of(jobs, launches_of(jobs, SqlLaunchRepository(store).alive()))
        awaited = {name for job in jobs for name in job.definition.depends_on}
        ended = sorted(repository.ended_jobs(awaited), key=lambda job: job.submitted_at)
    states = group_states([*ended, *jobs])
    queued_jobs = schedule(jobs, now, states)
    seen = _statuses(settings, [queued.job for queued in queued_jobs if queued.waits is None], now)
    prices = {job_id: price for job_id, status in seen.items() if (price := _cheapest(status)) is not None}
    shared = SharedInstances(holders, now, min_billing_h(settings))
    queued_jobs = schedule(jobs, now, states, lambda job: prices.get(job.job_id), shared=shared)
    return JobPlan(
        at=now,
        starts=tuple(planned_start(queued, seen.get(queued.job.job_id), now, zone) for queued in queued_jobs),
        merges=tuple(shared.merges(prices)),
        dry_run=settings.dry_run,
    )


def _statuses(settings: Settings, jobs: Sequence[Job], now: datetime) -> dict[str, WatchStatus]:
    """The offers in the store for each job's watch, by job id."""
    statuses = watch_statuses(settings, [waiting_job_watch(job, price_cap(job), now) for job in jobs]) if jobs else []
    return {job.job_id: status for job, status in zip(jobs, statuses, strict=True)}


def _cheapest(status: WatchStatus) -> float | None:
    best = status.matches[0] if status.matches else status.nearest
    return None if best is None else best.price_microusd_gpu_hour / MICRO


def planned_start(queued: QueuedJob, status: WatchStatus | None, now: datetime, zone: tzinfo) -> PlannedStart:
    """When and at which price a queued job would start, as far as the store and its own windows show."""
    job, cap = queued.job, float(price_cap(queued.job))
    cheapest = None if status is None else _cheapest(status)
    limit = cap if status is None else status.limit_usd_gpu_hour
    is_blocked = status is not None and (status.paused is not None or _block(status) is not None)
    is_in_window = is_open(job.definition.active, now, zone)
    rents_now = queued.waits is None and status is not None and bool(status.matches) and is_in_window and not is_blocked
    price = cheapest if rents_now and cheapest is not None else limit
    predicted_usd = job.spent_microusd / MICRO + price * _gpu_hours_left(job) + _following_usd(job)
    most_usd = number(job.definition.whole.limit.max_usd)
    return PlannedStart(
        queued=queued,
        limit_usd_gpu_hour=limit,
        cap_usd_gpu_hour=cap,
        cheapest_usd_gpu_hour=cheapest,
        rents_now=rents_now,
        when=queued.waits or _wait_text(job, status, (limit, cap, cheapest), now, zone),
        saving_usd=saving_usd(job, cheapest),
        predicted_usd=predicted_usd if most_usd is None else min(predicted_usd, most_usd),
        most_usd=most_usd,
        spot_first=None if status is None else _spot_first(job, status),
    )


def spot_first_of(settings: Settings, job: Job, now: datetime) -> SpotFirst | None:
    """Its two costs, while a job waits for its first machine or the next one; None: it has another `spot`, or runs.

    Raises StoreError.
    """
    if job.definition.resources.spot is not SpotPolicy.FIRST or job.state not in {JobState.QUEUED, JobState.PREEMPTED}:
        return None
    return _spot_first(job, _statuses(settings, [job], now)[job.job_id])


def _following_usd(job: Job) -> float:
    """The cost of the step after this one, at its limit."""
    if job.definition.then is None:
        return 0.0
    following = msgspec.structs.replace(job, definition=job.definition.then, progress=None)
    units = priced_units(following.definition.resources.gpu_count_min)
    return float(price_cap(following)) * units * work_hours_left(following)


def _spot_first(job: Job, status: WatchStatus) -> SpotFirst | None:
    if status.watch.spot is not SpotPolicy.FIRST:
        return None
    spot_usd, on_demand_usd = (_cost_usd(job, status.cheapest.get(is_spot)) for is_spot in (True, False))
    return SpotFirst.of(until=status.watch.spot_until, spot_usd=spot_usd, on_demand_usd=on_demand_usd)


def _cost_usd(job: Job, match: Match | None) -> float | None:
    """The cost of the work left there; None: there is no offer."""
    return None if match is None else match.price_microusd_gpu_hour / MICRO * _gpu_hours_left(job)


def _gpu_hours_left(job: Job) -> float:
    spec = job.definition
    return spec.nodes * priced_units(spec.resources.gpu_count_min) * work_hours_left(job)


def _block(status: WatchStatus) -> str | None:
    """Why its watch would not rent what it finds, besides a dry run, which concerns every job."""
    block = status.blocked
    return None if block is None or block.reason is BlockReason.DRY_RUN else block.text


def _wait_text(
    job: Job,
    status: WatchStatus | None,
    prices: tuple[float, float, float | None],
    now: datetime,
    zone: tzinfo,
) -> str:
    """What the job waits for, as text.

    Args:
        prices: its limit, its cap, and the cheapest fitting offer.
    """
    limit, cap, cheapest = prices
    if status is None or status.state == "no data":
        return "unknown: none of its providers has been polled yet"
    if status.paused is not None:
        return f"renting is paused: {status.paused}"
    seen = "no matching offers"
    if cheapest is not None:
        seen = f"the cheapest matching offer costs ${price_text(cheapest)}"
    if not is_open(job.definition.active, now, zone):
        opens = format_moment(opens_at(job.definition.active, now, zone), zone)
        return f"outside its active windows ({', '.join(job.definition.active)}), not before {opens}; {seen}"
    if cheapest is not None and status.matches:
        if (block := _block(status)) is not None:
            return f"{block}; {seen}"
        return f"now: ${price_text(cheapest)} is at or under ${price_text(limit)}"
    start = latest_start(job)
    if limit < cap and start is not None:
        return f"at ${price_text(limit)}, rising to ${price_text(cap)} by {format_moment(start, zone)}; {seen}"
    return f"when an offer is at or under ${price_text(limit)}; {seen}"


def job_plan_json(plan: JobPlan) -> dict[str, Any]:
    """JSON of `gpuwatch jobs plan`. Prices in USD per GPU-hour."""
    return {
        "at": rfc3339(plan.at),
        "dry_run": plan.dry_run,
        "assumed": list(ASSUMED),
        "jobs": [
            {
                "job_id": start.queued.job.job_id,
                "name": start.queued.job.name,
                "priority": start.queued.job.priority,
                "deadline": rfc3339(start.queued.job.deadline),
                "latest_start": rfc3339(latest_start(start.queued.job)),
                "slack_s": start.queued.slack_s,
                "limit_usd_gpu_hour": start.limit_usd_gpu_hour,
                "cap_usd_gpu_hour": start.cap_usd_gpu_hour,
                "cheapest_usd_gpu_hour": start.cheapest_usd_gpu_hour,
                "rents_now": start.rents_now,
                "waits": start.queued.waits,
                "when": start.when,
                "saving_usd": round(start.saving_usd, 6),
                "predicted_usd": round(start.predicted_usd, 6),
                "most_usd": start.most_usd,
                "stage": start.queued.job.definition.stage,
                "spot_first": None if start.spot_first is None else start.spot_first.json(),
            }
            for start in plan.starts
        ],
        "merges": [
            {
                "jobs": [job.name for job in merge.jobs],
                "apart_usd": round(merge.separate_usd, 6),
                "together_usd": round(merge.combined_usd, 6),
                "saving_usd": round(merge.saving_usd, 6),
            }
            for merge in plan.merges
        ],
    }
