"""The outbox: durable with its cause, leased by one, in order, sent until accepted or too late."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from gpuwatch.ports import Alert, AlertKind, DueDelivery
from gpuwatch.storage.alerts import alert_rows as module
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.setup.side_tables import delivery
from tests.outbox import outbox_alert

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def an_alert(alert_id: str = "a1", at: datetime = NOON, headline: str = "H100 at $3.48") -> Alert:
    return Alert(alert_id=alert_id, kind=AlertKind.MATCH, created_at=at, headline=headline)


def reported(
    database: Database,
    *ids: str,
    channels: Sequence[str] = ("telegram",),
    life: timedelta = HOUR,
    once_key: str | None = None,
) -> Outbox:
    """An outbox with one alert per id, a second apart."""
    box = Outbox(database)
    for number, alert_id in enumerate(ids):
        at = NOON + timedelta(seconds=number)
        box.enqueue(outbox_alert(an_alert(alert_id, at), channels, at + life, once_key))
    return box


def lease(box: Outbox, after_s: float = 60, limit: int = 10, lease_s: float = 60) -> Sequence[DueDelivery]:
    return box.lease(NOON + timedelta(seconds=after_s), limit, lease_s)


def ids(dues: Sequence[DueDelivery]) -> list[str]:
    return [due.alert.alert_id for due in dues]


def state_of(database: Database, alert_id: str = "a1", channel: str = "telegram") -> str:
    query = select(delivery.c.state).where(delivery.c.alert_id == alert_id, delivery.c.channel == channel)
    with database.read() as connection:
        return str(connection.execute(query).scalar_one())


# --- written with its cause ------------------------------------------------------------------------------------------
def test_an_alert_is_kept_only_if_its_transaction_is(database: Database) -> None:
    def put_and_fail() -> None:
        with database.write() as connection:
            module.enqueue(connection, outbox_alert(an_alert(), ["telegram"], NOON + HOUR))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        put_and_fail()
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(alerts)).scalar_one() == 0
        assert connection.execute(select(func.count()).select_from(delivery)).scalar_one() == 0


def test_one_delivery_per_channel(database: Database) -> None:
    box = reported(database, "a1", channels=("telegram", "email", "telegram"))
    assert sorted((due.alert.alert_id, due.channel) for due in lease(box)) == [("a1", "email"), ("a1", "telegram")]


def test_a_once_key_is_reported_once(database: Database) -> None:
    with database.write() as connection:
        assert module.enqueue(
            connection, outbox_alert(an_alert("a1"), ["telegram"], NOON + HOUR, once_key="blind:vastai")
        )
        assert not module.enqueue(
            connection, outbox_alert(an_alert("a2"), ["telegram"], NOON + HOUR, once_key="blind:vastai")
        )
    assert ids(lease(Outbox(database))) == ["a1"]


def test_alerts_without_a_once_key_are_all_reported(database: Database) -> None:
    assert ids(lease(reported(database, "a1", "a2"))) == ["a1", "a2"]


def test_no_channel_records_the_alert_and_sends_nothing(database: Database) -> None:
    assert lease(reported(database, "a1", channels=())) == ()


def test_an_alert_comes_back_as_it_was(database: Database) -> None:
    alert = Alert(
        alert_id="a1",
        kind=AlertKind.HELD,
        created_at=NOON,
        headline="ünïcode \N{PILE OF POO}",
        facts=(("Price", "$3.48"),),
        parts=(an_alert("part"),),
    )
    box = Outbox(database)
    box.enqueue(outbox_alert(alert, ["telegram"], NOON + HOUR))
    assert lease(box)[0].alert == alert


# --- leased ----------------------------------------------------------------------------------------------------------
def test_a_leased_alert_is_given_to_nobody_else(database: Database) -> None:
    box = reported(database, "a1")
    assert ids(lease(box)) == ["a1"]
    assert lease(box) == ()


def test_nothing_of_a_channel_is_leased_while_an_earlier_alert_is_under_way(database: Database) -> None:
    """Otherwise a second daemon would overtake the first."""
    box = reported(database, "a1", "a2")
    lease(box, limit=1)
    assert lease(box) == ()


def test_a_lease_that_ran_out_is_given_again(database: Database) -> None:
    """A crash between sending and settling costs at most one duplicate, and no alert."""
    box = reported(database, "a1")
    lease(box, after_s=60, lease_s=30)
    again = lease(box, after_s=91)
    assert ids(again) == ["a1"]
    assert again[0].attempts == 1


def test_a_released_lease_is_due_at_once_and_counts_no_attempt(database: Database) -> None:
    box = reported(database, "a1")
    box.release(lease(box)[0])
    assert lease(box)[0].attempts == 0


def test_what_waits_for_a_channel_that_is_gone_goes_to_the_others(database: Database) -> None:
    box = reported(database, "a1", channels=("telegram", "email"))
    box.enqueue(outbox_alert(an_alert("a2"), ["telegram"], NOON + HOUR))
    assert box.hand_over(["email", "apprise"], NOON) == (2, 0)
    assert sorted((due.alert.alert_id, due.channel) for due in lease(box)) == [
        ("a1", "apprise"),
        ("a1", "email"),
        ("a2", "apprise"),
        ("a2", "email"),
    ]
    assert box.unreported_failures() == {}
    assert box.broken_channels() == []


def test_what_a_removed_channel_is_still_sending_is_not_handed_over(database: Database) -> None:
    """After a reload the earlier sender may be waiting for its answer."""
    box = reported(database, "a1", "a2", channels=("telegram",))
    (first, second) = lease(box, lease_s=60)
    assert box.hand_over(["email"], NOON) == (0, 2)
    box.mark_sent(first, NOON)
    box.release(second)
    assert box.hand_over(["email"], NOON) == (1, 0)
    assert [(due.alert.alert_id, due.channel) for due in lease(box)] == [("a2", "email")]


def test_without_any_channel_what_waits_goes_on_waiting(database: Database) -> None:
    box = reported(database, "a1")
    assert box.hand_over([], NOON) == (0, 0)
    assert ids(lease(box)) == ["a1"]


def test_who_lost_the_lease_settles_nothing(database: Database) -> None:
    box = reported(database, "a1")
    slow = lease(box, after_s=60, lease_s=30)[0]
    lease(box, after_s=100)
    box.mark_refused(slow, "too late", NOON + HOUR)
    assert state_of(database) == "pending"


def test_a_message_that_was_sent_is_sent_even_if_its_lease_ran_out(database: Database) -> None:
    box = reported(database, "a1")
    slow = lease(box, after_s=60, lease_s=30)[0]
    lease(box, after_s=100)
    box.mark_sent(slow, NOON + timedelta(seconds=110))
    assert state_of(database) == "sent"


def test_only_the_channels_asked_for_are_leased(database: Database) -> None:
    box = reported(database, "a1", channels=("telegram", "email"))
    assert [due.channel for due in box.lease(NOON, 10, 60, ("email",))] == ["email"]


def test_of_several_daemons_one_gets_each_alert(database: Database) -> None:
    reported(database, *(f"a{n:02}" for n in range(20)))
    got: list[str] = []

    def work() -> None:
        own = open_database(database.engine.url.render_as_string(hide_password=False))
        box = Outbox(own)
        for _ in range(60):
            for due in lease(box, limit=2):
                got.append(due.alert.alert_id)
                box.mark_sent(due, NOON)
        own.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [f"a{n:02}" for n in range(20)]


# --- settled ---------------------------------------------------------------------------------------------------------
def test_what_was_sent_is_not_sent_again(database: Database) -> None:
    box = reported(database, "a1")
    box.mark_sent(lease(box)[0], NOON)
    assert lease(box, after_s=3000) == ()


def test_a_channel_rests_until_the_next_try_and_keeps_its_order(database: Database) -> None:
    """The wait also applies to the alerts behind it: the limit is the channel's, not the message's."""
    box = reported(database, "a1", "a2")
    box.postpone(lease(box, limit=1)[0], NOON + timedelta(seconds=97), "429")
    assert lease(box, after_s=96.9) == ()
    assert ids(lease(box, after_s=97)) == ["a1", "a2"]


def test_a_wait_outlives_the_alert_that_met_it(database: Database) -> None:
    box = reported(database, "a1", life=timedelta(seconds=90))
    box.postpone(lease(box)[0], NOON + timedelta(seconds=7200), "429")
    box.expire(NOON + timedelta(seconds=100))
    box.enqueue(outbox_alert(an_alert("a2", NOON + HOUR), ["telegram"], NOON + 3 * HOUR))
    assert lease(box, after_s=7199) == ()
    assert ids(lease(box, after_s=7200)) == ["a2"]


def test_channels_do_not_rest_for_each_other(database: Database) -> None:
    box = reported(database, "a1", channels=("telegram", "email"))
    dues = {due.channel: due for due in lease(box)}
    box.postpone(dues["telegram"], NOON + HOUR, "429")
    box.mark_sent(dues["email"], NOON)
    box.enqueue(outbox_alert(an_alert("a2"), ("telegram", "email"), NOON + HOUR))
    assert [due.channel for due in lease(box)] == ["email"]


def test_one_greylisted_recipient_holds_up_nobody_behind(database: Database) -> None:
    box = reported(database, "a1", "a2", channels=("email",))
    box.postpone(lease(box, limit=1)[0], NOON + timedelta(seconds=360), "451", taken=("k1", "!k2"))
    behind = lease(box, after_s=61)
    assert ids(behind) == ["a2"]
    box.mark_sent(behind[0], NOON)
    again = lease(box, after_s=360)
    assert ids(again) == ["a1"]
    assert again[0].taken == ("k1", "!k2")


def test_a_refusing_channel_is_probed_and_not_hammered(database: Database) -> None:
    box = reported(database, "a1", "a2")
    box.mark_refused(lease(box, limit=1)[0], "403 blocked", NOON + timedelta(seconds=1260))
    assert lease(box, after_s=1259) == ()
    assert ids(lease(box, after_s=1260)) == ["a2"]


def test_an_alert_can_be_sent_by_other_channels_too(database: Database) -> None:
    box = reported(database, "a1")
    lease(box)
    assert box.add_deliveries("a1", ("telegram", "email")) == 1
    assert [due.channel for due in lease(box)] == ["email"]


def test_no_secret_is_kept_in_last_error(database: Database) -> None:
    box = reported(database, "a1")
    token = "8123456789:AAHfTelegramTokenTelegramTokenTelegr"
    box.postpone(lease(box)[0], NOON + HOUR, f"POST https://api.telegram.org/bot{token}/sendMessage failed")
    with database.read() as connection:
        kept = connection.execute(select(delivery.c.last_error)).scalar_one()
    assert token not in str(kept)


# --- expired ---------------------------------------------------------------------------------------------------------
def test_an_alert_past_its_time_is_expired_and_not_sent(database: Database) -> None:
    box = reported(database, "a1")
    assert lease(box, after_s=3601) == ()
    assert box.expire(NOON + timedelta(seconds=3601)) == 1
    assert state_of(database) == "expired"


def test_what_is_being_sent_does_not_expire(database: Database) -> None:
    box = reported(database, "a1")
    lease(box, after_s=3590)
    assert box.expire(NOON + timedelta(seconds=3601)) == 0


def test_the_next_alert_mentions_what_was_missed_once(database: Database) -> None:
    box = reported(database, "a1", "a2", life=timedelta(seconds=10))
    box.expire(NOON + HOUR)
    box.enqueue(outbox_alert(an_alert("a3", NOON + HOUR), ["telegram"], NOON + 2 * HOUR))
    due = lease(box, after_s=3600)[0]
    assert [alert_id for alert_id, _ in due.unreported] == ["a1", "a2"]
    box.mark_sent(due, NOON + HOUR)
    box.enqueue(outbox_alert(an_alert("a4", NOON + HOUR), ["telegram"], NOON + 2 * HOUR))
    assert lease(box, after_s=3700)[0].unreported == ()


def test_of_several_that_are_due_the_first_mentions_what_was_missed(database: Database) -> None:
    box = reported(database, "a1", life=timedelta(seconds=10))
    box.expire(NOON + HOUR)
    for alert_id in ("a2", "a3"):
        box.enqueue(outbox_alert(an_alert(alert_id, NOON + HOUR), ["telegram"], NOON + 2 * HOUR))
    assert [len(due.unreported) for due in lease(box, after_s=3600)] == [1, 0]


def test_what_was_missed_is_mentioned_again_if_the_mention_did_not_arrive(database: Database) -> None:
    box = reported(database, "a1", life=timedelta(seconds=10))
    box.expire(NOON + HOUR)
    box.enqueue(outbox_alert(an_alert("a2", NOON + HOUR), ["telegram"], NOON + 2 * HOUR))
    box.postpone(lease(box, after_s=3600)[0], NOON + HOUR, "503")
    assert len(lease(box, after_s=3700)[0].unreported) == 1


def test_a_channel_with_nothing_left_to_mention_its_losses_is_unsaid(database: Database) -> None:
    box = reported(database, "a1", "a2", life=timedelta(seconds=10))
    assert box.unreported_failures() == {}
    box.expire(NOON + HOUR)
    assert [count for count, _ in box.unreported_failures().values()] == [2]
    box.enqueue(outbox_alert(an_alert("a3", NOON + HOUR), ["telegram"], NOON + 2 * HOUR))
    assert box.unreported_failures() == {}


def test_losses_of_a_broken_channel_wait_until_it_works(database: Database) -> None:
    box = reported(database, "a1", "a2", life=timedelta(seconds=100))
    box.mark_refused(lease(box, limit=1)[0], "403", NOON + HOUR)
    box.expire(NOON + HOUR)
    assert box.unreported_failures() == {}


# --- clocks that jump ------------------------------------------------------------------------------------------------
def test_a_clock_set_back_holds_no_new_alert(database: Database) -> None:
    box = reported(database, "a1")
    assert ids(lease(box, after_s=-7200)) == ["a1"]


def test_a_clock_set_back_by_days_frees_leases_and_waits(database: Database) -> None:
    box = reported(database, "a1", life=timedelta(days=9))
    lease(box, after_s=0)
    assert ids(lease(box, after_s=-7 * 86_400)) == ["a1"]


# --- queries of doctor -----------------------------------------------------------------------------------------------
def test_pending_counts_by_channel(database: Database) -> None:
    box = reported(database, "a1", "a2", channels=("telegram", "email"))
    due = next(due for due in lease(box) if due.channel == "telegram")
    box.postpone(due, NOON + HOUR, "502 bad gateway")
    waiting = {row.channel: row for row in box.pending()}
    assert waiting["telegram"].count == waiting["email"].count == 2
    assert waiting["telegram"].oldest_at == NOON
    assert waiting["telegram"].last_error == "502 bad gateway"


def test_a_channel_is_broken_from_its_refusal_until_it_takes_something(database: Database) -> None:
    box = reported(database, "a1", "a2", "a3")
    assert box.broken_channels() == []
    box.mark_sent(lease(box, limit=1)[0], NOON + timedelta(seconds=60))
    box.mark_refused(lease(box, limit=1)[0], "403 blocked", NOON + timedelta(seconds=1260))
    assert [(fault.channel, fault.error) for fault in box.broken_channels()] == [("telegram", "403 blocked")]
    box.mark_sent(lease(box, after_s=1300)[0], NOON + timedelta(seconds=1300))
    assert box.broken_channels() == []


def test_a_moved_chat_is_remembered_through_several_moves(database: Database) -> None:
    box = Outbox(database)
    assert box.new_address("telegram", "-1") is None
    box.save_new_address("telegram", "-1", "-1002", NOON)
    box.save_new_address("telegram", "-1002", "-1003", NOON)
    box.save_new_address("telegram", "-1", "-1002", NOON)
    assert box.new_address("telegram", "-1") == "-1003"
    assert box.new_address("telegram", "-1003") is None
    assert box.new_address("email", "-1") is None
