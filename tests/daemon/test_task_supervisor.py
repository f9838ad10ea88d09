"""Reports about tasks: each fault once, its end once, through a channel that works."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from gpuwatch.daemon.task_progress import FaultKind, PeriodicTask, TaskFault, TaskProgress
from gpuwatch.daemon.task_supervisor import TaskSupervisor, task_alert, task_recovery_alert
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, OutboxAlert, Severity
from tests.builders import NOON


class World:
    """Two tasks that fail when the test says so, and both ways to the owner."""

    def __init__(self, earlier: Sequence[Alert] = (), *, is_started: bool = True) -> None:
        self.broken: set[str] = set()
        self.no_database = False
        self.stored: list[Alert] = []
        self.direct: list[Alert] = []
        self.passed_s = 0.0
        names = {"follow vastai": True, "deliver": True, "roll-up": False}
        self.tasks = {
            name: PeriodicTask(name=name, run=lambda name=name: self._work(name), every_s=2.0, is_essential=essential)
            for name, essential in names.items()
        }
        self.progress = TaskProgress(self.now, lambda: self.passed_s)
        self.supervisor = TaskSupervisor(
            self.progress,
            enqueue=self._enqueue,
            send_directly=self.direct.append,
            read_alerts=lambda since: list(earlier),
            now=self.now,
            monotonic=lambda: self.passed_s,
        )
        if is_started:
            self.start()

    def start(self) -> None:
        self.progress.start(list(self.tasks.values()))

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.passed_s)

    def run(self, times: int = 3) -> None:
        for _ in range(times):
            self.passed_s += 2
            for task in self.tasks.values():
                if task.name in self.broken:
                    with pytest.raises(RuntimeError):
                        self.progress.run(task)
                else:
                    self.progress.run(task)
        self.supervisor.check()

    def _work(self, name: str) -> None:
        if name in self.broken:
            raise RuntimeError("by design")

    def _enqueue(self, outbox_alert: OutboxAlert) -> None:
        if self.no_database:
            raise StoreError("the disk is full")
        self.stored.append(outbox_alert.alert)


def headlines(alerts: Sequence[Alert]) -> list[str]:
    return [alert.headline for alert in alerts]


def test_a_fault_is_reported_once_and_its_end_once() -> None:
    world = World()
    world.broken = {"follow vastai"}
    world.run()
    world.run()
    world.broken.clear()
    world.run()
    world.run()
    assert headlines(world.stored) == ["task follow vastai fails", "task follow vastai works again"]
    assert [alert.kind for alert in world.stored] == [AlertKind.DAEMON, AlertKind.RECOVERED]
    assert world.direct == []


@pytest.mark.parametrize(("task", "severity"), [("follow vastai", Severity.CRITICAL), ("roll-up", Severity.WARNING)])
def test_it_is_critical_where_what_is_rented_depends_on_it(task: str, severity: Severity) -> None:
    world = World()
    world.broken = {task}
    world.run()
    assert [alert.severity for alert in world.stored] == [severity]


def test_where_nobody_sends_what_is_stored_it_is_sent_directly() -> None:
    world = World()
    world.broken = {"deliver", "follow vastai"}
    world.run()
    assert set(headlines(world.direct)) == {"task deliver fails", "task follow vastai fails"}


def test_where_it_cannot_be_stored_it_is_sent_directly() -> None:
    world = World()
    world.broken, world.no_database = {"follow vastai"}, True
    world.run()
    world.run()
    assert headlines(world.direct) == ["task follow vastai fails"]


def test_the_end_of_what_an_earlier_process_reported_is_reported_after_a_success() -> None:
    fault = TaskFault(task="follow vastai", kind=FaultKind.HANGS, since=NOON, cause="it waits")
    over = TaskFault(task="deliver", kind=FaultKind.HANGS, since=NOON, cause="it waits")
    earlier = [
        task_alert(fault, is_essential=True, now=NOON - timedelta(minutes=5)),
        task_alert(over, is_essential=True, now=NOON - timedelta(minutes=5)),
        task_recovery_alert("deliver", NOON, now=NOON - timedelta(minutes=4)),
    ]
    world = World(earlier)
    world.supervisor.check()
    assert world.stored == []  # nothing has run yet
    world.run()
    assert headlines(world.stored) == ["task follow vastai works again"]


def test_what_an_earlier_process_reported_is_matched_once_the_tasks_are_known() -> None:
    """The supervisor's thread may run before the scheduler has started its tasks."""
    fault = TaskFault(task="follow vastai", kind=FaultKind.FAILS, since=NOON, cause="it fails")
    world = World([task_alert(fault, is_essential=True, now=NOON - timedelta(minutes=5))], is_started=False)
    world.supervisor.check()
    world.start()
    world.run()
    assert headlines(world.stored) == ["task follow vastai works again"]


def test_a_fault_that_the_next_process_still_has_is_not_reported_again() -> None:
    fault = TaskFault(task="follow vastai", kind=FaultKind.FAILS, since=NOON, cause="it fails")
    world = World([task_alert(fault, is_essential=True, now=NOON - timedelta(minutes=5))])
    world.broken = {"follow vastai"}
    world.run()
    assert world.stored == []
