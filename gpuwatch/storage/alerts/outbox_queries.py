"""The queries of the outbox, each built once: building a query costs ten times as much as running it.

At the end those about alerts that their channels do not accept: which other channels get them, and which are never
given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    true,
    update,
)

from gpuwatch.ports import (
    MONEY_KINDS,
    AlertKind,
    Severity,
    StalledChannel,
    WaitingAlert,
)
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.setup.side_tables import delivery
from gpuwatch.storage.setup.stored_values import from_ms

MAX_LEASE_MS = 600_000  # a lease that ends later than this from now was written before the clock was set back
MAX_WAIT_MS = 90_000_000  # 25 h: the same, for waits
_MAX_UNREPORTED = 500  # mentioned in one message; the rest in the next
NOW = bindparam("now_ms", type_=BigInteger)  # parameters: `now_ms`, `alert_id_is`, `channel_is`, `attempts_are`, …
_MONEY = tuple(kind.value for kind in MONEY_KINDS)
_AHEAD_MS = 3_600_000  # later than this from the requested time: written before the clock was set back
_BEFORE = bindparam("before_ms", type_=BigInteger)
_IDS_PER_QUERY = 500


def _is_money_alert() -> ColumnElement[bool]:
    """Match a joined row whose alert must not be lost."""
    return alerts.c.kind.in_(_MONEY)


def _may_be_lost() -> ColumnElement[bool]:
    """Match a row of `delivery` whose alert is not about money, or that somebody has received."""
    return or_(~_has_money_alert(), _is_delivered())


def _has_money_alert() -> ColumnElement[bool]:
    own_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id, _is_money_alert())
    return own_alert.correlate(delivery).exists()


def _is_delivered() -> ColumnElement[bool]:
    """Match an alert that any channel has delivered to at least one recipient."""
    other = delivery.alias()
    by_any_recipient = and_(other.c.settled_recipients.is_not(None), other.c.settled_recipients.not_like("!%"))
    accepted = select(other.c.channel).where(other.c.alert_id == delivery.c.alert_id)
    return accepted.where(or_(other.c.state == "sent", by_any_recipient)).correlate(delivery).exists()


PENDING = select(delivery.c.channel).where(delivery.c.state == "pending").limit(1)
UNREPORTED_COUNTS = (
    select(delivery.c.channel, func.count(), func.max(alerts.c.created_at_ms))
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.channel.not_in(select(delivery.c.channel).where(delivery.c.state == "pending")))
    .group_by(delivery.c.channel)
)
_EXPIRED = select(delivery.c.channel).where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
_UNROUTED = select(alerts.c.alert_id).where(alerts.c.routed_at_ms.is_(None), alerts.c.owner == bindparam("owner_is"))
HAS_WORK = select(or_(_UNROUTED.exists(), PENDING.exists(), _EXPIRED.exists()))
_UNDELIVERED = select(delivery.c.channel).where(delivery.c.state.in_(("pending", "refused")))
HAS_UNDELIVERED = select(or_(_UNDELIVERED.exists(), _EXPIRED.exists()))
_ROW = and_(delivery.c.alert_id == bindparam("alert_id_is"), delivery.c.channel == bindparam("channel_is"))
MARK_SENT = update(delivery).where(_ROW, delivery.c.state != "sent").values(state="sent", leased_until_ms=None)
# only for a row whose lease is still held
UPDATE_LEASED = (
    update(delivery)
    .where(_ROW, delivery.c.state == "pending", delivery.c.attempts == bindparam("attempts_are"))
    .values(leased_until_ms=None)
)
MARK_REPORTED = (
    update(delivery)
    .where(delivery.c.channel == bindparam("channel_is"))
    .where(delivery.c.alert_id.in_(bindparam("alert_ids", expanding=True)))
    .where(delivery.c.state.in_(("expired", "refused")))
    .values(sent_at_ms=NOW)
)
UNREPORTED = (
    select(delivery.c.alert_id, alerts.c.body)
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.channel == bindparam("channel_is"), delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.state.in_(("expired", "refused")))
    .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
    .limit(_MAX_UNREPORTED)
)


def _is_not_leased() -> ColumnElement[bool]:
    leased_until = delivery.c.leased_until_ms
    return or_(leased_until.is_(None), leased_until <= NOW, leased_until > NOW + MAX_LEASE_MS)


def _is_overdue() -> ColumnElement[bool]:
    """Match overdue rows; an alert about money waits until some channel has accepted it."""
    own_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id)
    has_expired = own_alert.where(alerts.c.expires_at_ms <= NOW).exists()  # few are pending, many were sent
    return and_(delivery.c.state == "pending", _is_not_leased(), has_expired, _may_be_lost())


OVERDUE = PENDING.where(_is_overdue())
EXPIRE = update(delivery).where(_is_overdue()).values(state="expired", leased_until_ms=None)
# a conditional update: only one of several daemons succeeds
CLAIM = (
    update(delivery)
    .where(_ROW, delivery.c.state == "pending", delivery.c.attempts == bindparam("attempts_are"), _is_not_leased())
    .values(
        attempts=delivery.c.attempts + 1,
        first_try_at_ms=case((delivery.c.first_try_at_ms <= NOW, delivery.c.first_try_at_ms), else_=NOW),
    )
)


@cache
def ready(*, all_channels: bool, only_critical: bool) -> Select[Any]:
    """Return the query for at most `most` rows that can be leased, in the order of sending.

    Args:
        all_channels: in all channels, not only in `channels`.
    """
    other = delivery.alias()
    waiting_channels = (
        select(other.c.channel)
        .where(other.c.state == "pending", other.c.leased_until_ms.between(NOW + 1, NOW + MAX_LEASE_MS))
        .union(
            select(other.c.channel)
            .where(other.c.state.in_(("pending", "expired", "refused")))
            .where(other.c.next_try_at_ms.between(NOW + 1, NOW + MAX_WAIT_MS))
            .where(other.c.attempts > 0, other.c.settled_recipients.is_(None))
        )
    )
    due = or_(delivery.c.next_try_at_ms <= NOW, delivery.c.next_try_at_ms > NOW + MAX_WAIT_MS)
    return (
        select(
            delivery.c.alert_id, delivery.c.channel, delivery.c.attempts, delivery.c.settled_recipients, alerts.c.body
        )
        .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
        .where(delivery.c.state == "pending", _is_not_leased(), due)
        .where(or_(alerts.c.expires_at_ms > NOW, _is_money_alert()))
        .where(or_(delivery.c.settled_recipients.is_not(None), delivery.c.channel.not_in(waiting_channels)))
        .where(true() if all_channels else delivery.c.channel.in_(bindparam("channels", expanding=True)))
        .where(alerts.c.severity == Severity.CRITICAL.value if only_critical else true())
        .order_by(delivery.c.channel, alerts.c.created_at_ms, delivery.c.alert_id)
        .limit(bindparam("most"))
    )


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
_UNDELIVERED_REFUSAL = and_(delivery.c.state == "refused", delivery.c.next_try_at_ms <= NOW, ~_may_be_lost())
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


_LATE_MONEY = and_(_is_money_alert(), delivery.c.first_try_at_ms <= _BEFORE)
_WAITING = (
    select(delivery.c.alert_id, alerts.c.kind, alerts.c.severity)
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.state == "pending", delivery.c.settled_recipients.is_(None))
    .where(alerts.c.owner == bindparam("owner_is"))
    .where(or_(delivery.c.channel.in_(bindparam("channels", expanding=True)), _LATE_MONEY))
    .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
)
_CHANNELS_OF_ALERTS = select(delivery.c.alert_id, delivery.c.channel).where(
    delivery.c.alert_id.in_(bindparam("alert_ids", expanding=True))
)


def overdue_alerts(connection: Connection, owner: str, channels: Sequence[str], before_ms: int) -> list[WaitingAlert]:
    """Return alerts that wait in these channels, and those about money that no channel has accepted since then."""
    rows = connection.execute(_WAITING, {"owner_is": owner, "channels": channels, "before_ms": before_ms}).all()
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
