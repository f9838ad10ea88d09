"""How an alert gets into the outbox: its id, how long it is worth sending, and what counts as the same alert. Pure.

Shared by all texts of alerts, which are in the other `…_alerts` modules.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta

from gpuwatch.ports import (
    Alert,
    AlertKind,
    OutboxAlert,
    Severity,
)

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)

_LIFETIMES = {
    AlertKind.MATCH: _HOUR,  # later somebody else has rented it, or it is reported again
    AlertKind.APPROVAL: _HOUR,  # or until its deadline
    AlertKind.TEST: timedelta(minutes=10),
    AlertKind.AUDIT: _DAY,
    AlertKind.REFUSED: 6 * _HOUR,
    AlertKind.RENT: _DAY,
    AlertKind.END: _DAY,
    AlertKind.BUDGET: _DAY,
    AlertKind.BLIND: _DAY,
    AlertKind.RECOVERED: _DAY,
    AlertKind.DRIFT: 3 * _DAY,
    AlertKind.CHANNEL: 3 * _DAY,
    AlertKind.DAEMON: 3 * _DAY,
    AlertKind.HELD: 7 * _DAY,
    AlertKind.ORPHAN: 7 * _DAY,
}

_CRITICAL = 7 * _DAY  # money may be at stake: it waits for the owner


def outbox_alert(alert: Alert, once_key: str | None = None, until: datetime | None = None) -> OutboxAlert:
    """Return the alert with its lifetime, which lasts at least to `until`."""
    expires_at = max(alert.created_at + alert_lifetime(alert.kind, alert.severity), until or alert.created_at)
    return OutboxAlert(alert=alert, expires_at=expires_at, once_key=once_key)


def alert_lifetime(kind: AlertKind, severity: Severity = Severity.INFO) -> timedelta:
    """Return how long such an alert is worth sending; then it expires, and the next message mentions it."""
    return max(_LIFETIMES[kind], _CRITICAL) if severity is Severity.CRITICAL else _LIFETIMES[kind]


def alert_id_from(key: str) -> str:
    """Return the alert id of a cause, always the same for the same cause: 12 characters."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def without_numbers(did: str) -> str:
    """Return a text without its numbers, for comparison: a balance that falls by a cent is not news."""
    return re.sub(r"[0-9]+", "", did)
