"""The owner's actions on jobs: cancel and retry. A daemon may run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from gpuwatch.app.jobs.jobs import RETRIABLE, check_runnable, open_jobs_read_only, owned_definition
from gpuwatch.app.launches.stop import request_stop, stop
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import known_job, known_run
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.jobs.job import Job, JobState, JobTransition, new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition, after_preparation
from gpuwatch.domain.watches.owner_names import owner_of, plain_name
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_CONFLICTS_MAX = 5


def job_of(settings: Settings, name_or_id: str) -> Job:
    """One job. Raises UsageError: there is none; StoreError."""
    with open_jobs_read_only(settings) as repository:
        return known_job(repository, name_or_id)


def cancel_job(settings: Settings, name_or_id: str, report: Callable[[str], None], *, actor: str) -> tuple[Job, bool]:
    """Cancel a job and end its instance, if it has one. A cancelled job stays as it is.

    Args:
        report: receives one line per change of its launch.

    Returns:
        The job, and whether the end of its instance is confirmed.

    Raises:
        UsageError: no such job, or it is over.
        StoreError: nothing was changed.
    """
    job, _, alive = _cancelled(settings, name_or_id, actor)
    return job, not alive or stop(settings, alive, report, actor=actor)


def request_cancel(settings: Settings, name_or_id: str, *, actor: str) -> tuple[Job, bool]:
    """Like `cancel_job`, without waiting for the end of its instance.

    Returns:
        The job, and whether this call changed it.

    Raises:
        UsageError: no such job, or it is done or failed.
        JobConflict: it keeps changing concurrently; nothing was changed.
        StoreError: nothing was changed.
    """
    job, changed, alive = _cancelled(settings, name_or_id, actor)
    for launch_id in alive:
        request_stop(settings, launch_id, actor=actor)
    return job, changed


def _cancelled(settings: Settings, name_or_id: str, actor: str) -> tuple[Job, bool, list[str]]:
    with open_store(settings) as store:
        return mark_cancelled(SqlJobRepository(store), SqlLaunchRepository(store), name_or_id, actor=actor)


def mark_cancelled(
    repository: SqlJobRepository, launches: SqlLaunchRepository, name_or_id: str, *, actor: str
) -> tuple[Job, bool, list[str]]:
    """Record that a job is cancelled; the daemon and the caller end the instance.

    Returns:
        The job, whether this call changed it, and its active launches.

    Raises:
        UsageError: no such job, or it is done or failed.
        JobConflict: it keeps changing concurrently.
    """
    job, changed = known_job(repository, name_or_id), False
    if job.state is not JobState.CANCELLED:
        if job.is_over:
            raise UsageError(f"job {job.name!r} is {job.state.value}; it cannot be cancelled")
        job, changed = _move(repository, job, JobState.CANCELLED, "cancelled", actor), True
    others = {
        other.launch_id for other in repository.open_jobs() if other.job_id != job.job_id
    }  # other jobs may own a shared instance
    alive = [
        launch.launch_id
        for launch in launches.alive()
        if job.job_id == launch.watch_id or job.launch_id == launch.launch_id
        if launch.launch_id not in others and not launch.dry_run
    ]
    return job, changed, alive


def retry_job(
    settings: Settings, name_or_id: str, file: Path | None = None, *, actor: str, as_of: int | None = None
) -> tuple[Job, bool]:
    """Queue a failed, cancelled or paused job again, from its last complete checkpoint, with all its retries.

    Args:
        file: its changed job file, for example with a higher limit. None: as it was submitted.
        as_of: the job's version when the owner was asked; None: any.

    Returns:
        The job, and whether this call changed it: a queued or running job stays as it is.

    Raises:
        UsageError: there is no such job, it is done, its deadline is past, or the file is of another job.
        JobConflict: it has changed since the owner was asked; nothing was changed.
        SettingsError: the file is invalid.
        StoreError: nothing was changed.
    """
    definition = None
    if file is not None:
        from gpuwatch.settings.validate import read_job_file  # noqa: PLC0415 - pydantic is needed only for files

        definition = read_job_file(file, settings.groups)
        check_runnable(settings, definition)
    with open_store(settings) as store:
        repository = SqlJobRepository(store)
        job = known_run(store, name_or_id, begun=False)
        if definition is not None and definition.name != plain_name(job.name):
            raise UsageError(f"{file} defines job {definition.name!r}, not {job.name!r}")
        if job.state not in RETRIABLE and not job.is_over:
            return job, False
        if as_of is not None and job.version != as_of:
            raise JobConflict(f"job {job.name!r} has changed in the meantime; reload it")
        if definition is not None:
            definition = _begun(owned_definition(definition, owner_of(job.name)), job)
        return _requeue(repository, job, definition, actor), True


def _begun(definition: JobDefinition, job: Job) -> JobDefinition:
    """The definition of a changed file, for a job that need not prepare the same data again."""
    prepared_run = job.definition.prepared_run
    is_same = definition.folder == job.definition.folder and definition.prepare == job.definition.prepare
    return after_preparation(definition, prepared_run) if prepared_run is not None and is_same else definition


def not_retriable(job: Job) -> UsageError:
    """The error for a job that cannot be queued again."""
    return UsageError(f"job {job.name!r} is {job.state.value}; only a failed, cancelled or paused job can be retried")


def _requeue(repository: SqlJobRepository, job: Job, definition: JobDefinition | None, actor: str) -> Job:
    now = real_now()
    if job.state not in RETRIABLE:
        raise not_retriable(job)
    requeued = new_job(definition or job.definition, job.job_id, now)
    deadline = requeued.deadline if definition or job.definition.deadline_s else job.deadline
    if deadline is not None and deadline <= now:
        raise UsageError(f"job {job.name!r}: its deadline has passed; submit it with a later one")
    changes = {
        "definition": requeued.definition,
        "priority": requeued.priority,
        "retries_left": requeued.retries_left,
        "deadline": deadline,
        "exit_code": None,
    }
    return _move(repository, job, JobState.QUEUED, "retried", actor, changes)


def _move(
    repository: SqlJobRepository,
    job: Job,
    to_state: JobState,
    done: str,
    actor: str,
    changes: Mapping[str, Any] | None = None,
) -> Job:
    """Apply the owner's transition despite concurrent changes of the daemon. Raises JobConflict: it keeps changing."""
    audit = audit_event(actor, f"job {job.name} {done}", subject=job.job_id, watch=job.watch_name)
    step = JobTransition(to_state=to_state, at=real_now(), reason=f"{done} by the owner", changes=changes or {})
    retrying = Retrying(retry=retry_if_exception_type(JobConflict), stop=stop_after_attempt(_CONFLICTS_MAX))
    try:
        return retrying(lambda: repository.record(repository.job(job.job_id) or job, step, audit=audit))
    except RetryError as error:
        raise JobConflict(f"job {job.name!r} keeps changing; try again") from error
