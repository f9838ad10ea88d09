"""The owner's hooks as rows: written with the transition, leased to one, given up with an alert; on both engines."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchConflict, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.ports import Alert, AlertKind, OutboxAlert
from gpuwatch.ports.hooks import BEFORE_STOP, ON_ENDED, ON_RUNNING, HookRun
from gpuwatch.storage.launches.hook_runs import SqlHookQueue
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.daemon_lease import release_leases
from gpuwatch.storage.setup.database import Database, open_database
from tests.builders import NOON, a_match, a_watch
from tests.outbox import new_alerts
from tests.reserving import launch_or_refusal

S = LaunchState
ID = "abcdefghijkl"
LEASE_S = 40.0
NEWS = OutboxAlert(
    alert=Alert(alert_id="hookfailed", kind=AlertKind.RENT, created_at=NOON, headline="h100: its hook failed"),
    channels=("telegram",),
    expires_at=NOON + timedelta(hours=1),
    once_key="hook",
)


@pytest.fixture
def launch(database: Database) -> Launch:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    with database.write() as connection:
        got = launch_or_refusal(
            connection, Intent(watch=watch, match=a_match(), launch_id=ID, dry_run=False), Budget(), NOON
        )
    assert isinstance(got, Launch)
    return SqlLaunchRepository(database).transition(got, S.STARTING, "created", NOON, instance_id="9000")


def runs(database: Database, launch: Launch) -> Launch:
    return SqlLaunchRepository(database).transition(
        launch, S.RUNNING, "running", NOON, hook=ON_RUNNING, running_at=NOON
    )


def leased(database: Database, seconds: float = 0.0) -> list[HookRun]:
    return list(SqlHookQueue(database).lease(NOON + timedelta(seconds=seconds), 10, LEASE_S))


def test_a_step_that_calls_for_a_hook_writes_its_row_with_the_launch_as_it_is_then(
    database: Database, launch: Launch
) -> None:
    runs(database, launch)
    (run,) = leased(database)
    reported = json.loads(run.body)
    assert (run.launch_id, run.watch, run.event, run.attempts) == (ID, "h100", ON_RUNNING, 1)
    assert (reported["event"], reported["state"], reported["instance_id"]) == ("on_running", "running", "9000")
    assert reported["running_at"] == "2026-11-21T12:00:00Z"


def test_a_step_that_did_not_happen_calls_for_nothing(database: Database, launch: Launch) -> None:
    runs(database, launch)
    with pytest.raises(LaunchConflict):
        SqlLaunchRepository(database).transition(launch, S.RUNNING, "again", NOON, hook=ON_ENDED)
    assert [run.event for run in leased(database)] == [ON_RUNNING]


def test_a_launch_has_each_hook_once(database: Database, launch: Launch) -> None:
    again = runs(database, launch)
    SqlHookQueue(database).mark_done(leased(database)[0])
    SqlLaunchRepository(database).transition(again, S.RUNNING, "resumed", NOON, hook=ON_RUNNING)
    assert leased(database) == []


def test_a_leased_hook_is_nobody_elses_until_the_lease_is_over(database: Database, launch: Launch) -> None:
    runs(database, launch)
    assert len(leased(database)) == 1
    assert leased(database, LEASE_S - 1) == []
    assert [run.attempts for run in leased(database, LEASE_S + 1)] == [2]


def test_who_lost_the_lease_settles_nothing(database: Database, launch: Launch) -> None:
    runs(database, launch)
    (old,) = leased(database)
    (new,) = leased(database, LEASE_S + 1)
    SqlHookQueue(database).mark_done(old)
    assert SqlHookQueue(database).is_running(ID, ON_RUNNING, NOON + timedelta(seconds=LEASE_S + 2))
    SqlHookQueue(database).mark_done(new)
    assert leased(database, 10_000) == []


def test_a_failure_rests_before_the_next_try_and_a_release_does_not_count(database: Database, launch: Launch) -> None:
    runs(database, launch)
    (run,) = leased(database)
    SqlHookQueue(database).postpone(run, NOON + timedelta(seconds=60), "code 1")
    assert leased(database, 59) == []
    (run,) = leased(database, 60)
    SqlHookQueue(database).release(run)
    assert [again.attempts for again in leased(database, 61)] == [2]


def test_a_clock_that_is_set_back_keeps_no_hook_waiting(database: Database, launch: Launch) -> None:
    runs(database, launch)
    (run,) = leased(database, 86_400)
    assert len(leased(database)) == 1  # a lease of tomorrow
    SqlHookQueue(database).postpone(
        HookRun(launch_id=run.launch_id, watch=run.watch, event=run.event, body=run.body, attempts=2),
        NOON + timedelta(days=1),
        "x",
    )
    assert len(leased(database, 1)) == 1  # a rest until tomorrow


def test_given_up_and_reported_are_one_transaction_and_happen_once(database: Database, launch: Launch) -> None:
    runs(database, launch)
    leased(database)
    assert SqlHookQueue(database).mark_failed(ID, ON_RUNNING, "code 1", NEWS)
    assert not SqlHookQueue(database).mark_failed(ID, ON_RUNNING, "code 1", NEWS)
    assert [alert.headline for alert in new_alerts(database)] == ["h100: its hook failed"]
    assert leased(database, 10_000) == []


def test_before_stop_is_begun_once_and_never_by_the_task(database: Database, launch: Launch) -> None:
    book = SqlHookQueue(database)
    assert book.begin(launch, BEFORE_STOP, NOON, LEASE_S) is not None
    assert book.begin(launch, BEFORE_STOP, NOON, LEASE_S) is None
    assert book.is_running(ID, BEFORE_STOP, NOON)
    assert not book.is_running(ID, BEFORE_STOP, NOON + timedelta(seconds=LEASE_S + 1))
    assert leased(database, 10_000) == []


def test_a_new_daemon_on_sqlite_takes_over_what_the_old_one_held(sqlite_database: Database) -> None:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    with sqlite_database.write() as connection:
        got = launch_or_refusal(
            connection, Intent(watch=watch, match=a_match(), launch_id=ID, dry_run=False), Budget(), NOON
        )
    assert isinstance(got, Launch)
    runs(
        sqlite_database,
        SqlLaunchRepository(sqlite_database).transition(got, S.STARTING, "created", NOON, instance_id="1"),
    )
    leased(sqlite_database)
    release_leases(sqlite_database)
    assert [run.attempts for run in leased(sqlite_database, 1)] == [2]


def test_two_daemons_lease_a_hook_once(database: Database, database_url: str, launch: Launch) -> None:
    runs(database, launch)
    found: list[HookRun] = []
    gate = threading.Barrier(4)

    def one() -> None:
        store = open_database(database_url)
        try:
            SqlHookQueue(store).is_running(ID, ON_RUNNING, NOON)
            gate.wait()
            found.extend(SqlHookQueue(store).lease(NOON, 10, LEASE_S))
        finally:
            store.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
