"""Recurring jobs: list, show, end. A daemon may run at the same time; it starts their runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.jobs.job_actions import mark_cancelled
from gpuwatch.app.launches.stop import request_stop, stop
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.jobs.job import Job, JobView, definition_json, job_view
from gpuwatch.domain.jobs.job_series import JobSeries, SeriesView, series_view
from gpuwatch.errors import ResourceNotFound
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_RUNS_SHOWN = 20


class SeriesDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job with its newest runs, oldest first."""

    series: JobSeries
    runs: tuple[Job, ...]

    @property
    def open_runs(self) -> tuple[Job, ...]:
        """The run that is not over, if any."""
        return tuple(run for run in self.runs if not run.is_over)


class SeriesDetailsView(SeriesView, frozen=True, kw_only=True):
    """A recurring job of `gpuwatch jobs show`."""

    definition: dict[str, Any]
    runs: tuple[JobView, ...]


class EndedSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job that was ended.

    Attributes:
        run: its run that was open, cancelled now; None: none was.
        changed: whether this call ended it.
        alive: the launches of that run.
    """

    series: JobSeries
    run: Job | None
    changed: bool
    alive: tuple[str, ...]


def listed_series(settings: Settings) -> list[JobSeries]:
    """The recurring jobs that are not ended, by name. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return list(SqlSeriesRepository(store).every())


def series_details(settings: Settings, name: str) -> SeriesDetails | None:
    """A recurring job with its runs; None: there is none with this name that is not ended. Raises StoreError."""
    with open_store_read_only(settings) as store:
        series = SqlSeriesRepository(store).find(name)
        if series is None or series.ended_at is not None:
            return None
        runs = SqlJobRepository(store).runs_of_series(series.name)[-_RUNS_SHOWN:]
    return SeriesDetails(series=series, runs=tuple(runs))


def series_details_view(details: SeriesDetails) -> SeriesDetailsView:
    """A recurring job with its runs as other programs see it."""
    return SeriesDetailsView.of(
        series_view(details.series),
        definition=definition_json(details.series.definition),
        runs=tuple(job_view(run) for run in details.runs),
    )


def end_series(settings: Settings, name: str, report: Callable[[str], None], *, actor: str) -> tuple[EndedSeries, bool]:
    """End a recurring job, cancel its open run and end the instance of that.

    Args:
        report: receives one line per change of its launch.

    Returns:
        What was ended, and whether the end of the instance is confirmed.

    Raises:
        ResourceNotFound: there is no such recurring job.
        StoreError: nothing was changed.
    """
    ended = _ended(settings, name, actor)
    return ended, not ended.alive or stop(settings, list(ended.alive), report, actor=actor)


def request_series_end(settings: Settings, name: str, *, actor: str) -> EndedSeries:
    """Like `end_series`, without waiting for the end of the instance."""
    ended = _ended(settings, name, actor)
    for launch_id in ended.alive:
        request_stop(settings, launch_id, actor=actor)
    return ended


def _ended(settings: Settings, name: str, actor: str) -> EndedSeries:
    with open_store(settings) as store:
        repository, jobs = SqlSeriesRepository(store), SqlJobRepository(store)
        series = repository.find(name)
        if series is None:
            raise ResourceNotFound(f"there is no recurring job {name!r}; see: gpuwatch jobs series")
        audit = audit_event(actor, f"recurring job {series.name} ended", subject=series.name, watch=series.watch_name)
        now = real_now()
        changed = repository.end(series, now, audit)  # first, so that no other run begins
        series = msgspec.structs.replace(series, ended_at=now if changed else series.ended_at)
        run = next((job for job in jobs.runs_of_series(series.name) if not job.is_over), None)
        if run is None:
            return EndedSeries(series=series, run=None, changed=changed, alive=())
        run, _, alive = mark_cancelled(jobs, SqlLaunchRepository(store), run.job_id, actor=actor)
    return EndedSeries(series=series, run=run, changed=changed, alive=tuple(alive))
