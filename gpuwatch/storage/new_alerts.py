"""How an alert gets into the store, and from there to its channels.

It is written in the transaction of what caused it. `routed_at_ms` is NULL until the daemon has logged it and given it
to its channels: then it has one row in `delivery` for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, insert, select, update

from gpuwatch.ports import Alert, OutboxAlert, UnroutedAlert
from gpuwatch.storage.rows import insert_if_absent, to_ms
from gpuwatch.storage.tables import alert as alerts
from gpuwatch.storage.tables import delivery, silence

_INSERT_DELIVERY = insert(delivery)  # built once: an alert is part of the transaction that a rent waits for
_SUBJECT_LENGTH = 200
_UNROUTED = (
    select(alerts.c.body, (silence.c.until_ms > alerts.c.created_at_ms).label("silenced"))
    .outerjoin(silence, silence.c.watch == alerts.c.watch)
    .where(alerts.c.routed_at_ms.is_(None))
    .order_by(alerts.c.created_at_ms, alerts.c.alert_id)
    .limit(200)
)


def enqueue(connection: Connection, news: OutboxAlert) -> bool:
    """Write an alert into the caller's transaction; it is logged and given to its channels afterwards (`route`).

    Returns:
        False if an alert with this `once_key` exists; nothing is written then.
    """
    alert = news.alert
    row = {
        "alert_id": alert.alert_id,
        "kind": alert.kind.value,
        "severity": alert.severity.value,
        "subject": alert.subject[:_SUBJECT_LENGTH],
        "headline": alert.headline,
        "watch": alert.watch,
        "created_at_ms": to_ms(alert.created_at),
        "expires_at_ms": to_ms(news.expires_at),
        "body": msgspec.json.encode(alert).decode(),
        "once_key": news.once_key,
    }
    if not insert_if_absent(connection, alerts, row, "once_key"):
        return False
    if news.channels:
        rows = [new_delivery(alert.alert_id, channel) for channel in dict.fromkeys(news.channels)]
        connection.execute(_INSERT_DELIVERY, rows)
    return True


def unrouted(connection: Connection) -> list[UnroutedAlert]:
    """Alerts that were stored since `route`, oldest first; some of them, if there are many."""
    return [
        UnroutedAlert(alert=msgspec.json.decode(row.body, type=Alert), silenced=bool(row.silenced))
        for row in connection.execute(_UNROUTED)
    ]


def route(connection: Connection, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
    """Give alerts, by their ids, to channels. What has channels already keeps those."""
    for alert_id, names in channels.items():
        waiting = and_(alerts.c.alert_id == alert_id, alerts.c.routed_at_ms.is_(None))
        if connection.execute(update(alerts).where(waiting).values(routed_at_ms=to_ms(now))).rowcount:
            _give(connection, alert_id, names)


def new_delivery(alert_id: str, channel: str) -> dict[str, Any]:
    """A row of `delivery` that waits to be sent."""
    # due from 1970 on, not from now: a clock that is set back must not hold a new alert
    return {"alert_id": alert_id, "channel": channel, "state": "pending", "attempts": 0, "next_try_at_ms": 0}


def _give(connection: Connection, alert_id: str, channels: Sequence[str]) -> None:
    its_own = select(delivery.c.channel).where(delivery.c.alert_id == alert_id)
    if channels and connection.execute(its_own).first() is None:
        connection.execute(_INSERT_DELIVERY, [new_delivery(alert_id, channel) for channel in dict.fromkeys(channels)])
