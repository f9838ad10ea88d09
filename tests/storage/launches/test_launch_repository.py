"""The launches on SQLite and PostgreSQL: uniqueness by unique rows, and budgets counted by one at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select

from gpuwatch.domain.launches.instances.machines_and_places import AvoidedMachine, offer_machine_refusal
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchConflict, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Alert, AlertKind, OutboxAlert
from gpuwatch.storage.launches.extension_lookup import ExtensionLookup
from gpuwatch.storage.launches.launch_admission import refusal_instead, refusal_of_rehearsal
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.obligation_file import FILE_NAME, ObligationFile
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.setup.tables import launch_event
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.reserving import launch_or_refusal

S = LaunchState
WORKERS = 4
ROUNDS = 12


def renting(name: str = "h100", **spec: Any) -> Watch:
    return a_watch(name=name, action=Action.LAUNCH, launch=LaunchSpec(**({"max_runtime_s": 3600.0} | spec)))


def launch_ids() -> Iterator[str]:
    return ("".join(letters) for letters in itertools.product("abcdefgh", repeat=12))


def reserve(store: Database, watch: Watch, offer_id: str, launch_id: str, budget: Budget = Budget()) -> Any:  # noqa: B008
    match = a_match(an_offer(offer_id=offer_id, machine_id=f"m{offer_id}"))
    intent = Intent(watch=watch, match=match, launch_id=launch_id, dry_run=False)
    with store.write() as connection:
        return launch_or_refusal(connection, intent, budget, NOON)


def reserving(watch: Watch, offer_id: str, launch_id: str, budget: Budget = Budget()) -> Callable[[Database], Any]:  # noqa: B008
    """The same, called later."""
    return lambda store: reserve(store, watch, offer_id, launch_id, budget)


def race(database_url: str, jobs: list[Callable[[Database], Any]]) -> list[Any]:
    """Run each job on its own connection, all started at the same moment, like several daemons."""
    found: list[Any] = []
    gate = threading.Barrier(len(jobs))

    def one(job: Callable[[Database], Any]) -> None:
        store = open_database(database_url)
        try:
            with store.read() as connection:
                connection.execute(select(func.count()).select_from(launch_event))
            gate.wait()
            found.append(job(store))
        finally:
            store.close()

    threads = [threading.Thread(target=one, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# --- races ------------------------------------------------------------------------------------------------------------


def test_daemons_that_fire_at_once_take_one_slot_once(database: Database, database_url: str) -> None:
    ids = launch_ids()
    for n in range(ROUNDS):
        watch = renting(f"watch-{n}")
        jobs = [reserving(watch, f"{n}-{w}", next(ids)) for w in range(WORKERS)]
        got = race(database_url, jobs)
        assert sum(isinstance(one, Launch) for one in got) == 1
        assert {one.reason for one in got if isinstance(one, LaunchRefusal)} == {RefusalReason.MAX_ACTIVE}


def test_watches_that_fire_at_once_take_one_offer_once(database: Database, database_url: str) -> None:
    ids = launch_ids()
    for n in range(ROUNDS):
        jobs = [reserving(renting(f"{n}-{w}"), f"offer-{n}", next(ids)) for w in range(WORKERS)]
        got = race(database_url, jobs)
        assert sum(isinstance(one, Launch) for one in got) == 1


def test_watches_that_fire_at_once_share_one_budget(database: Database, database_url: str) -> None:
    ids = launch_ids()
    budget = Budget(max_usd_hour=Decimal("7.20"))  # two of 3.60
    jobs = [reserving(renting(f"w{w}"), str(w), next(ids), budget) for w in range(WORKERS)]
    got = race(database_url, jobs)
    assert sum(isinstance(one, Launch) for one in got) == 2
    assert {one.reason for one in got if isinstance(one, LaunchRefusal)} == {RefusalReason.MAX_USD_HOUR}


def test_max_total_binds_daemons_that_fire_at_once(database: Database, database_url: str) -> None:
    ids = launch_ids()
    watch = renting(max_active=WORKERS, max_total=2)
    jobs = [reserving(watch, str(w), next(ids)) for w in range(WORKERS)]
    got = race(database_url, jobs)
    assert sum(isinstance(one, Launch) for one in got) == 2


def test_two_that_move_one_launch_at_once_do_not_both_succeed(database: Database, database_url: str) -> None:
    for launch_id in itertools.islice(launch_ids(), ROUNDS):
        launch = reserve(database, renting(f"w-{launch_id}"), launch_id, launch_id)

        def move(store: Database, mine: Launch = launch) -> str:
            try:
                SqlLaunchRepository(store).transition(mine, S.STARTING, "created", NOON, instance_id="1")
            except LaunchConflict:
                return "late"
            return "moved"

        assert sorted(race(database_url, [move, move])) == ["late", "moved"]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_launch_comes_back_as_it_was_written(database: Database) -> None:
    launch = reserve(database, renting(), "1", "a" * 12)
    assert SqlLaunchRepository(database).get("a" * 12) == launch
    assert (launch.state, launch.requested_at, launch.version) == (S.REQUESTED, NOON, 0)


def test_every_step_is_an_event_with_its_cause(database: Database) -> None:
    launch = reserve(database, renting(), "1", "a" * 12)
    SqlLaunchRepository(database).transition(launch, S.UNKNOWN, "the answer was lost: " + "x" * 900, NOON)
    with database.read() as connection:
        events = connection.execute(select(launch_event).order_by(launch_event.c.id)).all()
    assert [(event.from_state, event.to_state) for event in events] == [(None, "requested"), ("requested", "unknown")]
    assert events[1].cause.startswith("the answer was lost")
    assert len(events[1].cause) <= 200


def test_a_step_and_its_alert_are_one_transaction(database: Database) -> None:
    launch = reserve(database, renting(), "1", "a" * 12)
    repository = SqlLaunchRepository(database)
    reported = Alert(alert_id="1" * 12, kind=AlertKind.RENT, created_at=NOON, headline="running")
    outbox_alert = OutboxAlert(alert=reported, channels=("telegram",), expires_at=NOON)
    repository.transition(launch, S.STARTING, "created", NOON, instance_id="1")
    with pytest.raises(LaunchConflict):
        repository.transition(launch, S.UNKNOWN, "late", NOON, outbox_alert)
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(alerts)).scalar_one() == 0


def test_what_is_over_is_never_ordered_again(database: Database) -> None:
    launch = reserve(database, renting(), "1", "a" * 12)
    repository = SqlLaunchRepository(database)
    over = repository.transition(launch, S.FAILED, "refused", NOON, ended_at=NOON, end_reason="refused")
    with pytest.raises(LaunchConflict):
        repository.transition(over, S.REQUESTED, "once more", NOON)


def test_what_is_reopened_gets_a_slot_and_an_offer_of_its_own(database: Database) -> None:
    launch = reserve(database, renting(max_total=0), "1", "a" * 12)
    repository = SqlLaunchRepository(database)
    launch = repository.transition(launch, S.STARTING, "created", NOON, instance_id="1")
    over = repository.transition(launch, S.ENDED, "gone", NOON, ended_at=NOON, end_reason="gone at the provider")
    second = reserve(database, renting(max_total=0), "1", "b" * 12)
    assert (second.slot, second.offer_slot) == (0, 0)
    back = repository.transition(over, S.RUNNING, "listed again", NOON, ended_at=None, end_reason=None)
    assert (back.slot, back.offer_slot) == (1, 1)
    assert repository.get("a" * 12) == back
    assert [one.launch_id for one in repository.reopened()] == ["a" * 12]


def test_an_ended_launch_frees_slot_and_offer(database: Database) -> None:
    launch = reserve(database, renting(max_total=0), "1", "a" * 12)
    repository = SqlLaunchRepository(database)
    launch = repository.transition(launch, S.STARTING, "created", NOON, instance_id="1")
    repository.transition(launch, S.ENDED, "gone", NOON, ended_at=NOON, end_reason="gone at the provider")
    assert isinstance(reserve(database, renting(max_total=0), "1", "b" * 12), Launch)


def test_of_a_stock_several_launches_may_have_the_same_offer(database: Database) -> None:
    stock = a_match(an_offer(offer_id="H100/us-1", machine_id="H100/us-1", terms=OfferTerms(fungible=True)))
    watch = renting(max_active=3, max_total=3)
    with database.write() as connection:
        got = [
            launch_or_refusal(
                connection, Intent(watch=watch, match=stock, launch_id=name, dry_run=False), Budget(), NOON
            )
            for name in ("a" * 12, "b" * 12, "c" * 12)
        ]
    assert [(one.offer_id, one.offer_slot) for one in got] == [("H100/us-1", number) for number in range(3)]


def test_of_a_stock_what_failed_once_is_not_avoided_but_what_its_owner_blocks_is() -> None:
    failed = AvoidedMachine(provider="vastai", machine_id="77", by_owner=False, why="not ready", since=NOON, until=None)
    one, stock = an_offer(), an_offer(terms=OfferTerms(fungible=True))
    assert offer_machine_refusal({("vastai", "77"): failed}, one) is not None
    assert offer_machine_refusal({("vastai", "77"): failed}, stock) is None
    assert offer_machine_refusal({("vastai", "77"): changed(failed, by_owner=True)}, stock) is not None


def test_another_offer_is_not_taken_from_another_launch(database: Database) -> None:
    reserve(database, renting("one"), "1", "a" * 12)
    mine = reserve(database, renting("two"), "2", "b" * 12)
    got = SqlLaunchRepository(database).retarget(mine, a_match(an_offer(offer_id="1")), a_watch(), Budget(), NOON)
    assert isinstance(got, LaunchRefusal)
    assert got.reason is RefusalReason.OFFER_TAKEN
    assert SqlLaunchRepository(database).get(mine.launch_id) == mine


def test_pointing_at_another_offer_keeps_its_own_place_in_the_budget(database: Database) -> None:
    budget = Budget(max_usd_hour=Decimal("3.60"), max_instances=1)
    mine = reserve(database, renting(), "1", "a" * 12, budget)
    got = SqlLaunchRepository(database).retarget(
        mine, a_match(an_offer(offer_id="9", machine_id="9")), a_watch(), budget, NOON
    )
    assert isinstance(got, Launch)
    assert (got.offer_id, got.machine_id, got.version) == ("9", "9", 1)


def test_a_step_from_a_row_that_is_no_longer_the_newest_is_refused_also_in_the_same_state(database: Database) -> None:
    """Two reconcilers read it as running; the second must not undo what the first wrote (a price, a bid)."""
    repository = SqlLaunchRepository(database)
    launch = reserve(database, renting(), "1", "a" * 12)
    running = repository.transition(launch, S.RUNNING, "running", NOON, running_at=NOON, instance_id="7")
    repository.transition(running, S.RUNNING, "its price rose", NOON, price_microusd_hour=5_000_000)
    with pytest.raises(LaunchConflict):
        repository.transition(running, S.RUNNING, "its bid was raised", NOON, bid_microusd_hour=1)
    found = repository.get("a" * 12)
    assert found is not None
    assert (found.price_microusd_hour, found.bid_microusd_hour) == (5_000_000, None)


def test_what_somebody_else_took_over_may_not_be_sent(database: Database) -> None:
    """A process that slept between intent and order: others have given it up, or changed its offer."""
    repository = SqlLaunchRepository(database)
    launch = reserve(database, renting(), "1", "a" * 12)
    assert repository.may_send(launch, NOON) is None
    lost = repository.transition(launch, S.UNKNOWN, "its answer is not known to this process", NOON)
    for stale in (launch, changed(lost, version=launch.version)):
        with pytest.raises(LaunchConflict):
            repository.may_send(stale, NOON)


def test_a_connection_that_dies_in_the_last_check_is_replaced(database: Database, database_url: str) -> None:
    """Nothing is sent yet, so reading again is safe; without it the launch would wait until its absence is proven."""
    if database.is_sqlite:
        pytest.skip("there is no server")
    repository = SqlLaunchRepository(database)
    launch = reserve(database, renting(), "1", "a" * 12)
    admin = open_database(database_url)
    cut: list[str] = []

    def end_session(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "launch" in statement and not cut:
            cut.append(statement)
            with admin.read() as other:
                query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                other.exec_driver_sql(f"{query} AND datname = current_database()")

    event.listen(database.engine, "before_cursor_execute", end_session)
    assert repository.may_send(launch, NOON) is None
    assert len(cut) == 1
    admin.close()


def test_what_failed_does_not_count_towards_max_total_and_what_ended_does(database: Database) -> None:
    watch, repository = renting(max_total=1), SqlLaunchRepository(database)
    failed = reserve(database, watch, "1", "a" * 12)
    repository.transition(failed, S.FAILED, "refused", NOON, ended_at=NOON, end_reason="refused")
    ended = reserve(database, watch, "2", "b" * 12)
    assert isinstance(ended, Launch)
    running = repository.transition(ended, S.RUNNING, "runs", NOON, instance_id="7", running_at=NOON)
    repository.transition(running, S.ENDED, "over", NOON, ended_at=NOON, end_reason="gone at the provider")
    refused = reserve(database, watch, "3", "c" * 12)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_TOTAL
    states = [(event.from_state, event.to_state) for event in repository.events(ended.launch_id)]
    assert states == [(None, S.REQUESTED), (S.REQUESTED, S.RUNNING), (S.RUNNING, S.ENDED)]


# --- the keeper's file of each host -----------------------------------------------------------------------------------


def test_reading_launches_writes_no_file_and_what_another_host_did_is_written_by_its_own_name(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    here, there = (ObligationFile(tmp_path / host / FILE_NAME, lambda: NOON) for host in ("here", "there"))
    repository = SqlLaunchRepository(database, here)
    running = repository.transition(
        reserve(database, renting(), "1", "a" * 12), S.RUNNING, "runs", NOON, running_at=NOON, instance_id="7"
    )
    other = open_database(database_url)
    elsewhere = SqlLaunchRepository(other, there)
    extended = elsewhere.extend(running, 3600.0, Budget(), Budget(), NOON)
    assert isinstance(extended, Launch)
    assert repository.alive() == [extended]
    assert [one.ends_at for one in here.open_obligations()] == [NOON + timedelta(hours=1)]
    repository.update_obligations()
    assert [one.ends_at for one in here.open_obligations()] == [NOON + timedelta(hours=2)]
    elsewhere.transition(extended, S.ENDED, "gone", NOON, ended_at=NOON, end_reason="gone")
    repository.update_obligations()
    assert here.open_obligations() == ()
    other.close()


@pytest.mark.parametrize("change", ["extended", "nothing", "stopping"])
def test_the_keeper_asks_whether_a_launch_was_extended_elsewhere(
    database: Database, database_url: str, tmp_path: Path, change: str
) -> None:
    file = ObligationFile(tmp_path / FILE_NAME, lambda: NOON)
    running = SqlLaunchRepository(database, file).transition(
        reserve(database, renting(), "1", "a" * 12), S.RUNNING, "runs", NOON, running_at=NOON, instance_id="7"
    )
    (one,) = file.open_obligations()
    elsewhere = SqlLaunchRepository(database)
    if change != "nothing":
        running = elsewhere.extend(running, 3600.0, Budget(), Budget(), NOON)
    if change == "stopping":
        elsewhere.transition(running, S.STOPPING, "stopped", NOON)
    # the moved end has passed, too: an instance never waits for a line that could not be written
    too_late = ExtensionLookup(database_url, file, lambda: NOON + timedelta(hours=2))
    assert not too_late.is_extended(one)
    late = ExtensionLookup(database_url, file, lambda: NOON + timedelta(hours=1, minutes=2))
    assert late.is_extended(one) == (change == "extended")
    later = NOON + timedelta(hours=2 if change == "extended" else 1)
    assert [each.ends_at for each in file.open_obligations()] == [later]
    assert not ExtensionLookup(f"sqlite:///{tmp_path}/none.db", file, lambda: NOON).is_extended(one)


def test_a_rental_in_place_of_a_launch_counts_that_one_as_just_ended(database: Database) -> None:
    """Its slot and the rest of its time are free; what it has cost is spent."""
    watch = renting(max_total=0)
    leaving = reserve(database, watch, "1", "aaaaaaaaaaaa")
    SqlLaunchRepository(database).transition(leaving, S.RUNNING, "test", NOON, running_at=NOON)
    match = a_match(an_offer(offer_id="2", machine_id="m2"))
    intent = Intent(watch=watch, match=match, launch_id="bbbbbbbbbbbb", dry_run=False)
    of_two_hours = Budget(max_usd_day=Decimal(leaving.price_microusd_hour) * 2 / 1_000_000)
    with database.read() as connection:
        full = refusal_of_rehearsal(connection, intent, Budget(), NOON)
        assert full is not None
        assert full.reason is RefusalReason.MAX_ACTIVE
        assert refusal_instead(connection, intent, leaving, of_two_hours, NOON) is None
        spent = refusal_instead(connection, intent, leaving, of_two_hours, NOON + timedelta(hours=2))
        assert spent is not None
        assert spent.reason is RefusalReason.MAX_USD_DAY
