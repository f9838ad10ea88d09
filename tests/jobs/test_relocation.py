"""A running job whose file has `relocate`: it continues on a cheaper machine, never on two at once, or reports one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.jobs.job import Job, JobState, advice_of, moves_of
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec
from tests.builders import a_match, an_offer, changed
from tests.jobs.job_world import JobWorld

COMMAND = (
    'mkdir -p ckpt out; if [ -n "${GPUWATCH_CHECKPOINT:-}" ]; then cat $GPUWATCH_CHECKPOINT > out/n.txt; exit 0; fi;'
    " echo 1 > ckpt/1; while :; do sleep 0.1; done"
)
WITHOUT = "while :; do sleep 0.1; done"
MOVES = JobRelocateSpec(action="move", after_s=0.0)


def quote(world: JobWorld, usd_hour: float = 0.5, **values: Any) -> Match:
    plain = {"gpu": "H100", "spot": True, "quoted_usd_hour": usd_hour, "observed_at": world.now, "provider": "runpod"}
    return a_match(an_offer(**(plain | values)), commission="0")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[JobWorld]:
    made = JobWorld(tmp_path, real=False)
    made.wrap = lambda parts: changed(parts, seen=lambda job: (quote(made),))
    made.restarted()
    yield made
    made.close()


def submitted(world: JobWorld, command: str = COMMAND, **values: Any) -> Job:
    plain: dict[str, Any] = {
        "results": (JobFiles(source="out/*", target="results"),),
        "checkpoint": CheckpointSpec(path="ckpt", every_s=1200.0),
        "hours": FigureRange(20, 30),
        "relocate": MOVES,
    }
    return world.submit(command, **(plain | values))


def minutes(world: JobWorld, count: int) -> Job:
    for _ in range(count):
        world.now += timedelta(minutes=1)
        job = world.round()
    return job


@pytest.mark.slow
def test_it_goes_on_there_from_its_checkpoint_once_the_old_machine_is_gone(world: JobWorld) -> None:
    submitted(world, retries=0)
    world.stays.add("la")
    world.until(lambda job: job.state is JobState.PREEMPTED, step_s=30.0)
    for _ in range(5):
        world.now += timedelta(hours=1)
        assert world.round().state is JobState.PREEMPTED, "its old machine may still be there"
    assert list(world.machines) == ["la"]
    world.stays.clear()
    job = world.over()
    assert (job.state, job.run_number, job.retries_left) == (JobState.DONE, 2, 0), "a move uses no retry"
    assert (world.folder / "project/results/n.txt").read_text() == "1\n"
    assert world.texts().count("job train: moves to a cheaper machine") == 1
    (move,) = moves_of(world.jobs.runs(job.job_id), world.jobs.events(job.job_id))
    assert (move.provider, move.usd_hour, move.to_provider, move.to_usd_hour) == ("vastai", 1.0, "runpod", 0.5)
    assert 8 < move.saving_usd < 10, "about twenty hours at half a dollar less"
    assert world.launches.rows["la"].end_reason == "finished: its job moves to a cheaper machine"


@pytest.mark.slow
def test_prices_that_bounce_move_it_no_more_often_than_its_file_allows(world: JobWorld) -> None:
    """Every new machine costs 1 $ again, and another one half of that."""
    forever = COMMAND.replace("cat $GPUWATCH_CHECKPOINT > out/n.txt; exit 0", "sleep 0.3; echo 2 > ckpt/2")
    submitted(world, forever, relocate=changed(MOVES, max_per_day=1))
    world.until(lambda job: job.run_number == 2 and job.state is JobState.RUNNING, step_s=30.0)
    job = minutes(world, 5)
    assert (job.state, job.run_number) == (JobState.RUNNING, 2)
    assert advice_of(world.jobs.events(job.job_id)) == "it moved once within 24 hours (max_per_day = 1)"


def test_without_a_recent_checkpoint_it_stays(world: JobWorld) -> None:
    submitted(world, WITHOUT)
    world.until(lambda job: job.state is JobState.RUNNING)
    job = minutes(world, 5)
    assert (job.state, list(world.machines)) == (JobState.RUNNING, ["la"])
    assert advice_of(world.jobs.events(job.job_id)) == "moving would pay, but it wrote no whole checkpoint within 20m"


def test_what_could_not_be_rented_ends_no_machine(world: JobWorld) -> None:
    def refused(job: Job, launch: Launch, found: Sequence[Match]) -> tuple[Match | None, str]:
        return None, "renting is paused"

    world.wrap = lambda parts: changed(parts, seen=lambda job: (quote(world),), rentable_instead=refused)
    world.restarted()
    submitted(world)
    world.until(lambda job: job.state is JobState.RUNNING)
    job = minutes(world, 5)
    assert job.state is JobState.RUNNING
    assert advice_of(world.jobs.events(job.job_id)) == "what is cheaper cannot be rented now: renting is paused"


def test_an_alert_alone_moves_nothing(world: JobWorld) -> None:
    submitted(world, relocate=changed(MOVES, action="alert"))
    world.until(lambda job: job.state is JobState.RUNNING)
    job = minutes(world, 5)
    assert (job.state, list(world.machines)) == (JobState.RUNNING, ["la"])
    assert world.texts() == ["job train: a cheaper machine is on offer"]
    assert 'relocate = "alert" only reports it' in (advice_of(world.jobs.events(job.job_id)) or "")


@pytest.mark.slow
def test_a_command_that_succeeds_while_it_is_stopped_is_not_computed_again(world: JobWorld) -> None:
    """It saves and ends with 0 on the signal: the runner reports the stop, so it goes on from its checkpoint."""
    saves = COMMAND.replace("mkdir -p ckpt out;", "trap 'echo 2 > ckpt/2; exit 0' TERM; mkdir -p ckpt out;")
    submitted(world, saves)
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 2)
    assert (world.folder / "project/results/n.txt").read_text() == "2\n", "its last checkpoint was fetched, too"
