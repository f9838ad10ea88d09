"""Puts alerts into a store, and takes them out, without a daemon."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gpuwatch.ports import Alert, OutboxAlert
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database


def outbox_alert(
    alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None
) -> OutboxAlert:
    """Store an alert for these channels, regardless of the routing."""
    return OutboxAlert(alert=alert, expires_at=expires_at, once_key=once_key, channels=tuple(channels))


def new_alerts(store: Database) -> list[Alert]:
    """Return the alerts stored since the last call, oldest first."""
    box, found = Outbox(store), list[Alert]()
    while new := [one.alert for one in box.unrouted()]:
        box.route({alert.alert_id: () for alert in new}, datetime(2026, 11, 21, tzinfo=UTC))
        found += new
    return found
