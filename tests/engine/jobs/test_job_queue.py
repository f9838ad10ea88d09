"""One pass of the queue: the fate of each job when its launch starts, ends or never comes."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.jobs.job import RELOCATED, Job, JobRun, JobState, JobTransition, new_job
from gpuwatch.domain.jobs.job_definition import JobStage, PrepareSpec, after_preparation
from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.engine.jobs.job_queue import RUNNER_GRACE, JobQueue
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_watch
from tests.builders_jobs import a_definition, a_job
from tests.jobs.job_world import MemoryLaunches

S, L = JobState, LaunchState
CPU = a_watch(gpu=("none",), gpu_names=("none",), gpu_count_min=0, gpu_count_max=0)
CHEAP = JobLimit(max_price_usd_gpu_hour=Decimal("0.10"))
LATER = NOON + timedelta(minutes=10)


class Launches(MemoryLaunches):
    """The launches as the queue sees them."""

    def put(self, state: LaunchState, launch_id: str = "a" * 12, **changes: Any) -> Launch:
        plain: dict[str, Any] = {
            "launch_id": launch_id, "watch": "job:train", "watch_id": "jobaaaa2", "slot": 0, "provider": "vastai",
            "offer_id": "1", "machine_id": None, "gpu": "H100 SXM", "gpu_count": 1, "spot": False, "dry_run": False,
            "label": "gpuwatch-x", "listed_microusd_hour": 2_000_000, "price_microusd_hour": 2_000_000,
            "intended_at": NOON,
        }  # fmt: skip
        self.rows[launch_id] = Launch(**(plain | {"state": state} | changes))
        return self.rows[launch_id]

    def own_alive(self, provider: str | None = None) -> list[Launch]:
        return [row for row in self.rows.values() if not row.is_over]


class World:
    """A queue over a real store."""

    def __init__(self, database: Database) -> None:
        self.jobs = SqlJobRepository(database)
        self.launches = Launches()
        self.queue = JobQueue(self.jobs, self.launches)  # type: ignore[arg-type] the methods that it uses

    def submit(self, *jobs: Job) -> None:
        self.jobs.submit(jobs)

    def after(self, now: datetime = LATER, name: str = "train") -> Job:
        self.queue.tick(now)
        job = self.jobs.find_job(name)
        assert job is not None
        return job

    def running(self) -> None:
        """The job on its first instance."""
        self.submit(a_job())
        self.launches.put(L.RUNNING, running_at=NOON)
        self.after()
        assert self.after().state is S.PREPARING

    def watches(self) -> list[str]:
        return [watch.name for watch in self.queue.watches]


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def test_a_queued_job_is_a_watch_until_it_has_a_launch(world: World) -> None:
    world.submit(a_job())
    assert world.after().state is S.QUEUED
    assert world.watches() == ["job:train"]
    world.launches.put(L.REQUESTED)
    job = world.after()
    assert (job.state, job.launch_id, job.run_number, world.watches()) == (S.RENTING, "a" * 12, 0, [])
    assert job.predicted_microusd == 24 * 2_000_000
    world.launches.put(L.RUNNING, running_at=NOON)
    assert world.after().state is S.PREPARING
    assert [run.run_number for run in world.jobs.runs("jobaaaa2")] == [1]


def test_a_launch_that_never_ran_costs_no_retry(world: World) -> None:
    world.submit(a_job())
    world.launches.put(L.REQUESTED)
    world.after()
    world.launches.put(L.FAILED, ended_at=LATER, end_reason=EndReason.OFFERS_GONE.text())
    job = world.after()
    assert (job.state, job.reason, job.retries_left) == (S.QUEUED, "every offer was gone", 2)
    assert world.watches() == ["job:train"]


def test_a_lost_instance_is_tried_again_elsewhere_until_no_retry_is_left(world: World) -> None:
    world.running()
    for number, left in enumerate((1, 0)):
        world.launches.rows.clear()
        world.launches.put(L.ENDED, chr(97 + number) * 12, running_at=NOON, ended_at=LATER, end_reason="outbid")
        assert world.after(LATER + RUNNER_GRACE / 2).state is S.PREPARING  # its runner may have more to say
        assert world.after(LATER + RUNNER_GRACE).state is S.PREEMPTED
        assert world.after(LATER + RUNNER_GRACE).retries_left == left
        assert world.watches() == ["job:train"]
        world.launches.put(L.RUNNING, chr(98 + number) * 12, running_at=NOON)
        world.after()
        world.after()
    world.launches.rows.clear()
    world.launches.put(L.ENDED, "c" * 12, running_at=NOON, ended_at=LATER, end_reason="outbid")
    world.after(LATER + RUNNER_GRACE)
    job = world.after(LATER + RUNNER_GRACE)
    assert (job.state, job.reason, job.run_number) == (S.FAILED, "no retries left: outbid", 3)
    assert [one.alert.headline for one in world.launches.alerts.values()] == ["job train: failed"]


def test_it_never_looks_for_a_second_instance_while_the_first_is_not_proven_gone(world: World) -> None:
    world.running()
    job = world.jobs.open_jobs()[0]
    world.jobs.record(job, JobTransition(to_state=S.PREEMPTED, at=LATER, reason="its host is offline"))
    assert world.after().state is S.PREEMPTED
    assert world.watches() == []


@pytest.mark.parametrize("state", [S.CANCELLED, S.PAUSED])
def test_the_instance_of_a_job_that_does_not_need_it_is_ended(world: World, state: JobState) -> None:
    world.running()
    job = world.jobs.open_jobs()[0]
    world.jobs.record(job, JobTransition(to_state=state, at=LATER))
    world.queue.tick(LATER)
    launch = world.launches.rows["a" * 12]
    assert (launch.state, launch.end_reason) == (L.STOPPING, f"finished: job train is {state.value}")


def test_keep_on_failure_leaves_the_instance_for_a_look(world: World) -> None:
    world.submit(a_job(definition=a_definition(keep_on_failure_s=1800.0)))
    world.launches.put(L.RUNNING, running_at=NOON)
    world.after()
    world.jobs.record(world.after(), JobTransition(to_state=S.FAILED, at=LATER, reason="exit code 1"))
    world.queue.tick(LATER + timedelta(minutes=29))
    assert world.launches.rows["a" * 12].state is L.RUNNING
    world.queue.tick(LATER + timedelta(minutes=30))
    assert world.launches.rows["a" * 12].state is L.STOPPING


def test_what_others_wait_for_is_known_also_when_it_ends_later_or_ended_before(world: World) -> None:
    world.submit(a_job())
    world.submit(a_job(job_id="jobbbbb2", name="after", definition=a_definition(name="after", depends_on=("train",))))
    assert world.after().state is S.QUEUED
    assert world.watches() == ["job:train"]
    job = world.jobs.open_jobs()[0]
    for state in (S.RENTING, S.PREPARING, S.RUNNING, S.FETCHING, S.DONE):
        job = world.jobs.record(job, JobTransition(to_state=state, at=LATER))
    world.queue.tick(LATER)
    assert world.watches() == ["job:after"]
    anew = JobQueue(world.jobs, world.launches)  # type: ignore[arg-type] after a restart
    anew.tick(LATER)
    assert [watch.name for watch in anew.watches] == ["job:after"]


def test_thousands_of_dependencies_are_read(world: World) -> None:
    world.submit(
        *(
            a_job(job_id=f"{n:08d}", name=f"job{n}", definition=a_definition(name=f"job{n}", depends_on=(f"gone{n}",)))
            for n in range(1200)
        )
    )
    world.queue.tick(NOON)
    assert world.watches() == []


def test_a_spot_job_goes_on_elsewhere_after_a_preemption(world: World) -> None:
    world.submit(a_job(definition=a_definition(resources=a_watch(name="job:train", spot=SpotPolicy.ANY))))
    world.queue.tick(NOON)
    (watch,) = world.queue.watches
    assert watch.launch is not None
    assert watch.launch.relaunch


def small(name: str, job_id: str, **changes: Any) -> Job:
    definition = a_definition(name=name, hours=FigureRange(0.2, 0.5), **changes)
    return a_job(job_id=job_id, name=name, definition=definition)


def test_a_small_job_waits_for_the_instance_of_another_and_keeps_it(world: World) -> None:
    """From the queue to the end: nothing is rented for it, and its part does not end with the first job."""
    world.submit(small("train", "jobaaaa2"), small("next", "jobbbbb2"))
    world.after()
    assert world.watches() == ["job:train"]
    launch = world.launches.put(L.RUNNING, running_at=NOON, requested_at=NOON)
    world.after()
    assert (world.after().state, world.watches()) == (S.PREPARING, [])
    first, second = world.jobs.open_jobs()
    begins = JobRun(job_id=second.job_id, run_number=1, launch_id=launch.launch_id, held_from=LATER)
    (given,) = (msgspec.structs.replace(run, held_until=LATER) for run in world.jobs.runs(first.job_id))
    changes = {"launch_id": launch.launch_id, "run_number": 1}
    world.jobs.take_over(second, JobTransition(to_state=S.PREPARING, at=LATER, changes=changes), begins, given)
    for state in (S.RUNNING, S.FETCHING, S.DONE):
        first = world.jobs.record(first, JobTransition(to_state=state, at=LATER))
    later = LATER + timedelta(minutes=20)
    assert world.after(later, "next").state is S.PREPARING
    assert world.launches.rows[launch.launch_id].state is L.RUNNING
    spent = [job.spent_microusd for job in world.jobs.recent()]
    assert spent == [2_000_000 // 6, pytest.approx(2_000_000 // 3, abs=1)]  # 10 and 20 minutes of the same instance
    second = world.jobs.open_jobs()[0]
    world.jobs.record(second, JobTransition(to_state=S.CANCELLED, at=later))
    world.after(later)
    assert world.launches.rows[launch.launch_id].state is L.STOPPING


@pytest.mark.parametrize("state", [S.PAUSED, S.FAILED])
def test_who_waits_for_an_instance_looks_for_its_own_when_that_is_gone(world: World, state: JobState) -> None:
    world.submit(small("train", "jobaaaa2"), small("next", "jobbbbb2"))
    world.after()
    world.jobs.record(world.jobs.open_jobs()[0], JobTransition(to_state=state, at=NOON))
    world.after()
    assert world.watches() == ["job:next"]


def test_the_cost_that_dstack_reported_stays_after_the_job(world: World) -> None:
    """The queue overwrote it with its own estimate at the pass after the end."""
    world.submit(a_job(definition=a_definition(nodes=2)))
    job = world.after(NOON)
    launch = world.launches.put(L.RUNNING, running_at=NOON)
    for state in (S.RENTING, S.PREPARING, S.RUNNING, S.FETCHING):
        job = world.jobs.record(job, JobTransition(to_state=state, at=NOON, changes={"launch_id": launch.launch_id}))
    world.after()
    world.launches.put(L.ENDED, running_at=NOON, ended_at=LATER)
    world.jobs.record(job, JobTransition(to_state=S.DONE, at=LATER, changes={"spent_microusd": 12_345_600}))
    assert world.after(LATER + timedelta(minutes=1)).spent_microusd == 12_345_600


def test_the_cost_of_every_running_job_is_stored_in_turn(world: World) -> None:
    """Jobs beyond the oldest twenty have to wait for one pass, not for ever: passes a minute apart."""
    jobs = [a_job(name=f"job{number}", job_id=f"jobid{number:03}") for number in range(50)]
    world.submit(*jobs)
    for number in range(50):
        world.launches.put(
            L.RUNNING, f"launch{number:06}", watch=f"job:job{number}", watch_id=f"jobid{number:03}", running_at=NOON,
            requested_at=NOON,
        )  # fmt: skip
    for minute in range(1, 6):
        world.queue.tick(NOON + timedelta(minutes=minute))
    assert all(job.spent_microusd for job in world.jobs.recent())


def test_a_job_that_moves_to_a_cheaper_machine_uses_no_retry_and_waits_for_the_end_of_the_old_one(world: World) -> None:
    world.running()
    job = world.jobs.find_job("train")
    assert job is not None
    run = msgspec.structs.replace(world.jobs.runs(job.job_id)[0], step=RELOCATED, ended_at=LATER)
    world.jobs.record(job, JobTransition(to_state=S.PREEMPTED, at=LATER, reason="moves"), run)
    world.launches.put(L.STOPPING, running_at=NOON)
    assert world.after().state is S.PREEMPTED
    world.launches.put(L.ENDED, running_at=NOON, ended_at=LATER)
    assert (world.after().state, world.after().retries_left) == (S.QUEUED, 2)


def test_cheaper_machines_are_observed_for_running_jobs_that_want_it(world: World) -> None:
    wants = a_job(definition=a_definition(relocate=JobRelocateSpec(after_s=0.0)))
    world.submit(wants)
    world.launches.put(L.RUNNING, running_at=NOON)
    for state in (S.PREPARING, S.RUNNING):
        job = world.after()
        if job.state is not state:
            world.jobs.record(job, JobTransition(to_state=state, at=LATER))
    world.after()
    (watch,) = world.queue.watches
    assert (watch.name, watch.only_observed, str(watch.max_price_usd_gpu_hour)) == ("job:train", True, "1.700000")


def test_data_that_is_not_on_this_host_is_prepared_again_before_anything_is_rented(
    world: World, tmp_path: Path
) -> None:
    spec = a_definition(prepare=PrepareSpec(command="clean", outputs=("data",), resources=CPU, limit=CHEAP))
    job = a_job(definition=after_preparation(spec, 1))
    world.submit(job)
    results = ({"path": "data/a", "bytes": 3, "sha256": "x"}, {"path": "data/b", "bytes": 5, "sha256": "y"})
    world.jobs.save_run(JobRun(job_id=job.job_id, run_number=1, launch_id="k" * 12, results=results))
    assert world.after().definition.stage is JobStage.MAIN
    files = JobFolder(tmp_path)
    data = files.results_folder(job.job_id, 1) / "data"
    data.mkdir(parents=True)
    elsewhere = JobQueue(world.jobs, world.launches, has_data=files.has_prepared)  # type: ignore[arg-type]
    (data / "a").write_bytes(b"abc")
    (data / "b").write_bytes(b"12345")
    elsewhere.tick(LATER)
    assert world.jobs.open_jobs()[0].definition.stage is JobStage.MAIN
    (data / "b").write_bytes(b"12")  # half of it
    elsewhere.tick(LATER)
    job = world.jobs.open_jobs()[0]
    assert (job.state, job.definition.stage, job.definition.command) == (S.QUEUED, JobStage.PREPARE, "clean")
    assert job.reason == "its data is not complete on this host: it is prepared again"
    (watch,) = elsewhere.watches
    assert watch.wants_no_gpu


def test_a_job_that_waits_for_another_one_prepares_nothing_before(world: World) -> None:
    spec = a_definition(
        depends_on=("first",), prepare=PrepareSpec(command="clean", outputs=("data",), resources=CPU, limit=CHEAP)
    )
    first = a_job(name="first", job_id="jobfirst", definition=a_definition(name="first"))
    world.submit(first, new_job(spec, "j", NOON))
    world.after()
    assert world.watches() == ["job:first"]
