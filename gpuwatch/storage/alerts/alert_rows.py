"""Silenced watches: their alerts are stored and logged, but not sent.

Stores an alert, and routes it to its channels.

It is written in the transaction of its cause. `routed_at_ms` is NULL until the daemon has logged it and routed it to
its channels; then it has one row in `delivery` for each channel.

Alerts that their channels do not accept: which other channels get them, and which are never given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, delete, func, insert, or_, select, update

from gpuwatch.ports import (
    MONEY_KINDS,
    Alert,
    AlertKind,
    OutboxAlert,
    Severity,
    StalledChannel,
    UnroutedAlert,
    WaitingAlert,
)
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, insert_if_absent, to_ms, upsert
from gpuwatch.storage.setup.tables import alert as alerts
from gpuwatch.storage.setup.tables import delivery, silence

_CLOCKS_DIFFER_MS = 120_000  # between the hosts of several daemons


def in_force_at(at_ms: ColumnElement[int] | int) -> ColumnElement[bool]:
    """Match a silence that applies then. If the clock was set back since it began, it does not last until then."""
    return and_(silence.c.until_ms > at_ms, silence.c.created_at_ms <= at_ms + _CLOCKS_DIFFER_MS)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """One silenced watch."""

    watch: str
    at: datetime
    until: datetime


class SqlSilences:
    """Stores silences; all methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def silence(self, entry: Silence) -> None:
        """Silence a watch; replaces an earlier silence."""
        row = {"watch": entry.watch, "created_at_ms": to_ms(entry.at), "until_ms": to_ms(entry.until)}
        with self._database.write() as connection:
            upsert(connection, silence, row)

    def end(self, watch: str, now: datetime) -> bool:
        """Send its alerts again; False: it was not silenced."""
        with self._database.write() as connection:
            statement = delete(silence).where(silence.c.watch == watch).returning(silence.c.until_ms)
            until_ms = connection.execute(statement).scalar_one_or_none()
        return until_ms is not None and until_ms > to_ms(now)

    def in_force(self, now: datetime) -> Sequence[Silence]:
        """Return the current silences, by watch."""
        query = select(silence).where(in_force_at(to_ms(now))).order_by(silence.c.watch)
        with self._database.read() as connection:
            return [
                Silence(watch=row.watch, at=from_ms(row.created_at_ms), until=from_ms(row.until_ms))
                for row in connection.execute(query)
            ]


_INSERT_DELIVERY = insert(delivery)  # built once: an alert is part of the transaction that a rent waits for
_SUBJECT_LENGTH = 200
_UNROUTED = (
    select(alerts.c.body, in_force_at(alerts.c.created_at_ms).label("silenced"))
    .outerjoin(silence, silence.c.watch == alerts.c.watch)
    .where(alerts.c.routed_at_ms.is_(None))
    .order_by(alerts.c.created_at_ms, alerts.c.alert_id)
    .limit(200)
)
_ROUTE = update(alerts).where(alerts.c.alert_id == bindparam("alert_id_is"), alerts.c.routed_at_ms.is_(None))
_CHANNELS_OF = select(delivery.c.channel).where(delivery.c.alert_id == bindparam("alert_id_is"))


def enqueue(connection: Connection, outbox_alert: OutboxAlert) -> bool:
    """Write an alert into the caller's transaction; it is logged and routed to its channels later (`route`).

    Returns:
        False if an alert with this `once_key` exists; nothing is written then.
    """
    alert = outbox_alert.alert
    row = {
        "alert_id": alert.alert_id,
        "kind": alert.kind.value,
        "severity": alert.severity.value,
        "subject": alert.subject[:_SUBJECT_LENGTH],
        "headline": alert.headline,
        "watch": alert.watch,
        "created_at_ms": to_ms(alert.created_at),
        "expires_at_ms": to_ms(outbox_alert.expires_at),
        "body": msgspec.json.encode(alert).decode(),
        "once_key": outbox_alert.once_key,
    }
    if not insert_if_absent(connection, alerts, row, "once_key"):
        return False
    if outbox_alert.channels:
        rows = [new_delivery(alert.alert_id, channel) for channel in dict.fromkeys(outbox_alert.channels)]
        connection.execute(_INSERT_DELIVERY, rows)
    return True


def unrouted(connection: Connection) -> list[UnroutedAlert]:
    """Return alerts without a route, oldest first; only some of them if there are many."""
    return [
        UnroutedAlert(alert=msgspec.json.decode(row.body, type=Alert), silenced=bool(row.silenced))
        for row in connection.execute(_UNROUTED)
    ]


def route(connection: Connection, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
    """Route alerts, by id, to channels. Alerts that already have channels keep them."""
    for alert_id, names in channels.items():
        if connection.execute(_ROUTE, {"alert_id_is": alert_id, "routed_at_ms": to_ms(now)}).rowcount:
            _add_deliveries(connection, alert_id, names)


def new_delivery(alert_id: str, channel: str) -> dict[str, Any]:
    """Return a row of `delivery` that waits to be sent."""
    # due since 1970, not since now: a clock that is set back must not delay a new alert
    return {"alert_id": alert_id, "channel": channel, "state": "pending", "attempts": 0, "next_try_at_ms": 0}


def _add_deliveries(connection: Connection, alert_id: str, channels: Sequence[str]) -> None:
    if channels and connection.execute(_CHANNELS_OF, {"alert_id_is": alert_id}).first() is None:
        connection.execute(_INSERT_DELIVERY, [new_delivery(alert_id, channel) for channel in dict.fromkeys(channels)])


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
