"""Turns are given one at a time, urgent ones first."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from benchmarks.virtual_time import VirtualTime
from gpuwatch.providers.toolkit.rate_limiter import RateLimiter, RequestHeld, WaitStopped


def _real(intervals: dict[str, float], stop: threading.Event | None = None) -> RateLimiter:
    stop = stop or threading.Event()
    return RateLimiter(intervals, time.monotonic, lambda s: stop.wait(s) and None, stop)


class _Clock:
    """Time that advances only by sleeping."""

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
    """By the real clock. A thread may get its turn late, never early, so only the last one can be judged."""
    pace = _real({"search": 0.05})
    threads = [threading.Thread(target=pace.wait, args=("search",)) for _ in range(5)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert time.monotonic() - began >= 4 * 0.05


def test_the_urgent_goes_before_those_who_wait() -> None:
    lanes = _Lanes()
    lanes.limiter.wait("search")
    lanes.ask("sweep 0", False, 1)
    lanes.ask("sweep 1", False, 1)
    lanes.ask("hunt", True, 1, from_s=1.0)
    assert lanes.after(60.0)[0] == "hunt"


def test_a_stop_ends_the_wait_and_leaves_the_turn_to_others() -> None:
    stop = threading.Event()
    pace = _real({"search": 60.0}, stop)
    pace.wait("search")
    threading.Timer(0.05, stop.set).start()
    began = time.monotonic()
    with pytest.raises(WaitStopped):
        pace.wait("search")
    assert time.monotonic() - began < 30


class _Lanes:
    """Hunts and a sweep that request turns, on a clock that advances only while all of them wait."""

    def __init__(self, interval_s: float = 6.0, answer_s: float = 0.5) -> None:
        self.clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
        self._stop = threading.Event()
        self.limiter = RateLimiter({"search": interval_s}, self.clock.monotonic, self.clock.sleep, self._stop)
        self.turns: list[tuple[str, float]] = []
        self._answer_s = answer_s

    def ask(self, lane: str, urgent: bool, times: int, from_s: float = 0.0) -> None:
        def run() -> None:
            self.clock.sleep(from_s)
            with suppress(WaitStopped):
                for _ in range(times):
                    self.limiter.wait("search", urgent)
                    self.turns.append((lane, self.clock.monotonic()))
                    self.clock.sleep(self._answer_s)

        self.clock.spawn(lane, run)

    def after(self, seconds: float) -> list[str]:
        with self.clock.passing():
            self.clock.sleep(seconds)
            self._stop.set()
        return [lane for lane, at_s in self.turns if at_s <= seconds]


def test_a_sweep_that_waits_gets_every_fifth_turn() -> None:
    lanes = _Lanes()
    lanes.ask("hunt", True, 100)
    lanes.ask("sweep", False, 100)
    turns = lanes.after(297.0)
    assert len(turns) == 50
    assert turns.count("sweep") == 10
    assert turns[:10] == ["hunt"] * 4 + ["sweep"] + ["hunt"] * 4 + ["sweep"]


def test_several_urgent_threads_do_not_take_the_sweeps_turn() -> None:
    lanes = _Lanes()
    for number in range(3):
        lanes.ask(f"hunt {number}", True, 100)
    lanes.ask("sweep", False, 100)
    assert lanes.after(297.0).count("sweep") == 10


def test_turns_that_no_hunt_wants_are_the_sweeps() -> None:
    lanes = _Lanes()
    lanes.ask("hunt", True, 2)
    lanes.ask("sweep", False, 100)
    turns = lanes.after(117.0)
    assert (len(turns), turns.count("sweep")) == (20, 18)


def test_a_hunt_does_not_wait_for_a_sweep_that_does_not_ask() -> None:
    lanes = _Lanes()
    lanes.ask("hunt", True, 100)
    assert lanes.after(297.0).count("hunt") == 50


def test_a_sweep_that_begins_late_waits_one_turn_at_most_where_hunts_took_many() -> None:
    lanes = _Lanes()
    lanes.ask("hunt", True, 100)
    lanes.ask("sweep", False, 1, from_s=100.0)
    turns = lanes.after(297.0)
    assert turns.index("sweep") == 17  # the turn at 102 s


def test_a_hold_reaches_those_who_wait_already_and_leaves_other_classes_alone() -> None:
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    limiter = RateLimiter({"search": 6.0}, clock.monotonic, clock.sleep, threading.Event())
    sent: list[float] = []

    def ask() -> None:
        limiter.wait("search")
        sent.append(clock.monotonic())

    limiter.wait("search")
    clock.spawn("waits", ask)
    with clock.passing():
        clock.sleep(1.0)
        limiter.hold("search", 20.0)
        limiter.hold("search", 5.0)  # the longer one stays
        assert limiter.wait("create") == 0.0
        clock.sleep(60.0)
    assert sent == [pytest.approx(21.0)]


def test_a_hold_longer_than_the_caller_waits_is_an_error_at_once() -> None:
    clock = _Clock({"search": 6.0})
    clock.pace.hold("search", 40.0)
    with pytest.raises(RequestHeld) as held:
        clock.pace.wait("search", max_hold_s=30.0)
    assert (held.value.remaining_s, clock.now) == (40.0, 0.0)
    clock.now = 11.0
    assert clock.pace.wait("search", max_hold_s=30.0) == pytest.approx(29.0)


def test_a_released_class_is_free() -> None:
    clock = _Clock({"search": 6.0})
    clock.pace.hold("search", 40.0)
    clock.pace.release("search")
    assert clock.pace.wait("search") == 0.0


class _Turns:
    """The turns of an account that several processes search with, as the store gives them."""

    is_shared = True

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self.free_at_s = 0.0
        self.is_known = True

    def take(self, interval_s: float) -> float | None:
        if not self.is_known:
            return None
        now_s = self.clock.monotonic()
        began_s = max(self.free_at_s, now_s)
        self.free_at_s = began_s + interval_s
        return began_s - now_s


class _Shared(_Lanes):
    """Lanes of one of several processes."""

    def __init__(self, turns: _Turns, clock: VirtualTime) -> None:
        super().__init__()
        self.clock = clock
        self.limiter = RateLimiter({"search": 6.0}, clock.monotonic, clock.sleep, self._stop, turns)


def test_processes_that_share_turns_get_equal_shares_however_many_lanes_each_has() -> None:
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    turns = _Turns(clock)
    several, one = _Shared(turns, clock), _Shared(turns, clock)
    for lane in ("hunt", "sweep", "quotes"):
        several.ask(lane, False, 100)
    one.ask("other", False, 100, from_s=1.0)
    several.after(597.0)
    sent = sorted([at_s for _, at_s in several.turns] + [at_s for _, at_s in one.turns])
    assert 99 <= len([at_s for at_s in sent if at_s <= 597.0]) <= 100
    assert min(later - earlier for earlier, later in pairwise(sent)) > 5.99
    assert abs(len(several.turns) - len(one.turns)) <= 2


def test_who_waits_alone_for_a_shared_turn_loses_no_time() -> None:
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    lanes = _Shared(_Turns(clock), clock)
    lanes.ask("hunt", False, 100)
    assert len(lanes.after(297.0)) == 50


def test_the_urgent_uses_the_turn_that_another_lane_has_taken() -> None:
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    turns = _Turns(clock)
    lanes = _Shared(turns, clock)
    turns.free_at_s = 18.0  # of others
    lanes.ask("sweep", False, 1)
    lanes.ask("requote", True, 1, from_s=1.0)
    lanes.after(60.0)
    assert lanes.turns == [("requote", pytest.approx(18.0, abs=0.1)), ("sweep", pytest.approx(24.0, abs=0.1))]


def test_a_turn_that_would_be_used_late_is_given_up() -> None:
    """A hold began meanwhile: the turn that it missed is over, and the next one is somebody else's."""
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    turns = _Turns(clock)
    turns.free_at_s = 6.0
    lanes = _Shared(turns, clock)
    lanes.ask("hunt", False, 1)
    clock.spawn("refused", lambda: (clock.sleep(1.0), lanes.limiter.hold("search", 10.0)))
    clock.spawn("others", lambda: (clock.sleep(10.0), turns.take(6.0)))
    lanes.after(60.0)
    assert lanes.turns == [("hunt", pytest.approx(18.0, abs=0.1))]


def test_no_search_is_sent_while_it_is_unknown_whose_turn_it_is() -> None:
    clock = VirtualTime(datetime(2026, 11, 23, tzinfo=UTC))
    turns = _Turns(clock)
    turns.is_known = False
    lanes = _Shared(turns, clock)
    lanes.ask("hunt", True, 1)
    clock.spawn("answers", lambda: (clock.sleep(20.0), setattr(turns, "is_known", True)))
    lanes.after(60.0)
    assert [at_s for _, at_s in lanes.turns] == [pytest.approx(20.0, abs=1.1)]
