"""Alerts that their channels do not accept: which other channels get them, and which are never given up."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, func, or_, select, update

from gpuwatch.ports import MONEY_KINDS, AlertKind, Severity, StalledChannel, WaitingAlert
from gpuwatch.storage.setup.stored_values import from_ms
from gpuwatch.storage.setup.tables import alert as alerts
from gpuwatch.storage.setup.tables import delivery

_MONEY = tuple(kind.value for kind in MONEY_KINDS)
_IDS_PER_QUERY = 500  # ids per query
_AHEAD_MS = 3_600_000  # later than this from the requested time: written before the clock was set back
_NOW, _BEFORE = (bindparam(name, type_=BigInteger) for name in ("now_ms", "before_ms"))


def is_money_alert() -> ColumnElement[bool]:
    """Match a joined row whose alert must not be lost."""
    return alerts.c.kind.in_(_MONEY)


def may_be_lost() -> ColumnElement[bool]:
    """Match a row of `delivery` whose alert is not about money, or that somebody has received."""
    return or_(~_has_money_alert(), _is_delivered())


def _has_money_alert() -> ColumnElement[bool]:
    own_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id, is_money_alert())
    return own_alert.correlate(delivery).exists()


def _is_delivered() -> ColumnElement[bool]:
    """Match an alert that any channel has delivered to at least one recipient."""
    other = delivery.alias()
    by_any_recipient = and_(other.c.settled_recipients.is_not(None), other.c.settled_recipients.not_like("!%"))
    accepted = select(other.c.channel).where(other.c.alert_id == delivery.c.alert_id)
    return accepted.where(or_(other.c.state == "sent", by_any_recipient)).correlate(delivery).exists()


_STALLED = and_(
    delivery.c.state.in_(("pending", "expired", "refused")),
    delivery.c.first_try_at_ms <= _BEFORE,
    delivery.c.sent_at_ms.is_(None),
    delivery.c.settled_recipients.is_(None),
)
_WITH_STALLED = select(delivery.c.channel).where(_STALLED).distinct()
_OF_CHANNEL = delivery.c.channel == bindparam("channel_is")
_LAST_ACCEPTED = select(func.max(delivery.c.sent_at_ms)).where(
    _OF_CHANNEL, delivery.c.state == "sent", delivery.c.sent_at_ms <= _BEFORE + _AHEAD_MS
)
_STALLED_SINCE = select(
    func.min(delivery.c.first_try_at_ms).label("since_ms"), func.max(delivery.c.last_error).label("error")
).where(_STALLED, _OF_CHANNEL, delivery.c.first_try_at_ms > bindparam("last_ms", type_=BigInteger))
# about money, rejected some time ago, and nobody has received it
_UNDELIVERED_REFUSAL = and_(delivery.c.state == "refused", delivery.c.next_try_at_ms <= _NOW, ~may_be_lost())
_ANY_UNDELIVERED_REFUSAL = select(delivery.c.channel).where(_UNDELIVERED_REFUSAL).limit(1)
_RETRY_REFUSED = update(delivery).where(_UNDELIVERED_REFUSAL).values(state="pending")


def stalled_channels(connection: Connection, before_ms: int) -> list[StalledChannel]:
    """Return channels that accepted nothing since a failed attempt at or before then."""
    stalled = []
    for name in connection.execute(_WITH_STALLED, {"before_ms": before_ms}).scalars().all():
        parameters = {"channel_is": name, "before_ms": before_ms}
        last_ms = connection.execute(_LAST_ACCEPTED, parameters).scalar() or 0
        row = connection.execute(_STALLED_SINCE, parameters | {"last_ms": last_ms}).one()
        if row.since_ms is not None:
            stalled.append(StalledChannel(name=name, since=from_ms(row.since_ms), error=row.error))
    return stalled


_LATE_MONEY = and_(is_money_alert(), delivery.c.first_try_at_ms <= _BEFORE)
_WAITING = (
    select(delivery.c.alert_id, alerts.c.kind, alerts.c.severity)
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.state == "pending", delivery.c.settled_recipients.is_(None))
    .where(or_(delivery.c.channel.in_(bindparam("channels", expanding=True)), _LATE_MONEY))
    .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
)
_CHANNELS_OF_ALERTS = select(delivery.c.alert_id, delivery.c.channel).where(
    delivery.c.alert_id.in_(bindparam("alert_ids", expanding=True))
)


def overdue_alerts(connection: Connection, channels: Sequence[str], before_ms: int) -> list[WaitingAlert]:
    """Return alerts that wait in these channels, and those about money that no channel has accepted since then."""
    rows = connection.execute(_WAITING, {"channels": channels, "before_ms": before_ms}).all()
    by_id = {row.alert_id: row for row in rows}
    channels_by_alert = _channels_of_alerts(connection, tuple(by_id))
    return [
        WaitingAlert(
            alert_id=row.alert_id,
            kind=AlertKind(row.kind),
            severity=Severity(row.severity),
            channels=channels_by_alert[row.alert_id],
        )
        for row in by_id.values()
    ]


def _channels_of_alerts(connection: Connection, ids: Sequence[str]) -> dict[str, frozenset[str]]:
    channels_by_alert: dict[str, set[str]] = {alert_id: set() for alert_id in ids}
    for start in range(0, len(ids), _IDS_PER_QUERY):
        for row in connection.execute(_CHANNELS_OF_ALERTS, {"alert_ids": ids[start : start + _IDS_PER_QUERY]}):
            channels_by_alert[row.alert_id].add(row.channel)
    return {alert_id: frozenset(channels) for alert_id, channels in channels_by_alert.items()}


def has_undelivered_refusals(connection: Connection, now_ms: int) -> bool:
    """Whether an alert about money was rejected some time ago and nobody has received it."""
    return connection.execute(_ANY_UNDELIVERED_REFUSAL, {"now_ms": now_ms}).first() is not None


def retry_refused(connection: Connection, now_ms: int) -> None:
    """Make those pending again."""
    connection.execute(_RETRY_REFUSED, {"now_ms": now_ms})
