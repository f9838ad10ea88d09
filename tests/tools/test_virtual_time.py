"""The virtual clock of benchmarks: tasks on threads of their own, one at a time, and no real waiting."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from benchmarks.virtual_time import VirtualTime
from gpuwatch.daemon.task_progress import PeriodicTask

START = datetime(2026, 11, 23, tzinfo=UTC)


def test_a_day_passes_without_waiting_and_tasks_run_at_their_intervals() -> None:
    clock, began = VirtualTime(START), time.monotonic()
    runs: dict[str, list[float]] = {"hourly": [], "daily": []}
    with clock.passing():
        clock.repeat(PeriodicTask(name="hourly", run=lambda: runs["hourly"].append(clock.monotonic()), every_s=3600))
        clock.repeat(PeriodicTask(name="daily", run=lambda: runs["daily"].append(clock.monotonic()), every_s=86_400))
        clock.sleep(86_399)
        assert runs == {"hourly": [hour * 3600.0 for hour in range(24)], "daily": [0.0]}
        assert (clock.now() - START).total_seconds() == 86_399
    assert time.monotonic() - began < 60


def test_who_sleeps_lets_the_others_run_and_each_knows_its_name() -> None:
    clock = VirtualTime(START)
    seen: list[tuple[str, float]] = []

    def nap(*lengths_s: float) -> None:
        for length_s in lengths_s:
            clock.sleep(length_s)
            seen.append((clock.running, clock.monotonic()))

    with clock.passing():
        clock.spawn("slow", lambda: nap(5, 5))
        clock.spawn("quick", lambda: nap(2, 2, 2))
        clock.sleep(20)
    assert seen == [("quick", 2), ("quick", 4), ("slow", 5), ("quick", 6), ("slow", 10)]


def test_a_task_that_takes_longer_than_its_interval_skips_what_fell_due_meanwhile() -> None:
    clock = VirtualTime(START)
    began: list[float] = []

    def work() -> None:
        began.append(clock.monotonic())
        clock.sleep(70)

    with clock.passing():
        clock.repeat(PeriodicTask(name="long", run=work, every_s=30))
        clock.sleep(300)
        assert began == [0, 90, 180, 270]


def test_an_error_of_a_task_ends_the_day_at_once() -> None:
    clock = VirtualTime(START)

    def fail() -> None:
        clock.sleep(10)
        raise LookupError("lost")

    def day() -> None:
        with clock.passing():
            clock.spawn("failing", fail)
            clock.sleep(1000)

    with pytest.raises(LookupError, match="lost"):
        day()
    assert clock.monotonic() == 10


def test_nobody_waits_any_more_once_the_day_is_over() -> None:
    clock, stopping = VirtualTime(START), threading.Event()

    def forever() -> None:
        while not stopping.is_set():
            clock.sleep(10)

    with clock.passing():
        clock.spawn("endless", forever)
        clock.sleep(100)
        stopping.set()
    assert clock.monotonic() == 100
    assert not any(one.name == "endless" for one in threading.enumerate())
