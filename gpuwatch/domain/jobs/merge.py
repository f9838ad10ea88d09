"""Small jobs that would be cheaper one after the other on one instance: which, and what that saves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_watch import hours_left, price_cap

START_H = 0.2  # hours from the order to the first command: image, start, loading; assumed
_SMALL_H = 6.0  # a longer job gains next to nothing; assumed
_LEAST_SAVING_USD = 0.01


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that fit one instance, in the order in which they would run.

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


def find_merges(
    queued: Sequence[Job], now: datetime, prices: Mapping[str, float], min_billing_h: float = 0.0
) -> list[Merge]:
    """Groups of queued jobs with the same needs, the largest saving first.

    A job joins if it still meets its deadline after those before it, and waits for nobody.

    Args:
        prices: USD per GPU-hour by the job's id; else its limit counts.
        min_billing_h: hours that an instance is billed at least.
    """
    groups: dict[bytes, list[Job]] = {}
    for job in queued:
        if not job.definition.depends_on and hours_left(job) <= _SMALL_H:
            groups.setdefault(_needs(job), []).append(job)
    found = [_merge(jobs, now, prices, min_billing_h) for jobs in groups.values() if len(jobs) > 1]
    worth = [one for one in found if len(one.jobs) > 1 and one.saving_usd >= _LEAST_SAVING_USD]
    return sorted(worth, key=lambda one: -one.saving_usd)


def _merge(jobs: Sequence[Job], now: datetime, prices: Mapping[str, float], min_billing_h: float) -> Merge:
    joined: list[Job] = []
    hours = START_H
    for job in sorted(jobs, key=_order):
        ends_h = hours + hours_left(job)
        if job.deadline is None or (job.deadline - now).total_seconds() / 3600 >= ends_h:
            joined.append(job)
            hours = ends_h
    usd_hour = min((_usd_hour(job, prices) for job in joined), default=0.0)
    apart = sum(max(START_H + hours_left(job), min_billing_h) * _usd_hour(job, prices) for job in joined)
    return Merge(jobs=tuple(joined), apart_usd=apart, together_usd=max(hours, min_billing_h) * usd_hour)


def _usd_hour(job: Job, prices: Mapping[str, float]) -> float:
    gpu_hour = prices.get(job.job_id)
    return (float(price_cap(job)) if gpu_hour is None else gpu_hour) * job.definition.resources.gpu_count_min


def _needs(job: Job) -> bytes:
    """What must be equal: the offers, the image, the set-up, the windows."""
    resources = msgspec.structs.replace(job.definition.resources, name="", require=())
    return msgspec.json.encode((resources, job.definition.setup, job.definition.active))


def _order(job: Job) -> tuple[int, float, datetime]:
    deadline_s = float("inf") if job.deadline is None else job.deadline.timestamp()
    return -job.priority, deadline_s, job.submitted_at
