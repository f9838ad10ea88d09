"""Alerts put into a store, and taken out of it, without a daemon."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gpuwatch.ports import Alert, OutboxAlert
from gpuwatch.storage.database import Database
from gpuwatch.storage.outbox import Outbox


def news(alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None) -> OutboxAlert:
    """An alert for these channels, whatever the routing says."""
    return OutboxAlert(alert=alert, expires_at=expires_at, once_key=once_key, channels=tuple(channels))


def new_alerts(store: Database) -> list[Alert]:
    """The alerts that were stored since the last call, oldest first."""
    box, found = Outbox(store), list[Alert]()
    while new := [one.alert for one in box.unrouted()]:
        box.route({alert.alert_id: () for alert in new}, datetime(2026, 11, 21, tzinfo=UTC))
        found += new
    return found
