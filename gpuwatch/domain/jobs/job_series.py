"""A recurring job: a job file with a schedule, of which each time becomes a job of its own. Pure.

- `due_step`: what follows from the times that have come: a run, or none because one is open or the time is missed;
- `run_of`: the job of one time, `NAME@2026-11-28-0200`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from gpuwatch.domain.jobs.checkpoints import below
from gpuwatch.domain.jobs.job import Job, new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.setup.cron import CronSchedule, next_after, parse_cron
from gpuwatch.domain.watches.owner_names import RUN_MARK, Purpose

TIMES_MAX = 10_000  # counted at once: a week of a schedule of every minute


class JobSeries(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored recurring job.

    Attributes:
        definition: its file; `deadline_s` is its `within`.
        last_job_id: its newest run.
        missed: times at which no gpuwatch ran, and which were over their `within` or followed by another one.
        skipped: times at which its previous run was still open.
        version: increases with every change.
    """

    name: str
    definition: JobDefinition
    submitted_at: datetime
    next_at: datetime
    last_job_id: str | None = None
    last_planned_at: datetime | None = None
    missed: int = 0
    skipped: int = 0
    version: int = 0
    ended_at: datetime | None = None  # when its owner ended it

    @property
    def watch_name(self) -> str:
        """The name under which its alerts are stored."""
        return Purpose.of_job(self.name).watch

    @property
    def within(self) -> timedelta:
        """How long after its time a run must be done."""
        return timedelta(seconds=self.definition.deadline_s or 0.0)


class SeriesStep(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the times that have come.

    Attributes:
        after: the series with its next time and its counts.
        planned_at: the time that becomes a run; None: none does.
        begins_at: from when the deadline of that run counts.
        missed: the first and the last missed time, and how many there were; None: none.
        skipped: how many were left out because the previous run is open.
    """

    after: JobSeries
    planned_at: datetime | None = None
    begins_at: datetime | None = None
    missed: tuple[datetime, datetime, int] | None = None
    skipped: int = 0


def new_series(definition: JobDefinition, now: datetime, zone: tzinfo) -> JobSeries:
    """The recurring job of a file with a schedule; it begins with the first time after now."""
    first = next_after(_schedule(definition), now, zone)
    return JobSeries(name=definition.name, definition=definition, submitted_at=now, next_at=first)


def due_step(series: JobSeries, now: datetime, zone: tzinfo, *, is_open: bool) -> SeriesStep | None:
    """What follows from the times up to now; None: none has come.

    Args:
        is_open: whether a run of the series is queued or under way.
    """
    if series.next_at > now:
        return None
    schedule = _schedule(series.definition)
    times = list(islice(_times(schedule, series.next_at, now, zone), TIMES_MAX))
    after = msgspec.structs.replace(series, next_at=next_after(schedule, now, zone), version=series.version + 1)
    if is_open:
        return SeriesStep(after=_counted(after, skipped=len(times)), skipped=len(times))
    newest = times[-1]
    is_late = newest + series.within <= now
    runs = not is_late or series.definition.catch_up
    missed = times if is_late else times[:-1]
    return SeriesStep(
        after=_counted(after, missed=len(missed)),
        planned_at=newest if runs else None,
        begins_at=now if is_late else newest,
        missed=(missed[0], missed[-1], len(missed)) if missed else None,
    )


def replayed_steps(
    series: JobSeries, until: datetime, zone: tzinfo, resumes: Callable[[datetime], datetime | None]
) -> Iterator[tuple[datetime, SeriesStep]]:
    """Yield what followed from each time up to `until`, as if no run was open, and when gpuwatch saw it.

    Args:
        resumes: the moment at which gpuwatch saw a time: that time itself, or when it ran again; None: it never did.
    """
    while series.next_at <= until and (now := resumes(series.next_at)) is not None:
        step = due_step(series, now, zone, is_open=False)
        assert step is not None
        yield now, step
        series = step.after


def _counted(series: JobSeries, *, missed: int = 0, skipped: int = 0) -> JobSeries:
    return msgspec.structs.replace(series, missed=series.missed + missed, skipped=series.skipped + skipped)


def _times(schedule: CronSchedule, first: datetime, now: datetime, zone: tzinfo) -> Iterator[datetime]:
    at = first
    while at <= now:
        yield at
        at = next_after(schedule, at, zone)


def _schedule(definition: JobDefinition) -> CronSchedule:
    return parse_cron(definition.schedule or "")


def run_of(series: JobSeries, step: SeriesStep, job_id: str, now: datetime, zone: tzinfo) -> Job | None:
    """The job of the time that becomes a run; its deadline is that time plus `within`. None: none does."""
    if step.planned_at is None or step.begins_at is None:
        return None
    spec, day = series.definition, step.planned_at.astimezone(zone).strftime("%Y-%m-%d-%H%M")
    name = f"{series.name}{RUN_MARK}{day}"
    definition = msgspec.structs.replace(
        spec,
        name=name,
        schedule=None,
        catch_up=False,
        results=tuple(msgspec.structs.replace(one, target=below(one.target, day)) for one in spec.results),
        resources=msgspec.structs.replace(spec.resources, name=Purpose.of_job(name).watch),
    )
    job = new_job(definition, job_id, step.begins_at)
    return msgspec.structs.replace(job, submitted_at=now, series=series.name, planned_at=step.planned_at)


class SeriesView(JsonView, frozen=True, kw_only=True):
    """One recurring job, as in `gpuwatch jobs series`."""

    name: str
    schedule: Annotated[str, Meta(description="As in its file, in the configured time zone.")]
    within_s: float
    catch_up: bool
    next_at: Moment
    last_planned_at: Moment | None
    last_job_id: str | None
    missed: Annotated[int, Meta(description="Times at which gpuwatch did not run.")]
    skipped: Annotated[int, Meta(description="Times at which its previous run was still open.")]
    submitted_at: Moment
    ended_at: Moment | None


def series_view(series: JobSeries) -> SeriesView:
    """A recurring job as other programs see it."""
    return SeriesView.of(series, series.definition, within_s=series.within.total_seconds())
