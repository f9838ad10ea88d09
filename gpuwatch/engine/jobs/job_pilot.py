"""Judges the items that a job requires from the measurements of its pilot."""

from __future__ import annotations

from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.jobs.job_watch import pilot_items
from gpuwatch.domain.jobs.pilot_checks import PilotFinding, PilotObservation, pilot_findings, pilot_ticks
from gpuwatch.domain.jobs.run_progress import losses
from gpuwatch.domain.jobs.run_sample import RunSample, samples_of
from gpuwatch.domain.jobs.run_status import RunnerStatus
from gpuwatch.engine.jobs.job_parts import JobParts

OVER_LIMIT = "pilot: "  # prefix of the runner's reason if a forecast exceeds a limit
UNFIT = "checklist: "
_PILOT_LINES = 200


def untested_items(parts: JobParts, job: Job) -> list[str]:
    """Return the items that the pilot must test: ticked by no owner, tested by no earlier pilot. Raises StoreError."""
    items = pilot_items(job.definition)
    if not items:
        return []
    known = {tick.item for tick in pilot_ticks(parts.jobs.events(job.job_id))} | set(parts.ticked(job))
    return [item for item in items if item not in known]


def measured(
    parts: JobParts, job: Job, run: JobRun, items: list[str], now: RunSample, status: RunnerStatus
) -> list[PilotFinding]:
    """Return the current findings about them. Raises StoreError."""
    written = [one for one in samples_of(parts.jobs.events(job.job_id)) if one.run_number == run.run_number]
    log = "\n".join(parts.files.log_tail(job.job_id, run.run_number, _PILOT_LINES))
    seen = PilotObservation(
        samples=[*(one for one in written if one.at < now.at), now],
        losses=losses(log, status.metrics),
        checkpoint=run.checkpoint,
        needs_checkpoint=job.definition.checkpoint is not None,
    )
    return pilot_findings(items, seen)
