"""Reads stored alerts as events, with their deliveries to the channels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from gpuwatch.ports import Alert, AlertKind, Severity
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, to_ms
from gpuwatch.storage.setup.tables import alert, delivery

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
