"""Logs every alert completely: in the journal, on a terminal, or as JSON, whatever channels there are."""

from __future__ import annotations

import logging

from gpuwatch.notifiers.toolkit import lines, plain
from gpuwatch.ports import Alert, AlertKind, Severity

log = logging.getLogger("gpuwatch.alerts")

_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}


def log_alert(alert: Alert) -> None:
    """Log its headline as the message, with all details below it."""
    details = [text for line in lines(alert)[1:] if (text := plain(line))]
    fields = {"alert_id": alert.alert_id, "kind": alert.kind.value, "subject": alert.subject, "details": details}
    level = _LEVELS[alert.severity]
    if alert.kind is AlertKind.BLIND:  # blindness is urgent in every log, whatever its severity
        level = max(level, logging.ERROR)
    log.log(level, "%s", alert.headline, extra=fields)
