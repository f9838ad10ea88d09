"""A job from its instance to its results, on machines with a real SSH server."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_values import JobFiles, JobLimit, PilotSpec
from gpuwatch.domain.jobs.run_sample import samples_of
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, LaunchState
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.remote.rclone import Rclone
from tests.jobs.job_world import CHECKPOINTS, RESULTS, JobWorld


class BrokenStores(Rclone):
    """The disk of this machine is full."""

    def get(self, source: str, folder: Path, *, timeout_s: float) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


WRITES = "mkdir -p out && echo made > out/a.txt && echo $WORD > out/b.txt"
COUNTS = (
    'n=0; [ -n "${GPUWATCH_CHECKPOINT:-}" ] && n=$(cat "$GPUWATCH_CHECKPOINT"); mkdir -p ckpt out;'
    " while [ $n -lt 30 ]; do n=$((n+1)); echo $n > ckpt/.new; mv ckpt/.new ckpt/step-$n; echo step $n/30;"
    " while [ -e ../hold ]; do sleep 0.1; done; done; echo $n > out/n.txt"
)


def test_a_job_is_done_when_its_results_are_here_and_its_instance_is_gone(world: JobWorld) -> None:
    """Inputs sent, results fetched and verified, the end confirmed; in this order."""
    world.variables = {"WORD": "it's secret"}
    world.submit(
        f"cat data/in.txt one.cfg; {WRITES}; echo done",
        results=RESULTS,
        inputs=(JobFiles(source="data", target="data"), JobFiles(source="x.cfg", target="one.cfg")),
    )
    (world.folder / "project/data").mkdir(parents=True)
    (world.folder / "project/data/in.txt").write_text("input\n")
    (world.folder / "project/x.cfg").write_text("config\n")
    job = world.over()
    assert (job.state, job.exit_code, job.progress, world.alive()) == (JobState.DONE, 0, 1.0, [])
    results = world.folder / "project/results"
    assert [(results / name).read_text() for name in ("a.txt", "b.txt")] == ["made\n", "it's secret\n"]
    assert world.run.results[0]["sha256"] == hashlib.sha256(b"made\n").hexdigest()
    assert world.files.log_tail(job.job_id, 1, 5) == ["input", "config", "done"]
    assert (world.launches.rows["la"].end_reason or "").startswith(EndReason.FINISHED.value)
    assert world.texts() == ["job train: finished"]
    assert [one.kind for one in world.jobs.happened if one.kind in set(JobState)] == [
        *("renting", "preparing", "running", "fetching", "done")
    ]


def test_the_last_lines_of_a_failed_command_are_in_the_alert_and_its_instance_is_kept(world: JobWorld) -> None:
    """For the time that the job states, and not longer."""
    world.submit("echo trying; echo 'no module named torch' >&2; exit 3", keep_on_failure_s=1800.0)
    world.until(lambda job: job.state is JobState.FETCHING and world.texts())
    alert = next(iter(world.launches.alerts.values())).alert
    assert alert.headline == "job train: its command failed, exit code 3"
    assert ("Log", "no module named torch") in alert.facts
    world.now += timedelta(minutes=20)
    world.round()
    assert world.alive() == ["la"]
    world.now += timedelta(minutes=15)
    job = world.over()
    assert (job.state, job.exit_code, world.alive()) == (JobState.FAILED, 3, [])


def test_results_that_are_missing_keep_the_instance_for_a_time_and_are_reported(world: JobWorld) -> None:
    """Exit code 0 is not enough: results count as fetched only if they are."""
    world.submit("true", results=RESULTS)
    world.until(lambda job: job.state is JobState.FETCHING)
    world.now += timedelta(minutes=5)
    world.round()
    assert world.texts() == ["job train: its results cannot be fetched"]
    assert world.alive() == ["la"]
    world.now += timedelta(hours=1)
    job = world.over()
    assert (job.state, job.reason) == (JobState.FAILED, "results were not fetched: no file matches out/*.txt")
    assert world.run.results == ()
    assert world.alive() == []


def test_a_result_whose_name_cannot_be_used_is_reported_and_the_others_are_here(world: JobWorld) -> None:
    """Its instance is kept: the file would be lost with it."""
    world.submit("mkdir out; echo a > out/a.txt; echo b > 'out/b\u3000b.txt'", results=RESULTS)
    world.until(lambda job: job.state is JobState.FETCHING)
    world.now += timedelta(minutes=5)
    world.round()
    assert world.texts() == ["job train: its results cannot be fetched"]
    (alert,) = world.launches.alerts.values()
    assert "names cannot be used here: 1" in dict(alert.alert.facts)["Error"]
    assert (world.folder / "project/results/a.txt").read_text() == "a\n"
    assert world.alive() == ["la"]
    (world.work() / "out/b\u3000b.txt").rename(world.work() / "out/b.txt")
    assert world.over().state is JobState.DONE


def test_a_log_over_the_limit_does_not_keep_the_instance(new_world: Callable[..., JobWorld]) -> None:
    world = new_world(real=False)
    world.files = JobFolder(world.folder / "data", max_log_bytes=1000)
    world.restarted()
    world.submit("yes 0123456789 | head -c 600000")
    assert world.over().state is JobState.DONE
    assert world.files.log_size("abcdefgh", 1) < 600_000


def test_a_log_that_cannot_be_stored_does_not_keep_the_instance(new_world: Callable[..., JobWorld]) -> None:
    """The folder of the job is unusable here: the lease is renewed all the same, and the end is noticed."""
    world = new_world(real=False)
    (world.folder / "data").mkdir()
    (world.folder / "data/abcdefgh").touch()
    world.submit("while [ ! -e go ]; do sleep 0.1; done; echo done")
    world.until(lambda job: job.state is JobState.RUNNING)
    first = world.run.lease_until
    lease = world.machine.home / "gpuwatch/abcdefgh/runs/1/lease"
    with lease.open("r+") as file:  # in place: the runner may be reading it
        file.write(f"{int(lease.read_text()) - 301:012d}\n")  # as if half of it had passed
    world.now += timedelta(seconds=301)
    world.until(lambda job: world.run.lease_until != first)
    (world.work() / "go").touch()
    assert world.over().state is JobState.DONE
    assert world.alive() == []


def test_a_start_that_is_repeated_leaves_the_command_that_runs_alone(new_world: Callable[..., JobWorld]) -> None:
    """A shell reads its script while it runs: if the file were emptied, the command would end with exit code 0."""
    world = new_world(real=False)
    world.submit(f"while [ ! -e go ]; do sleep 0.1; done; {WRITES}", results=RESULTS)
    job = world.until(lambda job: job.state is JobState.RUNNING)
    with (world.machine.home / "gpuwatch" / job.job_id / "runs/1/command").open() as script:
        before = world.run
        world.jobs.jobs[job.job_id] = msgspec.structs.replace(job, state=JobState.PREPARING)
        world.jobs.job_runs[job.job_id, 1] = msgspec.structs.replace(before, step="inputs", started_at=None)
        world.restarted()
        assert world.until(lambda job: job.state is JobState.RUNNING).run_number == 1
        assert "while [ ! -e go ]" in script.read()
    (world.work() / "go").touch()
    assert world.over().state is JobState.DONE


def _resumable(world: JobWorld) -> None:
    world.submit(COUNTS, results=RESULTS, checkpoint=CHECKPOINTS)
    world.until(lambda job: job.state is JobState.PREPARING or world.machines)
    hold = world.machine.home / "gpuwatch/abcdefgh/hold"
    hold.parent.mkdir(parents=True, exist_ok=True)
    hold.touch()
    world.until(lambda job: world.files.checkpoints(job.job_id))


def test_a_vanished_host_costs_no_more_than_the_interval(world: JobWorld) -> None:
    """The job continues elsewhere, from its last complete checkpoint."""
    _resumable(world)
    world.lose("la")
    job = world.over()
    assert (job.state, job.run_number, job.retries_left) == (JobState.DONE, 2, 1)
    assert (world.folder / "project/results/n.txt").read_text() == "30\n"
    first = world.files.log_tail(job.job_id, 2, 100)[0]
    assert first == "step 2/30"
    assert "job train: interrupted" in world.texts()


def test_a_notice_is_used_to_save_the_newest_checkpoint(world: JobWorld) -> None:
    """The runner forwards SIGTERM; saved data is fetched before the machine is gone."""
    world.submit(
        "mkdir -p ckpt out; trap 'echo last > ckpt/final; exit 1' TERM; cat \"${GPUWATCH_CHECKPOINT:-/dev/null}\""
        " > out/n.txt; [ -s out/n.txt ] && exit; while :; do sleep 0.1; done",
        results=RESULTS,
        checkpoint=CHECKPOINTS,
    )
    world.until(lambda job: job.state is JobState.RUNNING)
    world.round()
    world.machine.preempt(30)
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 2)
    assert (world.folder / "project/results/n.txt").read_text() == "last\n"


def test_a_lost_network_ends_nothing_within_the_lease(world: JobWorld) -> None:
    """Five minutes later the same run is found again."""
    world.submit(f"while [ ! -e go ]; do sleep 0.1; done; {WRITES}", results=RESULTS)
    world.until(lambda job: job.state is JobState.RUNNING)
    machine = world.machine
    machine.disconnect()
    for _ in range(3):
        world.now += timedelta(seconds=100)
        assert world.round().state is JobState.RUNNING
    (world.work() / "go").touch()
    machine.start()
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 1)


def test_a_job_does_not_go_on_elsewhere_before_the_old_lease_is_over(world: JobWorld) -> None:
    """The machine does not answer, and the provider does not show that it is gone."""
    world.submit("while :; do sleep 1; done", checkpoint=CHECKPOINTS)
    world.until(lambda job: job.state is JobState.RUNNING)
    world.stays.add("la")
    world.machine.disconnect()
    launch = world.launches.rows["la"]
    away = {"condition": InstanceCondition.OFFLINE, "condition_since": world.now}
    world.launches.transition(launch, LaunchState.RUNNING, "", world.now, **away)
    world.now += timedelta(seconds=130)
    assert world.round().state is JobState.PREEMPTED
    lease = world.run.lease_until
    assert lease is not None
    while world.now + timedelta(seconds=60) < lease:
        world.now += timedelta(seconds=60)
        assert world.round().state is JobState.PREEMPTED
    assert world.launches.rows["la"].state is LaunchState.STOPPING
    world.now = lease + timedelta(seconds=1)
    assert world.round().state is JobState.QUEUED


def test_the_lease_is_renewed_and_written_down_first(new_world: Callable[..., JobWorld]) -> None:
    """The row is never behind the possible state of the machine."""
    world = new_world()
    world.submit("while [ ! -e go ]; do sleep 0.1; done")
    world.until(lambda job: job.state is JobState.RUNNING)
    first = world.run.lease_until
    lease = world.machine.home / "gpuwatch/abcdefgh/runs/1/lease"
    granted = int(lease.read_text())
    with lease.open("r+") as file:  # in place: the runner may be reading it
        file.write(f"{granted - 301:012d}\n")  # as if half of it had passed
    world.now += timedelta(seconds=301)
    world.until(lambda job: world.run.lease_until != first)
    assert int(lease.read_text()) >= granted
    (world.work() / "go").touch()
    assert world.over().state is JobState.DONE


def test_no_retry_is_left(world: JobWorld) -> None:
    """Then the job has failed, and nothing is rented."""
    world.submit("while :; do sleep 1; done", retries=0)
    world.until(lambda job: job.state is JobState.RUNNING)
    world.lose("la")
    job = world.over()
    assert job.state is JobState.FAILED
    assert list(world.machines) == ["la"]


def test_a_torn_checkpoint_is_not_used_twice(world: JobWorld) -> None:
    """After a run that fails with it at once, the next run uses the checkpoint before."""
    world.submit(
        'mkdir -p ckpt out; if [ -z "${GPUWATCH_CHECKPOINT:-}" ]; then echo good > ckpt/1;'
        " while [ ! -e tear ]; do sleep 0.1; done; echo torn > ckpt/2; while :; do sleep 0.1; done; fi;"
        " grep good $GPUWATCH_CHECKPOINT > out/n.txt",
        results=RESULTS,
        checkpoint=CHECKPOINTS,
    )
    world.until(lambda job: len(world.files.checkpoints(job.job_id)) == 1)
    (world.work() / "tear").touch()
    world.until(lambda job: len(world.files.checkpoints(job.job_id)) == 2)
    world.lose("la")
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 3)
    assert (world.folder / "project/results/n.txt").read_text() == "good\n"


def test_a_pilot_that_breaks_the_budget_stops_and_asks(world: JobWorld) -> None:
    """Its checkpoint is fetched, and no instance waits for the decision."""
    world.submit(
        "mkdir -p ckpt; echo 1 > ckpt/1; echo step 1/100; while :; do sleep 0.1; done",
        checkpoint=CHECKPOINTS, pilot=PilotSpec(duration_s=600.0), limit=JobLimit(max_usd=5),
    )  # fmt: skip
    job = world.until(lambda job: job.state is JobState.PAUSED, step_s=300.0)
    assert "max_usd is $5" in (job.reason or "")
    world.until(lambda job: not world.alive())
    assert world.files.checkpoints(job.job_id)
    assert "job train: stopped after its pilot" in world.texts()


def test_a_pilot_that_shows_no_progress_is_reported_and_judged_once_it_does(world: JobWorld) -> None:
    world.submit(
        "while [ ! -e go ]; do sleep 0.1; done; echo step 1/100; while :; do sleep 0.1; done",
        pilot=PilotSpec(duration_s=600.0), limit=JobLimit(max_usd=5),
    )  # fmt: skip
    world.until(lambda job: "job train: its pilot measures nothing" in world.texts(), step_s=300.0)
    assert world.job.state is JobState.RUNNING
    (world.work() / "go").touch()
    job = world.until(lambda job: job.state is JobState.PAUSED, step_s=300.0)
    assert "max_usd is $5" in (job.reason or "")


def test_a_pilot_that_fits_goes_on(world: JobWorld) -> None:
    """The same run: nothing is repeated. Its forecast replaces the estimate."""
    world.submit(
        f"echo step 50/100; while [ ! -e go ]; do sleep 0.1; done; {WRITES}",
        results=RESULTS, pilot=PilotSpec(share=0.01), limit=JobLimit(max_usd=5),
    )  # fmt: skip
    job = world.until(lambda job: world.jobs.job_runs and world.run.step == "piloted")
    assert job.progress == pytest.approx(0.5)
    assert job.predicted_microusd is not None
    (world.work() / "go").touch()
    assert (world.over().state, world.run.run_number) == (JobState.DONE, 1)


def test_an_input_that_does_not_exist_ends_it_at_once(world: JobWorld) -> None:
    """No retry helps, and every minute costs."""
    world.submit("true", inputs=(JobFiles(source="nowhere", target="data"),))
    job = world.over()
    assert job.state is JobState.FAILED
    assert "nowhere does not exist" in (job.reason or "")
    world.until(lambda job: not world.alive())


def test_an_input_whose_name_cannot_even_be_looked_up_ends_it_at_once(new_world: Callable[..., JobWorld]) -> None:
    """Like a file that the daemon's user may not see: the instance must not wait for it."""
    world = new_world(real=False)
    world.submit("true", inputs=(JobFiles(source="x" * 300, target="in"),))
    job = world.over()
    assert job.state is JobState.FAILED
    assert "does not exist, or gpuwatch may not read it" in (job.reason or "")
    assert world.alive() == []


