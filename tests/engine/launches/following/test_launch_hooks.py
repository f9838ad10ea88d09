"""The owner's hooks with a real store: afterwards at least once, before a destroy once; failures are reported."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_record import launch_view
from gpuwatch.domain.watches.launch_spec import HookSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.launch_hooks import MAX_ATTEMPTS, RETRY_AFTER_S, LaunchHooks
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.errors import StoreError
from gpuwatch.hooks.owner_hooks import hook_environment
from gpuwatch.ports.hooks import HookCall
from gpuwatch.storage.launches.hook_runs import SqlHookQueue
from gpuwatch.storage.setup.database import Database
from tests.builders import a_watch, changed
from tests.engine.launch_world import AnyAccount, World, running, stop

S = LaunchState
HOOK = HookSpec(command="save")
SPEC = LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0, on_running=HOOK, on_ended=HOOK, hook_timeout_s=30.0)
WATCH = a_watch(action=Action.LAUNCH, launch=SPEC)
SAVES = msgspec.structs.replace(WATCH, launch=LaunchSpec(max_runtime_s=3600.0, before_stop=HOOK))


class Snapshot:
    """Hooks over a world's store; the test defines their runner."""

    def __init__(self, store: Database, watch: Watch = WATCH) -> None:
        self.world = World(store, watch)
        self.watch = watch
        self.calls: list[HookCall] = []
        self.answer: Callable[[HookCall], str | None] = lambda call: None
        self.stopping = threading.Event()
        self.hooks = self.started()

    def started(self) -> LaunchHooks:
        """Start a new process, with empty memory."""
        return LaunchHooks(
            SqlHookQueue(self.world.store),
            self._run,
            watches={self.watch.name: self.watch},
            new_id=lambda: next(self.world.ids),
            clock=lambda: self.world.now,
            monotonic=lambda: self.world.tick_s,
            stopping=self.stopping,
        )

    def _run(self, call: HookCall) -> str | None:
        self.calls.append(call)
        return self.answer(call)

    def run_due(self, after_s: float = 0.0) -> int:
        self.world.pass_s(after_s)
        begun = self.hooks.run_due(self.world.now)
        self.settle()
        return begun

    def settle(self, hooks: LaunchHooks | None = None) -> None:
        """Wait until every hook's thread is done."""
        ends_at = time.monotonic() + 20
        while (hooks or self.hooks)._running and time.monotonic() < ends_at:
            time.sleep(0.01)
        assert not (hooks or self.hooks)._running

    def events(self) -> list[str]:
        return [call.event for call in self.calls]

    def said(self) -> list[str]:
        """Return the alerts about hooks."""
        alerts = [alert for alert in self.world.alerts() if "hook" in alert.headline]
        return [dict(alert.facts)["Error"] for alert in alerts]

    def follow_with_hooks(self, hooks: LaunchHooks | None = None) -> LaunchReconciler:
        world = self.world
        self.world.follower = LaunchReconciler(
            world.repository,
            world.provider,
            LaunchAlerts(lambda: next(world.ids)),
            watches={world.watch.name: world.watch},
            in_flight=world.slots.in_flight,
            monotonic=lambda: world.tick_s,
            may_destroy=(hooks or self.hooks).may_destroy,
            owner=AnyAccount(),  # type: ignore[arg-type]
        )
        return self.world.follower


@pytest.fixture
def snapshot(database: Database) -> Snapshot:
    return Snapshot(database)


@pytest.fixture
def saves(database: Database) -> Snapshot:
    return Snapshot(database, SAVES)


# --- on_running, on_ended ---------------------------------------------------------------------------------------------


def test_a_launch_calls_for_its_hooks_when_it_runs_and_when_it_is_over(snapshot: Snapshot) -> None:
    launch = running(snapshot.world)
    assert snapshot.run_due() == 1
    stop(snapshot.world, launch)
    snapshot.world.look(5)
    snapshot.run_due()
    assert snapshot.events() == ["on_running", "on_ended"]
    states = [json.loads(call.body)["state"] for call in snapshot.calls]
    assert states == ["running", "ended"]
    assert snapshot.run_due(10_000) == 0


def test_a_watch_without_a_hook_runs_nothing(database: Database) -> None:
    plain = Snapshot(database, msgspec.structs.replace(WATCH, launch=LaunchSpec(max_runtime_s=3600.0)))
    running(plain.world)
    plain.run_due()
    assert (plain.calls, plain.run_due(10_000)) == ([], 0)


