"""Alerts as rows: stored in the transaction of their cause, routed to channels later, read again as events.

`routed_at_ms` is NULL until the daemon has logged an alert and routed it to its channels; then it has one row in
`delivery` for each channel. The alerts of a silenced watch are stored and logged, but not sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.ports import (
    Alert,
    AlertKind,
    OutboxAlert,
    Severity,
    UnroutedAlert,
)
from gpuwatch.storage.setup.database import Database, owner_in
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.setup.side_tables import delivery, silence
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, insert_if_absent, to_ms, upsert

_CLOCKS_DIFFER_MS = 120_000  # between the hosts of several daemons
_SUBJECT_LENGTH = 200
_IDS_PER_QUERY = 500


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

    def silence(self, entry: Silence, audit: OutboxAlert | None = None) -> None:
        """Silence a watch; replaces an earlier silence."""
        row = {"watch": entry.watch, "created_at_ms": to_ms(entry.at), "until_ms": to_ms(entry.until)}
        with self._database.write() as connection:
            upsert(connection, silence, row)
            add_audit(connection, audit)

    def end(self, watch: str, now: datetime, audit: OutboxAlert | None = None) -> bool:
        """Send its alerts again; False: it was not silenced."""
        with self._database.write() as connection:
            statement = delete(silence).where(silence.c.watch == watch).returning(silence.c.until_ms)
            until_ms = connection.execute(statement).scalar_one_or_none()
            was_silenced = until_ms is not None and until_ms > to_ms(now)
            if was_silenced:
                add_audit(connection, audit)
        return was_silenced

    def in_force(self, now: datetime) -> Sequence[Silence]:
        """Return the current silences, by watch."""
        query = select(silence).where(in_force_at(to_ms(now))).order_by(silence.c.watch)
        with self._database.read() as connection:
            return [
                Silence(watch=row.watch, at=from_ms(row.created_at_ms), until=from_ms(row.until_ms))
                for row in connection.execute(query)
            ]


_INSERT_DELIVERY = insert(delivery)  # built once: an alert is part of the transaction that a rent waits for
_UNROUTED = (
    select(alerts.c.body, in_force_at(alerts.c.created_at_ms).label("silenced"))
    .outerjoin(silence, silence.c.watch == alerts.c.watch)
    .where(alerts.c.routed_at_ms.is_(None), alerts.c.owner == bindparam("owner_is"))
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
        "owner": owner_in(connection) if alert.watch is None else owner_of(alert.watch),
    }
    if not insert_if_absent(connection, alerts, row, "once_key"):
        return False
    if outbox_alert.channels:
        rows = [new_delivery(alert.alert_id, channel) for channel in dict.fromkeys(outbox_alert.channels)]
        connection.execute(_INSERT_DELIVERY, rows)
    return True


def add_audit(connection: Connection, audit: OutboxAlert | None) -> None:
    """Write the audit event of a change into its transaction; None: the change is not an action of the owner."""
    if audit is not None:
        enqueue(connection, audit)


def newest_key(connection: Connection, prefix: str, now: datetime) -> str | None:
    """Return the newest `once_key` that begins so, of an alert that has not expired."""
    begins_so = alerts.c.once_key.startswith(prefix, autoescape=True)
    query = select(alerts.c.once_key).where(begins_so, alerts.c.expires_at_ms > to_ms(now))
    return connection.execute(query.order_by(alerts.c.created_at_ms.desc()).limit(1)).scalar_one_or_none()


def unrouted(connection: Connection, owner: str) -> list[UnroutedAlert]:
    """Return an owner's alerts without a route, oldest first; only some of them if there are many."""
    return [
        UnroutedAlert(alert=msgspec.json.decode(row.body, type=Alert), silenced=bool(row.silenced))
        for row in connection.execute(_UNROUTED, {"owner_is": owner})
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


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read. `kinds` empty: all; `severity`: this one and more urgent ones; `watch`: of it alone."""

    since: datetime
    kinds: Collection[AlertKind] = ()
    severity: Severity = Severity.INFO
    watch: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of an event on one channel: `pending`, `sent`, `expired` or `refused`; `at`: when it was sent."""

    channel: str
    state: str
    at: datetime | None


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `subject` is as stored: in an older alert it is the only place that names the subject."""

    alert: Alert
    subject: str
    outcomes: tuple[Outcome, ...]


def events(database: Database, event_filter: EventFilter) -> Sequence[StoredEvent]:
    """Return events, oldest first. Raises StoreError."""
    return _events(database, _matching(event_filter).order_by(alerts.c.created_at_ms, alerts.c.alert_id))


def newest_events(database: Database, event_filter: EventFilter, first: int, count: int) -> Sequence[StoredEvent]:
    """Return `count` events, newest first, after the `first` newest ones. Raises StoreError."""
    newest = _matching(event_filter).order_by(alerts.c.created_at_ms.desc(), alerts.c.alert_id.desc())
    return _events(database, newest.offset(first).limit(count))


def _matching(event_filter: EventFilter) -> Select[Any]:
    severities = [one.value for one in Severity if one.rank >= event_filter.severity.rank]
    query = select(alerts.c.alert_id, alerts.c.body, alerts.c.subject).where(
        alerts.c.created_at_ms >= to_ms(event_filter.since), alerts.c.severity.in_(severities)
    )
    if event_filter.kinds:
        query = query.where(alerts.c.kind.in_([kind.value for kind in event_filter.kinds]))
    return query if event_filter.watch is None else query.where(alerts.c.watch == event_filter.watch)


def _events(database: Database, query: Select[Any]) -> Sequence[StoredEvent]:
    with database.read() as connection:
        rows = connection.execute(query).all()
        outcomes = _outcomes(connection, [row.alert_id for row in rows])
    return [_event(row, outcomes.get(row.alert_id, [])) for row in rows]


def relocation_alerts(database: Database, launch_ids: Collection[str]) -> dict[str, Alert]:
    """Return the newest finding that moving would pay, for each of these launches that has one. Raises StoreError."""
    query = select(alerts.c.once_key, alerts.c.body).where(alerts.c.once_key.startswith("relocate:"))
    with database.read() as connection:
        rows = connection.execute(query.order_by(alerts.c.created_at_ms)).all()
    newest = {row.once_key.rpartition(":")[2]: row.body for row in rows}
    return {
        launch_id: msgspec.json.decode(newest[launch_id], type=Alert) for launch_id in launch_ids if launch_id in newest
    }


def _event(row: AnyRow, outcomes: Sequence[Outcome]) -> StoredEvent:
    body = msgspec.json.decode(row.body, type=Alert)
    return StoredEvent(alert=body, subject=row.subject or body.subject, outcomes=tuple(outcomes))


def _outcomes(connection: Connection, ids: Sequence[str]) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {}
    for first in range(0, len(ids), _IDS_PER_QUERY):
        is_in_chunk = delivery.c.alert_id.in_(ids[first : first + _IDS_PER_QUERY])
        for row in connection.execute(select(delivery).where(is_in_chunk).order_by(delivery.c.channel)):
            at = from_ms(row.sent_at_ms) if row.state == "sent" else None
            outcomes.setdefault(row.alert_id, []).append(Outcome(channel=row.channel, state=row.state, at=at))
    return outcomes
