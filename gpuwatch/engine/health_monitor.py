"""Is a provider answering? Three intervals without a complete answer are reported once, and its return once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.alerts import outbox_alert
from gpuwatch.engine.health_alerts import blind_alert, quota_alert, recovery_alert
from gpuwatch.errors import ProviderError, QuotaSpent
from gpuwatch.ports import Alert, ProviderHealth, UnitOfWorkFactory

BLIND_AFTER_INTERVALS = 3


class HealthMonitor:
    """The health of one provider. Called from its hunt, its sweep and its periodic health check."""

    def __init__(
        self,
        provider: str,
        uow_factory: UnitOfWorkFactory,
        new_id: Callable[[], str],
        started_at: datetime,
    ) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._lock = threading.Lock()
        self._health = uow_factory.provider_health().get(provider, ProviderHealth())
        self._since = started_at  # a daemon that was off for a week is not blind for a week

    @property
    def health(self) -> ProviderHealth:
        """The current state."""
        return self._health

    def answered(self, now: datetime) -> None:
        """A complete answer came."""
        with self._lock:
            before, self._health = self._health, ProviderHealth(complete_at=now)
            if before.blind_since is not None:
                alert = recovery_alert(self._provider, before.blind_since, now, alert_id=self._new_id())
                self._write(alert)

    def failed(self, error: ProviderError, now: datetime) -> None:
        """A query was not answered. A spent quota blinds it for certain: reported at once."""
        with self._lock:
            self._health = msgspec.structs.replace(self._health, last_error=str(error))
            if isinstance(error, QuotaSpent) and self._health.blind_since is None:
                self._health = msgspec.structs.replace(self._health, blind_since=now)
                alert = quota_alert(self._provider, error.resets_at, alert_id=self._new_id(), now=now)
                self._write(alert)

    def check(self, interval_s: float, now: datetime) -> None:
        """Has it been silent for too long?"""
        with self._lock:
            if self._health.blind_since is not None:
                return
            newest = max(filter(None, (self._health.complete_at, self._since)), default=now)
            if now - newest <= timedelta(seconds=interval_s * BLIND_AFTER_INTERVALS):
                return
            self._health = msgspec.structs.replace(self._health, blind_since=newest)
            last_error = self._health.last_error or "no complete answer"
            alert = blind_alert(self._provider, newest, last_error, alert_id=self._new_id(), now=now)
            self._write(alert)

    def _write(self, alert: Alert) -> None:
        with self._uow_factory.open() as uow:
            uow.enqueue(outbox_alert(alert))
            uow.save_health(self._provider, self._health)
