"""Pauses, breakers, machines and unknown instances as rows, on SQLite and PostgreSQL, with several daemons at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from gpuwatch.domain.launches.instances.machines_and_places import MachineNote, MachineVerdict
from gpuwatch.domain.launches.launch import (
    EndReason,
    Intent,
    Launch,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
    new_launch,
)
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Alert, AlertKind, OutboxAlert
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlMachineNoteRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.reserving import launch_or_refusal
from tests.storage.launches.test_launch_repository import launch_ids, race

S = LaunchState
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ROUNDS = 8
_ALERTS = itertools.count(1)


def renting(name: str = "h100", budget: Budget = Budget(), **spec: Any) -> Watch:  # noqa: B008
    plain = {"max_runtime_s": 3600.0, "max_active": 9, "max_total": 0}
    return a_watch(name=name, action=Action.LAUNCH, launch=LaunchSpec(**(plain | spec)), budget=budget)


def match_of(offer_id: str, machine: str | None = None) -> Match:
    return a_match(an_offer(offer_id=offer_id, machine_id=machine or f"m{offer_id}"))


def reserve(
    store: Database,
    launch_id: str,
    watch: Watch | None = None,
    at: datetime = NOON,
    machine: str | None = None,
    others: tuple[Match, ...] = (),
) -> Any:
    match = match_of(launch_id, machine)
    intent = Intent(watch=watch or renting(), match=match, launch_id=launch_id, dry_run=False, alternatives=others)
    with store.write() as connection:
        return launch_or_refusal(connection, intent, Budget(), at)


def reserving(launch_id: str, watch: Watch) -> Callable[[Database], Any]:
    """The same, called later."""
    return lambda store: reserve(store, launch_id, watch)


def failing(launch: Launch) -> Callable[[Database], Any]:
    return lambda store: fail(store, launch, NOON)


def adopting(launch: Launch) -> Callable[[Database], Any]:
    return lambda store: SqlLaunchRepository(store).adopt(launch, NOON, outbox_alert(NOON))


def rented(store: Database, launch_id: str, **how: Any) -> Launch:
    got = reserve(store, launch_id, **how)
    assert isinstance(got, Launch), got
    return got


def outbox_alert(at: datetime) -> OutboxAlert:
    reported = Alert(alert_id=f"{next(_ALERTS):012}", kind=AlertKind.RENT, created_at=at, headline="not rented")
    return OutboxAlert(alert=reported, channels=("telegram",), expires_at=at + HOUR)


def fail(store: Database, launch: Launch, at: datetime, end: EndReason = EndReason.BROKEN) -> None:
    SqlLaunchRepository(store).transition(
        launch, S.FAILED, end.value, at, outbox_alert(at), ended_at=at, end_reason=end.value
    )


def trip(store: Database, began: datetime = NOON) -> datetime:
    """Three failures, eight minutes apart; return the time of the last."""
    ids = launch_ids()
    for n in range(3):
        at = began + 8 * n * MINUTE
        fail(store, rented(store, next(ids), at=at), at)
    return at


def breaker_alerts(store: Database) -> list[tuple[str, str]]:
    """Return (kind, watch) of each alert of a breaker."""
    query = select(alerts.c.kind, alerts.c.watch)
    with store.read() as connection:
        return [(row[0], row[1]) for row in connection.execute(query.where(alerts.c.once_key.startswith("breaker:")))]


# --- pause --------------------------------------------------------------------------------------------------------


def test_after_a_pause_returned_no_daemon_reserves(database: Database, database_url: str) -> None:
    """Four daemons fire while a fifth process pauses: every reservation was made before the pause."""
    ids = launch_ids()
    for _ in range(ROUNDS):
        after: list[Any] = []

        def switch_off(store: Database, late: list[Any] = after, launch_id: str = next(ids)) -> str:
            SqlPauseRepository(store).pause(Pause(watch=None, at=NOON))
            late.append(reserve(store, launch_id, renting(max_active=1000)))
            late.append({launch.launch_id for launch in SqlLaunchRepository(store).alive()})
            return "paused"

        fires = [reserving(next(ids), renting(max_active=1000)) for _ in range(4)]
        got = race(database_url, [switch_off, *fires])
        assert "paused" in got
        assert {one.reason for one in [*got, *after] if isinstance(one, LaunchRefusal)} == {RefusalReason.PAUSED}
        assert isinstance(after[0], LaunchRefusal)
        assert after[1] == {launch.launch_id for launch in SqlLaunchRepository(database).alive()}
        SqlPauseRepository(database).resume(None, NOON, "tests")


def test_a_pause_stops_a_reserved_launch_before_its_order_and_at_the_next_offer(database: Database) -> None:
    repository, mine = SqlLaunchRepository(database), rented(database, "a" * 12)
    assert repository.may_send(mine, NOON) is None
    SqlPauseRepository(database).pause(Pause(watch="h100", at=NOON, until=NOON + HOUR))
    for refused in (
        repository.may_send(mine, NOON),
        repository.retarget(mine, match_of("9"), renting(), Budget(), NOON),
    ):
        assert isinstance(refused, LaunchRefusal)
        assert refused.reason is RefusalReason.PAUSED
    assert repository.may_send(mine, NOON + HOUR) is None


def test_a_longer_pause_replaces_a_shorter_one(database: Database) -> None:
    book = SqlPauseRepository(database)
    book.pause(Pause(watch=None, at=NOON, until=NOON + MINUTE))
    _, left = book.pause(Pause(watch=None, at=NOON, until=NOON + HOUR, why="longer"))
    assert [(one.until, one.why) for one in left.by_hand] == [(NOON + HOUR, "longer")]
    assert book.resume(None, NOON, "tests") == (True, book.load())
    assert book.resume(None, NOON, "tests")[0] is False


def test_a_change_and_its_audit_event_are_stored_together_or_not_at_all(database: Database) -> None:
    """The event of another change has the same id, so this one cannot be stored: renting is not paused either."""
    book, audit = SqlPauseRepository(database), outbox_alert(NOON)
    assert Outbox(database).enqueue(audit)
    with pytest.raises(IntegrityError):
        book.pause(Pause(watch=None, at=NOON), audit)
    assert book.load().by_hand == ()


def test_every_alert_that_is_sent_says_what_is_paused(database: Database) -> None:
    box, book = Outbox(database), SqlPauseRepository(database)
    for name, watch in (("a1", None), ("a2", "h100"), ("a3", "another")):
        reported = Alert(alert_id=name, kind=AlertKind.HELD, created_at=NOON, headline="x", watch=watch)
        box.enqueue(OutboxAlert(alert=reported, channels=("telegram", "email"), expires_at=NOON + HOUR))
    book.pause(Pause(watch=None, at=NOON, until=NOON + HOUR))
    book.pause(Pause(watch="h100", at=NOON, why="mine"))
    dues = {due.alert.alert_id: due for due in box.lease(NOON, 10, 60.0, ("telegram",))}
    everything = ("Paused", "Renting is paused until 2026-11-21 13:00 UTC")
    assert (dues["a1"].facts, dues["a3"].facts) == ((everything,), (everything,))
    assert dues["a2"].facts == (everything, ("Paused", "Renting by watch 'h100' is paused until you resume it (mine)"))
    assert dues["a1"].alert.facts == ()
    book.resume(None, NOON, "tests")
    assert [due.facts for due in box.lease(NOON, 1, 60.0, ("email",))] == [()]


# --- the breaker ------------------------------------------------------------------------------------------------------


def test_the_third_failure_opens_it_and_tells_in_its_own_transaction(database: Database) -> None:
    last = trip(database)
    assert breaker_alerts(database) == [("refused", "h100")]
    refused = reserve(database, "z" * 12, at=last + 50 * MINUTE)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.BREAKER
    assert isinstance(reserve(database, "y" * 12, renting("another"), at=last), Launch)


def test_one_try_after_an_hour_and_it_closes_when_that_runs(database: Database) -> None:
    at = trip(database) + HOUR
    one = rented(database, "y" * 12, at=at)
    second = reserve(database, "z" * 12, at=at)
    assert isinstance(second, LaunchRefusal)
    assert second.reason is RefusalReason.BREAKER
    repository = SqlLaunchRepository(database)
    one = repository.transition(one, S.STARTING, "created", at, instance_id="1")
    repository.transition(one, S.RUNNING, "running", at + MINUTE, running_at=at + MINUTE)
    assert isinstance(reserve(database, "z" * 12, at=at + MINUTE), Launch)


def test_a_try_that_fails_is_another_hour_and_is_not_reported_again(database: Database) -> None:
    at = trip(database) + HOUR
    fail(database, rented(database, "y" * 12, at=at), at)
    assert isinstance(reserve(database, "z" * 12, at=at + 59 * MINUTE), LaunchRefusal)
    assert len(breaker_alerts(database)) == 1
    rented(database, "z" * 12, at=at + 61 * MINUTE)


def test_a_resumed_watch_starts_anew_also_where_only_a_person_could_mend_it(database: Database) -> None:
    fail(database, rented(database, "a" * 12), NOON, EndReason.NO_CREDIT)
    assert isinstance(reserve(database, "b" * 12, at=NOON + MINUTE), LaunchRefusal)
    SqlPauseRepository(database).resume("h100", NOON + MINUTE, "tests")
    assert isinstance(reserve(database, "b" * 12, at=NOON + MINUTE), Launch)


def test_failures_at_one_moment_in_several_daemons_count_each_other(database: Database, database_url: str) -> None:
    ids = launch_ids()
    for n in range(ROUNDS):
        watch = renting(f"watch-{n}")
        mine = [rented(database, next(ids), watch=watch) for _ in range(3)]
        race(database_url, [failing(launch) for launch in mine])
        opened = SqlPauseRepository(database).load().breaker_of(watch.name)
        assert opened is not None
        assert not opened.is_closed
    assert len(breaker_alerts(database)) == ROUNDS


# --- machines ---------------------------------------------------------------------------------------------------------


def test_a_blocked_machine_is_passed_over_and_refused_at_every_step(database: Database) -> None:
    repository, mine = SqlLaunchRepository(database), rented(database, "a" * 12, machine="77")
    SqlMachineNoteRepository(database).note(
        MachineNote(provider="vastai", machine_id="77", verdict=MachineVerdict.BLOCKED, at=NOON)
    )
    got = rented(database, "b" * 12, machine="77", others=(match_of("2", "88"),))
    assert got.machine_id == "88"
    for refused in (
        reserve(database, "c" * 12, machine="77"),
        repository.may_send(mine, NOON),
        repository.retarget(got, match_of("9", "77"), renting(), Budget(), NOON),
    ):
        assert isinstance(refused, LaunchRefusal)
        assert refused.reason is RefusalReason.MACHINE_FAILED


def test_a_machine_of_an_ended_launch_is_avoided_when_its_host_failed(database: Database) -> None:
    """It ran, so it is `ended` and not `failed`, but still the machine's fault."""
    over(database, rented(database, "a" * 12, machine="77"), EndReason.OFFLINE)
    assert isinstance(reserve(database, "b" * 12, machine="77", at=NOON + HOUR), LaunchRefusal)
    assert set(SqlMachineNoteRepository(database).avoided(NOON + HOUR)) == {("vastai", "77")}
    assert isinstance(reserve(database, "b" * 12, machine="77", at=NOON + 24 * HOUR), Launch)


