"""Simulate a queue of jobs on recorded prices: the cost under several policies, and the late jobs. Pure.

The step is an hour. Assumptions: everything on offer could be rented, by as many jobs as there are slots; the price at
the start holds for the whole run, or until the job moves; a run takes the hours that its job states.

A job starts only in hours of its `active` windows, under every policy.
A run of a recurring job is skipped while another one is open. A job with `relocate = "move"` moves when the rule of the
daemon, `judged_move`, says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.jobs.job_watch import START_H, MoveFacts, judged_move
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.money.bids_and_relocation import RemainingWork
from gpuwatch.domain.market.money import MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.windows import opens_at

_NONE = "recorded"  # stands for names that past prices do not have
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
        active: windows of local time in which it may start; none: always.
        zone: of those windows, a name such as "Europe/Berlin".
        series: the recurring job that it is a run of.
        moving: the job itself, if it may move to a cheaper machine.
        alike: for a job that may move, the key of the series of each GPU and type: (GPU, is it spot) → key.
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
    active: tuple[str, ...] = ()
    zone: str = "UTC"
    series: str | None = None
    moving: Job | None = None
    alike: Mapping[tuple[str, bool], str] = {}

    @property
    def latest_start_h(self) -> int:
        """The last hour in which it can start and still be in time."""
        return int(self.deadline_h - self.hours)

    def may_start(self, hour: int) -> bool:
        """Whether it may start in this hour: in its windows, and a run of a recurring job before its deadline."""
        return (self.series is None or hour < self.deadline_h) and _opens_in(self.active, self.zone, hour)


class SimulatedMoves(msgspec.Struct, frozen=True):
    """What became of a job that may move: how often it did, the cost per GPU in USD, and the hour of its end."""

    count: int
    usd_gpu: float
    ended_h: float


class SimulatedStart(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one job. `usd_gpu_hour` None: it did not run before its deadline, or was skipped."""

    job: SimulatedJob
    started_h: int | None
    usd_gpu_hour: float | None
    moves: SimulatedMoves | None = None
    is_skipped: bool = False  # another run of its recurring job was open

    @property
    def usd_stayed(self) -> float:
        """The cost of the job in USD on its first machine."""
        return 0.0 if self.usd_gpu_hour is None else self.usd_gpu_hour * self.job.gpus * self.job.hours

    @property
    def usd(self) -> float:
        """The cost of the job in USD."""
        return self.usd_stayed if self.moves is None else self.moves.usd_gpu * self.job.gpus

    @property
    def ended_h(self) -> float | None:
        """When it was done; None: it did not run."""
        if self.moves is not None:
            return self.moves.ended_h
        return None if self.started_h is None else self.started_h + self.job.hours

    @property
    def is_late(self) -> bool:
        """Whether it was not done by its deadline."""
        return not self.is_skipped and (self.ended_h is None or self.ended_h > self.job.deadline_h)


LimitOf = Callable[[SimulatedJob, int], float]  # USD per GPU-hour in an hour, based only on what was known by then


@lru_cache(maxsize=65536)  # the jobs of a queue share windows and hours
def _opens_in(active: tuple[str, ...], zone: str, hour: int) -> bool:
    """Whether a window is open in this hour, or opens in it."""
    return not active or _moment(hour) <= opens_at(active, _moment(hour), zone) < _moment(hour + 1)


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
    market = _SimulatedMarket(lows, medians, limit_of)
    outcomes: dict[str, SimulatedStart] = {}
    waiting: list[SimulatedJob] = []
    ends: list[float] = []
    open_until: dict[str, float] = {}  # by recurring job: the end of its run, at the latest its deadline
    coming = sorted(jobs, key=lambda job: job.submitted_h)
    last_h = max((job.deadline_h for job in jobs), default=0)
    hour = coming[0].submitted_h if coming else 0
    while (coming or waiting) and hour <= last_h:
        while coming and coming[0].submitted_h <= hour:
            job = coming.pop(0)
            if job.series is not None and open_until.get(job.series, hour) > hour:
                outcomes[job.name] = SimulatedStart(job=job, started_h=None, usd_gpu_hour=None, is_skipped=True)
                continue
            waiting.append(job)
            if job.series is not None:
                open_until[job.series] = job.deadline_h
        ends = [end for end in ends if end > hour]
        waiting.sort(key=lambda job: (-job.priority, job.latest_start_h, job.submitted_h))
        left = []
        for job in waiting:
            is_free = slots is None or len(ends) < slots
            begun = market.start(job, policy, hour) if is_free and job.may_start(hour) else None
            if begun is not None and begun.ended_h is not None:
                outcomes[job.name] = begun
                ends.append(begun.ended_h)
                if job.series is not None:
                    open_until[job.series] = min(begun.ended_h, job.deadline_h)
            elif hour < job.deadline_h:
                left.append(job)
        waiting = left
        hour += 1
    never = SimulatedStart
    return [outcomes.get(job.name) or never(job=job, started_h=None, usd_gpu_hour=None) for job in jobs]


