"""The ports of jobs: where they are kept, and how an instance is reached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun
    from gpuwatch.domain.jobs.job_states import JobTransition


class JobStore(Protocol):
    """Jobs, their runs and events. Every method may raise StoreError."""

    def open_jobs(self) -> Sequence[Job]:
        """Those that are not over, oldest first."""

    def job(self, job_id: str) -> Job | None:
        """One job."""

    def runs(self, job_id: str) -> Sequence[JobRun]:
        """Its runs, oldest first."""

    def save_run(self, run: JobRun, event: JobEvent | None = None) -> None:
        """Keep a run as it is now, made or changed, and what happened, in one transaction."""

    def record(self, job: Job, transition: JobTransition, run: JobRun | None = None) -> Job:
        """One step with its event, and the run as it is then, in one transaction; the job as it is then.

        Raises:
            JobConflict: somebody changed the job meanwhile; nothing was written.
            JobTransitionRefused: it does not follow from the job's state.
        """


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command on the instance gave back. `exit_code` 255: the connection failed."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class RemoteShell(Protocol):
    """A shell on one instance, whose host key is known. Methods raise RemoteUnreachable where no answer came."""

    def run(self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"") -> ShellResult:
        """Run a command and wait for its end."""

    def put(self, local: Path, remote: str, timeout_s: float) -> None:
        """Copy a file or folder there."""

    def get(self, remote: str, local: Path, timeout_s: float) -> None:
        """Copy a file or folder from there."""
