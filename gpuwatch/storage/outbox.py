"""The outbox: one row per alert and channel, written in the transaction of what caused it, leased to be sent.

How the columns of `delivery` are used: a channel rests while a row that was tried there (`attempts` > 0, `taken` NULL)
has its `next_try_at_ms` ahead, whatever its state, so that a wait outlives the alert that met it. `sent_at_ms` of an
expired or refused row is when a later message of that channel mentioned it. `taken` is set where some of several
recipients have it: such a row waits for itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, insert
from sqlalchemy.dialects import postgresql, sqlite

from gpuwatch.ports import Alert
from gpuwatch.storage.tables import alert as alerts
from gpuwatch.storage.tables import delivery


def put(
    connection: Connection,
    alert: Alert,
    channels: Sequence[str],
    expires_at: datetime,
    once_key: str | None = None,
) -> bool:
    """Write an alert and its deliveries into the caller's transaction.

    Args:
        channels: none is allowed: the alert is then recorded, and sent nowhere.
        once_key: at most one alert ever bears it.

    Returns:
        False if `once_key` was told already; nothing is written then.
    """
    dialect_insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    row = {
        "alert_id": alert.alert_id,
        "kind": alert.kind.value,
        "watch": alert.watch,
        "created_at_ms": _ms(alert.created_at),
        "expires_at_ms": _ms(expires_at),
        "body": msgspec.json.encode(alert).decode(),
        "once_key": once_key,
    }
    written = connection.execute(
        dialect_insert(alerts)
        .values(row)
        .on_conflict_do_nothing(index_elements=[alerts.c.once_key])
        .returning(alerts.c.alert_id)
    ).first()
    if written is None:
        return False
    _deliver_on(connection, alert.alert_id, channels, _ms(alert.created_at))
    return True


def _deliver_on(connection: Connection, alert_id: str, channels: Sequence[str], from_ms: int) -> None:
    rows = [
        {"alert_id": alert_id, "channel": channel, "state": "pending", "attempts": 0, "next_try_at_ms": from_ms}
        for channel in dict.fromkeys(channels)
    ]
    if rows:
        connection.execute(insert(delivery), rows)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
