"""The task from the outbox to the owner: nothing lost, nothing doubled, no channel waits for another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.engine.alerts.alert_routing import messages
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.email import EmailChannel, EmailSettings
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert, AlertKind, DueDelivery
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.setup.database import Database
from tests.engine.scripted_channels import HOUR, NOON, DeliveryBench, Hanging, Scripted, Several
from tests.smtp_server import smtp_server
from tests.telegram_double import BLOCKED, CHAT, TOKEN, moved, telegram, too_many


@pytest.fixture
def db(sqlite_database: Database) -> Database:
    return sqlite_database


# --- normal operation ------------------------------------------------------------------------------------------------
def test_an_alert_is_sent_once_by_each_channel(database: Database) -> None:
    telegram_, email = Scripted("telegram"), Scripted("email")
    bench = DeliveryBench(database, telegram_, email)
    bench.enqueue()
    assert bench.send_due() == 2
    assert bench.send_due(2) == 0
    assert [telegram_.tries, email.tries] == [["a1"], ["a1"]]


def test_alerts_arrive_in_the_order_they_were_reported(db: Database) -> None:
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    for number in range(5):
        bench.enqueue(f"a{number}", after_s=number)
    bench.send_due(10)
    assert channel.tries == ["a0", "a1", "a2", "a3", "a4"]


def test_watches_that_fire_together_are_one_message(db: Database) -> None:
    """One poll, one message per channel."""
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    for number in range(3):
        bench.enqueue(f"a{number}", AlertKind.MATCH)
    assert bench.send_due() == 3
    (message,) = channel.sent
    assert [part.alert_id for part in message.parts] == ["a0", "a1", "a2"]
    assert bench.send_due(2) == 0


def test_a_burst_is_one_message_and_what_is_critical_comes_by_itself(db: Database) -> None:
    """A channel that was down for a day must not send forty messages; urgent ones are not hidden among the rest."""
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    for number in range(40):
        bench.enqueue(f"a{number:02}", AlertKind.RECOVERED if number % 2 else AlertKind.BLIND, after_s=number)
    bench.enqueue("held", AlertKind.HELD, after_s=40)
    bench.enqueue("last", AlertKind.RENT, after_s=41)
    assert bench.send_due(60) == 42
    burst, held, last = channel.sent
    assert [part.alert_id for part in burst.parts] == [f"a{number:02}" for number in range(40)]
    assert burst.headline == "40 alerts, the newest: headline of a39"
    assert len(as_text(burst).splitlines()) < 30
    assert (held.alert_id, last.alert_id) == ("held", "last")


def test_a_channel_for_programs_gets_each_alert_by_itself(db: Database) -> None:
    class Programs(Scripted):
        one_by_one = True

    channel = Programs("webhook")
    bench = DeliveryBench(db, channel)
    for number in range(3):
        bench.enqueue(f"a{number}", AlertKind.MATCH)
    bench.send_due()
    assert channel.tries == ["a0", "a1", "a2"]


def test_five_hundred_firing_watches_are_at_most_five_messages(db: Database) -> None:
    """A09."""
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    for number in range(500):
        bench.enqueue(f"a{number:03}", AlertKind.MATCH)
    assert sum(bench.send_due(n) for n in range(1, 6)) == 500
    assert len(channel.sent) <= 5


def test_what_is_sent_while_renting_is_paused_says_so_also_where_alerts_are_put_together(db: Database) -> None:
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    SqlPauseRepository(db).pause(Pause(watch=None, at=NOON, until=NOON + HOUR))
    for number, kind in enumerate((AlertKind.MATCH, AlertKind.MATCH, AlertKind.HELD)):
        bench.enqueue(f"a{number}", kind, after_s=number / 10)
    bench.send_due()
    paused = "Paused: Renting is paused until 2026-11-21 13:00 UTC"
    assert [as_text(sent).count(paused) for sent in channel.sent] == [1, 1]
    SqlPauseRepository(db).resume(None, NOON, "tests")
    bench.enqueue("a4", AlertKind.MATCH, after_s=2)
    bench.send_due(3)
    assert paused not in as_text(channel.sent[-1])


def test_only_offers_are_put_together() -> None:
    kinds = (AlertKind.MATCH, AlertKind.MATCH, AlertKind.HELD, AlertKind.HELD, AlertKind.MATCH)
    deliveries = [
        DueDelivery(
            alert=Alert(alert_id=f"a{n}", kind=kind, created_at=NOON, headline=""), channel="telegram", attempts=0
        )
        for n, kind in enumerate(kinds)
    ]
    assert [len(message.deliveries) for message in messages(deliveries)] == [2, 1, 1, 1]


# --- a temporarily failing channel -----------------------------------------------------------------------------------
def test_nothing_is_asked_of_a_channel_before_its_limit_is_over(db: Database) -> None:
    """A01, for the alerts behind it too."""
    channel = Scripted("telegram", DeliverLater("429", 37))
    bench = DeliveryBench(db, channel)
    bench.enqueue("a1")
    bench.send_due(1)
    bench.enqueue("a2", after_s=2)
    for second in range(2, 38):
        bench.send_due(second)
    assert channel.tries == ["a1"]
    bench.send_due(38)
    assert channel.tries == ["a1", "a1", "a2"]


def test_a_failing_channel_is_asked_ever_more_seldom(db: Database) -> None:
    channel = Scripted("telegram", *[DeliverLater("502")] * 4)
    bench = DeliveryBench(db, channel)
    bench.enqueue()
    tried_at = []
    for second in range(1, 100):
        before = len(channel.tries)
        bench.send_due(second)
        if len(channel.tries) > before:
            tried_at.append(second)
    assert tried_at == [1, 6, 16, 36, 76]
    assert len(channel.sent) == 1


def test_mail_is_tried_again_as_greylisting_wants_it(db: Database) -> None:
    channel = Scripted("email", *[DeliverLater("451", waits_s=(300, 900))] * 2)
    bench = DeliveryBench(db, channel)
    bench.enqueue()
    for second in (1, 300, 301, 1200, 1201):
        bench.send_due(second)
    assert len(channel.tries) == 3
    assert len(channel.sent) == 1


@pytest.mark.parametrize("wait_s", [float("nan"), float("inf"), -5.0, 0.0, 1e12])
def test_an_absurd_wait_does_no_harm(db: Database, wait_s: float) -> None:
    channel = Scripted("telegram", DeliverLater("429", wait_s))
    bench = DeliveryBench(db, channel)
    bench.enqueue(life=timedelta(days=7))
    bench.send_due(1)
    bench.send_due(2 * 86_400)
    assert len(channel.sent) == 1


def test_a_long_wait_sends_the_alert_by_the_other_channels_too(db: Database) -> None:
    """A02."""
    first, second = Scripted("telegram", DeliverLater("429", 7200)), Scripted("email")
    bench = DeliveryBench(db, first, second)
    bench.enqueue(channels=("telegram",), life=timedelta(days=1))
    bench.send_due(1)
    bench.send_due(2)
    assert second.tries == ["a1"]
    bench.send_due(7200)
    assert len(first.tries) == 1
    bench.send_due(7201)
    assert len(first.sent) == 1


@pytest.mark.slow
def test_after_an_outage_the_fresh_arrives_in_order_and_the_stale_is_mentioned(db: Database) -> None:
    """A07: six hours without Telegram."""
    channel = Scripted("telegram", *[DeliverLater("502")] * 200)
    bench = DeliveryBench(db, channel)
    bench.enqueue("stale", AlertKind.MATCH)
    for minute in range(1, 360):
        if minute == 100:
            bench.enqueue("held1", AlertKind.HELD, after_s=6000, life=timedelta(days=7))
        if minute == 340:
            bench.enqueue("held2", AlertKind.HELD, after_s=20400, life=timedelta(days=7))
        bench.send_due(minute * 60)
    channel.script.clear()
    for minute in range(360, 380):
        bench.send_due(minute * 60)
    assert [alert.alert_id for alert in channel.sent if alert.kind is AlertKind.HELD] == ["held1", "held2"]
    assert ["headline of stale" in as_text(alert) for alert in channel.sent] == [True, False, False]


def test_what_expired_with_nothing_behind_it_is_reported_by_itself(db: Database) -> None:
    channel = Scripted("telegram", *[DeliverLater("502")] * 100)
    bench = DeliveryBench(db, channel)
    bench.enqueue("stale", AlertKind.MATCH)
    for minute in range(1, 70):
        bench.send_due(minute * 60)
    channel.script.clear()
    for minute in range(70, 100):
        bench.send_due(minute * 60)
    (summary,) = channel.sent
    assert summary.headline == "telegram did not deliver 1 alert in time"
    assert "headline of stale" in as_text(summary)


def test_one_message_that_never_passes_does_not_hold_the_others_for_ever(db: Database) -> None:
    class Picky(Scripted):
        def send(self, alert: Alert) -> None:
            self.tries.append(alert.alert_id)
            if alert.alert_id == "poison":
                raise DeliverLater("451 cannot look into it now")
            self.sent.append(alert)

    channel = Picky("email")
    bench = DeliveryBench(db, channel)
    bench.enqueue("poison")
    bench.enqueue("a2", after_s=1)
    for second in range(1, 60):
        bench.send_due(second)
    assert [alert.alert_id for alert in channel.sent] == ["a2"]


def test_a_broken_channel_plugin_loses_nothing(db: Database) -> None:
    channel = Scripted("apprise", ZeroDivisionError("bug"))
    bench = DeliveryBench(db, channel)
    bench.enqueue()
    bench.send_due(1)
    bench.send_due(6)
    assert len(channel.sent) == 1


# --- several recipients ----------------------------------------------------------------------------------------------
def test_who_has_it_is_not_mailed_again_and_holds_up_nobody(db: Database) -> None:
    channel = Several("email", DeliverLater("451", waits_s=(300,), taken=("k1", "k2")))
    bench = DeliveryBench(db, channel)
    bench.enqueue("a1")
    bench.enqueue("a2", after_s=1)
    bench.send_due(2)
    assert channel.tries == ["a1", "a2"]
    bench.send_due(400)
    assert channel.taken == [("k1", "k2")]
    assert channel.tries == ["a1", "a2", "a1"]


def test_what_some_have_is_remembered_through_a_later_failure(db: Database) -> None:
    channel = Several("email", DeliverLater("451", taken=("k1",)), DeliverLater("connection refused"))
    bench = DeliveryBench(db, channel)
    bench.enqueue()
    for second in (1, 10, 100):
        bench.send_due(second)
    assert channel.taken == [("k1",), ("k1",)]
    assert len(channel.sent) == 1


def test_one_refused_recipient_is_reported_and_the_alert_counts_as_sent(db: Database) -> None:
    """A11."""
    error = DeliveryRefused("550", taken=("k1", "!k2"), refused="b@example.org: 550 no such user")
    email, other = Several("email", error), Scripted("telegram")
    bench = DeliveryBench(db, email, other)
    bench.enqueue()
    bench.send_due(1)
    bench.send_due(2000)
    assert len(email.tries) == 1
    assert "b@example.org: 550 no such user" in as_text(other.sent[-1])


# --- threads ---------------------------------------------------------------------------------------------------------
def test_a_hanging_channel_delays_no_other(db: Database) -> None:
    """A13."""
    slow, quick = Hanging("email"), Scripted("telegram")
    bench = DeliveryBench(db, slow, quick, patience_s=0.05)
    bench.enqueue("a1")
    bench.send_until(lambda: quick.tries == ["a1"])
    bench.enqueue("a2", after_s=2)
    bench.send_until(lambda: quick.tries == ["a1", "a2"], after_s=3)
    assert slow.tries == []
    slow.let_go.set()
    assert bench.deliverer.close()
    assert slow.tries == ["a1"]


def test_a_stop_does_not_wait_for_a_channel_that_hangs(db: Database) -> None:
    slow = Hanging("email")
    bench = DeliveryBench(db, slow, patience_s=0)
    bench.enqueue()
    bench.send_due()
    assert not bench.deliverer.close(timeout_s=0.1)
    slow.let_go.set()
    assert bench.deliverer.close()


def test_after_a_stop_nothing_more_is_sent(db: Database) -> None:
    channel = Scripted("telegram")
    bench = DeliveryBench(db, channel)
    bench.enqueue()
    bench.deliverer.close()
    assert bench.send_due() == 0
    assert channel.tries == []


# --- with the real channels ------------------------------------------------------------------------------------------
@contextmanager
def both_servers(db: Database) -> Iterator[tuple[object, object, DeliveryBench]]:
    with telegram() as bot, smtp_server() as box:
        http = PooledHttpClient()
        to_chat = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=bot.base_url)
        to_mail = EmailSettings(
            host="127.0.0.1", port=box.port, security="none", sender="w@example.org", recipients=("me@example.org",)
        )
        bench = DeliveryBench(
            db, TelegramChannel(to_chat, http, sleep=lambda _s: None, jitter=lambda: 0), EmailChannel(to_mail)
        )
        try:
            yield bot, box, bench
        finally:
            bench.deliverer.close()
            http.close()


def test_telegram_and_mail_get_the_same_alert(db: Database) -> None:
    with both_servers(db) as (bot, box, bench):
        bench.enqueue()
        assert bench.send_due() == 2
        assert "headline of a1" in bot.shown[0].text  # type: ignore[attr-defined]
        assert "headline of a1" in box.texts()[0]  # type: ignore[attr-defined]


def test_a_blocked_bot_is_reported_by_mail(db: Database) -> None:
    with both_servers(db) as (bot, box, bench):
        bot.always = BLOCKED  # type: ignore[attr-defined]
        bench.enqueue()
        bench.send_due(1)
        bench.send_due(2)
        assert any("bot was blocked by the user" in text for text in box.texts())  # type: ignore[attr-defined]


def test_a_moved_chat_is_used_reported_and_known_after_a_restart(db: Database) -> None:
    """A04."""
    with both_servers(db) as (bot, box, bench):
        bot.chats, bot.faults = {"-1007"}, [moved(-1007)]  # type: ignore[attr-defined]
        bench.enqueue()
        bench.send_due(1)
        bench.send_due(2)
        assert any("the new address -1007 into the settings" in text for text in box.texts())  # type: ignore[attr-defined]
    with both_servers(db) as (bot, _box, bench):
        bot.chats = {"-1007"}  # type: ignore[attr-defined]
        bench.enqueue("a2", after_s=10)
        bench.send_due(11)
        assert [shown.chat_id for shown in bot.shown] == ["-1007"]  # type: ignore[attr-defined]
        assert len(bot.asked) == 1  # type: ignore[attr-defined]


def test_no_request_is_early_after_a_limit(db: Database) -> None:
    with both_servers(db) as (bot, _box, bench):
        bot.faults = [too_many(37)]  # type: ignore[attr-defined]
        bench.enqueue()
        for second in range(1, 45):
            bench.send_due(second)
            assert len(bot.asked) == (1 if second < 38 else 2)  # type: ignore[attr-defined]
        assert len(bot.shown) == 1  # type: ignore[attr-defined]
