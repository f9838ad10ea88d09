"""Turns are handed out one at a time, the urgent first."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from gpuwatch.providers.toolkit.rate_limiter import RateLimiter, Stopped


def _real(intervals: dict[str, float], stop: threading.Event | None = None) -> RateLimiter:
    stop = stop or threading.Event()
    return RateLimiter(intervals, time.monotonic, lambda s: stop.wait(s) and None, stop)


class _Clock:
    """Time that only sleeping moves."""

    def __init__(self, intervals: dict[str, float]) -> None:
        self.now = 0.0
        self.pace = RateLimiter(intervals, lambda: self.now, self._sleep, threading.Event())

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_first_turn_is_at_once_and_the_next_after_the_interval() -> None:
    clock = _Clock({"search": 0.1})
    assert clock.pace.wait("search") == 0.0
    assert clock.pace.wait("search") == pytest.approx(0.1)
    assert clock.now == pytest.approx(0.1)


def test_classes_do_not_hold_each_other_back() -> None:
    clock = _Clock({"search": 10.0, "create": 10.0})
    for kind in ("search", "create", "unpaced", "unpaced"):
        clock.pace.wait(kind)
    assert clock.now == 0.0


def test_threads_get_turns_one_interval_apart() -> None:
    pace = _real({"search": 0.05})
    turns: list[float] = []

    def take() -> None:
        pace.wait("search")
        turns.append(time.monotonic())

    threads = [threading.Thread(target=take) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    turns.sort()
    assert all(later - earlier > 0.04 for earlier, later in pairwise(turns))


def test_the_urgent_goes_before_those_who_wait() -> None:
    pace = _real({"search": 0.15})
    pace.wait("search")
    order: list[str] = []

    def take(name: str, urgent: bool) -> None:
        pace.wait("search", urgent)
        order.append(name)

    threads = [threading.Thread(target=take, args=(f"sweep {n}", False)) for n in range(2)]
    threads += [threading.Thread(target=take, args=("hunt", True))]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(5)
    assert order[0] == "hunt"


def test_a_stop_ends_the_wait_and_leaves_the_turn_to_others() -> None:
    stop = threading.Event()
    pace = _real({"search": 60.0}, stop)
    pace.wait("search")
    threading.Timer(0.05, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        pace.wait("search")
    assert time.monotonic() - began < 30
