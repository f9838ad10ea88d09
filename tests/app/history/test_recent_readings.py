"""Readings that many clients share."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.errors import StoreError
from tests.process.daemon_child import wait_for

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
    assert readings.reading("a", "another", NOON + timedelta(seconds=4), read) == 4
    assert readings.reading("a", "another", NOON, read) == 5  # the clock was set back


def test_what_is_read_often_is_read_again_before_anybody_waits_for_it() -> None:
    readings, may_end, language = RecentReadings[str](timedelta(seconds=2)), threading.Event(), ContextVar("language")

    def slow() -> str:
        assert may_end.wait(60)
        return f"next, in {language.get()}"

    language.set("Russian")
    assert readings.reading("a", None, NOON, lambda: "first") == "first"
    for after in (2, 3.9):
        assert readings.reading("a", None, NOON + timedelta(seconds=after), slow) == "first"
    may_end.set()
    wait_for(lambda: readings.reading("a", None, NOON + timedelta(seconds=3), slow) == "next, in Russian")


def test_an_error_of_the_next_reading_is_raised_for_who_then_asks() -> None:
    readings, tried = RecentReadings[str](timedelta(seconds=2)), threading.Event()

    def broken() -> str:
        tried.set()
        raise StoreError("it is locked")

    assert readings.reading("a", None, NOON, lambda: "first") == "first"
    assert readings.reading("a", None, NOON + timedelta(seconds=3), broken) == "first"
    assert tried.wait(60)
    with pytest.raises(StoreError, match="it is locked"):
        readings.reading("a", None, NOON + timedelta(seconds=4), broken)


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
