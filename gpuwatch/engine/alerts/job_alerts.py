"""Alerts about a job, as they are stored, and what they say about the job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuwatch.domain.alerts.alert import Alert, AlertSpec, OutboxAlert
from gpuwatch.domain.alerts.job_texts import GOES_ON
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.watch import Purpose
from gpuwatch.redaction import redact

_LINES_MAX = 8


def job_alert(job: Job, spec: AlertSpec, now: datetime, *, log: Sequence[str] = (), **fields: Any) -> OutboxAlert:
    """Return an alert about a job; at most one of each spec per run.

    Args:
        log: the last lines of the command's output.
        fields: those of the texts, and what `AlertSpec.alert` takes.
    """
    launch = (("Launch", job.launch_id),) if job.launch_id else ()
    lines = [("Log", clean(redact(line))) for line in log[-_LINES_MAX:] if line.strip()]
    return spec.outbox(
        None,
        now,
        watch=job.watch_name,
        facts=(("Job", job.job_id), ("Run", str(job.run_number)), *launch),
        **{"more_facts": lines, **fields},
        job=job.name,
        job_id=job.job_id,
        run=job.run_number,
    )


def job_id_of(alert: Alert) -> str | None:
    """Return which job an alert is about; None: it is not about a job."""
    is_job = Purpose.of(alert.watch or "").job is not None and alert.subject == alert.watch
    return next((value for label, value in alert.facts if label == "Job"), None) if is_job else None


def goes_on(alert: Alert) -> bool:
    """Whether the job continues by itself after this alert."""
    return alert.headline.endswith(tuple(spec.headline.removeprefix("job {job}") for spec in GOES_ON))
