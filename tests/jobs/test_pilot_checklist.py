"""Required items that a job's pilot measures: ticked with evidence, or the run stops and asks."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from gpuwatch.app.plan.speed_table import parse_throughput
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import PilotSpec
from gpuwatch.domain.jobs.pilot_checks import pilot_ticks
from gpuwatch.domain.jobs.run_sample import samples_of
from gpuwatch.domain.plan.own_rows import OwnRow
from gpuwatch.domain.plan.roofline import WorkMethod
from gpuwatch.measuring.own_speeds import FILE, add_own_rows
from tests.jobs.job_world import CHECKPOINTS, WATCH, JobWorld

_FALLS = (
    "l=900; n=0; while :; do n=$((n+1)); l=$((l-1)); echo step $n/100000 loss: $l.0 2,000 tokens/s; sleep 0.1; done"
)
_SAVES = f"mkdir -p ckpt; echo 1 > ckpt/1; {_FALLS}"
_ITEMS = ("dry_epoch", "loss_falls", "util_70", "memory_fits", "tokens_per_s", "amp")


def _with_gpu(world: JobWorld, percent: int) -> None:
    """Its machine has a GPU with this utilisation."""
    world.until(lambda job: job.state is JobState.PREPARING)
    tool = world.machine.folder / "bin/nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(f"#!/bin/sh\necho '{percent}, 60000, 80000'\n")
    tool.chmod(0o755)


def _submitted(world: JobWorld, command: str, *items: str) -> None:
    resources = msgspec.structs.replace(WATCH, require=items)
    world.submit(command, resources=resources, pilot=PilotSpec(duration_s=600.0), checkpoint=CHECKPOINTS)


def test_a_pilot_ticks_what_it_measured_with_its_evidence(world: JobWorld) -> None:
    _submitted(world, _SAVES, *_ITEMS)
    _with_gpu(world, 84)
    job = world.until(lambda job: job.state is JobState.RUNNING and world.run.step == "piloted", step_s=61.0)
    said = {tick.item: tick.words or "" for tick in pilot_ticks(world.jobs.events(job.job_id))}
    assert sorted(said) == sorted(set(_ITEMS) - {"amp"}), "what only the owner knows is not the pilot's"
    assert "GPU utilisation 84 %" in said["util_70"]
    assert "2,000 tokens/s" in said["tokens_per_s"]
    assert "checkpoint ckpt/1 was fetched" in said["dry_epoch"]
    assert "75%" in said["memory_fits"]


def test_an_item_that_fails_stops_and_asks_and_its_owner_may_tick_it(world: JobWorld) -> None:
    """A faster GPU does not help a job that waits for the disk: it does not move."""
    _submitted(world, _SAVES, "util_70", "loss_falls")
    _with_gpu(world, 41)
    job = world.until(lambda job: job.state is JobState.PAUSED, step_s=61.0)
    assert "checklist: util_70: GPU utilisation 41 %" in (job.reason or "")
    assert "loss_falls" not in (job.reason or "")
    assert pilot_ticks(world.jobs.events(job.job_id)) == []
    (news,) = [
        alert.alert for alert in world.launches.alerts.values() if "stopped after its pilot" in alert.alert.headline
    ]
    assert "gpuwatch watches checklist tick job:train ITEM" in " ".join(news.can_do)
    world.until(lambda job: not world.alive())
    world.ticked = {"util_70"}
    world.jobs.jobs[job.job_id] = msgspec.structs.replace(world.job, state=JobState.QUEUED)
    world.restarted()
    _with_gpu(world, 41)
    world.until(lambda job: job.state is JobState.RUNNING and world.run.step == "piloted", step_s=61.0)
    assert [tick.item for tick in pilot_ticks(world.jobs.events(job.job_id))] == ["loss_falls"]


def test_what_cannot_be_measured_is_waited_for_and_then_asked(world: JobWorld) -> None:
    """A silent command on a machine whose GPU is unreadable does not count as good."""
    _submitted(world, "while :; do sleep 0.1; done", "util_70")
    job = world.until(lambda job: job.state is JobState.RUNNING)
    began = world.now
    job = world.until(lambda job: job.state is JobState.PAUSED, step_s=61.0)
    assert "util_70: GPU utilisation was not measured" in (job.reason or "")
    assert (world.now - began).total_seconds() >= 1200, "twice its pilot"
    assert samples_of(world.jobs.events(job.job_id)) == []


class _KilledError(BaseException):
    """The process ends here."""


def test_its_measured_speed_becomes_one_row_of_the_planner_even_after_a_kill(world: JobWorld) -> None:
    """Killed after the row was written, before the pilot's event: the next process finishes the pilot, not the row."""
    path, kills = world.folder / "state" / FILE, [True]

    def keep(row: OwnRow) -> None:
        add_own_rows(path, [row])
        if kills:
            kills.clear()
            raise _KilledError

    world.gpu = "H100 SXM"
    world.wrap = lambda parts: msgspec.structs.replace(parts, add_own_row=keep)
    world.restarted()
    plan = {"model": "8B", "method": "qlora", "batch": 4, "context": 2048, "epochs": 3, "recompute": False}
    world.submit(_FALLS, pilot=PilotSpec(duration_s=600.0), plan=plan)
    with pytest.raises(_KilledError):
        world.until(lambda job: world.jobs.job_runs and world.run.step == "piloted", step_s=61.0)
    assert world.run.step == "started"
    world.restarted()
    world.until(lambda job: world.run.step == "piloted", step_s=61.0)
    (row,) = parse_throughput(tomllib.loads(path.read_text())).rows
    assert (row.task.method, row.gpu, row.task.batch, row.tokens_per_s) == (WorkMethod.QLORA, "H100 SXM", 4, (2e3, 2e3))
    assert row.publication.startswith("own measurement by the pilot of job train, ")
    assert row.is_own
    assert ("recompute", False) in row.memory_keys, "else a plan would take it for a run with checkpointing"
    assert msgspec.json.decode(msgspec.json.encode(world.job.definition), type=JobDefinition).plan == plan


def test_a_job_that_does_not_say_what_it_trains_adds_no_row(world: JobWorld) -> None:
    rows: list[OwnRow] = []
    world.gpu = "H100 SXM"
    world.wrap = lambda parts: msgspec.structs.replace(parts, add_own_row=rows.append)
    world.restarted()
    world.submit(_FALLS, pilot=PilotSpec(duration_s=600.0), plan={"model": "not/a/model.json"})
    world.until(lambda job: world.jobs.job_runs and world.run.step == "piloted", step_s=61.0)
    assert rows == []
