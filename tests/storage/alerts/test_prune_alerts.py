"""`db prune` also deletes alerts that every channel has settled."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.storage.alerts import alert_rows as new_alerts
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, a_watch
from tests.outbox import outbox_alert
from tests.reserving import launch_or_refusal

MONTH = timedelta(days=30)


def an_alert(alert_id: str) -> Alert:
    return Alert(alert_id=alert_id, kind=AlertKind.MATCH, created_at=NOON, headline="h100: cheap")


def put(database: Database, alert_id: str, once_key: str | None = None) -> None:
    with database.write() as connection:
        new_alerts.enqueue(
            connection, outbox_alert(an_alert(alert_id), ["telegram"], NOON + timedelta(hours=1), once_key)
        )
        new_alerts.route(connection, {alert_id: ()}, NOON)


def send_all(database: Database) -> None:
    sending = Outbox(database)
    for due in sending.lease(NOON, 100, 60.0):
        sending.mark_sent(due, NOON)


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


def ids(database: Database) -> set[str]:
    with database.read() as connection:
        return {row[0] for row in connection.exec_driver_sql("SELECT alert_id FROM alert")}


def test_a_key_goes_when_its_launch_is_over_and_never_before(database: Database) -> None:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=60.0))
    intent = Intent(watch=watch, match=a_match(), launch_id="abcdefghijkl", dry_run=False)
    with database.write() as connection:
        launch = launch_or_refusal(connection, intent, Budget(), NOON)
    assert isinstance(launch, Launch)
    put(database, "held", once_key="held:abcdefghijkl:2026-11-21")
    put(database, "rented", once_key="outbid:20261121T120000:0:abcdefghijkl")
    put(database, "hour", once_key="not-rented:h100:REFUSED:2026-11-21T12")
    send_all(database)
    later = NOON + 12 * MONTH
    assert prune(database, MONTH, later).alerts == 1
    assert ids(database) == {"held", "rented"}
    SqlLaunchRepository(database).transition(launch, LaunchState.FAILED, "a test", later, ended_at=later)
    assert prune(database, MONTH, later).alerts == 2


def test_a_key_of_a_window_that_may_still_last_stays(database: Database) -> None:
    put(database, "month", once_key="budget:full:max_usd_month:2026-11:1000:")
    send_all(database)
    assert prune(database, timedelta(days=1), NOON + timedelta(days=9)).alerts == 0
    assert prune(database, timedelta(days=1), NOON + 2 * MONTH).alerts == 1


def test_what_no_daemon_has_seen_stays(database: Database) -> None:
    Outbox(database).enqueue(outbox_alert(an_alert("new"), [], NOON))
    assert prune(database, MONTH, NOON + 2 * MONTH).alerts == 0
