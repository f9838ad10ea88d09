"""Launches by commands, over a real database: reserved first, run at most once, held if unknown."""

from __future__ import annotations

import itertools
import threading
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import select

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.renting.launch_commands import LaunchCommands
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.launches.renting.reminders import send_reminders
from gpuwatch.errors import StoreError
from gpuwatch.ports.hooks import CommandOutcome
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.obligation_file import ObligationFile
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import hook_run
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.outbox import new_alerts
from tests.reserving import launch_or_refusal

S = LaunchState
WATCH = a_watch(
    action=Action.COMMAND, command=("rent",), command_timeout_s=60.0, launch=LaunchSpec(max_runtime_s=3600.0)
)
CHEAP = a_match(an_offer(quoted_usd_hour=1.0))


class Bench:
    """A store, and one process that runs commands, which the test defines."""

    def __init__(self, store: Database, *, is_alone: bool = True) -> None:
        self.store, self.now, self.tick_s = store, NOON, 0.0
        self.is_alone = is_alone
        self.generation = 0  # of the database
        self.ids = (f"{'a' * 9}{chr(97 + n // 26)}{chr(97 + n % 26)}b" for n in itertools.count())
        self.repository = SqlLaunchRepository(store)
        self.ran: list[str] = []
        self.outcome = CommandOutcome(code=0)
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.start_process()

    def start_process(self) -> None:
        self.slots = LaunchSlots()
        self.commands = LaunchCommands(
            self.repository, LaunchAlerts(lambda: next(self.ids)), self._run, self.slots,
            clock=lambda: self.now, monotonic=lambda: self.tick_s, is_alone=self.is_alone,
            generation=lambda: self.generation,
        )  # fmt: skip

    def _run(self, launch: Launch, watch: Watch, match: Match, now: datetime) -> CommandOutcome:
        self.ran.append(launch.launch_id)
        self.began.set()
        assert self.may_end.wait(60)
        return self.outcome

    def reserve(
        self, watch: Watch = WATCH, match: Match = CHEAP, budget: Budget | None = None, dry_run: bool = False
    ) -> Launch | LaunchRefusal:
        intent = Intent(watch=watch, match=match, launch_id=next(self.ids), dry_run=dry_run)
        with self.store.write() as connection:
            return launch_or_refusal(connection, intent, budget or Budget(), self.now)

    def reserved(self, watch: Watch = WATCH) -> Launch:
        launch = self.reserve(watch)
        assert isinstance(launch, Launch)
        return launch

    def start(self, launch: Launch, watch: Watch = WATCH) -> None:
        self.commands.start(launch, watch, (CHEAP,))
        self.commands.close(within_s=60)

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.tick_s += seconds

    def found(self, launch: Launch) -> Launch:
        found = self.repository.get(launch.launch_id)
        assert found is not None
        return found


@pytest.fixture
def bench(sqlite_database: Database) -> Bench:
    return Bench(sqlite_database)


def test_a_store_that_fails_before_the_command_frees_the_watch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise StoreError("the server closed the connection")

    launch = bench.reserved()
    with monkeypatch.context() as patch:
        patch.setattr(bench.repository, "may_send", fails)
        bench.start(launch)
    ended = bench.found(launch)
    assert (ended.state, bench.ran) == (S.FAILED, [])
    assert ended.end_reason == EndReason.NOT_RUN.text("the server closed the connection")
    assert isinstance(bench.reserve(), Launch)


def test_a_command_that_ends_with_0_keeps_its_reservation_until_max_runtime(bench: Bench) -> None:
    launch = bench.reserved()
    bench.start(launch)
    assert (bench.found(launch).state, bench.ran) == (S.RUNNING, [launch.launch_id])
    full = bench.reserve(match=a_match(an_offer(offer_id="2", machine_id="2", quoted_usd_hour=1.0)))
    assert isinstance(full, LaunchRefusal)
    assert full.reason is RefusalReason.MAX_ACTIVE
    bench.pass_s(3599)
    bench.commands.follow(bench.now)
    assert bench.found(launch).state is S.RUNNING
    bench.pass_s(1)
    bench.commands.follow(bench.now)
    over = bench.found(launch)
    assert (over.state, over.end_reason) == (S.ENDED, "max_runtime is over")
    assert "gpuwatch ended nothing" in new_alerts(bench.store)[-1].why
    with bench.store.read() as connection:
        assert set(connection.execute(select(hook_run.c.event)).scalars()) == {"on_running", "on_ended"}


def test_a_command_whose_launch_the_database_lost_is_not_run_again(bench: Bench) -> None:
    launch = bench.reserved()
    bench.start(launch)
    with bench.store.write() as connection:
        connection.exec_driver_sql("DELETE FROM launch_event")
        connection.exec_driver_sql("DELETE FROM hook_run")
        connection.exec_driver_sql("DELETE FROM launch")
    bench.generation = 1
    assert f"the database lost launch {launch.launch_id}" in (bench.commands.not_ready("command", 0, WATCH.name) or "")
    bench.pass_s(3600 + 60)
    assert bench.commands.not_ready("command", 0, WATCH.name) is None