def test_an_error_on_this_machine_keeps_no_instance_for_longer_than_one_that_lets_nobody_in(
    new_world: Callable[..., JobWorld],
) -> None:
    world = new_world(real=False)
    world.submit("true", inputs=(JobFiles(source="rclone:box:data", target="in"),), retries=0)
    world.stores = BrokenStores()
    world.restarted()
    world.until(lambda job: job.state is JobState.PREPARING, step_s=1.0)
    world.round()
    assert world.alive() == ["la"]
    world.now += timedelta(minutes=16)
    job = world.over()
    assert (job.state, world.alive()) == (JobState.FAILED, [])
    assert "No space left" in (job.reason or "")


def test_a_machine_that_lets_nobody_in_is_given_back(world: JobWorld) -> None:
    """After a quarter of an hour the job continues elsewhere: nothing ran there."""
    world.submit("true")
    world.rent()
    first = world.machine
    (first.folder / "etc/authorized_keys").write_text("")
    world.until(lambda job: job.state is JobState.PREPARING)
    for _ in range(3):
        world.now += timedelta(minutes=4)
        assert world.round().state is JobState.PREPARING
    world.now += timedelta(minutes=4)
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 2)
    assert "interrupted" in world.texts()[0]


def test_nothing_is_sent_to_a_machine_that_shows_another_host_key(world: JobWorld) -> None:
    """Another machine at the address gets neither command nor secrets; the job waits for its lease."""
    world.submit("while :; do sleep 1; done")
    world.until(lambda job: job.state is JobState.RUNNING)
    machine = world.machine
    machine.disconnect()
    for name in ("host_key", "host_key.pub"):
        (machine.folder / "etc" / name).unlink()
    machine.start()
    world.now += timedelta(seconds=60)
    assert world.round().state is JobState.RUNNING
    assert world.run.last_seen_at is None or world.run.last_seen_at < world.now


