"""Stores an alert, and routes it to its channels.

It is written in the transaction of its cause. `routed_at_ms` is NULL until the daemon has logged it and routed it to
its channels; then it has one row in `delivery` for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from gpuwatch.ports import Alert, OutboxAlert, UnroutedAlert
from gpuwatch.storage.alerts.silences import in_force_at
from gpuwatch.storage.setup.stored_values import insert_if_absent, to_ms
from gpuwatch.storage.setup.tables import alert as alerts
from gpuwatch.storage.setup.tables import delivery, silence

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
