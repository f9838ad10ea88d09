"""Watches that were renamed or removed since the last start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import new_id
from gpuwatch.engine.alerts.watch_alerts import abandoned_alerts
from gpuwatch.storage.watches.watch_identities import SqlWatchIdentities

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


def apply_watch_changes(settings: Settings, store: Database, now: datetime) -> None:
    """Take over renames, and report launches whose watch is gone. Raises StoreError."""
    identities = SqlWatchIdentities(store)
    applied = identities.apply(settings.watches, now)
    for old, new in applied.changes.renamed.items():
        log.info("watch %s is now %s: its launches, limits and history continue", old, new)
    alerts = list(abandoned_alerts(applied.abandoned, applied.changes.blocked, new_id, now))
    for alert in alerts:
        log.warning("%s; %s", alert.alert.headline, "; ".join(alert.alert.can_do))
    identities.report(alerts)
