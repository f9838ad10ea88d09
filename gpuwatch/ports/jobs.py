"""The ports of jobs: where they are stored, and what their queue needs in addition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun
    from gpuwatch.domain.jobs.job_states import JobTransition


class JobStore(Protocol):
    """Jobs, their runs and events. Every method may raise StoreError."""

    def open_jobs(self) -> Sequence[Job]:
        """Open jobs, oldest first."""

    def ended_jobs(self, names: Collection[str]) -> Sequence[Job]:
        """Ended jobs with one of these names, or of an array with one of them."""

    def job(self, job_id: str) -> Job | None:
        """One job."""

    def runs(self, job_id: str) -> Sequence[JobRun]:
        """Its runs, oldest first."""

    def events(self, job_id: str) -> Sequence[JobEvent]:
        """Its events, oldest first."""

    def save_run(self, run: JobRun, event: JobEvent | None = None) -> None:
        """Store a new or changed run with its events in one transaction."""

    def record(self, job: Job, transition: JobTransition, run: JobRun | None = None) -> Job:
        """Apply one transition with its event and run in one transaction; returns the updated job.

        Raises:
            JobConflict: the job was changed concurrently; nothing was written.
            JobTransitionRefused: the transition is not allowed in the job's state.
        """

    def take_over(self, job: Job, transition: JobTransition, run: JobRun, donor_run: JobRun) -> Job:
        """Move a queued job to the instance of a finished job, with both runs, like `record`.

        Raises:
            JobConflict: changed concurrently, the job rents its own, or renting is paused; nothing was written.
        """


class JobQueueStore(JobStore, Protocol):
    """Jobs, as the queue reads and stores them. Every method may raise StoreError."""

    def save_spent(self, job_id: str, spent_microusd: int) -> None:
        """Store the cost of a job so far; its version stays."""
