"""`db prune` also forgets alerts that every channel is done with."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.ports import Alert, AlertKind
from gpuwatch.storage import new_alerts
from gpuwatch.storage.database import Database
from gpuwatch.storage.outbox import Outbox
from gpuwatch.storage.prune import prune
from tests.builders import NOON
from tests.outbox import news

MONTH = timedelta(days=30)


def an_alert(alert_id: str) -> Alert:
    return Alert(alert_id=alert_id, kind=AlertKind.MATCH, created_at=NOON, headline="h100: cheap")


def put(database: Database, alert_id: str, once_key: str | None = None) -> None:
    with database.write() as connection:
        new_alerts.enqueue(connection, news(an_alert(alert_id), ["telegram"], NOON + timedelta(hours=1), once_key))


def send_all(database: Database) -> None:
    sending = Outbox(database)
    for due in sending.lease(NOON, 100, 60.0):
        sending.settle_sent(due, NOON)


def test_a_reported_alert_goes_one_that_waits_or_is_reported_once_stays(database: Database) -> None:
    put(database, "told")
    put(database, "once", once_key="orphan:vastai:5")
    send_all(database)
    put(database, "waiting")
    assert prune(database, MONTH, NOON + 2 * MONTH).alerts == 1
    with database.read() as connection:
        left = {row[0] for row in connection.exec_driver_sql("SELECT alert_id FROM alert")}
    assert left == {"once", "waiting"}


def test_nothing_young_is_forgotten(database: Database) -> None:
    put(database, "told")
    send_all(database)
    assert prune(database, MONTH, NOON + timedelta(days=1)).alerts == 0
