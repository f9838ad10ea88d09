"""A job with a step before it: what becomes of it when that step fails, or loses its machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_definition import JobStage, PrepareSpec, steps_of
from gpuwatch.domain.jobs.job_values import JobFiles, JobLimit
from gpuwatch.domain.launches.launch import LaunchState
from tests.jobs.job_world import WATCH, JobWorld

OUT = (JobFiles(source="out.txt", target="results"),)


@pytest.fixture
def world(tmp_path: Path) -> JobWorld:
    return JobWorld(tmp_path, real=False)


def submit(world: JobWorld, prepare: str, outputs: tuple[str, ...] = ("data",)) -> None:
    spec = PrepareSpec(command=prepare, outputs=outputs, resources=WATCH, limit=JobLimit())
    job = world.submit("cat data/a > out.txt", prepare=spec, results=OUT)
    world.jobs.jobs[job.job_id] = msgspec.structs.replace(job, definition=steps_of(job.definition)[0])


def test_a_step_before_that_fails_fails_the_job_before_its_own_machine_is_rented(world: JobWorld) -> None:
    submit(world, "exit 3")
    job = world.over()
    assert (job.state, job.reason) == (JobState.FAILED, "its data was not prepared: exit code 3")
    assert (list(world.machines), world.alive()) == (["la"], [])


def test_data_that_never_came_out_of_it_fails_the_job_likewise(world: JobWorld) -> None:
    submit(world, "mkdir dat; touch dat/a")
    world.until(lambda job: job.state is JobState.FETCHING)
    world.lose("la")
    job = world.over()
    assert job.state is JobState.FAILED
    assert (job.reason or "").startswith("its data was not prepared: results were not fetched")
    assert list(world.machines) == ["la"]


def test_a_lost_machine_costs_the_step_a_retry_and_the_job_none(world: JobWorld) -> None:
    submit(world, "while [ ! -e ../go ]; do sleep 0.1; done; mkdir data; echo made > data/a")
    world.until(lambda job: job.state is JobState.RUNNING)
    world.lose("la")
    world.until(lambda job: job.state is JobState.RUNNING and job.run_number == 2)
    assert (world.job.definition.stage, world.job.retries_left) == (JobStage.PREPARE, 1)
    (world.work().parent / "go").touch()

    def one_at_a_time(job: Job) -> bool:
        assert len(world.alive()) <= 1
        return job.is_over

    job = world.until(one_at_a_time)
    assert (job.state, job.run_number, job.retries_left) == (JobState.DONE, 3, 2)
    assert (world.folder / "project/results/out.txt").read_text() == "made\n"
    assert [row.state for row in world.launches.rows.values()] == [LaunchState.ENDED] * 3
    assert not (world.folder / "project/data").exists()


def test_a_step_that_hands_on_nothing_here_is_followed_all_the_same(world: JobWorld) -> None:
    """Its command may put what it makes into a store of its own."""
    submit(world, "true", outputs=())
    world.until(lambda job: job.definition.stage is JobStage.MAIN and job.state is JobState.RUNNING)
    assert world.job.run_number == 2
    world.close()
