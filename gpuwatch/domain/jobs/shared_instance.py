"""Run small jobs one after another on one instance: which job waits for which instance, and the saving. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.jobs.cluster_task import is_cluster
from gpuwatch.domain.jobs.job import ON_AN_INSTANCE, Job, JobState
from gpuwatch.domain.jobs.job_watch import START_H, pilot_items, price_cap, work_hours_left
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.market.money import MICRO, threshold_microusd
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.watches.watch import Action

_TOGETHER_H = 6.0  # hours of work queued for one instance before another one is rented (assumed)
_LEAST_SHARE = 0.1  # share of the cost on its own instance that sharing must save (assumed)


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share one instance, in the order in which they run.

    Attributes:
        separate_usd: their cost on separate instances.
        combined_usd: their cost one after another on one instance.
    """

    jobs: tuple[Job, ...]
    separate_usd: float
    combined_usd: float

    @property
    def saving_usd(self) -> float:
        """The money saved by sharing."""
        return self.separate_usd - self.combined_usd


class InstanceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has an instance, and the price of the instance."""

    job: Job
    price_microusd_hour: int
    gpu_count: int


class _Shared(msgspec.Struct, kw_only=True):
    """An instance, of the first job, which has or seeks it, and the jobs that wait for it."""

    jobs: list[Job]
    hours: float  # until it is free
    rented: InstanceHolder | None = None


class SharedInstances:
    """One pass over the queue in order of rank: which jobs wait for the instance of another job.

    Args:
        holders: jobs that have an instance.
        min_billing_h: minimum billed hours of an instance.
    """

    def __init__(self, holders: Iterable[InstanceHolder], now: datetime, min_billing_h: float = 0.0) -> None:
        self._now = now
        self._min_billing_h = min_billing_h
        self._all: list[_Shared] = []
        self._rented: dict[bytes, list[_Shared]] = {}
        self._unplaced: dict[bytes, _Shared] = {}  # only the newest one: the one before it was full or unsuitable
        for holder in holders:
            if may_share(holder.job):
                starts_h = 0.0 if holder.job.state in {JobState.RUNNING, JobState.FETCHING} else START_H
                hours = starts_h + work_hours_left(holder.job)
                shared = _Shared(jobs=[holder.job], hours=hours, rented=holder)
                self._all.append(shared)
                self._rented.setdefault(_needs(holder.job), []).append(shared)

    def holder_for(self, job: Job) -> Job | None:
        """The job whose instance a queued job waits for; None: it seeks its own, for which other jobs may wait.

        Args:
            job: does not depend on the results of another job.
        """
        if not may_share(job):
            return None
        needs = _needs(job)
        if is_small(job, self._min_billing_h):
            known: list[_Shared] = [
                *self._rented.get(needs, ()),
                *([self._unplaced[needs]] if needs in self._unplaced else []),
            ]
            for one in known:
                if self._is_compatible(job, one):
                    one.jobs.append(job)
                    one.hours += work_hours_left(job)
                    return one.jobs[0]
        new = self._unplaced[needs] = _Shared(jobs=[job], hours=START_H + work_hours_left(job))
        self._all.append(new)
        return None

    def merges(self, prices: Mapping[str, float]) -> list[Merge]:
        """The groups found, largest saving first.

        Args:
            prices: USD per GPU-hour by job id; default: the job's limit.
        """
        found = [self._merge(one, prices) for one in self._all if len(one.jobs) > 1]
        return sorted(found, key=lambda one: -one.saving_usd)

    def _is_compatible(self, job: Job, shared: _Shared) -> bool:
        first = shared.jobs[0]
        if shared.hours + work_hours_left(job) > _TOGETHER_H:
            return False
        if (rented := shared.rented) is not None:
            if rented.price_microusd_hour > threshold_microusd(price_cap(job), rented.gpu_count):
                return False
        elif price_cap(first) < price_cap(job) or (first.deadline is not None and job.deadline is None):
            return False  # the first job may wait for a lower price than this one would pay
        # in time even if the first job fails at its very end and this one has to rent its own instance
        return (
            job.deadline is None
            or self._now + timedelta(hours=shared.hours + START_H + work_hours_left(job)) <= job.deadline
        )

    def _merge(self, shared: _Shared, prices: Mapping[str, float]) -> Merge:
        usd_hour = min(_usd_hour(job, prices) for job in shared.jobs)
        if shared.rented is not None:
            usd_hour = shared.rented.price_microusd_hour / MICRO
        others_h = sum(work_hours_left(job) for job in shared.jobs[1:])
        first_h = shared.hours - others_h
        apart = max(first_h, self._min_billing_h) * usd_hour
        apart += sum(_alone_h(job, self._min_billing_h) * _usd_hour(job, prices) for job in shared.jobs[1:])
        together = max(shared.hours, self._min_billing_h) * usd_hour
        return Merge(jobs=tuple(shared.jobs), separate_usd=apart, combined_usd=together)


def launches_of(jobs: Sequence[Job], living: Sequence[Launch]) -> dict[str, Launch]:
    """The active launch of each job id: the instance it runs on, possibly rented by another job, or its own launch."""
    by_id = {launch.launch_id: launch for launch in living}
    found = {launch.watch_id: launch for launch in living if launch.watch_id is not None}
    for job in jobs:
        held = by_id.get(job.launch_id or "")
        if held is not None and (job.state is not JobState.QUEUED or job.job_id not in found):
            found[job.job_id] = held
    return found


def holders_of(jobs: Sequence[Job], alive: Mapping[str, Launch]) -> list[InstanceHolder]:
    """Jobs whose instance another job may take over: of two on one instance, the finished one has handed it over."""
    found: dict[str, InstanceHolder] = {}
    for job in jobs:
        launch = alive.get(job.job_id)
        is_on = job.state in ON_AN_INSTANCE or job.state is JobState.RENTING
        has_failed = job.state is JobState.FETCHING and job.exit_code != 0
        if launch is None or not is_on or has_failed or launch.state is LaunchState.STOPPING:
            continue
        if job.state is not JobState.FETCHING or launch.launch_id not in found:
            price = launch.price_microusd_hour
            found[launch.launch_id] = InstanceHolder(job=job, price_microusd_hour=price, gpu_count=launch.gpu_count)
    return list(found.values())


def may_share(job: Job) -> bool:
    """Whether the job may run on an instance rented by another job, or hand over its own."""
    spec = job.definition
    ticked_by_owner = set(spec.resources.require) - set(pilot_items(spec))
    is_free = spec.resources.action is Action.LAUNCH and not ticked_by_owner
    return spec.share_instance and is_free and not is_cluster(job)


def is_small(job: Job, min_billing_h: float = 0.0) -> bool:
    """Whether set-up or minimum billing of an instance of its own would be long compared with the work."""
    return work_hours_left(job) <= (1 - _LEAST_SHARE) * _alone_h(job, min_billing_h)


def have_same_needs(one: Job, other: Job) -> bool:
    """Whether an instance of one job suits the other: offers, image, set-up, windows."""
    return _needs(one) == _needs(other)


def costs_less_here(job: Job, price: float, cheapest: float | None) -> bool:
    """Whether the work costs less on a running instance than on a new one at the cheapest price seen (None: no price).

    Both prices are per GPU-hour, in the same unit.
    """
    return cheapest is None or price * work_hours_left(job) <= cheapest * (START_H + work_hours_left(job))


def _alone_h(job: Job, min_billing_h: float) -> float:
    return max(START_H + work_hours_left(job), min_billing_h)


def _usd_hour(job: Job, prices: Mapping[str, float]) -> float:
    gpu_hour = prices.get(job.job_id)
    return (float(price_cap(job)) if gpu_hour is None else gpu_hour) * priced_units(
        job.definition.resources.gpu_count_min
    )


def _needs(job: Job) -> bytes:
    resources = msgspec.structs.replace(job.definition.resources, name="", require=())
    return msgspec.json.encode((resources, job.definition.setup, job.definition.active))
