"""The database cannot be written: the owner is told all the same, past the outbox, which is in that database.

Such a message is not durable and may come twice, after a restart; without it gpuwatch would go blind in silence.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from gpuwatch.ports import Alert, AlertKind, Channel
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=5)  # what mends itself so quickly is not told
REPEAT_AFTER = timedelta(hours=1)


class FallbackAlerts:
    """Sends one message an hour to every channel while the database is out of order."""

    def __init__(self, channels: Mapping[str, Channel], new_id: Callable[[], str]) -> None:
        self._channels = channels
        self._new_id = new_id
        self._since: datetime | None = None
        self._alerted_at: datetime | None = None

    def check(self, fault: str | None, now: datetime) -> bool:
        """How the database is at this moment; True: the owner is being told.

        Args:
            fault: what it said last; None: it took the last thing that was written.
        """
        if fault is None:
            self._since = None
            return False
        self._since = self._since or now
        lately = self._alerted_at is not None and timedelta(0) <= now - self._alerted_at < REPEAT_AFTER
        if lately or timedelta(0) <= now - self._since < PATIENCE:
            return False
        self._alerted_at = now
        alert = database_alert(fault, alert_id=self._new_id(), now=now)
        for channel in self._channels.values():
            threading.Thread(target=_send, args=(channel, alert), name=f"distress-{channel.name}", daemon=True).start()
        return True


def database_alert(fault: str, *, alert_id: str, now: datetime) -> Alert:
    """What the owner must know."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        created_at=now,
        headline="gpuwatch cannot write its database: it rents nothing",
        facts=(("Database", redact(fault)),),
        why="A launch, an alert or a price that is not written down would be lost, or paid for twice.",
        did="Nothing is rented and most alerts wait. What runs still ends at its max_runtime. It goes on by itself.",
        can_do=("See what is wrong: gpuwatch doctor",),
    )


def _send(channel: Channel, alert: Alert) -> None:
    try:
        channel.send(alert)
    except Exception as error:  # a channel may break with anything; there is nobody left to tell
        log.error("%s did not take a word about the database: %s", channel.name, redact(str(error)))  # noqa: TRY400