def over(store: Database, launch: Launch, end: EndReason) -> None:
    repository = SqlLaunchRepository(store)
    launch = repository.transition(launch, S.STARTING, "created", NOON, instance_id=launch.launch_id)
    launch = repository.transition(launch, S.RUNNING, "running", NOON, running_at=NOON)
    repository.transition(launch, S.ENDED, end.value, NOON, ended_at=NOON, end_reason=end.text("its words"))


# --- relaunching ------------------------------------------------------------------------------------------------------


def test_an_outbid_launch_leaves_its_place_to_one_replacement_elsewhere(database: Database) -> None:
    watch = renting(relaunch=True, max_active=1, max_total=1)
    over(database, rented(database, "a" * 12, watch=watch, machine="77"), EndReason.OUTBID)
    assert isinstance(reserve(database, "b" * 12, watch, machine="77"), LaunchRefusal)
    second = rented(database, "b" * 12, watch=watch, machine="88")
    assert second.relaunch_of == "a" * 12
    over(database, second, EndReason.STOPPED)
    third = reserve(database, "c" * 12, watch, machine="99")
    assert isinstance(third, LaunchRefusal)
    assert third.reason is RefusalReason.MAX_TOTAL


def test_without_relaunch_an_outbid_launch_counts(database: Database) -> None:
    watch = renting(max_active=1, max_total=1)
    over(database, rented(database, "a" * 12, watch=watch), EndReason.OUTBID)
    refused = reserve(database, "b" * 12, watch)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_TOTAL


