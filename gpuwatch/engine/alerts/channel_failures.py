"""Reports channels that fail: once in the log, and on the other channels."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.alerts import alert_id_from
from gpuwatch.engine.alerts.channel_alerts import channel_alert, partly_refused_alert, silent_channel_alert
from gpuwatch.ports import Alert
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

ALERT_EVERY = timedelta(hours=1)
Enqueue = Callable[[Alert, Sequence[str], str], None]  # an alert, its channels, its deduplication key


class ChannelReports:
    """Tracks which channels fail and what was reported about them. Thread-safe.

    Args:
        channels: all configured channels.
    """

    def __init__(self, channels: Collection[str], enqueue: Enqueue) -> None:
        self._channels = tuple(channels)
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._lost: set[str] = set()  # of these, those that do not merely delay an alert
        self._alerted_at: dict[str, datetime] = {}

    def all_but(self, name: str) -> tuple[str, ...]:
        """Return every channel but this one."""
        return tuple(other for other in self._channels if other != name)

    def accepted(self, name: str) -> None:
        """Note that it accepted an alert."""
        with self._lock:
            was_failing = name in self._failing
            self._failing.discard(name)
            self._lost.discard(name)
        if was_failing:
            log.info("%s accepts alerts again", name)

    def failed(self, name: str, why: str) -> None:
        """Note that it did not accept one; logged once until it accepts one again."""
        with self._lock:
            known = name in self._failing
            self._failing.add(name)
        if not known:
            log.warning("%s does not accept alerts: %s", name, redact(why))

    def refused(self, name: str, error: str, now: datetime) -> None:
        """Report on the other channels, at most once an hour, that it rejects alerts."""
        self._lose(name, error)
        if self.all_but(name) and self._is_due(name, now):
            key = f"channel:{name}:{int(now.timestamp() // ALERT_EVERY.total_seconds())}"
            self._enqueue(channel_alert(name, error, alert_id=alert_id_from(key), now=now), self.all_but(name), key)

    def refused_in_part(self, name: str, error: str, now: datetime) -> None:
        """Report, at most once an hour, that some of its recipients reject alerts: in the log and on other channels."""
        if not self._is_due(f"{name} in part", now):
            return
        log.warning("%s: some recipients reject alerts: %s", name, redact(error))
        if others := self.all_but(name):
            key = f"in part:{name}:{int(now.timestamp() // ALERT_EVERY.total_seconds())}"
            alert = partly_refused_alert(name, error, alert_id=alert_id_from(key), now=now)
            self._enqueue(alert, others, key)

    def silent(self, name: str, since: datetime, error: str, now: datetime) -> None:
        """Report on the other channels, once, that it has accepted nothing since then despite retries."""
        self._lose(name, error)
        if self.all_but(name) and self._is_due(name, now):
            key = f"silent:{name}:{int(since.timestamp())}"
            alert = silent_channel_alert(name, format_moment(since), error, alert_id=alert_id_from(key), now=now)
            self._enqueue(alert, self.all_but(name), key)

    def _lose(self, name: str, why: str) -> None:
        """Note that it accepts nothing; with the last channel that is critical, once."""
        self.failed(name, why)
        with self._lock:
            is_last = name not in self._lost and self._lost | {name} >= set(self._channels)
            self._lost.add(name)
        if is_last:
            log.critical("no channel accepts alerts: %s", ", ".join(sorted(self._channels)))

    def _is_due(self, name: str, now: datetime) -> bool:
        """Whether an alert may be sent; alerts about alerts must not multiply."""
        with self._lock:
            alerted_at = self._alerted_at.get(name)
            if alerted_at is not None and timedelta(0) <= now - alerted_at < ALERT_EVERY:
                return False
            self._alerted_at[name] = now
            return True
