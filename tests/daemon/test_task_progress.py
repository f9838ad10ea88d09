"""Progress of periodic tasks: a success, a failure, a hang, and their effects on the watchdog and the owner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuwatch.daemon.task_progress import FaultKind, PeriodicTask, TaskProgress
from gpuwatch.errors import PartlyDone, ProviderDown

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Tasks:
    """Progress on a clock that stands still until it is advanced."""

    def __init__(self, *tasks: PeriodicTask) -> None:
        self.passed_s = 0.0
        self.progress = TaskProgress(lambda: NOW + timedelta(seconds=self.passed_s), lambda: self.passed_s)
        self.progress.start(tasks)

    def stalled_after(self, seconds: float) -> list[str]:
        self.passed_s += seconds
        return self.progress.stalled(self.passed_s)

    def faults(self) -> list[Any]:
        return self.progress.faults(self.passed_s)

    def fail(self, task: PeriodicTask, times: int, error: type[Exception] = RuntimeError) -> None:
        for _ in range(times):
            with pytest.raises(error):
                self.progress.run(task)


def a_task(run: Callable[[], object] = lambda: None, **changes: Any) -> PeriodicTask:
    plain = {"name": "follow", "every_s": 2.0, "is_essential": True, "progress_within_s": 60.0}
    return PeriodicTask(run=run, **(plain | changes))


def failing(error: Exception) -> Callable[[], object]:
    def run() -> None:
        raise error

    return run


def test_a_success_is_remembered_with_its_time() -> None:
    task = a_task()
    tasks = Tasks(task)
    assert tasks.progress.last_success == {}
    tasks.passed_s = 5
    tasks.progress.run(task)
    assert tasks.progress.last_success == {"follow": NOW + timedelta(seconds=5)}


def test_without_progress_for_too_long_an_essential_task_is_stalled_until_it_succeeds() -> None:
    task = a_task()
    tasks = Tasks(task, a_task(name="roll-up", is_essential=False))
    assert tasks.stalled_after(60) == []
    assert tasks.stalled_after(1) == ["follow"]
    tasks.progress.run(task)
    assert tasks.stalled_after(60) == []


def test_a_step_within_a_long_run_is_progress() -> None:
    rounds = [0]
    tasks = Tasks(a_task(steps=lambda: rounds[0]))
    for _ in range(5):
        rounds[0] += 1
        assert tasks.stalled_after(40) == []
    assert tasks.stalled_after(61) == ["follow"]


def test_what_hangs_is_reported_with_the_place_where_it_waits() -> None:
    began, release = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait(60)

    task = a_task(hang)
    tasks = Tasks(task)
    thread = threading.Thread(target=tasks.progress.run, args=(task,))
    thread.start()
    try:
        assert began.wait(60)
        assert tasks.faults() == []
        tasks.passed_s = 61
        (fault,) = tasks.faults()
    finally:
        release.set()
        thread.join(60)
    assert (fault.task, fault.kind, fault.since) == ("follow", FaultKind.HANGS, NOW)
    assert "task_progress.py" in fault.cause
    assert "release.wait" in fault.stack
    assert tasks.faults() == []


def test_three_failures_in_a_row_are_a_fault_with_their_cause_and_a_success_ends_it() -> None:
    broken = a_task(failing(RuntimeError("by design")))
    tasks = Tasks(broken)
    tasks.fail(broken, 2)
    assert tasks.faults() == []
    tasks.fail(broken, 1)
    (fault,) = tasks.faults()
    assert (fault.kind, fault.failures) == (FaultKind.FAILS, 3)
    assert fault.cause.startswith("RuntimeError: by design (test_task_progress.py:")
    repaired = a_task()
    tasks.progress.start([repaired])
    tasks.progress.run(repaired)
    assert tasks.faults() == []


def test_a_task_that_fails_each_time_makes_no_progress() -> None:
    broken = a_task(failing(RuntimeError("by design")))
    tasks = Tasks(broken)
    tasks.passed_s = 50
    tasks.fail(broken, 4)
    assert tasks.stalled_after(11) == ["follow"]


def test_a_fault_outside_gpuwatch_is_no_defect_and_no_success() -> None:
    """A restart would not help, and the fault is reported elsewhere."""
    down = a_task(failing(ProviderDown("vastai: 502")))
    tasks = Tasks(down)
    tasks.passed_s = 50
    tasks.fail(down, 5, ProviderDown)
    assert tasks.stalled_after(59) == []
    assert tasks.faults() == []
    assert tasks.progress.last_success == {}


def test_what_is_done_in_part_is_reported_and_is_progress_all_the_same() -> None:
    """A restart would do more harm than good: the other launches are followed."""
    partly = a_task(failing(PartlyDone("launch a: by design")))
    tasks = Tasks(partly)
    tasks.passed_s = 50
    tasks.fail(partly, 3, PartlyDone)
    assert [fault.kind for fault in tasks.faults()] == [FaultKind.FAILS]
    assert tasks.stalled_after(59) == []


def test_a_run_of_before_a_reload_that_ends_late_changes_nothing() -> None:
    old, new = a_task(), a_task()
    tasks = Tasks(old)
    tasks.progress.start([new])
    tasks.passed_s = 61
    tasks.progress.run(old)
    assert tasks.stalled_after(0) == ["follow"]
