"""The scheduler: tasks run, never twice at once, and survive a clock that jumps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
import time_machine

from gpuwatch.bootstrap import real_now
from gpuwatch.daemon.scheduler import TaskScheduler
from gpuwatch.daemon.task_progress import PeriodicTask, TaskProgress
from gpuwatch.storage.setup.daemon_lease import Lease


@contextmanager
def turning(*tasks: PeriodicTask) -> Iterator[TaskScheduler]:
    scheduler = TaskScheduler(real_now, time.monotonic)
    scheduler.start(tasks)
    try:
        yield scheduler
    finally:
        scheduler.stop(wait_s=3)


def wait_until(look: Callable[[], bool], within_s: float = 60.0) -> None:
    ends_at = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.01)


def test_every_task_runs_at_once_and_then_at_its_interval() -> None:
    """On a busy machine a run may be late and the next one in time: none is early, counted from the start."""
    runs: list[float] = []
    began = time.monotonic()
    with turning(PeriodicTask(name="a", run=lambda: runs.append(time.monotonic()), every_s=0.2)):
        wait_until(lambda: len(runs) >= 3)
    assert runs[1] - began >= 0.15
    assert runs[2] - began >= 0.35


def test_a_task_that_takes_long_never_runs_twice_at_once_and_delays_no_other() -> None:
    inside, most, others = [0], [0], [0]

    def slow() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.5)
        inside[0] -= 1

    def quick() -> None:
        others[0] += 1

    with turning(PeriodicTask(name="slow", run=slow, every_s=0.1), PeriodicTask(name="quick", run=quick, every_s=0.1)):
        wait_until(lambda: others[0] >= 8)
    assert most[0] == 1


def test_a_task_that_raises_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    runs = [0]

    def broken() -> None:
        runs[0] += 1
        raise ValueError("by design")

    with turning(PeriodicTask(name="broken", run=broken, every_s=0.1)):
        wait_until(lambda: runs[0] >= 3)
    assert "task broken failed" in caplog.text


def test_a_cause_is_logged_with_its_traceback_once_whatever_its_text_says(caplog: pytest.LogCaptureFixture) -> None:
    runs = [0]

    def broken() -> None:
        runs[0] += 1
        raise ValueError(f"run {runs[0]}")

    with turning(PeriodicTask(name="broken", run=broken, every_s=0.1)):
        wait_until(lambda: "failed again" in caplog.text)
    traced = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in traced] == ["task broken failed; retrying at its next run"]
    again = {record.getMessage() for record in caplog.records if "failed again" in record.getMessage()}
    assert len(again) == 1  # the log counts it, once an hour
    assert "ValueError in test_scheduler.py:" in again.pop()


def test_a_request_runs_a_task_now() -> None:
    ran = threading.Event()
    runs = [0]

    def count() -> None:
        runs[0] += 1
        ran.set()

    with turning(PeriodicTask(name="rare", run=count, every_s=3600)) as scheduler:
        assert ran.wait(60)
        ran.clear()
        scheduler.run_now("rare")
        assert ran.wait(60)
    assert runs[0] == 2


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_is_noticed_and_every_task_is_set_anew(hours: int, caplog: pytest.LogCaptureFixture) -> None:
    jumped = [timedelta(0)]
    runs = [0]

    def count() -> None:
        runs[0] += 1

    def now() -> datetime:
        return real_now() + jumped[0]

    scheduler = TaskScheduler(now, time.monotonic, check_clock_every_s=0.05)
    scheduler.start([PeriodicTask(name="a", run=count, every_s=3600)])
    try:
        wait_until(lambda: runs[0] == 1)
        jumped[0] = timedelta(hours=hours)
        wait_until(lambda: "the clock jumped" in caplog.text)
        if hours < 0:  # APScheduler's own clock did not move: what is due in the past runs at once
            wait_until(lambda: runs[0] == 2)
    finally:
        scheduler.stop(wait_s=3)


def test_after_a_year_forward_a_task_runs_once_and_then_at_its_interval() -> None:
    """APScheduler lists every missed run of the year before the next one: of a task each second, two gigabytes."""
    runs = [0]

    def count() -> None:
        runs[0] += 1

    with time_machine.travel(time.time(), tick=True) as travel, turning(PeriodicTask(name="a", run=count, every_s=0.2)):
        wait_until(lambda: runs[0] == 1)
        travel.shift(timedelta(days=365))
        began, before = time.monotonic(), runs[0]
        wait_until(lambda: runs[0] >= before + 3)
        assert runs[0] <= before + 2 + (time.monotonic() - began) / 0.2


def test_a_hanging_task_does_not_hold_up_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(60)
        ended.set()

    scheduler = TaskScheduler(real_now, time.monotonic)
    scheduler.start([PeriodicTask(name="hangs", run=hang, every_s=3600)])
    assert started.wait(30)
    began = time.monotonic()
    scheduler.stop(wait_s=0.5)
    took_s = time.monotonic() - began
    assert not ended.is_set()  # it hangs while the scheduler stops: else nothing was tested
    assert 0.5 <= took_s < 30  # half of what the task would take
    assert "WARNING" in {record.levelname for record in caplog.records}
    release.set()
    assert ended.wait(30)


def test_a_run_that_is_left_out_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """A first sweep reads many pages, six seconds apart, and is checked every few seconds."""
    caplog.set_level("DEBUG")
    release = threading.Event()
    text = "task slow is still running; skipped this run"
    with turning(PeriodicTask(name="slow", run=lambda: release.wait(30), every_s=0.05)):
        wait_until(lambda: caplog.messages.count(text) >= 3, within_s=30)
        release.set()
    assert {record.levelname for record in caplog.records if record.getMessage() == text} == {"DEBUG"}


def test_a_standby_runs_only_what_every_host_runs_and_a_leader_that_lost_its_lease_leaves_the_rest_out() -> None:
    runs: list[str] = []
    tasks = [
        PeriodicTask(name="deliver", run=lambda: runs.append("deliver"), every_s=0.1, on_every_host=True),
        PeriodicTask(name="hunt", run=lambda: runs.append("hunt"), every_s=0.1, is_essential=True),
    ]
    for leads in (False, True):
        runs.clear()
        lease, progress = LostLease(), TaskProgress(real_now, time.monotonic)
        lease.leads = leads
        scheduler = TaskScheduler(real_now, time.monotonic, progress=progress, lease=lease)
        scheduler.start(tasks)
        wait_until(lambda: runs.count("deliver") >= 3)
        scheduler.stop(wait_s=3)
        assert set(runs) == {"deliver"}
        assert progress.has_task("hunt") is leads
        assert "hunt" not in progress.last_success
        assert progress.stalled(time.monotonic()) == []


class LostLease(Lease):
    """Of a host that may not act."""

    @property
    def is_held(self) -> bool:
        return False
