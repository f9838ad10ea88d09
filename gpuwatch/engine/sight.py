"""Blindness: no complete answer of a provider for three intervals is told once, and once more when it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.alerts import blind_alert, life_of, quota_alert, seeing_alert
from gpuwatch.errors import ProviderError, QuotaSpent
from gpuwatch.ports import Alert, AlertKind, Desk, Sight

BLIND_AFTER_INTERVALS = 3


class Watchman:
    """Looks after the sight of one provider. Called from its hunt, its sweep and the clock's beat."""

    def __init__(
        self, provider: str, desk: Desk, channels: tuple[str, ...], new_id: Callable[[], str], started_at: datetime
    ) -> None:
        self._provider = provider
        self._desk = desk
        self._channels = channels
        self._new_id = new_id
        self._lock = threading.Lock()
        self._sight = desk.sights().get(provider, Sight())
        self._since = started_at  # a daemon that was off for a week is not blind for a week

    @property
    def sight(self) -> Sight:
        """As it is now."""
        return self._sight

    def saw(self, now: datetime) -> None:
        """A complete answer came."""
        with self._lock:
            before, self._sight = self._sight, Sight(complete_at=now)
            if before.blind_since is not None:
                alert = seeing_alert(self._provider, before.blind_since, now, alert_id=self._new_id())
                self._write(alert, AlertKind.SEEING, now)

    def failed(self, error: ProviderError, now: datetime) -> None:
        """A question was not answered. A spent quota is certain blindness: told at once."""
        with self._lock:
            self._sight = msgspec.structs.replace(self._sight, last_error=str(error))
            if isinstance(error, QuotaSpent) and self._sight.blind_since is None:
                self._sight = msgspec.structs.replace(self._sight, blind_since=now)
                alert = quota_alert(self._provider, error.resets_at, alert_id=self._new_id(), now=now)
                self._write(alert, AlertKind.BLIND, now)

    def beat(self, interval_s: float, now: datetime) -> None:
        """Has it been silent for too long?"""
        with self._lock:
            if self._sight.blind_since is not None:
                return
            newest = max(filter(None, (self._sight.complete_at, self._since)), default=now)
            if now - newest <= timedelta(seconds=interval_s * BLIND_AFTER_INTERVALS):
                return
            self._sight = msgspec.structs.replace(self._sight, blind_since=newest)
            last_error = self._sight.last_error or "no complete answer"
            alert = blind_alert(self._provider, newest, last_error, alert_id=self._new_id(), now=now)
            self._write(alert, AlertKind.BLIND, now)

    def _write(self, alert: Alert, kind: AlertKind, now: datetime) -> None:
        with self._desk.open() as page:
            page.tell(alert, self._channels, now + life_of(kind))
            page.keep_sight(self._provider, self._sight)