class _SimulatedMarket:
    """The prices of a simulation, and what a job does at them."""

    def __init__(self, lows: Mapping[str, PriceSeries], medians: Mapping[str, PriceSeries], limit_of: LimitOf) -> None:
        self._lows, self._medians, self._limit_of = lows, medians, limit_of

    def start(self, job: SimulatedJob, policy: QueuePolicy, hour: int) -> SimulatedStart | None:
        """The job, started in this hour; None: it does not start."""
        usd = self._taken(job, policy, hour)
        if usd is None:
            return None
        moves = self._moved(job, job.moving, hour, usd) if policy is QueuePolicy.QUEUE and job.moving else None
        return SimulatedStart(job=job, started_h=hour, usd_gpu_hour=usd, moves=moves)

    def _taken(self, job: SimulatedJob, policy: QueuePolicy, hour: int) -> float | None:
        if policy is QueuePolicy.LIST_PRICE:
            return price_at(self._medians[job.market], hour)
        if policy is QueuePolicy.CHEAPEST_NOW:
            return price_at(self._lows[job.market], hour)
        is_spot = job.spot_market is not None and hour < job.spot_until_h
        low = price_at(self._lows[job.spot_market if is_spot and job.spot_market is not None else job.market], hour)
        return low if low is not None and low <= self._limit_of(job, hour) else None

    def _moved(self, job: SimulatedJob, moving: Job, started_h: int, usd: float) -> SimulatedMoves | None:
        """Follow a run to its end, from one machine to the next."""
        kinds = [kind for kind, key in job.alike.items() if price_at(self._lows[key], started_h) == usd]
        if not kinds:
            return None
        machine = _SimulatedMachine(kind=kinds[0], usd=usd, begun_h=started_h, started_h=started_h, left_h=job.hours)
        spent, moved, hour = 0.0, list[datetime](), started_h + 1
        while hour < machine.done_h:
            low = price_at(self._lows[job.alike[machine.kind]], hour)
            work = None if low is None or low >= machine.usd else self._judged(job, moving, machine, low, hour, moved)
            if work is not None and low is not None:
                ending_h, setup_h, repeated_h = (_hours(one) for one in (work.ending, work.setup, work.repeated))
                spent += machine.usd * (hour + ending_h - machine.begun_h)
                moved.append(_moment(hour))
                begun_h = hour + ending_h
                left_h = machine.done_h - hour + repeated_h
                machine = _SimulatedMachine(machine.kind, low, begun_h, begun_h + setup_h, left_h)
            hour += 1
        spent += machine.usd * (machine.done_h - machine.begun_h)
        return SimulatedMoves(len(moved), spent, machine.done_h)

    def _judged(
        self, job: SimulatedJob, moving: Job, machine: _SimulatedMachine, low: float, hour: int, moved: list[datetime]
    ) -> RemainingWork | None:
        """What a move to an offer at this price would add; None: the job stays."""
        now = _moment(hour)
        run = JobRun(job_id=moving.job_id, run_number=1, launch_id=_NONE, started_at=_moment(machine.started_h))
        facts = MoveFacts(
            now=now,
            limit_usd_gpu_hour=Decimal(repr(self._limit_of(job, hour))),
            moved_at=tuple(moved),
            ran_before_h=job.hours - machine.left_h,
            zone=job.zone,
        )
        launch, match = _launch_on(job, machine), _offer_at(job, machine, low, now)
        verdict = judged_move(moving, run, launch, [match], facts)
        return None if verdict.found is None or verdict.stays is not None else verdict.found.work


class _SimulatedMachine(NamedTuple):
    """A machine that a simulated job runs on; begun: billed from then on; `left_h`: work left when it started there."""

    kind: tuple[str, bool]
    usd: float
    begun_h: float
    started_h: float
    left_h: float

    @property
    def done_h(self) -> float:
        return self.started_h + self.left_h


def _launch_on(job: SimulatedJob, machine: _SimulatedMachine) -> Launch:
    """The machine as a launch; no minimum and no steps of billing are recorded with past prices."""
    price, begun = round(machine.usd * job.gpus * MICRO), _moment(machine.begun_h)
    ordered = _moment(min(machine.begun_h, machine.started_h - START_H))
    return Launch(
        launch_id=_NONE, watch=_NONE, slot=0, provider=_NONE, offer_id=_NONE, machine_id=None, gpu=machine.kind[0],
        gpu_count=job.gpus, spot=machine.kind[1], state=LaunchState.RUNNING, dry_run=False, label=_NONE,
        listed_microusd_hour=price, price_microusd_hour=price, intended_at=ordered, requested_at=ordered,
        running_at=begun,
    )  # fmt: skip


def _offer_at(job: SimulatedJob, machine: _SimulatedMachine, usd: float, now: datetime) -> Match:
    gpu, is_spot = machine.kind
    price = round(usd * job.gpus * MICRO)
    offer = Offer(
        provider=_NONE, offer_id=_NONE, machine_id=None, gpu=gpu, gpu_family=gpu, gpu_wire=gpu, gpu_known=True,
        gpu_count=job.gpus, gpu_memory_gib=None, spot=is_spot, quoted_usd_hour=usd * job.gpus, quoted_disk_gb=0.0,
        disk_usd_gb_month=None, observed_at=now,
    )  # fmt: skip
    return Match(
        offer=offer, price=OfferPrice(listed_microusd_hour=price, price_microusd_hour=price, commission_rate=0.0)
    )


def _moment(hour: float) -> datetime:
    return datetime.fromtimestamp(hour * HOUR_S, UTC)


def _hours(span: timedelta) -> float:
    return span / timedelta(hours=1)


def is_covered(job: SimulatedJob, series: PriceSeries) -> bool:
    """Whether polls cover most hours between the job's submission and its deadline."""
    first, last = job.submitted_h - series.first_hour, job.latest_start_h - series.first_hour
    if first < 0 or last >= len(series.polled):
        return False
    hours = series.polled[first : last + 1]
    return bool(hours) and sum(hours) >= _LEAST_SHARE * len(hours)
