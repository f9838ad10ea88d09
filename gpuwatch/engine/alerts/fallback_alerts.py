"""Alerts while the database or the delivery is broken: they bypass the outbox, which is in that database.

Such a message is not durable and may be sent twice after a restart. Without it gpuwatch would fail silently.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from gpuwatch.domain.alerts.service_texts import DATABASE
from gpuwatch.ports import Alert, Channel
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=5)  # shorter errors are not reported
REPEAT_AFTER = timedelta(hours=1)


class FallbackAlerts:
    """While the database is broken, logs one message an hour and sends it to every channel."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        new_id: Callable[[], str],
        log_alert: Callable[[Alert], None] = lambda alert: None,
    ) -> None:
        self._channels = channels
        self._new_id = new_id
        self._log_alert = log_alert
        self._since: datetime | None = None
        self._alerted_at: datetime | None = None

    def check(self, fault: str | None, now: datetime) -> bool:
        """Check the database's state; return whether the owner is being alerted.

        Args:
            fault: its last error; None: the last write succeeded.
        """
        if fault is None:
            self._since = None
            return False
        self._since = self._since or now
        lately = self._alerted_at is not None and timedelta(0) <= now - self._alerted_at < REPEAT_AFTER
        if lately or timedelta(0) <= now - self._since < PATIENCE:
            return False
        self._alerted_at = now
        self.send(DATABASE.alert(self._new_id(), now, subject="database", error=redact(fault)))
        return True

    def send(self, alert: Alert) -> None:
        """Log it and send it on every channel, each on a thread of its own, without waiting for them."""
        self._log_alert(alert)
        for channel in self._channels.values():
            threading.Thread(target=_send, args=(channel, alert), name=f"direct-{channel.name}", daemon=True).start()


def _send(channel: Channel, alert: Alert) -> None:
    try:
        channel.send(alert)
    except Exception as error:  # a channel may raise anything, and there is no other way to report it
        log.error("%s did not deliver %r: %s", channel.name, alert.headline, redact(str(error)))  # noqa: TRY400
