"""Recurring jobs: each time of a schedule becomes a job, once, and never while its previous run is open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts.series_texts import CAUGHT_UP, MISSED, NOT_CAUGHT_UP, SKIPPED
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_series import JobSeries, SeriesStep, due_step, run_of
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import JobConflict
from gpuwatch.ports import OutboxAlert

if TYPE_CHECKING:
    from gpuwatch.ports.jobs import JobStore
    from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository

log = logging.getLogger(__name__)


class SeriesStarter:
    """Each pass starts the runs whose time has come, and reports the times that became none.

    Args:
        zone: that of the schedules.
        new_job_id: makes the id of a job.
    """

    def __init__(
        self, series: SqlSeriesRepository, jobs: JobStore, zone: tzinfo, new_job_id: Callable[[], str]
    ) -> None:
        self._series, self._jobs = series, jobs
        self._zone, self._new_job_id = zone, new_job_id

    def tick(self, now: datetime) -> None:
        """Run one pass. After a StoreError the next pass continues."""
        due = [one for one in self._series.every() if one.next_at <= now]
        if not due:
            return
        open_runs = {job.series: job for job in self._jobs.open_jobs() if job.series is not None}
        for one in due:
            try:
                self._start(one, open_runs.get(one.name), now)
            except JobConflict as conflict:  # its owner or another daemon was first: the next pass reads the new row
                log.info("%s", conflict)

    def _start(self, series: JobSeries, open_run: Job | None, now: datetime) -> None:
        step = due_step(series, now, self._zone, is_open=open_run is not None)
        if step is None:
            return
        run = run_of(series, step, self._new_job_id(), now, self._zone)
        alert = self._missed(step, run, now) or self._skipped(step, series.next_at, open_run, now)
        self._series.record(step.after, run, alert, lambda: failpoint("series.before_advance"))
        if run is not None:
            log.info("job %s: queued by its schedule", run.name, extra={"job": run.job_id})

    def _missed(self, step: SeriesStep, run: Job | None, now: datetime) -> OutboxAlert | None:
        if step.missed is None:
            return None
        first, last, count = step.missed
        caught_up = run is not None and run.planned_at == last
        return MISSED.outbox(
            None,
            now,
            subject=step.after.name,
            watch=step.after.watch_name,
            last_ms=round(last.timestamp() * 1000),
            count=count,
            first=self._text(first) if count > 1 else None,
            last=self._text(last),
            following=self._text(step.after.next_at),
            did=CAUGHT_UP.format(run=run.name) if run is not None and caught_up else NOT_CAUGHT_UP,
        )

    def _skipped(self, step: SeriesStep, planned_at: datetime, run: Job | None, now: datetime) -> OutboxAlert | None:
        if not step.skipped or run is None:
            return None
        return SKIPPED.outbox(
            None,
            now,
            subject=step.after.name,
            watch=step.after.watch_name,
            run=run.name,
            run_id=run.job_id,
            planned=self._text(planned_at),
            following=self._text(step.after.next_at),
        )

    def _text(self, at: datetime) -> str:
        return format_moment(at, self._zone)
