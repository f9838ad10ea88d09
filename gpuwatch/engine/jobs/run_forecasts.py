"""What the progress of a run says: its end and its cost, and whether a pilot met the requirements of its job.

- `RunForecasts`: forecasts from the progress, and the alert when a job has cost more than a forecast said.
- `untested_items`, `measured`: the items that a job requires, judged from the measurements of its pilot.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from gpuwatch.domain.alerts.job_texts import OVER_FORECAST
from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.jobs.job_watch import pilot_items
from gpuwatch.domain.jobs.pilot_checks import PilotFinding, PilotObservation, pilot_findings, pilot_ticks
from gpuwatch.domain.jobs.run_progress import (
    ProgressPoint,
    RunForecast,
    RunProgress,
    extrapolate,
    grown,
    losses,
    spent_usd,
)
from gpuwatch.domain.jobs.run_sample import RunSample, samples_of
from gpuwatch.domain.jobs.run_status import RunnerStatus
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.money import MICRO, dollars
from gpuwatch.engine.jobs.job_parts import JobParts

OVER_LIMIT = "pilot: "  # prefix of the runner's reason if a forecast exceeds a limit
UNFIT = "checklist: "
_PILOT_LINES = 200


def untested_items(parts: JobParts, job: Job) -> list[str]:
    """Return the items that the pilot must test: ticked by no owner, tested by no earlier pilot. Raises StoreError."""
    items = pilot_items(job.definition)
    if not items:
        return []
    known = {tick.item for tick in pilot_ticks(parts.jobs.events(job.job_id))} | set(parts.ticked(job))
    return [item for item in items if item not in known]


def measured(
    parts: JobParts, job: Job, run: JobRun, items: list[str], now: RunSample, status: RunnerStatus
) -> list[PilotFinding]:
    """Return the current findings about them. Raises StoreError."""
    written = [one for one in samples_of(parts.jobs.events(job.job_id)) if one.run_number == run.run_number]
    log = "\n".join(parts.files.log_tail(job.job_id, run.run_number, _PILOT_LINES))
    seen = PilotObservation(
        samples=[*(one for one in written if one.at < now.at), now],
        losses=losses(log, status.metrics),
        checkpoint=run.checkpoint,
        needs_checkpoint=job.definition.checkpoint is not None,
    )
    return pilot_findings(items, seen)


_Key = tuple[str, int]  # job and run


class RunForecasts:
    """The progress of runs as seen by this process. If its memory is lost, a run is forecast from there on."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._seen: dict[_Key, tuple[ProgressPoint, ...]] = {}  # the first observation, then each time that it grew
        self._made: set[_Key] = set()
        self._promised_usd: dict[_Key, float | None] = {}  # the lowest upper end of a forecast; None: there was none

    def has_forecast(self, run: JobRun) -> bool:
        """Whether this process could forecast the run."""
        return (run.job_id, run.run_number) in self._made

    def forecast(
        self, job: Job, run: JobRun, launch: Launch, progress: RunProgress, now: datetime
    ) -> RunForecast | None:
        """Forecast from the speed of this run alone; a resumed run began with part of the work done."""
        if progress.fraction is None or run.started_at is None:
            return None
        key, first_run = (run.job_id, run.run_number), 1 + (job.definition.prepared_run or 0)
        began = (run.started_at, 0.0) if run.run_number == first_run else (now, progress.fraction)
        seen = self._seen[key] = grown(self._seen.get(key, (began,)), (now, progress.fraction))
        usd_hour, spent = launch.price_microusd_hour / MICRO, spent_usd(job, run, launch, now)
        found = extrapolate(now, progress.fraction, seen[0], usd_hour, spent, seen=seen)
        if found is not None:
            self._made.add(key)
            before = self._promised(job, run)
            self._promised_usd[key] = found.usd.high if before is None else min(before, found.usd.high)
        return found

    def check_spent(self, job: Job, run: JobRun, launch: Launch) -> None:
        """Report once per run that it has cost more than a forecast said at most."""
        now = self._parts.clock()
        promised, spent = self._promised(job, run), spent_usd(job, run, launch, now)
        if promised is None or spent <= promised + 0.005:  # half a cent: what is shown is rounded
            return
        self._parts.report(job, OVER_FORECAST, spent=dollars(spent), promised=dollars(promised))
        self._promised_usd[run.job_id, run.run_number] = float("inf")

    def forget_except(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._seen = {key: seen for key, seen in list(self._seen.items()) if key[0] in job_ids}
        self._made = {key for key in list(self._made) if key[0] in job_ids}
        self._promised_usd = {key: usd for key, usd in list(self._promised_usd.items()) if key[0] in job_ids}

    def _promised(self, job: Job, run: JobRun) -> float | None:
        key = run.job_id, run.run_number
        if key not in self._promised_usd:  # stored by an earlier process
            samples = samples_of(self._parts.jobs.events(job.job_id))
            said = [one.usd[1] for one in samples if one.usd is not None and one.run_number == run.run_number]
            estimate = None if job.predicted_microusd is None else job.predicted_microusd / MICRO
            self._promised_usd[key] = min(said, default=estimate)
        return self._promised_usd[key]
