"""`gpuwatch jobs simulate`: a whole queue on recorded prices, under three policies."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.history.past_prices import load_prices
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.forecasts.auto_limit import limit_at, limit_schedule
from gpuwatch.domain.forecasts.auto_limit import whole_hours_left as whole_hours
from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_offers
from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory, moment_of
from gpuwatch.domain.history.price_series import (
    PriceSeries,
    known_until,
    last_hour,
    series_of,
)
from gpuwatch.domain.jobs.job import Job, new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_series import JobSeries, new_series, replayed_steps, run_of
from gpuwatch.domain.jobs.job_watch import latest_spot_wait, price_cap, work_hours_left
from gpuwatch.domain.jobs.simulation.queue_simulation import (
    QueuePolicy,
    SimulatedJob,
    SimulatedStart,
    is_covered,
    simulate_queue,
)
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.watch import AutoPrice, SpotPolicy, Watch
from gpuwatch.errors import UsageError
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.auto_limit import LimitSchedule
    from gpuwatch.settings import Settings

ASSUMED = (
    "whatever was on offer could have been rented, by as many jobs as there are slots",
    "the price at the start holds for the whole run, which takes the hours that its job states",
    "list price: the median of what fits in that hour, as a catalogue states it",
    "limits are those of max_price = auto, from the prices known by then, renewed once a day; hours are whole",
    "limits are computed as if no forecast had been scored; the daemon heeds that record (gpuwatch forecasts scores)",
    "[prepare] is left out: the history has no prices of machines without GPUs",
    "active: a job may start in each hour in which one of its windows is open, under all three policies",
    "interruptions, set-up, disk above the default and traffic are left out of all three",
    "recurring jobs: gpuwatch ran in the hours with prices; a time in a gap is made up for or missed, as in the daemon",
    'relocate = "move": judged once an hour as in the daemon; a machine starts within 12 minutes and is billed by the '
    "second, and the newest checkpoint is as old as its interval",
)
_RENEW_H = 24
_DRAWS = 2000
_MAX_GPUS = 8  # GPU models in a synthetic queue


class SimulationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The simulation request; the options of `gpuwatch jobs simulate`."""

    since: datetime
    until: datetime
    scope: MarketFilter  # without GPUs: they come from the jobs
    data: Path | None = None
    files: tuple[Path, ...] = ()
    made_up: int | None = None  # number of synthetic jobs; None: the queue, or the files
    seed: int = 1
    slots: int | None = None


