"""The owner cancels a job while the daemon changes it."""

from __future__ import annotations

import pytest

from gpuwatch.app.jobs.job_actions import mark_cancelled
from gpuwatch.domain.jobs.job import Job, JobRun, JobState, JobTransition
from gpuwatch.errors import JobConflict
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders_jobs import NOON, a_job


class OutrunJobs(SqlJobRepository):
    """Another program changes the job right before some of the transitions are stored."""

    def __init__(self, database: Database, times: int) -> None:
        super().__init__(database)
        self._times = times

    def record(
        self, job: Job, transition: JobTransition, run: JobRun | None = None, audit: OutboxAlert | None = None
    ) -> Job:
        if self._times:
            self._times -= 1
            newest = self.job(job.job_id)
            assert newest is not None
            to_state = JobState.RENTING if newest.state is JobState.QUEUED else JobState.QUEUED
            super().record(newest, JobTransition(to_state=to_state, at=NOON))
        return super().record(job, transition, run, audit)


def cancelled(database: Database, times: int) -> JobState:
    repository = OutrunJobs(database, times)
    SqlJobRepository(database).submit([a_job()])
    job, _, _ = mark_cancelled(repository, SqlLaunchRepository(database), "train", actor="me")
    return job.state


@pytest.mark.parametrize("times", [0, 1, 4])
def test_a_job_that_changes_meanwhile_is_cancelled_in_its_newest_state(database: Database, times: int) -> None:
    assert cancelled(database, times) is JobState.CANCELLED


def test_a_job_that_keeps_changing_is_not_cancelled(database: Database) -> None:
    with pytest.raises(JobConflict, match="job 'train' keeps changing; try again"):
        cancelled(database, 5)
