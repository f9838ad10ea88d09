"""Reads stored alerts as events, with their deliveries to the channels.

The queries of the outbox, each built once: building a query costs ten times as much as running it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
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

from gpuwatch.ports import Alert, AlertKind, Severity
from gpuwatch.storage.alerts import alert_rows as undelivered
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, to_ms
from gpuwatch.storage.setup.tables import alert, delivery
from gpuwatch.storage.setup.tables import alert as alerts

_IDS_PER_QUERY = 500


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read. `kinds` empty: all; `severity`: this one and more urgent ones."""

    since: datetime
    kinds: Collection[AlertKind] = ()
    severity: Severity = Severity.INFO


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
    severities = [one.value for one in Severity if one.rank >= event_filter.severity.rank]
    query = (
        select(alert.c.alert_id, alert.c.body, alert.c.subject)
        .where(alert.c.created_at_ms >= to_ms(event_filter.since), alert.c.severity.in_(severities))
        .order_by(alert.c.created_at_ms, alert.c.alert_id)
    )
    if event_filter.kinds:
        query = query.where(alert.c.kind.in_([kind.value for kind in event_filter.kinds]))
    with database.read() as connection:
        rows = connection.execute(query).all()
        outcomes = _outcomes(connection, [row.alert_id for row in rows])
    return [_event(row, outcomes.get(row.alert_id, [])) for row in rows]


def relocation_alerts(database: Database, launch_ids: Collection[str]) -> dict[str, Alert]:
    """Return the newest finding that moving would pay, for each of these launches that has one. Raises StoreError."""
    query = select(alert.c.once_key, alert.c.body).where(alert.c.once_key.startswith("relocate:"))
    with database.read() as connection:
        rows = connection.execute(query.order_by(alert.c.created_at_ms)).all()
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


MAX_LEASE_MS = 600_000  # a lease that ends later than this from now was written before the clock was set back
MAX_WAIT_MS = 90_000_000  # 25 h: the same, for waits
_MAX_UNREPORTED = 500  # mentioned in one message; the rest in the next
NOW = bindparam("now_ms", type_=BigInteger)  # parameters: `now_ms`, `alert_id_is`, `channel_is`, `attempts_are`, …

PENDING = select(delivery.c.channel).where(delivery.c.state == "pending").limit(1)
UNREPORTED_COUNTS = (
    select(delivery.c.channel, func.count())
    .where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.channel.not_in(select(delivery.c.channel).where(delivery.c.state == "pending")))
    .group_by(delivery.c.channel)
)
_EXPIRED = select(delivery.c.channel).where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
_UNROUTED = select(alerts.c.alert_id).where(alerts.c.routed_at_ms.is_(None))
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
    return and_(delivery.c.state == "pending", _is_not_leased(), has_expired, undelivered.may_be_lost())


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
        .where(or_(alerts.c.expires_at_ms > NOW, undelivered.is_money_alert()))
        .where(or_(delivery.c.settled_recipients.is_not(None), delivery.c.channel.not_in(waiting_channels)))
        .where(true() if all_channels else delivery.c.channel.in_(bindparam("channels", expanding=True)))
        .where(alerts.c.severity == Severity.CRITICAL.value if only_critical else true())
        .order_by(delivery.c.channel, alerts.c.created_at_ms, delivery.c.alert_id)
        .limit(bindparam("most"))
    )
