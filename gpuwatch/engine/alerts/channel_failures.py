"""Channels that accept no alerts: what is reported about them, and which channels take over.

- `ChannelReports` reports a failing channel once in the log, and on the other channels.
- `ChannelFailover` sends alerts to the other channels if a channel has not accepted them for 15 minutes.
- The texts about channels themselves, and the test message. Pure.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.engine.alerts.outbox_alerts import alert_id_from
from gpuwatch.ports import MONEY_KINDS, Alert, AlertKind, MovableChannel, WaitingAlert
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.storage.alerts.outbox import Outbox

log = logging.getLogger(__name__)

ALERT_EVERY = timedelta(hours=1)
FAILOVER_AFTER = timedelta(minutes=15)
_EVERY = timedelta(seconds=15)
_NO_FAILOVER = frozenset({AlertKind.CHANNEL, AlertKind.TEST})  # the other channels already have those, or need none
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
        if one.kind in _NO_FAILOVER:
            return ()
        return tuple(
            name
            for name in self._routing.channels
            if name not in one.channels and (one.kind in MONEY_KINDS or self._routing.takes(name, one.severity))
        )


def channel_alert(channel: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that a channel rejects alerts."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not deliver alerts",
        facts=(("Channel", channel), ("Answer", redact(error))),
        why="The channel rejected a message and will keep rejecting until you fix it.",
        did="The rejected message went to your other channels. gpuwatch retries this channel from time to time.",
        can_do=(f"Fix [notify.{channel}], then run: gpuwatch notify", "See all channels: gpuwatch doctor"),
    )


def partly_refused_alert(channel: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that some recipients of a channel reject alerts."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not reach all of its recipients",
        facts=(("Channel", channel), ("Answer", redact(error))),
        why="These recipients rejected a message.",
        did="The other recipients received it.",
        can_do=(f"Fix [notify.{channel}], then run: gpuwatch notify",),
    )


def silent_channel_alert(channel: str, since: str, error: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert the other channels that a channel accepts nothing, without an explicit rejection."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} does not deliver alerts",
        facts=(("Channel", channel), ("Since", since), ("Answer", redact(error))),
        why="The channel has accepted nothing since then.",
        did="Alerts that wait there for 15 minutes also go to your other channels; gpuwatch keeps trying this one.",
        can_do=(
            "See what is wrong: gpuwatch doctor",
            f"After a change of [notify.{channel}], test it: gpuwatch notify",
        ),
    )


def late_alert(channel: str, count: int, *, alert_id: str, now: datetime) -> Alert:
    """Alert that alerts of a channel expired, with no newer alert in its queue to mention them."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel,
        created_at=now,
        headline=f"{channel} did not deliver {count} {'alert' if count == 1 else 'alerts'} in time",
        why="Quiet hours held them back, or the channel accepted nothing before they expired.",
        did="They expired and are listed here for your information.",
        can_do=("See current offers: gpuwatch check",),
    )


def new_address_alert(channel: MovableChannel, new: str, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a channel's address has changed, so that the settings are out of date."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.CHANNEL,
        subject=channel.name,
        created_at=now,
        headline=f"The {channel.address_option} of {channel.name} has changed",
        facts=((f"Old {channel.address_option}", channel.address), (f"New {channel.address_option}", new)),
        why="The channel reported its new address.",
        did="gpuwatch remembers the new address and uses it from now on.",
        can_do=(f'Set [notify.{channel.name}] {channel.address_option} = "{new}"',),
    )


def test_alert(*, alert_id: str, now: datetime) -> Alert:
    """Return the test message of `gpuwatch notify`."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.TEST,
        created_at=now,
        headline="gpuwatch test message",
        why="You requested it with: gpuwatch notify",
        did="This is only a test: no offer was found, nothing was rented.",
    )
