"""A real training, preempted three times, ends like an undisturbed one: losses and weights are equal bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from tests.checkout import ROOT
from tests.jobs.job_world import JobWorld

EXAMPLE = ROOT / "examples/train-numpy"
STEPS, EVERY = 80, 2
PREEMPTIONS = 3


@pytest.mark.slow
def test_a_training_that_was_preempted_three_times_ends_the_same(
    new_world: Callable[..., JobWorld], tmp_path: Path
) -> None:
    """Its curve and weights are those of an undisturbed run, and no step is repeated after a checkpoint."""
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    words = [sys.executable, str(EXAMPLE / "train.py"), "--steps", str(STEPS), "--every", str(EVERY)]
    env = {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(words, cwd=undisturbed, env=env, check=True, timeout=120)
    world = new_world(real=has_sshd())
    world.variables = {"OPENBLAS_NUM_THREADS": "1"}
    pause = tmp_path / "pause"
    pause.write_text("3")  # four minutes for all steps: no machine is so slow that it is done before it is preempted
    world.submit(
        f"{sys.executable} train.py --steps {STEPS} --every {EVERY} --pause $(cat {pause})",
        inputs=(JobFiles(source=str(EXAMPLE / "train.py"), target="train.py"),),
        results=(JobFiles(source="out/*", target="results"),),
        checkpoint=CheckpointSpec(path="ckpt", every_s=1.0, keep=2),
        retries=PREEMPTIONS,
    )
    begins = []
    for _ in range(PREEMPTIONS):
        known = _newest(world)
        world.until(lambda job, known=known: _newest(world) > known and job.state is JobState.RUNNING)
        begins.append(_newest(world))
        if len(begins) == PREEMPTIONS:
            pause.write_text("0")
        world.lose(list(world.machines)[-1])
        world.until(lambda job: job.state in {JobState.QUEUED, JobState.RENTING, JobState.PREPARING})
    job = world.over()
    assert (job.state, job.run_number, world.alive()) == (JobState.DONE, 4, [])
    ended = json.loads((world.folder / "project/results/loss.json").read_text())
    assert ended == json.loads((undisturbed / "out/loss.json").read_text())
    last = world.files.log_tail(job.job_id, 4, 1)[0]
    assert last.endswith(f"from step {begins[-1]}")
    assert begins == sorted(set(begins))


def _newest(world: JobWorld) -> int:
    """Return the step of the newest complete checkpoint here."""
    stored = world.files.checkpoints(world.job.job_id)
    return int(stored[-1].name.removeprefix("ckpt/step-").removesuffix(".npz")) if stored else 0
