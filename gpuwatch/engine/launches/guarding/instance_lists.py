"""Reports once that a provider's instance list or account is unavailable, and once that it is back.

This matters while something is rented there, and while it blocks renting: instances of an unknown account are unknown.

The hunt has its own check (`health_monitor`): it stays healthy with a key that can search but not list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import AlertQueue, OutboxAlert

log = logging.getLogger(__name__)

ALERT_AFTER_S = 600.0
BLOCKED_AFTER_S = 120.0  # no list since the start, so nothing is rented; assumed: a provider restarts in less time


class InstanceListMonitor:
    """Tracks how long one provider's instance list has been unavailable.

    Args:
        monotonic: seconds.
    """

    def __init__(
        self, alert_queue: AlertQueue, launch_alerts: LaunchAlerts, provider: str, monotonic: Callable[[], float]
    ) -> None:
        self._alert_queue = alert_queue
        self._launch_alerts = launch_alerts
        self._provider = provider
        self._monotonic = monotonic
        self._since_s: float | None = None
        self._reported = False
        self._tried_key: str | None = None  # of the last alert that was stored, or had been stored before

    def failed(self, error: ProviderError, alive: int, now: datetime, *, is_blocked: bool = False) -> None:
        """Note that there was no usable list; `alive` is the number of active launches there.

        Args:
            is_blocked: there was none since the start, and something would be rented there.
        """
        if self._since_s is None:
            self._since_s = self._monotonic()
        if self._reported:
            return
        missing_s, alerts = self._monotonic() - self._since_s, self._launch_alerts
        if alive and missing_s > ALERT_AFTER_S:
            self._report(alerts.instance_list_missing(self._provider, alive, str(error), now))
        elif not alive and is_blocked and missing_s > BLOCKED_AFTER_S:
            self._report(alerts.nothing_rented(self._provider, str(error), now))

    def list_succeeded(self, now: datetime) -> None:
        """Note a complete list."""
        self._since_s = None
        if self._reported:
            self._reported = self._enqueue(self._launch_alerts.instance_list_back(self._provider, now)) is None

    def _report(self, outbox_alert: OutboxAlert) -> None:
        """Report it once; a silence that begins in a period that has its alert is reported in the next period."""
        if outbox_alert.once_key == self._tried_key:
            return
        stored = self._enqueue(outbox_alert)
        self._reported = bool(stored)
        if stored is not None:
            self._tried_key = outbox_alert.once_key

    def _enqueue(self, outbox_alert: OutboxAlert) -> bool | None:
        """Return whether it was stored; False: its period has one already; None: the store failed."""
        try:
            return self._alert_queue.enqueue(outbox_alert)
        except StoreError as error:
            log.warning("cannot report yet: %s: %s", outbox_alert.alert.headline, error)
            return None
