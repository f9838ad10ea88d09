"""Channels that answer from a script, and a deliverer over a real outbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.ports import Alert, AlertKind, Channel, Severity
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.outbox import outbox_alert

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Scripted:
    """A channel that answers from a script; after its end it accepts everything."""

    def __init__(self, name: str, *script: Exception | None) -> None:
        self.name = name
        self.script = list(script)
        self.tries: list[str] = []
        self.kinds: list[AlertKind] = []  # of each try
        self.sent: list[Alert] = []

    def send(self, alert: Alert) -> None:
        self.tries.append(alert.alert_id)
        self.kinds.append(alert.kind)
        answer = self.script.pop(0) if self.script else None
        if answer is not None:
            raise answer
        self.sent.append(alert)


class Hanging(Scripted):
    """Hangs until it is released."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.let_go = threading.Event()

    def send(self, alert: Alert) -> None:
        self.let_go.wait(60)
        super().send(alert)


class Several(Scripted):
    """Several recipients."""

    def __init__(self, name: str, *script: Exception | None) -> None:
        super().__init__(name, *script)
        self.taken: list[tuple[str, ...]] = []

    def send_remaining(self, alert: Alert, taken: Sequence[str]) -> None:
        self.taken.append(tuple(taken))
        self.send(alert)


class DeliveryBench:
    """A deliverer over a real outbox, with a clock that does not advance within a task."""

    def __init__(
        self,
        database: Database,
        *channels: Channel,
        patience_s: float = 10,
        min_severity: Mapping[str, Severity] | None = None,
    ) -> None:
        self.outbox = Outbox(database)
        self.tick_s = 0.0
        self.names = tuple(channel.name for channel in channels)
        self.deliverer = AlertDelivery(
            self.outbox,
            {channel.name: channel for channel in channels},
            routing=AlertRouting(channels=self.names, min_severity=min_severity or {}),
            monotonic=lambda: self.tick_s,
            jitter=lambda: 0.0,
            patience_s=patience_s,
        )

    def enqueue(
        self,
        alert_id: str = "a1",
        kind: AlertKind = AlertKind.HELD,
        after_s: float = 0,
        channels: Sequence[str] | None = None,
        life: timedelta = HOUR,
    ) -> None:
        at = NOON + timedelta(seconds=after_s)
        alert = Alert(alert_id=alert_id, kind=kind, created_at=at, headline=f"headline of {alert_id}")
        self.outbox.enqueue(outbox_alert(alert, self.names if channels is None else channels, at + life))

    def send_due(self, after_s: float = 1) -> int:
        self.tick_s = after_s
        return self.deliverer.send_due(NOON + timedelta(seconds=after_s))

    def send_until(self, done: Callable[[], bool], after_s: float = 1) -> None:
        """Send due alerts repeatedly: a thread may take longer than the deliverer waits for it."""
        ends_at = time.monotonic() + 50
        while not done():
            assert time.monotonic() < ends_at, "it did not happen in time"
            self.send_due(after_s)
