"""Small jobs one after the other on one instance: which wait for whose instance, and what that saves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.jobs.cluster import is_cluster
from gpuwatch.domain.jobs.job import ON_AN_INSTANCE, Job, JobState
from gpuwatch.domain.jobs.job_watch import hours_left, pilot_items, price_cap
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.market.pricing import MICRO, threshold_microusd
from gpuwatch.domain.watches.watch import Action

START_H = 0.2  # hours from the order to the first command: image, start, loading; assumed
_TOGETHER_H = 6.0  # of work that is waiting for one instance: then another one is rented; assumed
_LEAST_SHARE = 0.1  # of its own instance's hours, that the shared one must save; assumed


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share one instance, in the order in which they run.

    Attributes:
        apart_usd: what they cost on an instance each.
        together_usd: what they cost one after the other on one.
    """

    jobs: tuple[Job, ...]
    apart_usd: float
    together_usd: float

    @property
    def saving_usd(self) -> float:
        """What the one instance saves."""
        return self.apart_usd - self.together_usd


class InstanceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has an instance, and what that costs."""

    job: Job
    price_microusd_hour: int
    gpu_count: int


class _Shared(msgspec.Struct, kw_only=True):
    """An instance: of the first job, which has it or looks for it, and of those who wait for it."""

    jobs: list[Job]
    hours: float  # until it is free
    rented: InstanceHolder | None = None


class SharedInstances:
    """One pass over the queue, the first to go first: who waits for the instance of another job.

    Args:
        holders: jobs on an instance.
        min_billing_h: hours that an instance is billed at least.
    """

    def __init__(self, holders: Iterable[InstanceHolder], now: datetime, min_billing_h: float = 0.0) -> None:
        self._now = now
        self._min_billing_h = min_billing_h
        self._all: list[_Shared] = []
        self._rented: dict[bytes, list[_Shared]] = {}
        self._looking: dict[bytes, _Shared] = {}  # the newest alone: the one before it was full, or did not suit
        for one in holders:
            if may_share(one.job):
                starts_h = 0.0 if one.job.state in {JobState.RUNNING, JobState.FETCHING} else START_H
                hours = starts_h + hours_left(one.job)
                shared = _Shared(jobs=[one.job], hours=hours, rented=one)
                self._all.append(shared)
                self._rented.setdefault(_needs(one.job), []).append(shared)

    def holder_for(self, job: Job) -> Job | None:
        """The job whose instance a queued one waits for; None: it looks for its own, and others may wait for that.

        Args:
            job: it waits for no other job's results.
        """
        if not may_share(job):
            return None
        needs = _needs(job)
        if is_small(job, self._min_billing_h):
            known: list[_Shared] = [
                *self._rented.get(needs, ()),
                *([self._looking[needs]] if needs in self._looking else []),
            ]
            for one in known:
                if self._suits(job, one):
                    one.jobs.append(job)
                    one.hours += hours_left(job)
                    return one.jobs[0]
        new = self._looking[needs] = _Shared(jobs=[job], hours=START_H + hours_left(job))
        self._all.append(new)
        return None

    def merges(self, prices: Mapping[str, float]) -> list[Merge]:
        """What was found, the largest saving first.

        Args:
            prices: USD per GPU-hour by the job's id; else its limit counts.
        """
        found = [self._merge(one, prices) for one in self._all if len(one.jobs) > 1]
        return sorted(found, key=lambda one: -one.saving_usd)

    def _suits(self, job: Job, shared: _Shared) -> bool:
        first = shared.jobs[0]
        if shared.hours + hours_left(job) > _TOGETHER_H:
            return False
        if (rented := shared.rented) is not None:
            if rented.price_microusd_hour > threshold_microusd(price_cap(job), rented.gpu_count):
                return False
        elif price_cap(first) < price_cap(job) or (first.deadline is not None and job.deadline is None):
            return False  # the first may wait for a lower price than this one would pay
        # in time even if the first fails at its end, and this one has to rent its own
        return (
            job.deadline is None
            or self._now + timedelta(hours=shared.hours + START_H + hours_left(job)) <= job.deadline
        )

    def _merge(self, shared: _Shared, prices: Mapping[str, float]) -> Merge:
        usd_hour = min(_usd_hour(job, prices) for job in shared.jobs)
        if shared.rented is not None:
            usd_hour = shared.rented.price_microusd_hour / MICRO
        others_h = sum(hours_left(job) for job in shared.jobs[1:])
        first_h = shared.hours - others_h
        apart = max(first_h, self._min_billing_h) * usd_hour
        apart += sum(_alone_h(job, self._min_billing_h) * _usd_hour(job, prices) for job in shared.jobs[1:])
        together = max(shared.hours, self._min_billing_h) * usd_hour
        return Merge(jobs=tuple(shared.jobs), apart_usd=apart, together_usd=together)


def launches_of(jobs: Sequence[Job], living: Sequence[Launch]) -> dict[str, Launch]:
    """The living launch of each job by its id: the one that it is on, which another job may have rented, or its own."""
    by_id = {launch.launch_id: launch for launch in living}
    found = {launch.watch_id: launch for launch in living if launch.watch_id is not None}
    for job in jobs:
        held = by_id.get(job.launch_id or "")
        if held is not None and (job.state is not JobState.QUEUED or job.job_id not in found):
            found[job.job_id] = held
    return found


def holders_of(jobs: Sequence[Job], alive: Mapping[str, Launch]) -> list[InstanceHolder]:
    """Jobs whose instance another one may get: of two on one instance, the one that is done has given it away."""
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
    """Whether it may run on an instance that another job rented, or give its own to another job."""
    spec = job.definition
    ticked_by_owner = set(spec.resources.require) - set(pilot_items(spec))
    is_free = spec.resources.action is Action.LAUNCH and not ticked_by_owner
    return spec.share_instance and is_free and not is_cluster(job)


def is_small(job: Job, min_billing_h: float = 0.0) -> bool:
    """Whether an instance of its own would be set up, or billed, for long in comparison with its work."""
    return hours_left(job) <= (1 - _LEAST_SHARE) * _alone_h(job, min_billing_h)


def have_same_needs(one: Job, other: Job) -> bool:
    """Whether an instance of one suits the other: offers, image, set-up, windows."""
    return _needs(one) == _needs(other)


def costs_less_here(job: Job, price: float, cheapest: float | None) -> bool:
    """Whether its work costs less on an instance that runs than on a new one at the cheapest price seen (None: none).

    Both prices are of a GPU-hour, in the same unit.
    """
    return cheapest is None or price * hours_left(job) <= cheapest * (START_H + hours_left(job))


def _alone_h(job: Job, min_billing_h: float) -> float:
    return max(START_H + hours_left(job), min_billing_h)


def _usd_hour(job: Job, prices: Mapping[str, float]) -> float:
    gpu_hour = prices.get(job.job_id)
    return (float(price_cap(job)) if gpu_hour is None else gpu_hour) * job.definition.resources.gpu_count_min


def _needs(job: Job) -> bytes:
    resources = msgspec.structs.replace(job.definition.resources, name="", require=())
    return msgspec.json.encode((resources, job.definition.setup, job.definition.active))
