"""A queued job as a watch: hunted, admitted, approved and guarded like any other watch. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal

import msgspec

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.launches.life.owner_decisions import PILOT_ITEMS
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import AutoPrice, SpotPolicy, Watch

ASSUMED_HOURS = 24.0  # hours of work if a job does not state them (assumed)
START_H = 0.2  # hours from the order to the first command: image, start, loading (assumed)
_MARGIN = 1.5  # a run may take this many times its estimate before its instance is ended (assumed)
_LEAST_RUNTIME_S = 600.0
_CENT = Decimal("0.000001")


def work_hours_left(job: Job) -> float:
    """Maximum hours of work left, from the estimate and the progress."""
    hours = job.definition.hours
    return (ASSUMED_HOURS if hours is None else hours.high) * (1 - min(job.progress or 0.0, 0.99))


def latest_start(job: Job) -> datetime | None:
    """The latest start that meets the deadline if the estimate is right; None: no deadline."""
    return None if job.deadline is None else job.deadline - timedelta(hours=work_hours_left(job))


def latest_spot_wait(job: Job) -> datetime | None:
    """Until when a job with `spot = "first"` can wait for a spot offer: a machine on demand, ordered then, still meets
    the deadline. None: it has another `spot`, or no deadline.
    """
    start = latest_start(job)
    waits = start is not None and job.definition.resources.spot is SpotPolicy.FIRST
    return start - timedelta(hours=START_H) if waits and start is not None else None


def price_cap(job: Job) -> Decimal:
    """The highest price per GPU-hour that the job's limits allow, in USD: the strictest of them.

    For `max_usd`, it is the money left divided by the hours left and the time until its end is proven.
    """
    limit, resources = job.definition.limit, job.definition.resources
    caps = [resources.max_price_usd_gpu_hour]
    if limit.max_price_usd_gpu_hour is not None:
        caps.append(limit.max_price_usd_gpu_hour)
    if limit.max_usd_hour is not None:
        caps.append(limit.max_usd_hour / resources.gpu_count_min)
    if limit.max_usd is not None:
        billed_h = work_hours_left(job) + END_PROVEN_S / 3600
        usd_hour = max(usd_left(job) or Decimal(0), _CENT) / Decimal(str(billed_h))
        caps.append(usd_hour / resources.gpu_count_max)  # so that the largest offer can finish, too
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
        most_usd_hour = float(limit_usd_gpu_hour) * spec.resources.gpu_count_max
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
