"""The metrics of jobs: their number by state, their cost, and the progress of each one on an instance."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.app.setup.market_metrics import Values
from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.run_sample import RunSample, is_late, sample_of
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.storage.jobs.job_repository import SqlJobRepository

if TYPE_CHECKING:
    from gpuwatch.storage.setup.database import Database

_KINDS = ("changed", "checkpoint")


def job_values(store: Database, now: datetime) -> Values:
    """Metric → labels → value. For a single job only while its instance runs. Raises StoreError."""
    repository = SqlJobRepository(store)
    counts = repository.counts()
    on_instance = repository.jobs_on_instance()
    newest = repository.newest_events([job.job_id for job in on_instance], _KINDS)
    samples = {event.job_id: sample for event in newest if (sample := sample_of(event)) is not None}
    checkpoints = {event.job_id: event.at for event in newest if event.kind == "checkpoint"}
    runs = {run.job_id: run for run in repository.runs_on_an_instance()}
    values: Values = {
        "gpuwatch_jobs": {(state.value,): float(counts.get(state.value, 0)) for state in JobState},
        "gpuwatch_jobs_spent_usd": {(): repository.spent_microusd() / MICRO},
        "gpuwatch_jobs_late": {
            (): float(sum(is_late(job, samples.get(job.job_id), now) for job in repository.open_with_deadline()))
        },
    }
    for job in on_instance:
        job_values_ = _values_of_job(job, runs.get(job.job_id), samples.get(job.job_id), checkpoints.get(job.job_id))
        for name, value in job_values_.items():
            values.setdefault(name, {})[(job.name,)] = value
    return values


def _values_of_job(
    job: Job, run: JobRun | None, sample: RunSample | None, checkpoint_at: datetime | None
) -> dict[str, float]:
    """The metrics of one job."""
    values: dict[str, float | None] = {
        "gpuwatch_job_progress_ratio": job.progress,
        "gpuwatch_job_spent_usd": job.spent_microusd / MICRO,
        "gpuwatch_job_predicted_usd": None if job.predicted_microusd is None else job.predicted_microusd / MICRO,
    }
    if run is not None and run.last_seen_at is not None:
        values["gpuwatch_job_last_seen_timestamp_seconds"] = run.last_seen_at.timestamp()
    spec = job.definition.checkpoint
    if spec is not None and run is not None and run.started_at is not None:
        newest = max(run.started_at, checkpoint_at or run.started_at)
        values["gpuwatch_job_checkpoint_timestamp_seconds"] = newest.timestamp()
        values["gpuwatch_job_checkpoint_interval_seconds"] = spec.every_s
    if sample is not None and sample.run_number == job.run_number:
        values |= {
            "gpuwatch_job_tokens_per_second": sample.tokens_per_s,
            "gpuwatch_job_loss": sample.loss,
            "gpuwatch_job_gpu_utilization_ratio": None if sample.gpu_percent is None else sample.gpu_percent / 100,
            "gpuwatch_job_end_timestamp_seconds": None if sample.end is None else sample.end.timestamp(),
        }
    return {name: value for name, value in values.items() if value is not None}
