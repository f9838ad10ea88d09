"""Channels that reject: the others report it, nothing is tried too often, and reports cause no further reports."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from gpuwatch.engine.alerts.alert_delivery import PROBE_AFTER_S
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.storage.setup.database import Database
from tests.engine.scripted_channels import HOUR, DeliveryBench, Scripted


@pytest.fixture
def db(sqlite_database: Database) -> Database:
    return sqlite_database


def test_a_refusing_channel_is_reported_by_the_others_with_what_it_refused(db: Database) -> None:
    """A05."""
    broken, other = Scripted("telegram", DeliveryRefused("telegram: 403 Forbidden: bot was blocked")), Scripted("email")
    bench = DeliveryBench(db, broken, other)
    bench.enqueue(channels=("telegram",))
    bench.send_due(1)
    bench.send_due(2)
    assert {alert.kind for alert in other.sent} == {AlertKind.HELD, AlertKind.CHANNEL}
    reported = next(alert for alert in other.sent if alert.kind is AlertKind.CHANNEL)
    assert "403 Forbidden: bot was blocked" in as_text(reported)
    assert [fault.channel for fault in bench.outbox.broken_channels()] == ["telegram"]


class Picky(Scripted):
    """Accepts everything except the first."""

    def send(self, alert: Alert) -> None:
        if alert.alert_id == "a1":
            raise DeliveryRefused("400: can't parse entities")
        super().send(alert)


@pytest.mark.parametrize(("kind", "tries"), [(AlertKind.MATCH, ["a1"]), (AlertKind.HELD, ["a1", "a1"])])
def test_a_refused_alert_is_sent_again_only_if_it_is_about_money(
    db: Database, kind: AlertKind, tries: list[str]
) -> None:
    channel = Scripted("telegram", DeliveryRefused("403"))
    bench = DeliveryBench(db, channel)
    bench.enqueue(kind=kind, life=timedelta(days=7))
    for second in range(1, 10_000, 100):
        bench.send_due(second)
    assert channel.tries == tries


def test_what_is_never_taken_does_not_keep_the_next_from_its_turn(db: Database) -> None:
    channel = Picky("telegram")
    bench = DeliveryBench(db, channel)
    for alert_id in ("a1", "a2", "a3"):
        bench.enqueue(alert_id, AlertKind.HELD, life=timedelta(days=7))
    for second in range(0, 4 * 3600, 60):
        bench.send_due(second)
    assert {alert.alert_id for alert in channel.sent} == {"a2", "a3"}


@pytest.mark.slow
def test_a_wrong_password_is_used_three_times_an_hour_at_most(db: Database) -> None:
    """A14."""
    channel = Scripted("email", *[DeliveryRefused("535")] * 1000)
    bench = DeliveryBench(db, channel)
    for number in range(100):
        bench.enqueue(f"a{number:02}", AlertKind.HELD, life=timedelta(days=7))
    for second in range(0, 3600, 30):
        bench.send_due(second)
    assert len(channel.tries) <= 3


@pytest.mark.slow
def test_alerts_about_refused_alerts_do_not_feed_on_themselves(db: Database) -> None:
    """A19: both channels refuse everything for six hours, and something new is reported every minute."""
    channels = [Scripted(name, *[DeliveryRefused("403")] * 10_000) for name in ("telegram", "email")]
    bench = DeliveryBench(db, *channels)
    for minute in range(360):
        bench.enqueue(f"a{minute:03}", AlertKind.MATCH, after_s=minute * 60)
        bench.send_due(minute * 60)
    for channel in channels:
        assert channel.kinds.count(AlertKind.CHANNEL) <= 6
        assert len(channel.tries) <= 3 * 6 + 1


def test_a_broken_channel_is_not_reported_twice_within_an_hour(db: Database) -> None:
    """Even if a full hour of the clock lies between."""
    broken, other = Scripted("telegram", *[DeliveryRefused("403")] * 2), Scripted("email")
    bench = DeliveryBench(db, broken, other)
    bench.enqueue("a1", after_s=3000)
    bench.send_due(3001)
    bench.enqueue("a2", after_s=4200)
    bench.send_due(4202)
    bench.send_due(4203)
    assert len(broken.tries) == 2
    assert other.kinds.count(AlertKind.CHANNEL) == 1


def test_a_channel_that_was_mended_mentions_what_it_refused(db: Database) -> None:
    channel = Scripted("telegram", DeliveryRefused("403"))
    bench = DeliveryBench(db, channel)
    bench.enqueue("refused")
    bench.send_due(1)
    bench.enqueue("later", after_s=PROBE_AFTER_S, life=HOUR)
    bench.send_due(PROBE_AFTER_S + 2)
    assert "headline of refused" in as_text(channel.sent[0])
    assert bench.outbox.broken_channels() == []


def test_no_channel_left_is_critical(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A18."""
    bench = DeliveryBench(db, Scripted("telegram", DeliveryRefused("403")))
    bench.enqueue()
    bench.send_due()
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


def test_an_alert_that_is_only_put_off_is_not_critical_until_it_has_waited_a_quarter_of_an_hour(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bench = DeliveryBench(db, Scripted("webhook", *[DeliverLater("429", 300)] * 9))
    bench.enqueue(kind=AlertKind.RENT, life=HOUR)
    for second in range(0, 840, 60):
        bench.send_due(second)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for second in range(840, 1800, 60):
        bench.send_due(second)
    assert [record.levelname for record in caplog.records] == ["WARNING", "CRITICAL"]


def test_a_recipient_that_rejects_is_reported_and_is_not_a_channel_without_alerts(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    in_part = DeliveryRefused("email: j@x: 550 no", taken=("one", "!two"), refused="j@x: 550 no")
    for others in ([], [Scripted("telegram")]):
        caplog.clear()
        bench = DeliveryBench(db, Scripted("email", *[in_part] * 3), *others)
        for number in range(3):
            bench.enqueue(f"a{number}-{len(others)}", after_s=number * 60)
            bench.send_due(number * 60)
            bench.send_due(number * 60 + 1)
        assert [record.getMessage() for record in caplog.records] == [
            "email: some recipients reject alerts: j@x: 550 no"
        ]
    [report] = [alert for alert in others[0].sent if alert.kind is AlertKind.CHANNEL]
    assert report.headline == "email does not reach all of its recipients"
    assert "j@x: 550 no" in as_text(report)


def test_a_failure_is_logged_once_and_the_recovery_once(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpuwatch")
    bench = DeliveryBench(db, Scripted("telegram", *[DeliverLater("502")] * 3), Scripted("email"))
    bench.enqueue(channels=("telegram",))
    for second in range(1, 60):
        bench.send_due(second)
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["telegram does not accept alerts: 502", "telegram accepts alerts again"]
