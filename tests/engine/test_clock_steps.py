"""No comparison with a noted time waits for the old time to return after a step of the clock by a day."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuwatch.daemon.tasks import _follow_clusters
from gpuwatch.domain.launches.life.circuit_breaker import (
    OPEN_FOR,
    CircuitBreaker,
    after_failure,
    after_run,
    breaker_refusal,
)
from gpuwatch.domain.launches.life.refused_scopes import scopes_in_force
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.engine.launches.renting.prerequisite_gate import PrerequisiteGate
from gpuwatch.engine.watches.current_limits import REPUTATIONS_READ_EVERY, MachineReputations
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.storage.alerts.alert_rows import Silence, SqlSilences
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.builders import a_watch, changed
from tests.domain.launches.life.test_circuit_breaker import a_launch, failed
from tests.engine.launches.renting.test_prerequisite_gate import Holds
from tests.engine.uow_fakes import NOON, an_answer, evaluate
from tests.engine.watches.test_evaluator import RENTS, Bench, h100
from tests.storage.alerts.test_outbox import lease, reported

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
each_step = pytest.mark.parametrize("step", [-DAY, DAY])


@each_step
def test_a_noted_time_is_recent_on_both_sides_and_not_a_day_away(step: timedelta) -> None:
    assert is_recent(NOON, NOON + 4 * MINUTE, 5 * MINUTE)
    assert is_recent(NOON, NOON - 4 * MINUTE, 5 * MINUTE)
    assert not is_recent(NOON, NOON + step, 5 * MINUTE)


@each_step
def test_the_idle_list_of_clusters_continues(step: timedelta) -> None:
    listed: list[datetime] = []
    time_source = SimpleNamespace(current=NOON)
    time_source.now = lambda: time_source.current
    reconciler = SimpleNamespace(reconciled=True, run_soon=lambda: None, run_if_due=listed.append)
    service = SimpleNamespace(time_source=time_source, launch_repository=SimpleNamespace(alive=lambda tool: []))
    run = _follow_clusters(cast("Any", service), cast("Any", reconciler))
    for now in (NOON, NOON + MINUTE, NOON + step, NOON + step + MINUTE, NOON + step + 6 * MINUTE):
        time_source.current = now
        run()
    assert listed == [NOON, NOON + step, NOON + step + 6 * MINUTE]


@each_step
def test_reputations_are_read_again(step: timedelta) -> None:
    read: list[datetime] = []
    reputations = MachineReputations(lambda now: read.append(now) or {})  # type: ignore[func-returns-value]
    watch = changed(a_watch(), min_reputation=0.5)
    for now in (NOON, NOON + REPUTATIONS_READ_EVERY / 2, NOON + step):
        reputations.with_records(watch, now)
    assert read == [NOON, NOON + step]


@each_step
def test_prerequisites_are_checked_again(step: timedelta) -> None:
    checked: list[int] = []
    met = Prerequisite(name=PrerequisiteName.KEY_PAIR, met=True, text="fine")

    def probe() -> Any:
        checked.append(1)
        return [met], ["1"]

    gate = PrerequisiteGate("vastai", probe, Holds(), lambda alert: True, lambda: "a1")
    assert [gate.run_if_due(now) for now in (NOON, NOON + MINUTE, NOON + step)] == [True, False, True]


@each_step
def test_quotes_from_before_the_step_are_not_rented(step: timedelta) -> None:
    """The provider does not answer any more."""
    bench = Bench(RENTS, providers=("vastai", "runpod"))
    bench.slots.hold("h100")
    evaluate(bench.evaluator, (RENTS,), an_answer(h100(), at=NOON), False, NOON)
    (launch,) = bench.started
    later = NOON + step
    other = an_answer(at=later, provider="runpod")
    (decision,) = evaluate(bench.evaluator, (RENTS,), other, False, later)
    assert decision.matches == ()
    assert bench.started == [launch]


@each_step
def test_a_channel_hangs_by_the_monotonic_clock(database: Database, step: timedelta) -> None:
    answered = threading.Event()
    ticks = SimpleNamespace(seconds=0.0)

    class Slow:
        name = "slow"

        def send(self, alert: object) -> None:
            answered.wait(30)

    reported(database, "a1", channels=("slow",))
    channels = {"slow": Slow()}
    deliverer = AlertDelivery(Outbox(database), channels, monotonic=lambda: ticks.seconds, patience_s=0.0)
    hanging: list[str] = []
    deliverer._failover.run_if_due = lambda now: 0  # type: ignore[method-assign]
    deliverer._reports.silent = lambda name, *_: hanging.append(name)  # type: ignore[method-assign]
    try:
        deliverer.send_due(NOON)
        deliverer.send_due(NOON + step)
        assert hanging == []
        ticks.seconds = 61.0
        deliverer.send_due(NOON + step + MINUTE)
        deliverer.send_due(NOON + step + 2 * MINUTE)
        assert hanging == ["slow"]
    finally:
        answered.set()
        deliverer.close()


def test_after_a_step_back_a_channel_that_fails_is_noticed_within_its_quarter_of_an_hour(database: Database) -> None:
    box = reported(database, "a1", "a2")
    first, second = lease(box)
    box.mark_sent(first, NOON)
    box.postpone(second, NOON - DAY, "no answer")
    for minutes in (0, 10, 20):
        now = NOON - DAY + minutes * MINUTE
        assert [one.name for one in box.stalled_channels(now - 15 * MINUTE)] == (["telegram"] if minutes == 20 else [])
        (again,) = box.lease(now, 10, 60.0)
        box.postpone(again, now, "no answer")


@each_step
def test_a_silence_does_not_last_a_day_longer(database: Database, step: timedelta) -> None:
    silences = SqlSilences(database)
    silences.silence(Silence(watch="h100", at=NOON, until=NOON + timedelta(hours=6)))
    assert [one.watch for one in silences.in_force(NOON + MINUTE)] == ["h100"]
    assert silences.in_force(NOON + step) == []


def test_after_a_step_back_an_open_breaker_tries_one_launch_and_opens_again_if_it_fails() -> None:
    breaker = CircuitBreaker(watch="h100", at=NOON, until=NOON + OPEN_FOR, why="3 launches failed")
    now = NOON - DAY
    assert breaker_refusal(breaker, (), now) is None
    trial = changed(a_launch(), intended_at=now)
    assert breaker_refusal(breaker, (trial,), now + MINUTE) is not None
    lost = changed(failed(0), intended_at=now, ended_at=now + MINUTE)
    again = after_failure(breaker, [lost], lost, now + MINUTE)
    assert again is not None
    assert (again.at, again.until) == (now + MINUTE, now + MINUTE + OPEN_FOR)
    closed = after_run(breaker, trial, now + MINUTE)
    assert closed is not None
    assert closed.is_closed


@each_step
def test_a_skipped_scope_does_not_last_a_day_longer(step: timedelta) -> None:
    scope = cast("Any", SimpleNamespace(since=NOON, until=NOON + timedelta(hours=1)))
    assert scopes_in_force([scope], NOON + MINUTE) == [scope]
    assert scopes_in_force([scope], NOON - MINUTE) == [scope]  # the clock of another host
    assert scopes_in_force([scope], NOON + step) == []
