"""Blindness is told once, and once more when it is over; "no offers" is not blindness."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from gpuwatch.engine.sight import Watchman
from gpuwatch.errors import ProviderDown, QuotaSpent
from gpuwatch.ports import AlertKind
from tests.engine.desk_fakes import NOON, MemoryDesk

INTERVAL_S = 30.0


def watchman(desk: MemoryDesk, started_at: datetime = NOON) -> Watchman:
    ids = (f"a{n}" for n in itertools.count())
    return Watchman("vastai", desk, ("telegram",), lambda: next(ids), started_at)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def kinds(desk: MemoryDesk) -> list[AlertKind]:
    return [alert.kind for alert, _ in desk.alerts]


def test_three_silent_intervals_are_told_once() -> None:
    desk = MemoryDesk()
    guard = watchman(desk)
    guard.failed(ProviderDown("HTTP 502"), later(30))
    for second in range(0, 600, 10):
        guard.beat(INTERVAL_S, later(second))
    assert kinds(desk) == [AlertKind.BLIND]
    assert any("HTTP 502" in value for _, value in desk.alerts[0][0].facts)


def test_a_complete_answer_in_time_is_no_blindness() -> None:
    desk = MemoryDesk()
    guard = watchman(desk)
    for second in range(0, 600, 30):
        guard.saw(later(second))
        guard.beat(INTERVAL_S, later(second + 20))
    assert desk.alerts == []


def test_its_return_is_told_once() -> None:
    desk = MemoryDesk()
    guard = watchman(desk)
    guard.beat(INTERVAL_S, later(300))
    guard.saw(later(400))
    guard.saw(later(430))
    assert kinds(desk) == [AlertKind.BLIND, AlertKind.SEEING]


def test_a_spent_quota_is_blindness_at_once() -> None:
    desk = MemoryDesk()
    guard = watchman(desk)
    guard.failed(QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), NOON)
    guard.failed(QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), later(30))
    assert kinds(desk) == [AlertKind.BLIND]


def test_a_restart_while_blind_does_not_tell_it_again() -> None:
    desk = MemoryDesk()
    watchman(desk).beat(INTERVAL_S, later(300))
    again = watchman(desk, started_at=later(310))
    again.beat(INTERVAL_S, later(900))
    assert kinds(desk) == [AlertKind.BLIND]


def test_a_restart_after_a_week_off_is_not_a_week_of_blindness() -> None:
    desk = MemoryDesk()
    watchman(desk).saw(NOON)
    again = watchman(desk, started_at=NOON + timedelta(days=7))
    again.beat(INTERVAL_S, NOON + timedelta(days=7, seconds=40))
    assert desk.alerts == []
