"""The port of the queue of jobs: what it needs besides `JobStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpuwatch.ports.jobs import JobStore

if TYPE_CHECKING:
    pass


class JobQueueStore(JobStore, Protocol):
    """Jobs, as the queue reads and keeps them. Every method may raise StoreError."""

    def save_spent(self, job_id: str, spent_microusd: int) -> None:
        """Keep what a job has cost so far; its version stays."""
