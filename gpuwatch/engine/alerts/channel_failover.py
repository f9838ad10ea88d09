"""Sends alerts to the other channels if a channel has not accepted them for 15 minutes."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.engine.alerts.channel_failures import ChannelReports
from gpuwatch.ports import MONEY_KINDS, AlertKind, UndeliveredAlerts, WaitingAlert

log = logging.getLogger(__name__)

FAILOVER_AFTER = timedelta(minutes=15)
_EVERY = timedelta(seconds=15)
_NO_FAILOVER = frozenset({AlertKind.CHANNEL, AlertKind.TEST})  # the other channels already have those, or need none


class ChannelFailover:
    """Adds deliveries for other channels. The channel itself is still tried, and later sends what is not too old."""

    def __init__(self, outbox: UndeliveredAlerts, routing: AlertRouting, reports: ChannelReports) -> None:
        self._outbox = outbox
        self._routing = routing
        self._reports = reports
        self._ran_at: datetime | None = None

    def run_if_due(self, now: datetime) -> int:
        """Add deliveries for alerts that have waited too long; return how many. Raises StoreError."""
        if self._ran_at is not None and timedelta(0) <= now - self._ran_at < _EVERY:
            return 0
        self._ran_at = now
        before = now - FAILOVER_AFTER
        stalled = self._outbox.stalled_channels(before)
        self._outbox.retry_refused(now)
        added = 0
        for alert in self._outbox.overdue_alerts(tuple(channel.name for channel in stalled), before):
            if others := self._stand_ins(alert):
                added += self._outbox.add_deliveries(alert.alert_id, others)
        for channel in stalled:
            if channel.name in self._routing.channels:
                self._reports.silent(channel.name, channel.since, channel.error or "no answer", now)
        if added:
            log.info("%d deliveries were handed to other channels: theirs accepted nothing for 15 minutes", added)
        return added

    def _stand_ins(self, one: WaitingAlert) -> tuple[str, ...]:
        if one.kind in _NO_FAILOVER:
            return ()
        return tuple(
            name
            for name in self._routing.channels
            if name not in one.channels and (one.kind in MONEY_KINDS or self._routing.takes(name, one.severity))
        )