# --- a watch's own budget ---------------------------------------------------------------------------------------------


def test_a_watchs_own_budget_binds_daemons_that_fire_at_once(database: Database, database_url: str) -> None:
    watch, ids = renting(budget=Budget(max_usd_hour=Decimal("7.20"))), launch_ids()  # two of 3.60
    got = race(database_url, [reserving(next(ids), watch) for _ in range(4)])
    assert sum(isinstance(one, Launch) for one in got) == 2
    assert {one.reason for one in got if isinstance(one, LaunchRefusal)} == {RefusalReason.MAX_USD_HOUR}


def test_a_watchs_own_budget_binds_the_next_offer_too(database: Database) -> None:
    watch = renting(budget=Budget(max_usd_hour=Decimal("3.60")))
    mine = rented(database, "a" * 12, watch=watch)
    dearer = a_match(an_offer(offer_id="9", machine_id="9", quoted_usd_hour=3.5))
    refused = SqlLaunchRepository(database).retarget(mine, dearer, watch, Budget(), NOON)
    assert isinstance(refused, LaunchRefusal)
    assert "[watch.budget]" in refused.text


# --- instances of others ----------------------------------------------------------------------------------------------


def test_an_instance_is_adopted_once_and_is_no_foreign_instance_then(database: Database, database_url: str) -> None:
    repository = SqlLaunchRepository(database)
    assert repository.mark_foreign("vastai", "4711", NOON)
    assert not repository.mark_foreign("vastai", "4711", NOON)
    assert (repository.known_foreign_instances("vastai"), repository.known_foreign_instances("other")) == (
        {"4711"},
        frozenset(),
    )
    jobs = [adopting(adoption(one * 12, "4711", slot)) for slot, one in enumerate("abc")]
    assert sorted(race(database_url, jobs)) == [False, False, True]
    assert repository.known_foreign_instances("vastai") == frozenset()
    assert [launch.instance_id for launch in repository.alive()] == ["4711"]


def adoption(launch_id: str, instance_id: str, slot: int = 0) -> Launch:
    from gpuwatch.domain.launches.instance import Instance, InstanceState
    from gpuwatch.domain.launches.life.strays import adopted_launch
    from gpuwatch.domain.market.money import Commission

    instance = Instance(
        instance_id=instance_id,
        label="gpuwatch-xxxxxxxxxxxx",
        state=InstanceState.RUNNING,
        status="running",
        listed_usd_hour=2.0,
    )
    taken = [
        new_launch(Intent(watch=renting(), match=a_match(), launch_id="q" * 12, dry_run=False), n, NOON)
        for n in range(slot)
    ]
    made = adopted_launch(
        instance,
        launch_id=launch_id,
        watch=renting(),
        alive=taken,
        provider="vastai",
        commission=Commission("0.20"),
        now=NOON,
    )
    assert (made.slot, made.price_microusd_hour, made.listed_microusd_hour) == (slot, 2_400_000, 2_000_000)
    return made
