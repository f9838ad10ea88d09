"""Jobs: submit, list, show. A daemon may run at the same time; it rents instances and runs the jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.jobs.job_files import check_inputs
from gpuwatch.app.jobs.job_plan import SpotFirst, spot_first_of
from gpuwatch.app.watches.watch_selection import known_job, require_group
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.jobs.cluster_task import is_cluster, unfit_for_cluster
from gpuwatch.domain.jobs.job import (
    Job,
    JobEvent,
    JobEventView,
    JobMove,
    JobRun,
    JobRunView,
    JobState,
    JobView,
    advice_of,
    definition_json,
    moves_of,
    new_job,
)
from gpuwatch.domain.jobs.job_definition import JobDefinition, steps_of
from gpuwatch.domain.jobs.job_series import JobSeries, new_series
from gpuwatch.domain.jobs.run_sample import RunSample, RunSampleView, sample_view, samples_of
from gpuwatch.domain.launches.life.owner_decisions import Pause, pauses_in_force
from gpuwatch.domain.watches.owner_names import Purpose, owned_name
from gpuwatch.errors import SettingsError, UsageError
from gpuwatch.providers import info
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.account_rows import new_identity

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

RETRIABLE = frozenset({JobState.FAILED, JobState.CANCELLED, JobState.PAUSED})


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its runs and events, oldest first.

    Attributes:
        cluster: the name of its newest run at dstack.
        spot_first: its two expected costs, while it waits for a spot offer first.
        pause: of all renting or of the job, while it is open.
    """

    job: Job
    runs: tuple[JobRun, ...]
    events: tuple[JobEvent, ...]
    cluster: str | None = None
    spot_first: SpotFirst | None = None
    pause: Pause | None = None

    @property
    def log_is_at(self) -> str | None:
        """The command that shows its log; None: the log is fetched."""
        return None if self.cluster is None else f"dstack logs {self.cluster}"

    @property
    def samples(self) -> list[RunSample]:
        """The samples of its runs, oldest first."""
        return samples_of(self.events)

    @property
    def moves(self) -> list[JobMove]:
        """Its moves to cheaper machines, oldest first."""
        return moves_of(self.runs, self.events)

    @property
    def advice(self) -> str | None:
        """What was last found out about a cheaper machine for it; None: its file has no `relocate`, or nothing yet."""
        return None if self.job.definition.relocate is None else advice_of(self.events)

    @property
    def newest_sample(self) -> RunSample | None:
        """The newest sample of its current run, while it runs; None: nothing was measured yet."""
        newest = next(reversed(self.samples), None)
        is_present = newest is not None and newest.run_number == self.job.run_number
        return newest if is_present and self.job.state in {JobState.RUNNING, JobState.FETCHING} else None


class SubmittedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What was queued: jobs, and recurring jobs with the time of their first run."""

    jobs: tuple[Job, ...]
    series: tuple[JobSeries, ...] = ()

    @property
    def every(self) -> tuple[Job | JobSeries, ...]:
        """All of them."""
        return (*self.jobs, *self.series)


def submit_jobs(settings: Settings, files: Sequence[Path], sweeps: Sequence[str] = ()) -> SubmittedJobs:
    """Queue the jobs of these files, either all or none; one with a schedule becomes a recurring job.

    Args:
        sweeps: such as `lr=1e-4,2e-4`: one job for each combination.

    Raises:
        SettingsError: a file is invalid; one line per fault.
        UsageError: a sweep is invalid, or a name is taken.
        StoreError: nothing was written.
    """
    from gpuwatch.domain.jobs.queue import expand, parse_sweeps  # noqa: PLC0415 - pydantic is needed only for files
    from gpuwatch.settings.validate import read_job_file  # noqa: PLC0415

    now = real_now()
    faults: list[str] = []
    definitions: list[JobDefinition] = []
    try:
        values = parse_sweeps(sweeps)
        for file in files:
            try:
                definition = read_job_file(file, settings.groups)
                if values and definition.schedule is not None:
                    raise UsageError(f"--sweep: {file} has a schedule, and a recurring job has one run at a time")
                if values and definition.prepare is not None:
                    raise UsageError(
                        f"--sweep: {file} has [prepare], which would run for each value; submit that step as a job of"
                        " its own, and name it in depends_on"
                    )
                definitions += expand(definition, values)
            except SettingsError as error:
                faults += error.faults
    except ValueError as error:
        raise UsageError(str(error)) from None
    if faults:
        raise SettingsError(faults)
    return submit_definitions(settings, definitions, now)


def unreachable_deadlines(jobs: Sequence[Job | JobSeries]) -> Iterator[tuple[str, float]]:
    """(job, hours) for each job whose estimate, at its lowest, exceeds the time until its deadline."""
    for job in jobs:
        estimates, has_s = [step.hours for step in steps_of(job.definition)], job.definition.deadline_s
        if isinstance(job, Job) and job.deadline is not None:
            has_s = (job.deadline - job.submitted_at).total_seconds()
        least_h = sum(hours.low for hours in estimates if hours is not None)
        if least_h and has_s is not None and has_s < least_h * 3600:
            yield job.name, least_h


def submit_definitions(settings: Settings, definitions: Sequence[JobDefinition], now: datetime) -> SubmittedJobs:
    """Queue these jobs, either all or none. Raises UsageError, StoreError."""
    definitions = [owned_definition(definition, settings.owner) for definition in definitions]
    names = [definition.name for definition in definitions]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise UsageError(f"two of these jobs are named {twice[0]!r}; names must be unique")
    # a millisecond apart, so that they are listed in the given order
    submitted = [
        new_job(definition, new_identity(), now + timedelta(milliseconds=number))
        for number, definition in enumerate(definitions)
        if definition.schedule is None
    ]
    zone = ZoneInfo(settings.timezone)
    series = [new_series(definition, now, zone) for definition in definitions if definition.schedule is not None]
    late = next((job for job in submitted if job.deadline is not None and job.deadline <= now), None)
    if late is not None:
        raise UsageError(f"the deadline of job {late.name!r} has passed")
    for definition in definitions:
        check_runnable(settings, definition)
    with open_store(settings) as store:
        repository = SqlJobRepository(store)
        _check_dependencies(repository, [*submitted, *series])
        repository.submit(submitted, series)
    return SubmittedJobs(jobs=tuple(submitted), series=tuple(series))


def owned_definition(definition: JobDefinition, owner: str) -> JobDefinition:
    """The definition with the names under which the owner's jobs are stored."""
    if not owner:
        return definition
    name = owned_name(owner, definition.name)
    return msgspec.structs.replace(
        definition,
        name=name,
        group=definition.group and owned_name(owner, definition.group),
        depends_on=tuple(owned_name(owner, other) for other in definition.depends_on),
        resources=msgspec.structs.replace(definition.resources, name=Purpose.of_job(name).watch),
    )


def check_runnable(settings: Settings, definition: JobDefinition) -> None:
    """Raises UsageError: a step of it could run nowhere with these settings, or an input cannot be sent."""
    _check_nodes(settings, definition)
    for step in steps_of(definition):
        _check_providers(settings, step)
        check_inputs(step)


def _check_nodes(settings: Settings, definition: JobDefinition) -> None:
    if definition.nodes == 1:
        return
    if not settings.orchestrator.tool:
        raise UsageError(
            f"job {definition.name!r} has nodes = {definition.nodes}: gpuwatch runs jobs on one machine. For more, use"
            ' dstack ([orchestrator] tool = "dstack") or: gpuwatch jobs handover FILE --to skypilot'
        )
    if (reason := unfit_for_cluster(definition)) is not None:
        raise UsageError(f"job {definition.name!r} has nodes = {definition.nodes}: {reason}")


def _check_providers(settings: Settings, definition: JobDefinition) -> None:
    """Raises UsageError: gpuwatch could not log in to any machine that the job may be rented on."""
    allowed = definition.resources.providers or tuple(settings.providers)
    if definition.nodes > 1:
        return  # an orchestrator logs in
    usable = [name for name in allowed if name in settings.providers and info(name).launches]
    if not usable:
        absent = [name for name in allowed if name not in settings.providers]
        reason = (
            f"{absent[0]} is not configured" if absent else f"gpuwatch only reads prices at {' and '.join(allowed)}"
        )
        raise UsageError(
            f"job {definition.name!r}: gpuwatch cannot rent at any of its providers: {reason};"
            " add [providers.NAME] to the settings, or another one to resources.providers"
        )
    if definition.resources.wants_no_gpu and not any(info(name).sells_cpu_machines for name in usable):
        raise UsageError(
            f"job {definition.name!r}: gpuwatch rents no machines without GPUs at {' or '.join(usable)}; add another"
            " provider (docs/cpu-machines.md lists them), or name a GPU in resources"
        )
    if not any(info(name).runs_onstart for name in usable):
        raise UsageError(
            f"job {definition.name!r}: an order at {' or '.join(usable)} cannot install the job's SSH key, so gpuwatch "
            "could not log in to the machine; use another provider in resources.providers"
        )


