"""A store with a running job, as the daemon leaves it after two checkpoints and some samples."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.app.jobs.jobs import submit_jobs
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.job import (
    MOVE_EVENT,
    RELOCATED,
    Job,
    JobEvent,
    JobMove,
    JobRun,
    JobState,
    JobTransition,
)
from gpuwatch.domain.jobs.run_sample import RunSample, sample_detail
from gpuwatch.settings import Settings
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import open_database

JOB = (
    'command = "python train.py"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\nhours = 4\ndeadline = "2d"\n'
    'results = [{ source = "out/*", target = "results" }]\ncheckpoint = { path = "ckpt", every = "20m" }\n'
)
RUNNING = (JobState.RENTING, JobState.PREPARING, JobState.RUNNING)


def a_running_job(
    settings: Settings, folder: Path, *, name: str = "train", log: str = "loss: 0.5\n", samples: int = 5, more: str = ""
) -> Job:
    """Queue it and run it to a quarter of its work; one sample per minute until now."""
    file = folder / f"{name}.toml"
    file.write_text(JOB + more)
    (job,) = submit_jobs(settings, [file]).jobs
    began = real_now().replace(microsecond=0) - timedelta(minutes=30)
    job = moved(settings, job, RUNNING, began, run_number=1, launch_id="k" * 12)
    run = JobRun(
        job_id=job.job_id,
        run_number=1,
        launch_id="k" * 12,
        step="started",
        started_at=began,
        last_seen_at=began + timedelta(minutes=30),
    )
    with_run(settings, run, JobEvent(job_id=job.job_id, run_number=1, at=began, kind="checkpoint"))
    path = folder / "jobs-data" / job.job_id / "runs" / "1" / "log"
    path.parent.mkdir(parents=True)
    path.write_text(log)
    for minute in range(1, samples + 1):
        job = sampled(settings, job, a_sample(began + timedelta(minutes=minute), minute / 20, 2.5 - minute / 4))
    return job


def a_sample(at: datetime, progress: float, loss: float = 1.0, **changes: Any) -> RunSample:
    """Return a sample with all fields."""
    plain = RunSample(
        at=at,
        run_number=1,
        progress=progress,
        tokens_per_s=12_000.0,
        loss=loss,
        gpu_percent=55.0,
        gpu_memory_share=0.3,
        usd_hour=2.16,
        ends_at=(at + timedelta(hours=1), at + timedelta(hours=1, minutes=20)),
        usd=(3.0, 3.6),
        waits_for="small batch: less than half of the GPU memory is used; try a larger batch",
    )
    return msgspec.structs.replace(plain, **changes)


def sampled(settings: Settings, job: Job, sample: RunSample) -> Job:
    """Store one more sample."""
    with_sample = JobTransition(
        to_state=JobState.RUNNING,
        at=sample.at,
        reason="running",
        changes={"progress": sample.progress, "predicted_microusd": 3_300_000, "spent_microusd": 1_080_000},
        detail=sample_detail(sample),
    )
    return _record(settings, job, [with_sample])


def moved(settings: Settings, job: Job, states: Sequence[JobState], at: datetime, **changes: Any) -> Job:
    """Take it through these states."""
    steps = [JobTransition(to_state=state, at=at) for state in states]
    steps[-1] = msgspec.structs.replace(steps[-1], changes=changes)
    return _record(settings, job, steps)


def relocated(settings: Settings, job: Job, saving_usd: float, *, run_number: int = 1, times: int = 1) -> None:
    """Let this run have moved to a cheaper machine; `times`: how often it was decided, as after a crash."""
    move = JobMove(
        at=real_now(), run_number=run_number, provider="vastai", usd_hour=4.0, to_provider="runpod", to_usd_hour=2.0,
        stay_usd=2 * saving_usd, move_usd=saving_usd, saving_usd=saving_usd, rests_on="",
    )  # fmt: skip
    detail = msgspec.to_builtins(move)
    for _ in range(times):
        event = JobEvent(job_id=job.job_id, run_number=run_number, at=move.at, kind=MOVE_EVENT, detail=detail)
        with_run(settings, JobRun(job_id=job.job_id, run_number=run_number, launch_id="k" * 12, step=RELOCATED), event)


def with_run(settings: Settings, run: JobRun, event: JobEvent | None = None) -> None:
    """Store a run."""
    store = open_database(settings.database_url)
    SqlJobRepository(store).save_run(run, event)
    store.close()


def _record(settings: Settings, job: Job, steps: Sequence[JobTransition]) -> Job:
    store = open_database(settings.database_url)
    repository = SqlJobRepository(store)
    for step in steps:
        job = repository.record(job, step)
    store.close()
    return job
