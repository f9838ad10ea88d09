"""A broken database is reported past the outbox: after a moment, once an hour, on every channel."""

from __future__ import annotations

import threading
from datetime import timedelta

from gpuwatch.engine.alerts.channel_failures import PATIENCE, REPEAT_AFTER, FallbackAlerts
from gpuwatch.ports import Alert, Severity
from tests.builders import NOON

FULL = "the database gpuwatch.db cannot grow: the disk is full"


class Ear:
    def __init__(self, name: str, breaks: bool = False) -> None:
        self.name = name
        self.breaks = breaks
        self.heard: list[Alert] = []
        self.called = threading.Event()

    def send(self, alert: Alert) -> None:
        try:
            if self.breaks:
                raise OSError("no route")
            self.heard.append(alert)
        finally:
            self.called.set()


def test_it_waits_a_moment_then_tells_every_channel_once_an_hour() -> None:
    ears = {"telegram": Ear("telegram"), "email": Ear("email", breaks=True)}
    fallback = FallbackAlerts(ears, lambda: "aaaaaaaaaaaa")
    assert not fallback.check(FULL, NOON)
    assert fallback.check(FULL, NOON + PATIENCE)
    assert not fallback.check(FULL, NOON + PATIENCE + timedelta(minutes=59))
    assert fallback.check(FULL, NOON + PATIENCE + REPEAT_AFTER)
    assert all(ear.called.wait(60) for ear in ears.values())
    assert FULL in str(ears["telegram"].heard[0].facts)


def test_what_mends_itself_at_once_is_not_reported() -> None:
    fallback = FallbackAlerts({}, lambda: "aaaaaaaaaaaa")
    assert not fallback.check(FULL, NOON)
    assert not fallback.check(None, NOON + PATIENCE)
    assert not fallback.check(FULL, NOON + 2 * PATIENCE)


def test_a_clock_that_steps_back_silences_nothing() -> None:
    fallback = FallbackAlerts({}, lambda: "aaaaaaaaaaaa")
    fallback.check(FULL, NOON)
    assert fallback.check(FULL, NOON - timedelta(hours=1))


def test_without_any_channel_the_log_has_it_whole() -> None:
    logged: list[Alert] = []
    fallback = FallbackAlerts({}, lambda: "aaaaaaaaaaaa", logged.append)
    assert not fallback.check(FULL, NOON)
    assert fallback.check(FULL, NOON + PATIENCE)
    (alert,) = logged
    assert alert.severity is Severity.CRITICAL
    assert FULL in str(alert.facts)
