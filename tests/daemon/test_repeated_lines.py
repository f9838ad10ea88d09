"""A lasting fault is one line, then one an hour with a count; nothing else is dropped. On a virtual clock."""

from __future__ import annotations

import io
import logging

import pytest

from gpuwatch.daemon.log_records import RepeatedLines
from gpuwatch.daemon.logs import LineHandler, record_text

NOON_S = 1_795_262_400.0  # 2026-11-21 12:00 UTC
ENGINE = "gpuwatch.engine.launches.following.launch_reconciler"


class Log:
    """The lines of a daemon's log, at chosen times."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self._handler = LineHandler(self._stream, record_text, str)
        self._handler.addFilter(RepeatedLines())

    def write(self, text: str, after_s: float, name: str = ENGINE, **extra: object) -> None:
        record = logging.LogRecord(name, logging.WARNING, __file__, 1, "%s", (text,), None)
        record.created = NOON_S + after_s
        record.__dict__.update(extra)
        self._handler.handle(record)

    @property
    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_fault_of_three_hours_is_four_lines_with_its_count(log: Log) -> None:
    for second in range(0, 3 * 3600 + 1, 10):
        log.write("could not list instances: 503", second)
    assert len(log.lines) == 4
    assert log.lines[0].endswith("could not list instances: 503")
    assert log.lines[1].endswith("could not list instances: 503 (361 times since 2026-11-21 12:00 UTC)")
    assert log.lines[3].endswith("(1081 times since 2026-11-21 12:00 UTC)")


def test_what_differs_is_written_at_once(log: Log) -> None:
    for second, text in enumerate(["launch a: 503", "launch b: 503", "launch a: 401"]):
        log.write(text, second)
    assert len(log.lines) == 3


def test_after_an_hour_without_it_a_fault_is_a_new_one(log: Log) -> None:
    log.write("503", 0)
    log.write("503", 3600)
    assert len(log.lines) == 2
    assert "times since" not in log.lines[1]


def test_a_clock_that_steps_back_hides_nothing(log: Log) -> None:
    log.write("503", 7200)
    log.write("503", 0)
    assert len(log.lines) == 2


def test_events_and_answers_to_the_owner_are_never_held_back(log: Log) -> None:
    for second in range(3):
        log.write("h100: an offer", second, alert_id=f"a{second}")
        log.write("the settings are rejected", second, name="gpuwatch.daemon.process")
    assert len(log.lines) == 6
