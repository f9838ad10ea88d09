"""Which channels get an alert, when, with or without a sound, and with which others in one message. Pure.

- `AlertRouting`: the owner's settings select the channels.
- `messages`: due alerts become messages; offers that follow each other are one, and so is a burst of others. A message
  mentions the alerts that its channel never accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from itertools import groupby

import msgspec

from gpuwatch.domain.alerts import message_texts as texts
from gpuwatch.domain.alerts.alert import alert_id_from
from gpuwatch.domain.watches.windows import is_open
from gpuwatch.ports import (
    Alert,
    AlertKind,
    DueDelivery,
    Severity,
    UnroutedAlert,
)

_BURST = 3  # if more alerts than this are due at once, they become one message
_OFFERS, _NEWS = "offers", "news"


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
        if one.silenced and one.alert.kind.rules.is_offer:
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


class OutgoingMessage(msgspec.Struct, frozen=True):
    """One message to a channel: a single alert, or several combined."""

    alert: Alert
    deliveries: tuple[DueDelivery, ...]

    @property
    def taken(self) -> tuple[str, ...]:
        """Recipients that already have it."""
        return self.deliveries[0].taken


def messages(deliveries: Sequence[DueDelivery], one_by_one: bool = False) -> Iterator[OutgoingMessage]:
    """Yield due alerts as messages, in order: consecutive offers become one message, and so does a burst of others.

    A critical alert is a message of its own. The first message mentions the missed alerts.

    Args:
        one_by_one: the channel takes single alerts only.
    """
    rest = [due if due is deliveries[0] else msgspec.structs.replace(due, unreported=()) for due in deliveries]
    for (together, _, _), run in groupby(rest, key=_run_key):
        of = tuple(run)
        if one_by_one or together is None or (together == _NEWS and len(of) <= _BURST):
            yield from (_message([due]) for due in of)
        else:
            yield _message(of)


def _run_key(due: DueDelivery) -> tuple[str | None, str, tuple[str, ...]]:
    """Adjacent alerts with the same key may share one message; None: this alert is sent alone."""
    offers = due.alert.kind.rules.is_offer
    if due.alert.severity is Severity.CRITICAL:
        return None, due.alert.alert_id, due.taken
    return (_OFFERS if offers else _NEWS), "", due.taken


def _message(deliveries: Sequence[DueDelivery]) -> OutgoingMessage:
    alert = grouped_alert([due.alert for due in deliveries])
    so_now = dict.fromkeys(fact for due in deliveries for fact in due.facts)
    alert = msgspec.structs.replace(alert, facts=(*alert.facts, *so_now))
    return OutgoingMessage(
        with_unreported(alert, [headline for _, headline in deliveries[0].unreported]), tuple(deliveries)
    )


def grouped_alert(alerts: Sequence[Alert]) -> Alert:
    """Combine several alerts into one message; a single one stays as it is.

    Args:
        alerts: at least one, in order.
    """
    if len(alerts) == 1:
        return alerts[0]
    offers = [alert.offers[0] for alert in alerts if alert.offers and alert.offers[0].gpu_count]
    cheapest = min(offers, key=lambda line: Decimal(line.price_usd_gpu_hour), default=None)
    headline = _whose(alerts)
    if cheapest:
        headline = texts.CHEAPEST.format(text=headline, price=cheapest.price_usd_gpu_hour)
    return Alert(
        alert_id=alert_id_from(" ".join(alert.alert_id for alert in alerts)),
        kind=alerts[0].kind,
        created_at=alerts[-1].created_at,
        headline=headline,
        parts=tuple(alerts),
        severity=max((alert.severity for alert in alerts), key=lambda severity: severity.rank),
    )


def _whose(alerts: Sequence[Alert]) -> str:
    if not all(alert.kind.rules.is_offer for alert in alerts):
        return texts.NEWEST_OF.format(count=len(alerts), headline=alerts[-1].headline)
    watches = {alert.watch for alert in alerts}
    if len(watches) > 1:
        return texts.SEVERAL_WATCHES.format(count=len(watches))
    return texts.SEVERAL_ALERTS.format(watch=alerts[0].watch, count=len(alerts))


def with_unreported(alert: Alert, unreported: Sequence[str]) -> Alert:
    """Add a line about earlier alerts that this channel never accepted.

    Args:
        unreported: their headlines, oldest first; empty: the alert stays as it is.
    """
    if not unreported:
        return alert
    count, headlines = len(unreported), "; ".join(headline[:80] for headline in unreported[-3:])
    if count > 3:
        headlines = texts.AND_MORE.format(count=count - 3, headlines=headlines)
    text = (texts.ONE_EARLIER if count == 1 else texts.EARLIER).format(count=count, headlines=headlines)
    return msgspec.structs.replace(alert, facts=(*alert.facts, (texts.NOT_SENT_HERE, text)))
