"""Blindness is reported once, and once more when it is over; "no offers" is not blindness."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from gpuwatch.engine.health_monitor import HealthMonitor
from gpuwatch.errors import ProviderDown, QuotaSpent
from gpuwatch.ports import AlertKind
from tests.engine.uow_fakes import NOON, MemoryUnitOfWork

INTERVAL_S = 30.0


def health_monitor(uow_factory: MemoryUnitOfWork, started_at: datetime = NOON) -> HealthMonitor:
    ids = (f"a{n}" for n in itertools.count())
    return HealthMonitor("vastai", uow_factory, lambda: next(ids), started_at)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def kinds(uow_factory: MemoryUnitOfWork) -> list[AlertKind]:
    return [alert.kind for alert, _ in uow_factory.alerts]


def test_three_silent_intervals_are_reported_once() -> None:
    uow_factory = MemoryUnitOfWork()
    guard = health_monitor(uow_factory)
    guard.failed(ProviderDown("HTTP 502"), later(30))
    for second in range(0, 600, 10):
        guard.check(INTERVAL_S, later(second))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    assert any("HTTP 502" in value for _, value in uow_factory.alerts[0][0].facts)


def test_a_complete_answer_in_time_is_no_blindness() -> None:
    uow_factory = MemoryUnitOfWork()
    guard = health_monitor(uow_factory)
    for second in range(0, 600, 30):
        guard.answered(later(second))
        guard.check(INTERVAL_S, later(second + 20))
    assert uow_factory.alerts == []


def test_its_return_is_reported_once() -> None:
    uow_factory = MemoryUnitOfWork()
    guard = health_monitor(uow_factory)
    guard.check(INTERVAL_S, later(300))
    guard.answered(later(400))
    guard.answered(later(430))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_spent_quota_is_blindness_at_once() -> None:
    uow_factory = MemoryUnitOfWork()
    guard = health_monitor(uow_factory)
    guard.failed(QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), NOON)
    guard.failed(QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), later(30))
    assert kinds(uow_factory) == [AlertKind.BLIND]


def test_a_restart_while_blind_does_not_tell_it_again() -> None:
    uow_factory = MemoryUnitOfWork()
    health_monitor(uow_factory).check(INTERVAL_S, later(300))
    again = health_monitor(uow_factory, started_at=later(310))
    again.check(INTERVAL_S, later(900))
    assert kinds(uow_factory) == [AlertKind.BLIND]


def test_a_restart_after_a_week_off_is_not_a_week_of_blindness() -> None:
    uow_factory = MemoryUnitOfWork()
    health_monitor(uow_factory).answered(NOON)
    again = health_monitor(uow_factory, started_at=NOON + timedelta(days=7))
    again.check(INTERVAL_S, NOON + timedelta(days=7, seconds=40))
    assert uow_factory.alerts == []
