"""A provider that gives no list of instances while something is rented there: told once, and when the list is back.

The hunt has eyes of its own (`sight`); a key that may search and not list leaves those open, and what runs unseen.
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


class InstanceListMonitor:
    """How long one provider's instances have not been seen.

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
        self._told = False

    def failed(self, error: ProviderError, alive: int, now: datetime) -> None:
        """No usable list, while so many launches are alive there."""
        if self._since_s is None:
            self._since_s = self._monotonic()
        elif alive and not self._told and self._monotonic() - self._since_s > ALERT_AFTER_S:
            self._told = self._tell(self._launch_alerts.instance_list_missing(self._provider, alive, str(error), now))

    def saw(self, now: datetime) -> None:
        """A whole list came."""
        self._since_s = None
        if self._told:
            self._told = not self._tell(self._launch_alerts.instance_list_back(self._provider, now))

    def _tell(self, news: OutboxAlert) -> bool:
        try:
            self._repository.tell(news)
        except StoreError as error:
            log.warning("not told yet: %s: %s", news.alert.headline, error)
            return False
        return True
