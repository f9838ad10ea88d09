"""A job whose spot machine is taken back: its command saves, the checkpoint is fetched, and it continues elsewhere."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_values import CheckpointSpec
from gpuwatch.domain.launches.interruption import InterruptionNotice
from gpuwatch.domain.launches.launch import Launch
from tests.jobs.job_world import JobWorld
from tests.remote.imds import Imds

COMMAND = """
if [ -e ckpt/saved ]; then exit 0; fi
trap 'mkdir -p ckpt; echo 17 > ckpt/saved; exit 1' TERM
echo ready
while :; do sleep 0.1; done
"""


def test_its_command_saves_and_it_continues_on_another_machine(world: JobWorld) -> None:
    reported: list[tuple[Launch, InterruptionNotice]] = []
    world.wrap = lambda parts: msgspec.structs.replace(
        parts, has_imds=("vastai",), noticed=lambda launch, notice: reported.append((launch, notice))
    )
    world.restarted()
    world.submit(COMMAND, checkpoint=CheckpointSpec(path="ckpt", every_s=86_400.0))
    with Imds() as imds:
        world.rent()
        (first,) = world.machines
        settings = world.machines[first].folder / "etc/environment"
        lines = f"export GPUWATCH_RUNNER_IMDS={imds.url} GPUWATCH_RUNNER_IMDS_EVERY_S=0.2\n"
        settings.write_text(settings.read_text() + lines)
        world.until(lambda job: "ready" in world.files.log_tail(job.job_id, 1, 5), rounds=100)
        imds.announce("terminate", "2026-03-02T08:10:00Z")
        world.until(lambda job: job.run_number == 2, rounds=200)
    assert world.over().state is JobState.DONE
    assert {(launch.launch_id, notice.kind.value) for launch, notice in reported} == {(first, "terminate")}
    ended = world.launches.rows[first]
    assert ended.end_reason == "taken back by its provider: the provider takes the machine back"
    (kept,) = world.files.checkpoints(world.job.job_id)
    assert kept.run_number == 1
    (alert,) = [one.alert for one in world.launches.alerts.values() if "interrupted" in one.alert.headline]
    assert "from its checkpoint ckpt" in alert.did