_SAYS = 'n=0; while [ ! -e ../go ]; do n=$((n+1)); echo "step $n/1000 loss: 1.5 2,000 tokens/s"; sleep 0.1; done'


def test_what_a_run_says_of_itself_is_kept_with_its_heartbeat(world: JobWorld) -> None:
    """Speed, loss, GPU use and memory, and the forecast: for screens, charts and metrics."""
    world.submit(_SAYS)
    world.until(lambda job: job.state is JobState.PREPARING)
    tool = world.machine.folder / "bin/nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text("#!/bin/sh\necho '41, 8000, 80000'\n")
    tool.chmod(0o755)
    world.until(lambda job: len(samples_of(world.jobs.happened)) > 2, step_s=61.0)
    sample = samples_of(world.jobs.happened)[-1]
    assert (sample.tokens_per_s, sample.loss, sample.gpu_percent, sample.gpu_memory_share) == (2000.0, 1.5, 41.0, 0.1)
    assert sample.usd_per_million_tokens == pytest.approx(1.0 / 3600 / 2000 * 1e6)
    assert sample.waits_for  # the cause depends on the load of this computer
    assert sample.end is not None
    assert world.run.last_seen_at == sample.at


def test_a_run_that_says_nothing_still_has_a_heartbeat_and_no_events_for_it(world: JobWorld) -> None:
    world.submit("while [ ! -e ../go ]; do sleep 0.1; done")
    world.until(lambda job: job.state is JobState.RUNNING)
    seen = world.run.last_seen_at
    world.until(lambda job: world.run.last_seen_at != seen and world.run.last_seen_at == world.now, step_s=61.0)
    assert samples_of(world.jobs.happened) == []
