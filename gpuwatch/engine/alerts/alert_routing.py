"""Decides for every alert which channels get it, when, and with or without a sound. Pure.

Shared by all alerts: how long they are worth sending, their ids, times as text. Pure.

The texts are in `offer_alerts`, `launch_alerts`, `health_alerts` and `channel_alerts`.

Combine several alerts into one message, and mention alerts that a channel never accepted. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal

import msgspec

from gpuwatch.domain.watches.windows import is_open
from gpuwatch.ports import Alert, AlertKind, OfferLine, OutboxAlert, Severity, UnroutedAlert

SILENCED_KINDS = frozenset({AlertKind.MATCH, AlertKind.APPROVAL})  # held back by `gpuwatch silence`


class AlertRouting(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's routing settings.

    Attributes:
        channels: all configured channels.
        watch_channels: by watch, if it names its own channels.
        min_severity: by channel; less severe alerts are delivered without a sound.
        silent_channels: channels that can deliver without a sound; the others do not get less severe alerts.
        quiet_hours: local windows in which only critical alerts are sent; the others wait.
        zone: time zone of `quiet_hours`.
    """

    channels: tuple[str, ...]
    watch_channels: Mapping[str, tuple[str, ...]] = {}
    min_severity: Mapping[str, Severity] = {}
    silent_channels: Collection[str] = frozenset()
    quiet_hours: tuple[str, ...] = ()
    zone: tzinfo = UTC

    def channels_for(self, one: UnroutedAlert) -> tuple[str, ...]:
        """Return the channels for an alert: none if its watch is silenced, and none for an audit event."""
        if one.alert.kind is AlertKind.AUDIT:
            return ()
        if one.silenced and one.alert.kind in SILENCED_KINDS:
            return ()
        wanted = self.watch_channels.get(one.alert.watch or "", self.channels)
        return tuple(name for name in wanted if self.takes(name, one.alert.severity))

    def takes(self, channel: str, severity: Severity) -> bool:
        """Whether the channel sends alerts of this severity, with or without a sound."""
        return channel in self.silent_channels or severity.rank >= self._least(channel)

    def is_below(self, channel: str, alert: Alert) -> bool:
        """Whether the alert is less severe than the channel's minimum."""
        return alert.severity.rank < self._least(channel)

    def _least(self, channel: str) -> int:
        return self.min_severity.get(channel, Severity.INFO).rank

    def is_quiet(self, now: datetime) -> bool:
        """Whether quiet hours hold back all but critical alerts."""
        return bool(self.quiet_hours) and is_open(self.quiet_hours, now, self.zone)


_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LIFETIMES = {
    AlertKind.MATCH: _HOUR,  # later somebody else has rented it, or it is reported again
    AlertKind.APPROVAL: _HOUR,  # or until its deadline
    AlertKind.TEST: timedelta(minutes=10),
    AlertKind.AUDIT: _DAY,
    AlertKind.REFUSED: 6 * _HOUR,
    AlertKind.RENT: _DAY,
    AlertKind.END: _DAY,
    AlertKind.BUDGET: _DAY,
    AlertKind.BLIND: _DAY,
    AlertKind.RECOVERED: _DAY,
    AlertKind.DRIFT: 3 * _DAY,
    AlertKind.CHANNEL: 3 * _DAY,
    AlertKind.DAEMON: 3 * _DAY,
    AlertKind.HELD: 7 * _DAY,
    AlertKind.ORPHAN: 7 * _DAY,
}
_CRITICAL = 7 * _DAY  # money may be at stake: it waits for the owner


def alert_lifetime(kind: AlertKind, severity: Severity = Severity.INFO) -> timedelta:
    """Return how long such an alert is worth sending; then it expires, and the next message mentions it."""
    return max(_LIFETIMES[kind], _CRITICAL) if severity is Severity.CRITICAL else _LIFETIMES[kind]


def outbox_alert(alert: Alert, once_key: str | None = None, until: datetime | None = None) -> OutboxAlert:
    """Return the alert with its lifetime, which lasts at least to `until`."""
    expires_at = max(alert.created_at + alert_lifetime(alert.kind, alert.severity), until or alert.created_at)
    return OutboxAlert(alert=alert, expires_at=expires_at, once_key=once_key)


def alert_id_from(key: str) -> str:
    """Return the alert id of a cause, always the same for the same cause: 12 characters."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def without_numbers(did: str) -> str:
    """Return a text without its numbers, for comparison: a balance that falls by a cent is not news."""
    return re.sub(r"[0-9]+", "", did)


def grouped_alert(alerts: Sequence[Alert]) -> Alert:
    """Combine several alerts into one message; a single one stays as it is.

    Args:
        alerts: at least one, in order.
    """
    if len(alerts) == 1:
        return alerts[0]
    cheapest = min((a.offers[0] for a in alerts if a.offers), key=_gpu_price, default=None)
    best = f", from ${cheapest.price_usd_gpu_hour} per GPU-hour" if cheapest else ""
    return Alert(
        alert_id=alert_id_from(" ".join(alert.alert_id for alert in alerts)),
        kind=alerts[0].kind,
        created_at=alerts[-1].created_at,
        headline=f"{_whose(alerts)}{best}",
        parts=tuple(alerts),
        severity=max((alert.severity for alert in alerts), key=lambda severity: severity.rank),
    )


def _whose(alerts: Sequence[Alert]) -> str:
    if not {alert.kind for alert in alerts} <= {AlertKind.MATCH, AlertKind.APPROVAL}:
        return f"{len(alerts)} alerts, the newest: {alerts[-1].headline}"
    watches = {alert.watch for alert in alerts}
    return f"{len(watches)} watches have offers" if len(watches) > 1 else f"{alerts[0].watch}: {len(alerts)} alerts"


def with_unreported(alert: Alert, unreported: Sequence[str]) -> Alert:
    """Add a line about earlier alerts that this channel never accepted.

    Args:
        unreported: their headlines, oldest first; empty: the alert stays as it is.
    """
    if not unreported:
        return alert
    newest = "; ".join(headline[:80] for headline in unreported[-3:])
    before = f"{len(unreported) - 3} more and: " if len(unreported) > 3 else ""
    number = f"{len(unreported)} earlier {'alert' if len(unreported) == 1 else 'alerts'}"
    return msgspec.structs.replace(alert, facts=(*alert.facts, ("Not sent here", f"{number} ({before}{newest})")))


def _gpu_price(line: OfferLine) -> Decimal:
    return Decimal(line.price_usd_gpu_hour)
