"""The ports of jobs: where they are kept, and what their queue needs besides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun
    from gpuwatch.domain.jobs.job_states import JobTransition


class JobStore(Protocol):
    """Jobs, their runs and events. Every method may raise StoreError."""

    def open_jobs(self) -> Sequence[Job]:
        """Those that are not over, oldest first."""

    def ended_jobs(self, names: Collection[str]) -> Sequence[Job]:
        """The jobs with one of these names, or of an array with one, that are over."""

    def job(self, job_id: str) -> Job | None:
        """One job."""

    def runs(self, job_id: str) -> Sequence[JobRun]:
        """Its runs, oldest first."""

    def events(self, job_id: str) -> Sequence[JobEvent]:
        """What happened to it, oldest first."""

    def save_run(self, run: JobRun, event: JobEvent | None = None) -> None:
        """Keep a run as it is now, made or changed, and what happened, in one transaction."""

    def record(self, job: Job, transition: JobTransition, run: JobRun | None = None) -> Job:
        """One step with its event, and the run as it is then, in one transaction; the job as it is then.

        Raises:
            JobConflict: somebody changed the job meanwhile; nothing was written.
            JobTransitionRefused: it does not follow from the job's state.
        """

    def take_over(self, job: Job, transition: JobTransition, run: JobRun, given_by: JobRun) -> Job:
        """One step of a queued job onto the instance of a job that is done with it, with both runs, as `record`.

        Raises:
            JobConflict: somebody changed the job meanwhile, it rents its own, or renting is paused; nothing is written.
        """


class JobQueueStore(JobStore, Protocol):
    """Jobs, as the queue reads and keeps them. Every method may raise StoreError."""

    def save_spent(self, job_id: str, spent_microusd: int) -> None:
        """Keep what a job has cost so far; its version stays."""
