"""The ports of jobs: where they are stored, and the cluster engine.

A cluster engine rents machines for one command; gpuwatch submits, follows and cancels runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gpuwatch.ports.renting import Launcher

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun, JobTransition


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


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the engine reports it. None: not reported."""

    name: str
    status: str  # in the engine's words
    is_over: bool
    is_placed: bool  # a machine was rented for it, or may have been
    usd_hour: float | None  # of all machines; for machines not rented yet, their price cap
    cost_usd: float | None  # so far, as the engine reports it
    exit_code: int | None  # of the first machine whose command failed, else 0
    why: str = ""  # how it ended
    message: str = ""  # … in a sentence of the engine


class ClusterLauncher(Launcher, Protocol):
    """A cluster engine as a launcher whose instances are whole clusters; the instance id is the run's name."""

    def submit(self, name: str, task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Submit a run once. The engine rejects a second run of the same name while the first is active.

        Args:
            secrets: values of variables that the task lists without a value.

        Raises:
            ProviderUnreachable: the program could not be started; nothing was sent.
            OutcomeUnknown: anything else; look up the name before doing anything again.
        """

    def run(self, name: str) -> ClusterRun | None:
        """A run, active or ended; None: the engine knows none. Raises ProviderError: no answer."""
