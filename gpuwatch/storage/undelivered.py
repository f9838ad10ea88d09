"""Alerts that their channels do not accept: which other channels get them, and which are never given up."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, func, or_, select, update

from gpuwatch.ports import MONEY_KINDS, AlertKind, Severity, StalledChannel, WaitingAlert
from gpuwatch.storage.rows import from_ms
from gpuwatch.storage.tables import alert as alerts
from gpuwatch.storage.tables import delivery

_MONEY = tuple(kind.value for kind in MONEY_KINDS)
_AT_ONCE = 500  # ids per query
_NOW, _BEFORE = (bindparam(name, type_=BigInteger) for name in ("now_ms", "before_ms"))


def about_money() -> ColumnElement[bool]:
    """Match a joined row whose alert must not be lost."""
    return alerts.c.kind.in_(_MONEY)


def may_be_lost() -> ColumnElement[bool]:
    """Match a row of `delivery` whose alert is not about money, or that somebody has received."""
    return or_(~_is_about_money(), _is_taken())


def _is_about_money() -> ColumnElement[bool]:
    its_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id, about_money())
    return its_alert.correlate(delivery).exists()


def _is_taken() -> ColumnElement[bool]:
    """Match an alert that any channel has delivered to at least one recipient."""
    other = delivery.alias()
    by_somebody = and_(other.c.settled_recipients.is_not(None), other.c.settled_recipients.not_like("!%"))
    taken = select(other.c.channel).where(other.c.alert_id == delivery.c.alert_id)
    return taken.where(or_(other.c.state == "sent", by_somebody)).correlate(delivery).exists()


_STALLED = and_(
    delivery.c.state.in_(("pending", "expired", "refused")),
    delivery.c.first_try_at_ms <= _BEFORE,
    delivery.c.sent_at_ms.is_(None),
    delivery.c.settled_recipients.is_(None),
)
_WITH_STALLED = select(delivery.c.channel).where(_STALLED).distinct()
_OF_CHANNEL = delivery.c.channel == bindparam("channel_is")
_LAST_TAKEN = select(func.max(delivery.c.sent_at_ms)).where(_OF_CHANNEL, delivery.c.state == "sent")
_STALLED_SINCE = select(
    func.min(delivery.c.first_try_at_ms).label("since_ms"), func.max(delivery.c.last_error).label("error")
).where(_STALLED, _OF_CHANNEL, delivery.c.first_try_at_ms > bindparam("last_ms", type_=BigInteger))
# about money, rejected some time ago, and nobody has received it
_UNTAKEN_REFUSAL = and_(delivery.c.state == "refused", delivery.c.next_try_at_ms <= _NOW, ~may_be_lost())
_ANY_UNTAKEN_REFUSAL = select(delivery.c.channel).where(_UNTAKEN_REFUSAL).limit(1)
_RETRY_UNTAKEN = update(delivery).where(_UNTAKEN_REFUSAL).values(state="pending")


def stalled_channels(connection: Connection, before_ms: int) -> list[StalledChannel]:
    """Return channels that accepted nothing since a failed attempt at or before then."""
    found = []
    for name in connection.execute(_WITH_STALLED, {"before_ms": before_ms}).scalars().all():
        of_channel = {"channel_is": name, "before_ms": before_ms}
        last_ms = connection.execute(_LAST_TAKEN, of_channel).scalar() or 0
        row = connection.execute(_STALLED_SINCE, of_channel | {"last_ms": last_ms}).one()
        if row.since_ms is not None:
            found.append(StalledChannel(name=name, since=from_ms(row.since_ms), error=row.error))
    return found


_LATE_MONEY = and_(about_money(), delivery.c.first_try_at_ms <= _BEFORE)
_WAITING = (
    select(delivery.c.alert_id, alerts.c.kind, alerts.c.severity)
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.state == "pending", delivery.c.settled_recipients.is_(None))
    .where(or_(delivery.c.channel.in_(bindparam("channels", expanding=True)), _LATE_MONEY))
    .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
)
_GIVEN = select(delivery.c.alert_id, delivery.c.channel).where(
    delivery.c.alert_id.in_(bindparam("alert_ids", expanding=True))
)


def waiting_too_long(connection: Connection, channels: Sequence[str], before_ms: int) -> list[WaitingAlert]:
    """Return alerts that wait in these channels, and those about money that no channel has accepted since then."""
    rows = connection.execute(_WAITING, {"channels": channels, "before_ms": before_ms}).all()
    by_id = {row.alert_id: row for row in rows}
    given = _given(connection, tuple(by_id))
    return [
        WaitingAlert(
            alert_id=row.alert_id, kind=AlertKind(row.kind), severity=Severity(row.severity), given=given[row.alert_id]
        )
        for row in by_id.values()
    ]


def _given(connection: Connection, ids: Sequence[str]) -> dict[str, frozenset[str]]:
    given: dict[str, set[str]] = {alert_id: set() for alert_id in ids}
    for start in range(0, len(ids), _AT_ONCE):
        for row in connection.execute(_GIVEN, {"alert_ids": ids[start : start + _AT_ONCE]}):
            given[row.alert_id].add(row.channel)
    return {alert_id: frozenset(channels) for alert_id, channels in given.items()}


def has_untaken_refusals(connection: Connection, now_ms: int) -> bool:
    """Whether an alert about money was rejected some time ago and nobody has received it."""
    return connection.execute(_ANY_UNTAKEN_REFUSAL, {"now_ms": now_ms}).first() is not None


def retry_untaken(connection: Connection, now_ms: int) -> None:
    """Make those pending again."""
    connection.execute(_RETRY_UNTAKEN, {"now_ms": now_ms})
