"""Simulate a queue of jobs on recorded prices: the cost under several policies, and the late jobs. Pure.

The step is an hour. Assumptions: everything on offer could be rented, by as many jobs as there are slots; the price at
the start holds for the whole run; a run takes the hours that its job states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.market.money import MICRO

_LEAST_SHARE = 0.9  # of the hours of a job that polls must cover


class QueuePolicy(StrEnum):
    """When a job takes an offer."""

    QUEUE = "queue"  # at its limit in each hour, which rises as the deadline approaches
    CHEAPEST_NOW = "cheapest_now"  # immediately, the cheapest fitting offer
    LIST_PRICE = "list_price"  # immediately, at the median of the fitting offers, as a catalogue would state it


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a simulated queue. Hours are whole hours since 1970.

    Attributes:
        market: the key of its price series; jobs with the same needs share one.
        spot_market: the key of the series of its spot offers alone, which it takes until `spot_until_h`; None: it takes
            the offers of `market` at all times.
        cap_usd_gpu_hour: the job's own limit.
    """

    name: str
    market: str
    gpus: int
    hours: float
    submitted_h: int
    deadline_h: int
    cap_usd_gpu_hour: float
    priority: int = 0
    spot_market: str | None = None
    spot_until_h: float = 0.0

    @property
    def latest_start_h(self) -> int:
        """The last hour in which it can start and still be in time."""
        return int(self.deadline_h - self.hours)


class SimulatedStart(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one job. `usd_gpu_hour` None: it did not run before its deadline."""

    job: SimulatedJob
    started_h: int | None
    usd_gpu_hour: float | None

    @property
    def usd(self) -> float:
        """The cost of the job in USD."""
        return 0.0 if self.usd_gpu_hour is None else self.usd_gpu_hour * self.job.gpus * self.job.hours

    @property
    def is_late(self) -> bool:
        """Whether it was not done by its deadline."""
        return self.started_h is None or self.started_h + self.job.hours > self.job.deadline_h


LimitOf = Callable[[SimulatedJob, int], float]  # USD per GPU-hour in an hour, based only on what was known by then


def price_at(series: PriceSeries, hour: int) -> float | None:
    """USD per GPU-hour of the cheapest offer in that hour; None: nothing was on offer, or there was no poll."""
    at = hour - series.first_hour
    low = series.lows[at] if 0 <= at < len(series.lows) and series.polled[at] else None
    return None if low is None else low / MICRO


def simulate_queue(
    jobs: Sequence[SimulatedJob],
    policy: QueuePolicy,
    lows: Mapping[str, PriceSeries],
    medians: Mapping[str, PriceSeries],
    limit_of: LimitOf,
    slots: int | None = None,
) -> list[SimulatedStart]:
    """The outcome of each job, in the given order.

    Args:
        lows: by market, the cheapest offer of each hour.
        medians: by market, the median offer of each hour.
        slots: how many jobs may run simultaneously; None: unlimited.
    """
    started: dict[str, SimulatedStart] = {}
    waiting: list[SimulatedJob] = []
    ends: list[float] = []
    coming = sorted(jobs, key=lambda job: job.submitted_h)
    last_h = max((job.deadline_h for job in jobs), default=0)
    hour = coming[0].submitted_h if coming else 0
    while (coming or waiting) and hour <= last_h:
        while coming and coming[0].submitted_h <= hour:
            waiting.append(coming.pop(0))
        ends = [end for end in ends if end > hour]
        waiting.sort(key=lambda job: (-job.priority, job.latest_start_h, job.submitted_h))
        left = []
        for job in waiting:
            is_free = slots is None or len(ends) < slots
            usd = _taken(job, policy, lows, medians, limit_of, hour) if is_free else None
            if usd is not None:
                started[job.name] = SimulatedStart(job=job, started_h=hour, usd_gpu_hour=usd)
                ends.append(hour + job.hours)
            elif hour < job.deadline_h:
                left.append(job)
        waiting = left
        hour += 1
    never = SimulatedStart
    return [started.get(job.name) or never(job=job, started_h=None, usd_gpu_hour=None) for job in jobs]


def _taken(
    job: SimulatedJob,
    policy: QueuePolicy,
    lows: Mapping[str, PriceSeries],
    medians: Mapping[str, PriceSeries],
    limit_of: LimitOf,
    hour: int,
) -> float | None:
    """The price at which the job starts in this hour; None: it does not start."""
    if policy is QueuePolicy.LIST_PRICE:
        return price_at(medians[job.market], hour)
    if policy is QueuePolicy.CHEAPEST_NOW:
        return price_at(lows[job.market], hour)
    is_spot = job.spot_market is not None and hour < job.spot_until_h
    low = price_at(lows[job.spot_market if is_spot and job.spot_market is not None else job.market], hour)
    if low is None:
        return None
    return low if low <= limit_of(job, hour) else None


def is_covered(job: SimulatedJob, series: PriceSeries) -> bool:
    """Whether polls cover most hours between the job's submission and its deadline."""
    first, last = job.submitted_h - series.first_hour, job.latest_start_h - series.first_hour
    if first < 0 or last >= len(series.polled):
        return False
    hours = series.polled[first : last + 1]
    return bool(hours) and sum(hours) >= _LEAST_SHARE * len(hours)