def test_a_failure_is_tried_again_with_growing_rests_and_reported_once_at_the_end(snapshot: Snapshot) -> None:
    snapshot.answer = lambda call: "exited with code 1: no space"
    running(snapshot.world)
    assert snapshot.run_due() == 1
    for rest_s in RETRY_AFTER_S:
        assert snapshot.run_due(rest_s - 1) == 0
        assert snapshot.run_due(1) == 1
    assert len(snapshot.calls) == MAX_ATTEMPTS
    assert snapshot.said() == ["exited with code 1: no space"]
    assert snapshot.run_due(86_400) == 0
    assert sum(RETRY_AFTER_S) < 3600


def test_a_failure_that_mends_is_not_reported(snapshot: Snapshot) -> None:
    answers = iter(["code 1", None])
    snapshot.answer = lambda call: next(answers)
    running(snapshot.world)
    snapshot.run_due()
    snapshot.run_due(RETRY_AFTER_S[0])
    assert (len(snapshot.calls), snapshot.said(), snapshot.run_due(10_000)) == (2, [], 0)


def test_what_a_crash_cut_off_is_run_again(snapshot: Snapshot) -> None:
    """Leased, but never settled: at least once sometimes means twice."""
    running(snapshot.world)
    assert SqlHookQueue(snapshot.world.store).lease(snapshot.world.now, 10, 40.0)
    snapshot.hooks = snapshot.started()
    assert snapshot.run_due(41) == 1
    assert snapshot.events() == ["on_running"]


def test_a_hook_that_never_comes_to_an_end_is_given_up_and_reported(snapshot: Snapshot) -> None:
    running(snapshot.world)
    for n in range(MAX_ATTEMPTS):
        assert SqlHookQueue(snapshot.world.store).lease(snapshot.world.now + timedelta(seconds=50 * n), 1, 40.0)
    assert snapshot.run_due(50.0 * MAX_ATTEMPTS) == 1
    assert snapshot.calls == []
    assert "restarted" in snapshot.said()[0]


def test_what_our_own_end_cut_off_does_not_count_as_a_try(snapshot: Snapshot) -> None:
    def cut_off(call: HookCall) -> str | None:
        snapshot.stopping.set()
        return "it was ended"

    snapshot.answer = cut_off
    running(snapshot.world)
    snapshot.run_due()
    assert snapshot.run_due() == 0  # nothing more is started
    snapshot.stopping.clear()
    (run,) = SqlHookQueue(snapshot.world.store).lease(snapshot.world.now, 1, 40.0)
    assert run.attempts == 1


def test_a_slow_hook_holds_no_task_up(snapshot: Snapshot) -> None:
    gate = threading.Event()
    snapshot.answer = lambda call: None if gate.wait(20) else "late"
    running(snapshot.world)
    assert snapshot.hooks.run_due(snapshot.world.now) == 1  # returns while the hook runs
    assert snapshot.hooks.run_due(snapshot.world.now) == 0  # no other runner starts it meanwhile
    gate.set()
    snapshot.settle()
    assert len(snapshot.calls) == 1


def test_what_a_hook_says_is_hostile_text_and_may_hold_a_secret(snapshot: Snapshot) -> None:
    snapshot.answer = lambda call: "code 1: \x1b[31mtoken=abcdef123456 \u202e" + "x" * 5000
    running(snapshot.world)
    for rest_s in (0.0, *RETRY_AFTER_S):
        snapshot.run_due(rest_s)
    (said,) = snapshot.said()
    assert not {"\x1b", "\u202e"} & set(said)
    assert "abcdef123456" not in said
    assert len(said) <= 200


def test_a_fault_of_ours_is_a_failure_and_no_crash(snapshot: Snapshot) -> None:
    def broken(call: HookCall) -> str | None:
        raise ZeroDivisionError

    snapshot.answer = broken
    running(snapshot.world)
    for rest_s in (0.0, *RETRY_AFTER_S):
        snapshot.run_due(rest_s)
    assert snapshot.said() == ["ZeroDivisionError"]


def test_a_command_is_reported_the_launch_in_its_environment(snapshot: Snapshot) -> None:
    launch = running(snapshot.world)
    snapshot.run_due()
    call = snapshot.calls[0]
    assert hook_environment(call.event, call.body) == {
        "GPUWATCH_EVENT": "on_running",
        "GPUWATCH_LAUNCH_ID": launch.launch_id,
        "GPUWATCH_WATCH": "h100",
        "GPUWATCH_PROVIDER": "vastai",
        "GPUWATCH_INSTANCE_ID": "9000",
        "GPUWATCH_STATE": "running",
    }
    body = launch_view(changed(launch, ssh=SshAddress(host="203.0.113.7", port=41022)), snapshot.world.now)
    variables = hook_environment(call.event, msgspec.json.encode(body).decode())
    assert {name: value for name, value in variables.items() if "SSH" in name} == {
        "GPUWATCH_SSH_HOST": "203.0.113.7",
        "GPUWATCH_SSH_PORT": "41022",
        "GPUWATCH_SSH_USER": "root",
    }


