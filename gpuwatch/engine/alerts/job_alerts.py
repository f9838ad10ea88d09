"""Alerts about a job: finished, failed, interrupted, awaiting a decision. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.watch import Purpose
from gpuwatch.engine.alerts.outbox_alerts import alert_id_from, outbox_alert
from gpuwatch.ports import Alert, AlertKind, OutboxAlert, Severity
from gpuwatch.redaction import redact

INTERRUPTED = "interrupted"
NOT_FETCHED = "its results cannot be fetched"
LEFT_OUT = "not all of its results are files"
OVER_FORECAST = "costs more than its forecast"
NOT_STORED = "its results are not at their store yet"
NOT_COPIED = "its checkpoints do not reach their store"
UNMEASURED = "its pilot measures nothing"
_LINES_MAX = 8


def job_alert(  # noqa: PLR0913 the parts of an alert
    job: Job,
    now: datetime,
    what: str,
    *,
    kind: AlertKind = AlertKind.RENT,
    severity: Severity = Severity.INFO,
    facts: Sequence[tuple[str, str]] = (),
    why: str = "",
    did: str = "",
    can_do: Sequence[str] = (),
    log: Sequence[str] = (),
) -> OutboxAlert:
    """Return an alert about a job; at most one of each kind per run.

    Args:
        what: follows the job's name in the headline.
        log: the last lines of the command's output.
    """
    key = f"job:{job.job_id}:{job.run_number}:{what}"
    launch = (("Launch", job.launch_id),) if job.launch_id else ()
    lines = [clean(redact(line)) for line in log[-_LINES_MAX:] if line.strip()]
    said = (*facts, *(("Log", line) for line in lines))
    alert = Alert(
        alert_id=alert_id_from(key),
        kind=kind,
        severity=severity,
        created_at=now,
        headline=f"job {job.name}: {what}",
        watch=job.watch_name,
        facts=(("Job", job.job_id), ("Run", str(job.run_number)), *launch, *said),
        why=why,
        did=did,
        can_do=tuple(can_do),
    )
    return outbox_alert(alert, key)


def job_id_of(alert: Alert) -> str | None:
    """Return which job an alert is about; None: it is not about a job."""
    is_job = Purpose.of(alert.watch or "").job is not None and alert.subject == alert.watch
    return next((value for label, value in alert.facts if label == "Job"), None) if is_job else None


def goes_on(alert: Alert) -> bool:
    """Whether the job continues by itself after this alert."""
    return alert.headline.endswith(
        tuple(
            f": {one}"
            for one in (INTERRUPTED, NOT_FETCHED, LEFT_OUT, OVER_FORECAST, NOT_STORED, NOT_COPIED, UNMEASURED)
        )
    )
