"""The queue's policy: which jobs may look for an instance now, in which order, at which limit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import msgspec

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_watch import hours_left, price_cap, usd_left

HUNTED_AT_ONCE = 20  # jobs that look for an offer at the same time; each distinct query costs rows and seconds


class WaitReason(StrEnum):
    """Why a queued job does not look for an instance now."""

    DEPENDS = "waits for another job"
    NO_MONEY = "nothing is left of max_usd"
    TURN = "waits for its turn"


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue decided about one job.

    Attributes:
        limit_usd_gpu_hour: the highest price it takes now.
        slack_s: time to the deadline beyond the work that is left; None: it has no deadline.
        waits: why it does not look for an instance now; None: it does.
    """

    job: Job
    limit_usd_gpu_hour: Decimal
    slack_s: float | None
    waits: str | None = None


CurrentLimit = Callable[[Job, datetime], Decimal]


def slack_s(job: Job, now: datetime) -> float | None:
    """Seconds to the deadline beyond the work that is left; negative: it cannot be met any more."""
    if job.deadline is None:
        return None
    return (job.deadline - now).total_seconds() - hours_left(job) * 3600


def schedule(
    jobs: Sequence[Job],
    now: datetime,
    states: Mapping[str, JobState],
    limit_of: CurrentLimit = lambda job, now: price_cap(job),
    at_once: int = HUNTED_AT_ONCE,
) -> list[QueuedJob]:
    """Every queued job, the first to go first.

    By priority; within one, the job with the least slack; within that, the one that was submitted first.

    Args:
        states: the state of every job that another may wait for, by name; an array by its group's name.
        limit_of: the highest price that a job takes now; never above its `price_cap`.
        at_once: how many may look for an instance at the same time.
    """
    queued = sorted((job for job in jobs if job.state is JobState.QUEUED), key=lambda job: _rank(job, now))
    found, looking = [], 0
    for job in queued:
        waits = waits_for(job, states)
        if waits is None and looking >= at_once:
            waits = WaitReason.TURN.value
        looking += waits is None
        limit = min(limit_of(job, now), price_cap(job)) if waits is None else price_cap(job)
        found.append(QueuedJob(job=job, limit_usd_gpu_hour=limit, slack_s=slack_s(job, now), waits=waits))
    return found


def waits_for(job: Job, states: Mapping[str, JobState]) -> str | None:
    """Why it cannot look for an instance; None: nothing is in its way."""
    for name in job.definition.depends_on:
        if states.get(name) is not JobState.DONE:
            return f"{WaitReason.DEPENDS.value}: {name}"
    left = usd_left(job)
    return WaitReason.NO_MONEY.value if left is not None and left <= 0 else None


def failed_dependency(job: Job, states: Mapping[str, JobState]) -> str | None:
    """The name of a job that it waits for and that will not be done; None: there is none."""
    ends = {JobState.FAILED, JobState.CANCELLED}
    return next((name for name in job.definition.depends_on if states.get(name) in ends), None)


def group_states(jobs: Sequence[Job]) -> dict[str, JobState]:
    """The state of each job by its name, and of each array by its group: done when all are, failed when one is.

    Of several jobs of one name, the newest counts.
    """
    found = {job.name: job.state for job in sorted(jobs, key=lambda job: job.submitted_at)}
    groups: dict[str, set[JobState]] = {}
    for job in jobs:
        if job.definition.group is not None:
            groups.setdefault(job.definition.group, set()).add(found[job.name])
    for group, states in groups.items():
        ends = states & {JobState.FAILED, JobState.CANCELLED}
        found[group] = next(iter(sorted(ends)), JobState.DONE if states == {JobState.DONE} else JobState.RUNNING)
    return found


def _rank(job: Job, now: datetime) -> tuple[int, float, datetime]:
    slack = slack_s(job, now)
    return -job.priority, float("inf") if slack is None else slack, job.submitted_at