def test_closing_waits_for_what_is_being_ended(snapshot: Snapshot) -> None:
    snapshot.answer = lambda call: "it was ended" if snapshot.stopping.wait(20) else "late"
    running(snapshot.world)
    snapshot.hooks.run_due(snapshot.world.now)
    snapshot.hooks.close(within_s=20.0)
    assert not snapshot.hooks._running
    assert [run.attempts for run in SqlHookQueue(snapshot.world.store).lease(snapshot.world.now, 1, 40.0)] == [1]


# --- before_stop ------------------------------------------------------------------------------------------------------


def stopping(snapshot: Snapshot) -> Launch:
    launch = running(snapshot.world)
    snapshot.follow_with_hooks()
    stop(snapshot.world, launch)
    now = snapshot.world.repository.get(launch.launch_id)
    assert now is not None
    assert now.running_at is not None
    return now


def test_a_destroy_waits_for_before_stop_and_then_comes(saves: Snapshot) -> None:
    gate = threading.Event()
    saves.answer = lambda call: None if gate.wait(20) else "late"
    launch = stopping(saves)
    saves.world.look(2)
    assert (saves.world.provider.destroys, saves.events()) == ([], ["before_stop"])
    gate.set()
    saves.settle()
    saves.world.look(5)
    assert saves.world.state(launch) is S.ENDED
    assert (saves.events(), saves.said()) == (["before_stop"], [])


def test_a_hook_that_hangs_holds_a_destroy_up_for_its_time_and_no_longer(saves: Snapshot) -> None:
    gate = threading.Event()
    saves.answer = lambda call: None if gate.wait(20) else "late"
    stopping(saves)
    saves.world.look()
    saves.world.pass_s(30.0)  # its time; the rest is for ending it
    saves.world.look()
    assert saves.world.provider.destroys == []
    saves.world.look(2)
    assert saves.world.provider.destroys != []
    gate.set()
    saves.settle()


def test_a_failing_hook_blocks_nothing_and_is_reported_once(saves: Snapshot) -> None:
    saves.answer = lambda call: "exited with code 1: disk full"
    launch = stopping(saves)
    saves.world.look()
    saves.settle()
    saves.world.look(6)
    assert saves.world.state(launch) is S.ENDED
    assert (saves.events(), saves.said()) == (["before_stop"], ["exited with code 1: disk full"])


def test_after_a_restart_it_is_not_run_again_and_that_it_was_cut_off_is_reported(saves: Snapshot) -> None:
    launch = stopping(saves)
    assert SqlHookQueue(saves.world.store).begin(launch, "before_stop", saves.world.now, 40.0)  # … and the process dies
    again = saves.started()
    saves.follow_with_hooks(again)
    saves.world.look()
    saves.world.look(10)
    assert saves.world.state(launch) is S.ENDED
    assert saves.calls == []
    assert ["restarted" in said for said in saves.said()] == [True]


def test_after_a_restart_a_hook_that_was_over_is_not_reported(saves: Snapshot) -> None:
    launch = stopping(saves)
    saves.world.look()
    saves.settle()
    again = saves.started()
    assert again.may_destroy(launch, saves.world.now)
    assert (len(saves.calls), saves.said()) == (1, [])


def test_while_another_process_runs_it_nothing_is_destroyed(saves: Snapshot) -> None:
    gate = threading.Event()
    saves.answer = lambda call: None if gate.wait(20) else "late"
    launch = stopping(saves)
    saves.world.look()
    other = saves.started()
    assert not other.may_destroy(launch, saves.world.now)
    gate.set()
    saves.settle()
    assert other.may_destroy(launch, saves.world.now)
    assert len(saves.calls) == 1


def test_a_launch_that_never_ran_has_nothing_to_save(saves: Snapshot) -> None:
    launch = saves.world.rent()
    assert saves.hooks.may_destroy(launch, saves.world.now)
    assert saves.calls == []


def test_a_watch_that_left_the_settings_holds_nothing_up(saves: Snapshot) -> None:
    launch = msgspec.structs.replace(stopping(saves), watch="gone", terms=None)
    assert saves.hooks.may_destroy(launch, saves.world.now)


def test_a_watch_that_left_the_settings_still_saves_by_the_command_of_its_rent(saves: Snapshot) -> None:
    launch = msgspec.structs.replace(stopping(saves), watch="gone")
    assert not saves.hooks.may_destroy(launch, saves.world.now)


def test_a_store_that_fails_blocks_no_destroy(saves: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    launch = stopping(saves)
    monkeypatch.setattr(SqlHookQueue, "begin", full)
    assert saves.hooks.may_destroy(launch, saves.world.now)
    assert saves.calls == []
