"""The life of a launch that a command carries out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import (
    ALLOWED_TRANSITIONS,
    EndReason,
    Intent,
    Launch,
    LaunchState,
    PriceSpan,
    new_launch,
)
from gpuwatch.domain.launches.life.command_life import (
    RENTED_NOTHING,
    CommandEnded,
    CommandEvent,
    CommandLost,
    CommandNotRun,
    CommandTimePassed,
    command_transition,
)
from gpuwatch.domain.launches.life.launch_events import ClockReading
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, an_offer, changed

S = LaunchState
WATCH = a_watch(
    action=Action.COMMAND, command=("rent",), command_timeout_s=60.0, launch=LaunchSpec(max_runtime_s=3600.0)
)
CHEAP = an_offer(quoted_usd_hour=1.0)
LATER = NOON + timedelta(seconds=30)


def a_launch(state: LaunchState = S.REQUESTED, **changes: Any) -> Launch:
    launch = new_launch(Intent(watch=WATCH, match=a_match(CHEAP), launch_id="abc", dry_run=False), 0, NOON)
    return changed(launch, state=state, **changes)


def after(launch: Launch, event: CommandEvent, seconds: float = 30.0) -> tuple[LaunchState, str | None, dict[str, Any]]:
    at = NOON + timedelta(seconds=seconds)
    step = command_transition(launch, event, ClockReading(at, at)).transition
    if step is None:
        return launch.state, None, {}
    assert step.to_state in ALLOWED_TRANSITIONS[launch.state]
    return step.to_state, step.hook, dict(step.changes)


def test_it_is_at_no_provider_and_counts_at_the_limit_of_its_watch() -> None:
    launch = a_launch()
    assert (launch.provider, launch.offer_id, launch.machine_id) == ("command", "vastai/1001", None)
    assert launch.is_by_command
    assert (launch.bound_microusd_hour, launch.ready_within_s) == (3_600_000, 60.0)
    assert launch.price_microusd_hour < launch.bound_microusd_hour


def test_exit_code_0_runs_from_then_on_at_the_limit() -> None:
    state, hook, changes = after(a_launch(), CommandEnded(0))
    assert (state, hook) == (S.RUNNING, "on_running")
    assert changes["spans"] == (PriceSpan(LATER, a_launch().bound_microusd_hour, a_launch().bound_microusd_hour),)


@pytest.mark.parametrize(
    "event", [CommandEnded(1), CommandEnded(-9), CommandEnded(None), CommandEnded(2), CommandLost()]
)
def test_every_end_that_proves_nothing_is_held(event: CommandEvent) -> None:
    assert after(a_launch(), event)[0] is S.HELD
    assert after(a_launch(S.HELD), event)[0] is S.HELD


@pytest.mark.parametrize("event", [CommandEnded(RENTED_NOTHING), CommandNotRun(EndReason.NOT_RUN.text("no such file"))])
@pytest.mark.parametrize("state", [S.REQUESTED, S.HELD])
def test_what_rented_nothing_is_released(event: CommandEvent, state: LaunchState) -> None:
    assert after(a_launch(state), event)[:2] == (S.FAILED, "on_ended")


@pytest.mark.parametrize("state", [S.HELD, S.FAILED])
def test_a_late_0_counts_whatever_was_decided_meanwhile(state: LaunchState) -> None:
    state_, _, changes = after(a_launch(state, ended_at=NOON, end_reason="resolved"), CommandEnded(0))
    assert (state_, changes["ended_at"], changes["end_reason"]) == (S.RUNNING, None, None)


@pytest.mark.parametrize("state", [S.RUNNING, S.ENDED])
@pytest.mark.parametrize("event", [CommandEnded(0), CommandEnded(1), CommandEnded(RENTED_NOTHING), CommandLost()])
def test_what_runs_or_ran_is_not_changed_by_its_command(state: LaunchState, event: CommandEvent) -> None:
    assert after(a_launch(state, running_at=NOON), event)[0] is state


def test_its_reservation_ends_with_its_max_runtime_and_nothing_else() -> None:
    running = a_launch(S.RUNNING, running_at=NOON)
    assert after(running, CommandTimePassed(), 3599)[0] is S.RUNNING
    assert after(running, CommandTimePassed(), 3600)[:2] == (S.ENDED, "on_ended")
    assert after(changed(running, max_runtime_s=None), CommandTimePassed(), 9e6)[0] is S.RUNNING
    assert after(a_launch(S.HELD), CommandTimePassed(), 9e6)[0] is S.HELD