def _check_dependencies(repository: SqlJobRepository, submitted: Sequence[Job | JobSeries]) -> None:
    """Raises UsageError: a job depends on one that does not exist, or jobs depend on each other."""
    new = {job.name: job.definition.depends_on for job in submitted}
    new |= {job.definition.group: () for job in submitted if job.definition.group is not None}
    for job in submitted:
        for name in job.definition.depends_on:
            if name not in new and repository.find_job(name) is None and not repository.array_jobs(name):
                raise UsageError(f"job {job.name!r} depends on {name!r}, which does not exist")
    if (circle := _dependency_cycle(new)) is not None:
        raise UsageError(f"job {circle!r} depends on itself through depends_on")


def _dependency_cycle(depends_on: Mapping[str, Sequence[str]]) -> str | None:
    resolved: set[str] = set()
    left = dict(depends_on)
    while ready := [
        name for name, before in left.items() if all(needed in resolved or needed not in left for needed in before)
    ]:
        resolved.update(ready)
        for name in ready:
            del left[name]
    return next(iter(left), None)


@contextmanager
def open_jobs_read_only(settings: Settings) -> Iterator[SqlJobRepository]:
    """The job repository, for a read-only command."""
    with open_store_read_only(settings) as store:
        yield SqlJobRepository(store)


def listed_jobs(
    settings: Settings, *, all_jobs: bool = False, state: JobState | None = None, group: str | None = None
) -> list[Job]:
    """Jobs by time of submission: open ones and those that ended in the last week, or all; of a group, or of all.

    Raises UsageError (there is no such group), StoreError.
    """
    since = real_now() - timedelta(days=7)
    if group is not None:
        require_group(settings, group)
    with open_jobs_read_only(settings) as repository:
        jobs = [job for job in repository.recent(state=state) if group in {None, job.definition.resources.group}]
    return [job for job in jobs if all_jobs or not job.is_over or (job.ended_at or since) >= since]


def job_details(settings: Settings, name_or_id: str) -> JobDetails:
    """One job with its runs and events. Raises UsageError (no such job), StoreError."""
    with open_store_read_only(settings) as store:
        repository = SqlJobRepository(store)
        job = known_job(repository, name_or_id)
        runs, events = repository.runs(job.job_id), repository.events(job.job_id)
        launch = SqlLaunchRepository(store).get(job.launch_id) if is_cluster(job) and job.launch_id else None
        pauses = pauses_in_force(SqlPauseRepository(store).load().by_hand, job.watch_name, real_now())
    return JobDetails(
        job=job,
        runs=tuple(runs),
        events=tuple(events),
        cluster=None if launch is None else launch.label,
        spot_first=spot_first_of(settings, job, real_now()),
        pause=None if job.is_over else next(iter(pauses), None),
    )


class JobDetailsView(JobView, frozen=True, kw_only=True):
    """One job of `gpuwatch jobs show`."""

    sample: RunSampleView | None
    definition: dict[str, Any]
    nodes: int
    cluster: str | None
    moves: Annotated[tuple[JobMove, ...], Meta(description="Moves to cheaper machines, oldest first.")]
    relocation: Annotated[str | None, Meta(description="What was last found out about a cheaper machine.")]
    spot_first: Annotated[SpotFirst | None, Meta(description="Two expected costs, while it waits and spot is first.")]
    paused: Annotated[str | None, Meta(description="The pause, of all renting or its own, that binds it, as text.")]
    runs: tuple[JobRunView, ...]
    events: tuple[JobEventView, ...]


def details_view(details: JobDetails) -> JobDetailsView:
    """A job with its runs and events as other programs see it."""
    job, sample = details.job, details.newest_sample
    return JobDetailsView.of(
        job,
        job.definition,
        cluster=details.cluster,
        moves=tuple(details.moves),
        relocation=details.advice,
        spot_first=details.spot_first,
        paused=None if details.pause is None else details.pause.text(),
        sample=None if sample is None else sample_view(sample),
        definition=definition_json(job.definition),
        runs=tuple(JobRunView.of(run) for run in details.runs),
        events=tuple(JobEventView.of(event) for event in details.events),
    )
