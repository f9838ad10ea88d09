"""Readings that many clients share."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from gpuwatch.app.history.recent_readings import RecentReadings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Counter:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.reads


def test_a_reading_is_used_until_it_is_too_old_or_rests_on_something_else() -> None:
    readings, read = RecentReadings[int](timedelta(seconds=2)), Counter()
    assert readings.reading("a", "basis", NOON, read) == 1
    assert readings.reading("a", "basis", NOON + timedelta(seconds=1.9), read) == 1
    assert readings.reading("b", "basis", NOON, read) == 2
    assert readings.reading("a", "another", NOON, read) == 3
    assert readings.reading("a", "another", NOON + timedelta(seconds=2), read) == 4
    assert readings.reading("a", "another", NOON, read) == 5  # the clock was set back


def test_what_was_forgotten_is_read_again_even_while_it_is_being_read() -> None:
    readings = RecentReadings[str](timedelta(minutes=5))

    def outdated() -> str:
        readings.forget()  # something changes meanwhile
        return "outdated"

    assert readings.reading("a", None, NOON, outdated) == "outdated"
    assert readings.reading("a", None, NOON, lambda: "new") == "new"


def test_only_the_newest_keys_are_kept() -> None:
    readings, read = RecentReadings[int](timedelta(minutes=5), most=2), Counter()
    for key in "abc":
        readings.reading(key, None, NOON, read)
    assert readings.reading("c", None, NOON, read) == 3
    assert readings.reading("a", None, NOON, read) == 4


def test_who_reads_one_key_does_not_wait_for_another() -> None:
    readings, begun, may_end = RecentReadings[str](timedelta(minutes=5)), threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert may_end.wait(60)
        return "slow"

    thread = threading.Thread(target=lambda: readings.reading("a", None, NOON, slow))
    thread.start()
    assert begun.wait(60)
    assert readings.reading("b", None, NOON, lambda: "quick") == "quick"
    may_end.set()
    thread.join(60)
    assert readings.reading("a", None, NOON, lambda: "again") == "slow"