class PolicyResult(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. Costs are totals over the jobs that ran under all policies.

    Attributes:
        skipped: runs of recurring jobs that came while another one was open.
        moves: to cheaper machines, and what they saved compared with staying.
        saved: the share that the queue saves compared with it; None: it is the queue, or nothing was compared.
        saved_low, saved_high: 95 % interval from resampled days of submission.
    """

    policy: QueuePolicy
    usd: float
    usd_gpu_hour: float
    late: int
    skipped: int
    over_limit: int
    median_wait_h: float
    moves: int = 0
    moves_saved_usd: float = 0.0
    saved: float | None = None
    saved_low: float | None = None
    saved_high: float | None = None


class QueueSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    source: str
    since: datetime | None
    until: datetime | None
    jobs: int
    left_out: int  # too few polls between submission and deadline
    missed: int  # times of recurring jobs in hours without prices
    compared: int  # ran under every policy, in time or late
    policies: tuple[PolicyResult, ...]


class _Market:
    """The price series for each set of needs, and the limits from the history known at a time."""

    def __init__(self, history: MarketHistory, settings: Settings) -> None:
        self._history = history
        self._commissions = all_commissions(settings)
        self.lows: dict[str, PriceSeries] = {}
        self.medians: dict[str, PriceSeries] = {}
        self._schedules: dict[tuple[str, float, int, int], LimitSchedule] = {}

    def add(self, key: str, watch: Watch) -> None:
        if key in self.lows:
            return
        fitting, gpu_price = fitting_offers(watch, self._history, self._commissions, REFERENCE_DISK_GB)
        self.lows[key] = lows = series_of(fitting, gpu_price)
        prices: list[list[float]] = [[] for _ in lows.lows]
        for interval in fitting.intervals:
            price = gpu_price(interval.listing, interval)
            first, last = interval.from_s // HOUR_S - lows.first_hour, last_hour(interval) - lows.first_hour
            for at in range(max(0, first), min(last, len(prices) - 1) + 1):
                prices[at].append(price)
        medians = [round(median(hour_prices)) if hour_prices else None for hour_prices in prices]
        self.medians[key] = msgspec.structs.replace(lows, lows=medians)

    def add_job(self, name: str, definition: JobDefinition) -> None:
        """Add what a job may rent; for `spot = "first"` its spot offers alone, and for moves each kind of machine."""
        watch = definition.resources
        self.add(name, watch)
        if watch.spot is SpotPolicy.FIRST:
            self.add(_spot_key(name), msgspec.structs.replace(watch, spot=SpotPolicy.ONLY))
        for (gpu, is_spot), key in (_alike_keys(name, watch) if _moves(definition) else {}).items():
            spot = SpotPolicy.ONLY if is_spot else SpotPolicy.NO
            self.add(key, msgspec.structs.replace(watch, gpu=(gpu,), gpu_names=(gpu,), spot=spot))

    def limit(self, job: SimulatedJob, hour: int) -> float:
        """The limit of `max_price = "auto"` at that time: only past hours count."""
        now = datetime.fromtimestamp(hour * HOUR_S, UTC)
        deadline = datetime.fromtimestamp(job.latest_start_h * HOUR_S, UTC)
        auto = AutoPrice(cap_usd_gpu_hour=_decimal(job.cap_usd_gpu_hour), deadline_at=deadline)
        day = hour // _RENEW_H * _RENEW_H
        horizon = -(-max(1, whole_hours(deadline, now)) // _RENEW_H)  # whole days, so that many jobs share a schedule
        key = (job.market, job.cap_usd_gpu_hour, day, horizon)
        if key not in self._schedules:
            at = datetime.fromtimestamp(day * HOUR_S, UTC)
            series = known_until(self.lows[job.market], at)
            far = at + timedelta(hours=horizon * _RENEW_H)
            self._schedules[key] = limit_schedule(series, auto, far, at)
        return float(limit_at(self._schedules[key], auto, deadline, now))


def _decimal(value: float) -> Decimal:
    return Decimal(repr(round(value, 6)))


def simulate(settings: Settings, request: SimulationRequest) -> QueueSimulation:
    """Replay a queue under each policy.

    Raises:
        UsageError: there are no jobs, or the file cannot be used.
        SettingsError: a job file is wrong.
        StoreError: the store cannot be read.
    """
    subjects = _subjects(settings, request)
    gpus = tuple(dict.fromkeys(name for one in subjects for name in one.definition.resources.gpu_names))
    scope = msgspec.structs.replace(request.scope, gpus=gpus or None)
    history = load_prices(settings, scope, request.since, request.until, request.data)
    market = _Market(history, settings)
    jobs, missed = (
        (_synthetic_jobs(history, request, market), 0)
        if request.made_up is not None
        else _replayed(subjects, history, market, ZoneInfo(settings.timezone))
    )
    covered = [job for job in jobs if is_covered(job, market.lows[job.market])]
    runs = {
        policy: simulate_queue(covered, policy, market.lows, market.medians, market.limit, request.slots)
        for policy in QueuePolicy
    }
    completed = [at for at in range(len(covered)) if all(run[at].started_h is not None for run in runs.values())]
    return QueueSimulation(
        source=history.source,
        since=moment_of(history.starts_s),
        until=moment_of(history.ends_s),
        jobs=len(jobs),
        left_out=len(jobs) - len(covered),
        missed=missed,
        compared=len(completed),
        policies=tuple(_result(policy, runs, completed) for policy in QueuePolicy),
    )


def _subjects(settings: Settings, request: SimulationRequest) -> list[Job | JobSeries]:
    """The jobs and recurring jobs to replay; empty for a synthetic queue."""
    if request.made_up is not None:
        return []
    if request.files:
        from gpuwatch.settings.validate import read_job_file  # noqa: PLC0415 pydantic

        zone = ZoneInfo(settings.timezone)
        read = (read_job_file(file, settings.groups) for file in request.files)
        definitions = [msgspec.structs.replace(definition, prepare=None) for definition in read]
        return [
            new_job(one, "-", request.since) if one.schedule is None else new_series(one, request.since, zone)
            for one in definitions
        ]
    with open_store_read_only(settings) as store:
        found: list[Job | JobSeries] = [job for job in SqlJobRepository(store).open_jobs() if job.series is None]
        found += SqlSeriesRepository(store).every()  # with their open runs
    without = ((one, msgspec.structs.replace(one.definition.whole, prepare=None)) for one in found)
    jobs = [msgspec.structs.replace(one, definition=definition) for one, definition in without]
    if not jobs:
        raise UsageError("no job is open; name job files, or use --jobs 1000 for a synthetic queue")
    return jobs


def _replayed(
    subjects: Sequence[Job | JobSeries], history: MarketHistory, market: _Market, zone: ZoneInfo
) -> tuple[list[SimulatedJob], int]:
    """Submit each job once a day of the history, and each recurring one at its times.

    Returns:
        The jobs, and how many times of recurring jobs were missed.
    """
    if history.starts_s is None or history.ends_s is None:
        return [], 0
    simulated, missed = [], 0
    for one in subjects:
        market.add_job(one.name, one.definition)
        if isinstance(one, JobSeries):
            begin, end = (datetime.fromtimestamp(at, UTC) for at in (history.starts_s, history.ends_s))
            series, polled = new_series(one.definition, begin, zone), market.lows[one.name]
            for now, step in replayed_steps(series, end, zone, partial(_resumes, polled)):
                missed += 0 if step.missed is None else step.missed[2]
                run = run_of(series, step, "-", now, zone)
                if run is not None and run.deadline is not None:
                    hour, deadline_h = (int(at.timestamp() // HOUR_S) for at in (now, run.deadline))
                    simulated.append(_simulated_job(run, one.name, (hour, deadline_h), zone))
            continue
        has_h = 3 * work_hours_left(one)  # without a deadline: three times its work (assumed)
        if one.deadline is not None:
            has_h = max(work_hours_left(one), (one.deadline - one.submitted_at).total_seconds() / HOUR_S)
        hours = range(history.starts_s // HOUR_S, history.ends_s // HOUR_S, 24)
        simulated += [_simulated_job(one, one.name, (at, at + int(has_h)), zone) for at in hours]
    return simulated, missed


def _resumes(polled: PriceSeries, at: datetime) -> datetime | None:
    """When gpuwatch saw a time: at once, or at the first hour with a poll."""
    first = int(at.timestamp() // HOUR_S) - polled.first_hour
    for index in range(max(0, first), len(polled.polled)):
        if polled.polled[index]:
            return max(at, polled.starts_at(index))
    return None


def _simulated_job(job: Job, market: str, hours: tuple[int, int], zone: ZoneInfo) -> SimulatedJob:
    """A job between two hours since 1970, submission and deadline."""
    submitted_h, deadline_h = hours
    watch, moves = job.definition.resources, _moves(job.definition)
    replayed = msgspec.structs.replace(job, deadline=datetime.fromtimestamp(deadline_h * HOUR_S, UTC))
    spot_until = latest_spot_wait(replayed)
    return SimulatedJob(
        name=f"{market}@{submitted_h}" if job.planned_at is None else job.name,
        market=market,
        gpus=watch.gpu_count_min,
        hours=work_hours_left(job),
        submitted_h=submitted_h,
        deadline_h=deadline_h,
        cap_usd_gpu_hour=float(price_cap(job)),
        priority=job.priority,
        spot_market=_spot_key(market) if watch.spot is SpotPolicy.FIRST else None,
        spot_until_h=0.0 if spot_until is None else spot_until.timestamp() / HOUR_S,
        active=job.definition.active,
        zone=zone.key,
        series=job.series,
        moving=(job if job.deadline is None else replayed) if moves else None,
        alike=_alike_keys(market, watch) if moves else {},
    )


def _moves(definition: JobDefinition) -> bool:
    return definition.relocate is not None and definition.relocate.action == "move"


def _spot_key(market: str) -> str:
    return f"{market}, spot"


def _alike_keys(market: str, watch: Watch) -> dict[tuple[str, bool], str]:
    """The series of each kind of machine that a job may move within."""
    types = {SpotPolicy.NO: (False,), SpotPolicy.ONLY: (True,)}.get(watch.spot, (False, True))
    return {(gpu, is_spot): f"{market}, {gpu}, {is_spot}" for gpu in watch.gpu_names for is_spot in types}


def _synthetic_jobs(history: MarketHistory, request: SimulationRequest, market: _Market) -> list[SimulatedJob]:
    """Create jobs of 1 to 24 hours on the most frequent GPUs of the history, with 2 to 6 times their hours as time."""
    if history.starts_s is None or history.ends_s is None or not request.made_up:
        return []
    seen: dict[tuple[str, int], int] = {}
    for interval in history.intervals:
        identity = history.listings[interval.listing].identity
        if not identity.spot:
            seen[identity.gpu, identity.gpu_count] = seen.get((identity.gpu, identity.gpu_count), 0) + 1
    kinds = sorted(seen, key=lambda kind: (-seen[kind], kind))[:_MAX_GPUS]
    for gpu, count in kinds:
        market.add(f"{count}x {gpu}", Watch(name=f"{count}x {gpu}", gpu=(gpu,), gpu_names=(gpu,),
                   max_price_usd_gpu_hour=_decimal(10_000), gpu_count_min=count, gpu_count_max=count))  # fmt: skip
    draw = random.Random(request.seed)  # noqa: S311 - not a secret
    first, last = history.starts_s // HOUR_S, history.ends_s // HOUR_S
    jobs = []
    for number in range(request.made_up):
        gpu, count = draw.choice(kinds)
        key, hours = f"{count}x {gpu}", float(draw.randint(1, 24))
        at = draw.randint(first, max(first, last))
        lows = [low / 1e6 for low in market.lows[key].lows if low is not None]
        cap = 2 * median(lows) if lows else 0.0  # a limit that is rarely reached
        deadline = at + int(hours * draw.uniform(2, 6)) + 1
        jobs.append(SimulatedJob(name=f"job{number}", market=key, gpus=count, hours=hours, submitted_h=at,
                                  deadline_h=deadline, cap_usd_gpu_hour=round(cap, 6)))  # fmt: skip
    return jobs


def _result(
    policy: QueuePolicy, runs: Mapping[QueuePolicy, Sequence[SimulatedStart]], completed: Sequence[int]
) -> PolicyResult:
    simulated_jobs, queue = runs[policy], runs[QueuePolicy.QUEUE]
    gpu_hours = sum(simulated_jobs[at].job.gpus * simulated_jobs[at].job.hours for at in completed)
    usd = sum(simulated_jobs[at].usd for at in completed)
    saved = low = high = None
    if policy is not QueuePolicy.QUEUE and usd:
        saved = 1 - sum(queue[at].usd for at in completed) / usd
        low, high = _interval(
            [(simulated_jobs[at].job.submitted_h // 24, simulated_jobs[at].usd, queue[at].usd) for at in completed]
        )
    return PolicyResult(
        policy=policy,
        usd=usd,
        usd_gpu_hour=usd / gpu_hours if gpu_hours else 0.0,
        late=sum(simulated.is_late for simulated in simulated_jobs),
        skipped=sum(simulated.is_skipped for simulated in simulated_jobs),
        moves=sum(one.moves.count for one in simulated_jobs if one.moves is not None),
        moves_saved_usd=sum(one.usd_stayed - one.usd for one in simulated_jobs),
        over_limit=sum(
            (simulated.usd_gpu_hour or 0.0) > simulated.job.cap_usd_gpu_hour + 1e-9 for simulated in simulated_jobs
        ),
        median_wait_h=median(
            [(simulated_jobs[at].started_h or 0) - simulated_jobs[at].job.submitted_h for at in completed]
        )
        if completed
        else 0.0,
        saved=saved,
        saved_low=low,
        saved_high=high,
    )


def _interval(rows: Sequence[tuple[int, float, float]]) -> tuple[float | None, float | None]:
    """95 % interval of the share saved, by resampling whole days: jobs of one day saw the same prices."""
    days: dict[int, tuple[float, float]] = {}
    for day, spent, queue in rows:
        before = days.get(day, (0.0, 0.0))
        days[day] = (before[0] + spent, before[1] + queue)
    if len(days) < 5:
        return None, None
    draw, sums = random.Random(1), list(days.values())  # noqa: S311
    shares = []
    for _ in range(_DRAWS):
        resampled = draw.choices(sums, k=len(sums))
        shares.append(1 - mean(pair[1] for pair in resampled) / mean(pair[0] for pair in resampled))
    shares.sort()
    return shares[int(_DRAWS * 0.025)], shares[int(_DRAWS * 0.975)]


def simulation_json(simulation: QueueSimulation) -> dict[str, Any]:
    """JSON of `gpuwatch jobs simulate`. Shares are fractions."""
    return msgspec.to_builtins(simulation) | {"assumed": list(ASSUMED)}  # type: ignore[no-any-return]
