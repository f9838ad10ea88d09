"""A provider that does not list its instances, or not say whose key it is: reported once, and its return once.

It matters while something is rented there, and while nothing may be: what an unknown account holds is unknown, too.

The hunt has a check of its own (`health_monitor`): a key that may search but not list leaves that one healthy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import LaunchRepository, OutboxAlert

log = logging.getLogger(__name__)

ALERT_AFTER_S = 600.0
BLOCKED_AFTER_S = 120.0  # since the start no list came, so nothing is rented; assumed: a restart there takes less


class InstanceListMonitor:
    """How long one provider's instance list has been unavailable.

    Args:
        monotonic: seconds.
    """

    def __init__(
        self, repository: LaunchRepository, launch_alerts: LaunchAlerts, provider: str, monotonic: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._launch_alerts = launch_alerts
        self._provider = provider
        self._monotonic = monotonic
        self._since_s: float | None = None
        self._reported = False

    def failed(self, error: ProviderError, alive: int, now: datetime, *, is_blocked: bool = False) -> None:
        """No usable list, while so many launches are alive there.

        Args:
            is_blocked: none came since the start, and something would be rented there.
        """
        if self._since_s is None:
            self._since_s = self._monotonic()
        if self._reported:
            return
        missing_s, alerts = self._monotonic() - self._since_s, self._launch_alerts
        if alive and missing_s > ALERT_AFTER_S:
            self._reported = self._enqueue(alerts.instance_list_missing(self._provider, alive, str(error), now))
        elif not alive and is_blocked and missing_s > BLOCKED_AFTER_S:
            self._reported = self._enqueue(alerts.nothing_rented(self._provider, str(error), now))

    def saw(self, now: datetime) -> None:
        """A complete list came."""
        self._since_s = None
        if self._reported:
            self._reported = not self._enqueue(self._launch_alerts.instance_list_back(self._provider, now))

    def _enqueue(self, news: OutboxAlert) -> bool:
        try:
            self._repository.enqueue(news)
        except StoreError as error:
            log.warning("cannot report yet: %s: %s", news.alert.headline, error)
            return False
        return True
