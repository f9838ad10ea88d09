"""A channel that accepts nothing for 15 minutes: the others get its alerts, and none about money is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import MONEY_KINDS, AlertKind, Severity
from gpuwatch.storage.setup.database import Database
from tests.engine.scripted_channels import DeliveryBench, Hanging, Scripted

DAY = timedelta(days=1)


@pytest.fixture
def db(sqlite_database: Database) -> Database:
    return sqlite_database


def down(name: str, error: Exception | None = None) -> Scripted:
    """A channel that accepts nothing until its script is cleared."""
    return Scripted(name, *[error or DeliverLater(f"{name}: no connection")] * 10_000)


def minutes(bench: DeliveryBench, first: int, last: int) -> None:
    """Two deliveries a minute."""
    for half in range(first * 2, last * 2 + 1):
        bench.send_due(half * 30)


def ids(channel: Scripted, *kinds: AlertKind) -> list[str]:
    return [alert.alert_id for alert in channel.sent if alert.kind in (kinds or set(AlertKind) - {AlertKind.CHANNEL})]


# --- failover --------------------------------------------------------------------------------------------------------
def test_after_a_quarter_of_an_hour_the_other_channels_get_what_waits(database: Database) -> None:
    broken, other = down("telegram"), Scripted("email")
    bench = DeliveryBench(database, broken, other)
    for number, kind in enumerate((AlertKind.MATCH, AlertKind.RENT, AlertKind.BLIND)):
        bench.enqueue(f"a{number}", kind, after_s=number, channels=("telegram",))
    minutes(bench, 0, 14)
    assert ids(other) == []
    minutes(bench, 15, 17)
    assert ids(other) == ["a0", "a1", "a2"]
    minutes(bench, 18, 30)
    assert len(ids(other)) == 3


@pytest.mark.parametrize(
    "error", [DeliverLater("no connection"), DeliverLater("429", 600), DeliveryRefused("bot blocked")]
)
def test_whatever_is_wrong_new_alerts_do_not_wait_a_quarter_of_an_hour_each(db: Database, error: Exception) -> None:
    broken, other = down("telegram", error), Scripted("email")
    bench = DeliveryBench(db, broken, other)
    bench.enqueue("a1", AlertKind.RENT, channels=("telegram",), life=DAY)
    minutes(bench, 0, 20)
    bench.enqueue("a2", AlertKind.END, after_s=1200, channels=("telegram",), life=DAY)
    minutes(bench, 20, 22)
    assert ids(other) == ["a1", "a2"]


def test_a_hanging_channel_is_logged_after_a_minute_reported_and_replaced(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, other = Hanging("email"), Scripted("telegram")
    bench = DeliveryBench(db, hanging, other, patience_s=0.01)
    bench.enqueue("a1", AlertKind.RENT, channels=("email",), life=DAY)
    bench.send_due(1)
    bench.send_due(59)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    for second in range(61, 1000, 15):
        bench.send_due(second)
    bench.send_until(lambda: "a1" in ids(other), after_s=1000)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["email does not accept alerts: no answer for a minute"]
    (report,) = [alert for alert in other.sent if alert.kind is AlertKind.CHANNEL]
    assert report.headline == "email does not deliver alerts"
    hanging.let_go.set()
    assert bench.deliverer.close()


@pytest.mark.slow
def test_an_outage_is_reported_once_on_the_other_channels_however_long_it_lasts(db: Database) -> None:
    broken, other = down("telegram"), Scripted("email")
    bench = DeliveryBench(db, broken, other)
    bench.enqueue("a1", AlertKind.RENT, life=DAY)
    minutes(bench, 0, 130)
    (report,) = [alert for alert in other.sent if alert.kind is AlertKind.CHANNEL]
    assert "no connection" in as_text(report)


def test_a_restart_does_not_begin_the_quarter_of_an_hour_again(db: Database) -> None:
    other = Scripted("email")
    for start in range(0, 20, 5):
        bench = DeliveryBench(db, down("telegram"), other)
        if start == 0:
            bench.enqueue("a1", AlertKind.RENT, channels=("telegram",), life=DAY)
        minutes(bench, start, start + 4)
        bench.deliverer.close()
    assert ids(other) == ["a1"]


def test_a_channel_that_works_keeps_its_alerts_to_itself(db: Database) -> None:
    first, second = Scripted("telegram"), Scripted("email")
    bench = DeliveryBench(db, first, second)
    bench.enqueue("a1", AlertKind.RENT, channels=("telegram",), life=DAY)
    minutes(bench, 0, 40)
    assert ids(first) == ["a1"]
    assert ids(second) == []


def test_a_channel_for_urgent_alerts_gets_money_and_nothing_else_in_place_of_another(db: Database) -> None:
    broken, other = down("telegram"), Scripted("email")
    bench = DeliveryBench(db, broken, other, min_severity={"email": Severity.CRITICAL})
    for number, kind in enumerate((AlertKind.MATCH, AlertKind.RENT)):
        bench.enqueue(f"a{number}", kind, after_s=number, channels=("telegram",))
    minutes(bench, 0, 20)
    assert ids(other) == ["a1"]


# --- money -----------------------------------------------------------------------------------------------------------
def test_an_alert_about_money_outlives_any_outage(db: Database) -> None:
    first, second = down("telegram"), down("email")
    bench = DeliveryBench(db, first, second)
    kinds = (*sorted(MONEY_KINDS), AlertKind.MATCH)
    for kind in kinds:
        bench.enqueue(kind.value, kind)
    for day in range(30):
        bench.send_due(1 + day * 86_400)
    second.script.clear()
    for minute in range(0, 60, 10):
        bench.send_due(30 * 86_400 + minute * 60)
    assert ids(second, *kinds) == sorted(MONEY_KINDS)


@pytest.mark.slow
def test_an_alert_about_money_that_every_channel_refused_is_tried_again(database: Database) -> None:
    first, second = down("telegram", DeliveryRefused("bot blocked")), down("email", DeliveryRefused("login refused"))
    bench = DeliveryBench(database, first, second)
    bench.enqueue("money", AlertKind.HELD)
    minutes(bench, 0, 60)
    first.script.clear()
    minutes(bench, 60, 100)
    assert ids(first) == ["money"]


@pytest.mark.slow
def test_what_one_channel_took_expires_in_the_other(db: Database) -> None:
    broken, other = down("telegram"), Scripted("email")
    bench = DeliveryBench(db, broken, other)
    bench.enqueue("money", AlertKind.HELD)
    minutes(bench, 0, 70)
    broken.script.clear()
    minutes(bench, 71, 100)
    assert ids(other) == ["money"]
    assert ids(broken) == []
    assert any("headline of money" in as_text(alert) for alert in broken.sent)
