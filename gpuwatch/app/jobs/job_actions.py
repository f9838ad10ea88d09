"""The owner's actions on jobs from a page, the API or a chat: idempotent, with an audit event for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.app.jobs.jobs import RETRIABLE, mark_cancelled, open_jobs_read_only, requeue
from gpuwatch.app.launches.owner_actions import record_audit, request_stop
from gpuwatch.app.watches.watch_selection import known_job
from gpuwatch.bootstrap import open_store
from gpuwatch.domain.jobs.job import Job
from gpuwatch.errors import JobConflict
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


def job_of(settings: Settings, name_or_id: str) -> Job:
    """One job. Raises UsageError: there is none; StoreError."""
    with open_jobs_read_only(settings) as repository:
        return known_job(repository, name_or_id)


def request_cancel(settings: Settings, name_or_id: str, *, actor: str) -> tuple[Job, bool]:
    """Cancel a job, and end its instance without waiting for the confirmation.

    Returns:
        The job, and whether this call changed it: a cancelled job stays as it is.

    Raises:
        UsageError: no such job, or it is done or failed.
        JobConflict: it keeps changing concurrently; nothing was changed.
        StoreError: nothing was changed.
    """
    with open_store(settings) as store:
        job, changed, alive = mark_cancelled(SqlJobRepository(store), SqlLaunchRepository(store), name_or_id)
    if changed:
        record_audit(settings, actor, f"job {job.name} cancelled", subject=job.job_id, watch=job.watch_name)
    for launch_id in alive:
        request_stop(settings, launch_id, actor=actor)
    return job, changed


def request_retry(settings: Settings, name_or_id: str, *, actor: str, as_of: int | None = None) -> tuple[Job, bool]:
    """Queue a failed, cancelled or paused job again, as it was submitted.

    Args:
        as_of: the job's version when the owner was asked; None: any.

    Returns:
        The job, and whether this call changed it: a queued or running job stays as it is.

    Raises:
        UsageError: there is no such job, it is done, or its deadline is past.
        JobConflict: it has changed since the owner was asked; nothing was changed.
        StoreError: nothing was changed.
    """
    with open_store(settings) as store:
        repository = SqlJobRepository(store)
        job = known_job(repository, name_or_id)
        if job.state not in RETRIABLE and not job.is_over:
            return job, False
        if as_of is not None and job.version != as_of:
            raise JobConflict(f"job {job.name!r} has changed in the meantime; reload it")
        after = requeue(repository, job)
    record_audit(settings, actor, f"job {after.name} retried", subject=after.job_id, watch=after.watch_name)
    return after, True
