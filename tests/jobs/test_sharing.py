"""Small jobs in sequence on one instance: on machines with a real SSH server, and with crashes in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_values import JobFiles, JobLimit
from gpuwatch.domain.jobs.run_progress import run_cost_microusd
from gpuwatch.domain.launches.launch import InstanceCondition, LaunchState
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.jobs.job_world import WATCH, JobWorld

RESOURCES = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec(max_total=0))
SMALL: dict[str, Any] = {"resources": RESOURCES, "hours": FigureRange(0.2, 0.5)}
WRITES = "echo $GPUWATCH_JOB >> ../../jobs; mkdir -p out; ls .. ../.. > out/a.txt"


def submit(world: JobWorld, name: str, **wanted: Any) -> Job:
    results = (JobFiles(source="out/*.txt", target=f"results/{name}"),)
    return world.submit(WRITES, name=name, **(SMALL | {"results": results} | wanted))


def first_rents(world: JobWorld) -> None:
    """The queue's decision (`tests/engine/jobs/test_job_queue.py`): the others wait for the first one's instance."""
    world.rents = lambda job: job.name == "one"


def all_over(world: JobWorld) -> list[Job]:
    world.until(lambda _: all(job.is_over for job in world.jobs.jobs.values()))
    return list(world.jobs.jobs.values())


def test_three_jobs_run_one_after_the_other_on_one_instance(world: JobWorld) -> None:
    """Each delivers its results, the last one ends the instance, and the three costs add up to the launch's."""
    for name in ("one", "two", "zed"):
        submit(world, name)
    first_rents(world)
    jobs = all_over(world)
    assert [(job.state, job.launch_id) for job in jobs] == [(JobState.DONE, "la")] * 3
    assert list(world.launches.rows) == ["la"]
    assert world.alive() == []
    assert (world.machine.home / "gpuwatch" / "jobs").read_text() == "zed\n"  # emptied between two jobs
    for name in ("one", "two", "zed"):
        listed = (world.folder / "project/results" / name / "a.txt").read_text().split()
        assert [one for one in listed if one.startswith(("one", "two", "zed"))] == [f"{name}xxxxx"]
    assert [one.detail.get("reason") for one in world.jobs.happened if one.kind == "preparing"] == [
        None,
        "on the instance of job one, which is done",
        "on the instance of job two, which is done",
    ]
    assert sorted(world.texts()) == ["job one: finished", "job two: finished", "job zed: finished"]
    reported = {alert.alert.headline: alert.alert.did for alert in world.launches.alerts.values()}
    assert "Another job continues on the instance" in reported["job one: finished"]
    assert "destroyed, and its end is confirmed" in reported["job zed: finished"]
    launch, later = world.launches.rows["la"], world.now + timedelta(hours=1)
    launch = msgspec.structs.replace(launch, requested_at=launch.intended_at)
    parts = [run_cost_microusd(run, launch, later) for job in jobs for run in world.jobs.runs(job.job_id)]
    assert all(parts)
    assert sum(parts) == pytest.approx(run_cost_microusd(None, launch, later), abs=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": JobLimit(max_price_usd_gpu_hour=Decimal("0.99"))},
        {"limit": JobLimit(max_usd_hour=Decimal("0.99"))},
        {"limit": JobLimit(max_usd=Decimal(0))},
        {"setup": "true"},
        {"share_instance": False},
        {"depends_on": ("other",)},
        {"hours": FigureRange(3, 4)},
        {"deadline": timedelta(minutes=5)},
        {"active": ("Fri 00:00-01:00",)},
        {"resources": msgspec.structs.replace(RESOURCES, disk_gb=500.0)},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_job_that_the_instance_does_not_suit_waits_for_its_own(
    new_world: Callable[..., JobWorld], changes: dict[str, Any]
) -> None:
    world = new_world(real=False)
    submit(world, "one", active=changes.get("active", ()))
    after = changes.pop("deadline", None)
    two = submit(world, "two", **changes)
    if after is not None:
        world.jobs.jobs[two.job_id] = msgspec.structs.replace(two, deadline=world.now + after)
    first_rents(world)
    one = world.over()
    assert (one.state, world.jobs.jobs[two.job_id].state, world.alive()) == (JobState.DONE, JobState.QUEUED, [])


def test_an_instance_that_does_not_run_well_is_not_given_on(new_world: Callable[..., JobWorld]) -> None:
    """Nor the instance of a failed command: the machine may be the reason."""
    world = new_world(real=False)
    submit(world, "one")
    two = submit(world, "two")
    first_rents(world)
    world.rent()
    launch = world.launches.rows["la"]
    world.launches.rows["la"] = msgspec.structs.replace(
        launch, condition=InstanceCondition.UNLISTED, condition_since=world.now
    )
    assert world.over().state is JobState.DONE
    assert (world.jobs.jobs[two.job_id].state, world.alive()) == (JobState.QUEUED, [])
    failing = new_world(real=False)
    failing.submit("exit 3", name="one", **SMALL)
    two = submit(failing, "two")
    first_rents(failing)
    assert failing.over().state is JobState.FAILED
    assert (failing.jobs.jobs[two.job_id].state, failing.alive()) == (JobState.QUEUED, [])


def test_the_first_jobs_launch_has_not_failed_when_the_next_job_did(new_world: Callable[..., JobWorld]) -> None:
    """It has the first one's name: its owner would think that this one failed."""
    world = new_world(real=False)
    submit(world, "one")
    world.submit("exit 3", name="two", **SMALL)
    first_rents(world)
    assert [job.state for job in all_over(world)] == [JobState.DONE, JobState.FAILED]
    launch = world.launches.rows["la"]
    assert launch.end_reason == "finished: job two: exit code 3"


def test_the_next_job_gets_the_time_that_it_needs(new_world: Callable[..., JobWorld]) -> None:
    world = new_world(real=False)
    submit(world, "one")
    two = submit(world, "two")
    first_rents(world)
    world.rent()
    world.launches.rows["la"] = msgspec.structs.replace(world.launches.rows["la"], max_runtime_s=600.0)
    world.until(lambda _: world.jobs.jobs[two.job_id].launch_id == "la")
    ends = world.launches.rows["la"].deadline
    assert ends is not None
    assert ends - world.now >= timedelta(minutes=44)  # one and a half times half an hour, as for one of its own
    all_over(world)


@pytest.mark.parametrize(("minutes", "is_given"), [(30, False), (50, True)])
def test_an_instance_that_its_provider_ends_before_the_next_job_is_done_is_not_given_on(
    new_world: Callable[..., JobWorld], minutes: int, is_given: bool
) -> None:
    """The next one needs 45 minutes; gpuwatch's own end can be moved, the provider's cannot."""
    world = new_world(real=False)
    ends = world.now + timedelta(minutes=minutes)
    world.wrap = lambda parts: msgspec.structs.replace(parts, contract_end=lambda launch: ends)
    world.restarted()
    submit(world, "one")
    two = submit(world, "two")
    first_rents(world)
    world.until(lambda _: world.jobs.jobs["onexxxxx"].state is JobState.DONE)
    assert (world.jobs.jobs[two.job_id].launch_id is not None) == is_given


def test_the_next_job_is_interrupted_like_any_other(new_world: Callable[..., JobWorld]) -> None:
    """Its instance is lost: it continues elsewhere, and the first one stays done."""
    world = new_world(real=False)
    submit(world, "one")
    two = world.submit("while [ -e ../../../hold ]; do sleep 0.1; done; echo done", name="two", **SMALL)
    first_rents(world)
    world.rent()
    (world.machine.home / "hold").touch()
    world.until(lambda _: world.jobs.jobs[two.job_id].state is JobState.RUNNING)
    world.rents = lambda job: True
    world.lose("la")
    one, two = all_over(world)
    assert (one.state, two.state, two.launch_id, two.run_number) == (JobState.DONE, JobState.DONE, "lb", 2)
    assert [launch.state for launch in world.launches.rows.values()] == [LaunchState.ENDED] * 2


@pytest.mark.parametrize(("target", "is_shared"), [("results", True), ("rclone:store:results", False)])
def test_who_waits_for_the_results_goes_on_where_they_were_made(
    new_world: Callable[..., JobWorld], target: str, is_shared: bool
) -> None:
    """Once they are here; a store without a copy yet may be where the second job looks for them."""
    world = new_world(real=False)
    world.submit(WRITES, name="one", results=(JobFiles(source="out/*.txt", target=target),), **SMALL)
    two = submit(world, "two", depends_on=("one",))
    first_rents(world)
    world.until(lambda job: world.run.step == "fetched" or job.is_over)
    for _ in range(3):
        world.round()
    assert (world.jobs.jobs[two.job_id].launch_id == "la") is is_shared
