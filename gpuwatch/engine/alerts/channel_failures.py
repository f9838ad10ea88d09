"""Channels that accept no alerts, or an outbox that stores none: what is reported, and which channels take over.

- `ChannelReports` reports a failing channel once in the log, and on the other channels.
- `ChannelFailover` sends alerts to the other channels if a channel has not accepted them for 15 minutes.
- `FallbackAlerts` sends them past the outbox while that is broken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpuwatch.domain.alerts.alert import AlertSpec, OutboxAlert, alert_for_reading
from gpuwatch.domain.alerts.service_texts import DATABASE, REFUSES, REFUSES_IN_PART, SILENT
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.language import ENGLISH, use_language
from gpuwatch.ports import Alert, Channel, OneByOneChannel, WaitingAlert
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.storage.alerts.outbox import Outbox

log = logging.getLogger(__name__)

ALERT_EVERY = timedelta(hours=1)
FAILOVER_AFTER = timedelta(minutes=15)
_EVERY = timedelta(seconds=15)
PATIENCE = timedelta(seconds=5)  # shorter errors of the database are not reported
REPEAT_AFTER = timedelta(hours=1)
Enqueue = Callable[[OutboxAlert, Sequence[str]], None]  # an alert, its channels


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
            self._report(REFUSES, name, now, error=redact(error), hour=_hour(now))

    def refused_in_part(self, name: str, error: str, now: datetime) -> None:
        """Report, at most once an hour, that some of its recipients reject alerts: in the log and on other channels."""
        if not self._is_due(f"{name} in part", now):
            return
        log.warning("%s: some recipients reject alerts: %s", name, redact(error))
        if self.all_but(name):
            self._report(REFUSES_IN_PART, name, now, error=redact(error), hour=_hour(now))

    def silent(self, name: str, since: datetime, error: str, now: datetime) -> None:
        """Report on the other channels, once, that it has accepted nothing since then despite retries."""
        self._lose(name, error)
        if self.all_but(name) and self._is_due(name, now):
            self._report(
                SILENT, name, now, since=format_moment(since), since_s=int(since.timestamp()), error=redact(error)
            )

    def _report(self, spec: AlertSpec, name: str, now: datetime, **fields: Any) -> None:
        self._enqueue(spec.outbox(None, now, subject=name, **fields), self.all_but(name))

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


def _hour(now: datetime) -> int:
    return int(now.timestamp() // ALERT_EVERY.total_seconds())


class ChannelFailover:
    """Adds deliveries for other channels. The channel itself is still tried, and later sends what is not too old."""

    def __init__(self, outbox: Outbox, routing: AlertRouting, reports: ChannelReports) -> None:
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
        if not one.kind.rules.fails_over:
            return ()
        return tuple(
            name
            for name in self._routing.channels
            if name not in one.channels and (one.kind.rules.is_money or self._routing.takes(name, one.severity))
        )


class FallbackAlerts:
    """While the database is broken, logs one message an hour and sends it to every channel, past the outbox.

    Such a message is not durable and may be sent twice after a restart. Without it gpuwatch would fail silently.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        new_id: Callable[[], str],
        log_alert: Callable[[Alert], None] = lambda alert: None,
        language: str = ENGLISH,
    ) -> None:
        self._channels = channels
        self._new_id = new_id
        self._log_alert = log_alert
        self._language = language
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

    def send(self, alert: Alert) -> list[threading.Thread]:
        """Log it and send it on every channel; return their threads, without waiting for them."""
        self._log_alert(alert)
        threads = [
            threading.Thread(target=self._send, args=(channel, alert), name=f"direct-{channel.name}", daemon=True)
            for channel in self._channels.values()
        ]
        for thread in threads:
            thread.start()
        return threads

    def _send(self, channel: Channel, alert: Alert) -> None:
        try:
            with use_language(self._language):
                channel.send(alert if isinstance(channel, OneByOneChannel) else alert_for_reading(alert))
        except Exception as error:  # a channel may raise anything, and there is no other way to report it
            log.error("%s did not deliver %r: %s", channel.name, alert.headline, redact(str(error)))  # noqa: TRY400