def test_budgets_reserve_the_limit_of_the_watch_not_the_price_of_the_offer(database: Database) -> None:
    bench = Bench(database)
    refused = bench.reserve(budget=Budget(max_usd_hour=Decimal("3.59")))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_USD_HOUR
    other = a_watch(name="other", action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0))
    launch = bench.reserve(budget=Budget(max_usd_hour=Decimal("3.61")))
    assert isinstance(launch, Launch)
    bench.start(launch)
    for budget in (Budget(max_usd_hour=Decimal("4.70")), Budget(max_usd_day=Decimal("4.70")), Budget(max_instances=1)):
        assert isinstance(bench.reserve(other, budget=budget), LaunchRefusal)
    assert isinstance(bench.reserve(other, budget=Budget(max_usd_hour=Decimal("4.90"))), Launch)


def test_two_watches_do_not_hand_the_same_offer_over_twice(bench: Bench) -> None:
    bench.reserved()
    refused = bench.reserve(changed(WATCH, name="other"))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.OFFER_TAKEN


def test_a_reservation_of_a_process_that_died_is_held_and_never_run(bench: Bench) -> None:
    launch = bench.reserved()
    bench.pass_s(1)
    bench.start_process()
    bench.commands.follow(bench.now)
    bench.commands.follow(bench.now)
    assert (bench.found(launch).state, bench.ran) == (S.HELD, [])
    (alert,) = new_alerts(bench.store)
    assert alert.headline == "h100: held: its command may have rented"
    assert f"gpuwatch launches resolve {launch.launch_id} --absent" in alert.can_do[-1]
    bench.start(launch)  # whatever still tries to start it: the row forbids it
    assert bench.ran == []


def test_a_command_that_runs_is_not_held_by_its_own_process(bench: Bench) -> None:
    launch = bench.reserved()
    bench.may_end.clear()
    bench.commands.start(launch, WATCH, (CHEAP,))
    bench.pass_s(3600)
    bench.commands.follow(bench.now)
    assert (bench.found(launch).state, bench.commands.running) == (S.REQUESTED, (launch.launch_id,))
    bench.may_end.set()
    bench.commands.close(within_s=60)
    assert (bench.found(launch).state, bench.commands.running) == (S.RUNNING, ())


def test_beside_another_daemon_a_command_has_its_time_before_it_is_held_and_a_late_0_still_counts(
    database: Database,
) -> None:
    first = Bench(database, is_alone=False)
    launch = first.reserved()
    first.may_end.clear()
    first.commands.start(launch, WATCH, (CHEAP,))
    assert first.began.wait(60)
    second = Bench(database, is_alone=False)
    second.pass_s(119)
    second.commands.follow(second.now)
    assert second.found(launch).state is S.REQUESTED
    second.pass_s(2)
    second.commands.follow(second.now)
    assert second.found(launch).state is S.HELD
    first.may_end.set()
    first.commands.close(within_s=60)
    assert (second.found(launch).state, second.ran) == (S.RUNNING, [])


def test_a_pause_after_the_reservation_runs_nothing(bench: Bench) -> None:
    launch = bench.reserved()
    SqlPauseRepository(bench.store).pause(Pause(watch=None, at=bench.now))
    bench.start(launch)
    found = bench.found(launch)
    assert (found.state, bench.ran) == (S.FAILED, [])
    assert found.ended_because(EndReason.PAUSED)


def test_what_raises_may_have_run_and_is_held_by_the_next_process(bench: Bench) -> None:
    launch = bench.reserved()
    bench.outcome = None  # type: ignore[assignment]
    bench.start(launch)
    assert bench.found(launch).state is S.REQUESTED
    bench.pass_s(121)
    bench.commands.follow(bench.now)
    assert (bench.found(launch).state, len(bench.ran)) == (S.HELD, 1)


def test_a_dry_run_reserves_and_runs_nothing(bench: Bench) -> None:
    launch = bench.reserve(dry_run=True)
    assert isinstance(launch, Launch)
    bench.start(launch)
    assert (launch.state, bench.ran) == (S.ENDED, [])


def test_programs_that_cannot_be_started_open_the_breaker(bench: Bench) -> None:
    bench.outcome = CommandOutcome(not_started="rent: No such file or directory")
    endless = changed(WATCH, launch=LaunchSpec(max_runtime_s=3600.0, max_total=0))
    for _ in range(3):
        bench.start(bench.reserved(endless), endless)
        bench.pass_s(120)
    refused = bench.reserve(endless)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.BREAKER


def test_an_exit_code_that_says_nothing_was_rented_waits_longer_each_time(bench: Bench) -> None:
    bench.outcome = CommandOutcome(code=75, output="sold out")
    for _ in range(2):
        bench.start(bench.reserved())
    refused = bench.reserve()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.COOLING
    bench.pass_s(31)
    assert isinstance(bench.reserve(), Launch)


def test_no_keeper_and_no_reminder_of_an_unmanaged_launch_takes_it_up(bench: Bench, tmp_path: Path) -> None:
    launch = bench.reserved()
    bench.start(launch)
    new_alerts(bench.store)
    assert send_reminders(bench.repository, LaunchAlerts(lambda: next(bench.ids)), (), bench.now) == 0
    assert new_alerts(bench.store) == []
    file = ObligationFile(tmp_path / "obligations.jsonl", lambda: bench.now)
    file.record_changes([bench.found(launch)])
    assert not file.open_obligations()
