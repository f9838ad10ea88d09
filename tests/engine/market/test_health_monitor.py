"""Blindness is reported once, and its end once, for each lane; "no offers" is not blindness."""

from __future__ import annotations

import itertools
import logging
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.errors import KeyRejected, NoRowUnderstood, ProviderDown, QuotaSpent, StoreError
from gpuwatch.ports import HUNT, SWEEP, AlertKind
from tests.clocks import Clock
from tests.engine.uow_fakes import NOON, MemoryUnitOfWork

INTERVAL_S = 30.0
H100, A100 = "H100 SXM", "A100 SXM 80GB"
DOWN = ProviderDown("vastai: no such host console.vast.ai")
UNREADABLE = NoRowUnderstood("vastai: none of 12 rows can be used (12 × dph_total: missing)", 12)


CLOCK = Clock()  # the monotonic one


def health_monitor(uow_factory: MemoryUnitOfWork, started_at: datetime = NOON) -> HealthMonitor:
    CLOCK.seconds = (started_at - NOON).total_seconds()
    ids = (f"a{n}" for n in itertools.count())
    return HealthMonitor("vastai", uow_factory, lambda: next(ids), CLOCK, "https://console.vast.ai")


def later(seconds: float) -> datetime:
    """Return the wall clock so long after noon; the monotonic clock moves there, too."""
    CLOCK.seconds = seconds
    return NOON + timedelta(seconds=seconds)


def kinds(uow_factory: MemoryUnitOfWork) -> list[AlertKind]:
    return [alert.kind for alert, _ in uow_factory.alerts]


@pytest.fixture
def uow_factory() -> MemoryUnitOfWork:
    return MemoryUnitOfWork()


@pytest.fixture
def guard(uow_factory: MemoryUnitOfWork) -> HealthMonitor:
    return health_monitor(uow_factory)


# --- silence ---------------------------------------------------------------------------------------------------------
def test_three_silent_intervals_are_reported_once(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    guard.failed(HUNT, H100, ProviderDown("HTTP 502"), later(30))
    for second in range(0, 600, 10):
        guard.check(HUNT, INTERVAL_S, later(second))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    assert any("HTTP 502" in value for _, value in uow_factory.alerts[0][0].facts)


def test_a_wall_clock_that_steps_forward_is_no_silence(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    """The machine slept, or its time was corrected: nothing was polled meanwhile."""
    guard.answered(HUNT, H100, True, later(30))
    guard.check(HUNT, INTERVAL_S, later(35) + timedelta(hours=1))
    assert uow_factory.alerts == []
    guard.check(HUNT, INTERVAL_S, later(300) + timedelta(hours=1))
    assert uow_factory.alerts[0][0].headline.endswith("no complete answer for 4m")


def test_a_wall_clock_that_steps_back_hides_no_silence(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    guard.answered(HUNT, H100, True, later(30))
    guard.check(HUNT, INTERVAL_S, later(300) - timedelta(hours=1))
    assert kinds(uow_factory) == [AlertKind.BLIND]


def test_a_complete_answer_in_time_is_no_blindness(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    for second in range(0, 600, 30):
        guard.answered(HUNT, H100, True, later(second))
        guard.check(HUNT, INTERVAL_S, later(second + 20))
    assert uow_factory.alerts == []


@pytest.mark.parametrize("has_rows", [True, False])
def test_its_return_is_reported_once(guard: HealthMonitor, uow_factory: MemoryUnitOfWork, has_rows: bool) -> None:
    guard.check(HUNT, INTERVAL_S, later(300))
    guard.answered(HUNT, H100, has_rows, later(400))
    guard.answered(HUNT, H100, has_rows, later(430))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_spent_quota_is_blindness_at_once(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    guard.failed(HUNT, H100, QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), NOON)
    guard.failed(HUNT, H100, QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)), later(30))
    assert kinds(uow_factory) == [AlertKind.BLIND]


def test_a_restart_while_blind_does_not_tell_it_again(uow_factory: MemoryUnitOfWork) -> None:
    health_monitor(uow_factory).check(HUNT, INTERVAL_S, later(300))
    again = health_monitor(uow_factory, started_at=later(310))
    again.check(HUNT, INTERVAL_S, later(900))
    assert kinds(uow_factory) == [AlertKind.BLIND]


def test_a_restart_after_a_week_off_is_not_a_week_of_blindness(uow_factory: MemoryUnitOfWork) -> None:
    health_monitor(uow_factory).answered(HUNT, H100, True, NOON)
    again = health_monitor(uow_factory, started_at=NOON + timedelta(days=7))
    again.check(HUNT, INTERVAL_S, later(7 * 86_400 + 40))
    assert uow_factory.alerts == []


def test_what_could_not_be_stored_is_reported_at_the_next_check(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    uow_factory.full = True
    with pytest.raises(StoreError):
        guard.check(HUNT, INTERVAL_S, later(300))
    uow_factory.full = False
    guard.check(HUNT, INTERVAL_S, later(305))
    assert kinds(uow_factory) == [AlertKind.BLIND]


# --- lanes -----------------------------------------------------------------------------------------------------------
def test_a_hunt_that_finds_nothing_hides_no_silent_sweep(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    guard.failed(SWEEP, H100, DOWN, later(1))
    for second in range(0, 1000, 30):
        guard.answered(HUNT, H100, False, later(second))
        guard.check(HUNT, INTERVAL_S, later(second))
        guard.check(SWEEP, 300.0, later(second))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    assert "sweep" in uow_factory.alerts[0][0].headline
    assert (guard.lanes[HUNT].blind_since, guard.lanes[SWEEP].blind_since) == (None, NOON)


def test_a_sweep_that_was_never_tried_is_not_silent(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    """The day's rows were used up; on the new day its interval is short again."""
    guard.answered(SWEEP, H100, True, NOON)
    guard.check(SWEEP, 300.0, later(36_000))
    assert uow_factory.alerts == []


def test_a_sweep_that_is_answered_in_part_alone_is_reported_with_the_reason(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    guard.answered(SWEEP, H100, True, NOON)
    for second in range(300, 1800, 300):
        guard.answered_in_part(SWEEP, "answered only in part: region eu: HTTP 502")
        guard.check(SWEEP, 300.0, later(second))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    assert "region eu: HTTP 502" in dict(uow_factory.alerts[0][0].facts)["Last error"]


def test_one_fault_on_both_lanes_is_one_alert_and_one_return(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    for second in range(0, 4000, 30):
        guard.failed(HUNT, H100, DOWN, later(second))
        guard.failed(SWEEP, H100, DOWN, later(second))
        guard.check(HUNT, INTERVAL_S, later(second))
        guard.check(SWEEP, 300.0, later(second))
    assert all(health.blind_since == NOON for health in guard.lanes.values())
    guard.answered(HUNT, H100, True, later(4000))
    guard.check(SWEEP, 300.0, later(4005))
    guard.answered(SWEEP, H100, True, later(4300))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lane_that_stays_blind_when_the_other_is_back_is_reported(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork, restarted: bool
) -> None:
    for lane in (HUNT, SWEEP):
        guard.failed(lane, H100, DOWN, later(1))
        guard.check(lane, INTERVAL_S, later(300))
    if restarted:
        guard = health_monitor(uow_factory, started_at=later(310))
    guard.answered(HUNT, H100, True, later(400))
    guard.failed(SWEEP, H100, DOWN, later(600))
    guard.failed(SWEEP, H100, DOWN, later(900))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED, AlertKind.BLIND]


def test_a_lane_that_is_not_polled_any_more_is_not_blind(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    guard.check(HUNT, INTERVAL_S, later(300))
    guard.not_polled(HUNT)
    assert guard.lanes[HUNT].blind_since is None
    assert health_monitor(uow_factory).lanes[HUNT].blind_since is None


# --- unusable rows ---------------------------------------------------------------------------------------------------
def test_rows_that_nobody_understands_are_blindness_at_once_though_other_searches_come_back_empty(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    guard.answered(HUNT, H100, False, NOON)
    guard.failed(SWEEP, H100, UNREADABLE, later(1))
    guard.answered(SWEEP, A100, False, later(2))
    guard.failed(SWEEP, H100, UNREADABLE, later(300))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    assert any("dph_total: missing" in value for _, value in uow_factory.alerts[0][0].facts)
    assert guard.lanes[SWEEP].not_understood


def test_an_empty_answer_ends_no_blindness_of_a_format_and_rows_that_are_understood_do(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    guard.failed(SWEEP, H100, UNREADABLE, NOON)
    guard.answered(SWEEP, H100, False, later(300))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    guard.answered(SWEEP, H100, True, later(600))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_one_odd_gpu_among_others_does_not_come_and_go(guard: HealthMonitor, uow_factory: MemoryUnitOfWork) -> None:
    """A GPU with a single unusable offer, and one with usable offers, sweep after sweep."""
    for sweep in range(10):
        guard.failed(SWEEP, "RTX 3090", UNREADABLE, later(300 * sweep))
        guard.answered(SWEEP, H100, True, later(300 * sweep + 6))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    guard.answered(SWEEP, "RTX 3090", False, later(3300))  # the odd offer is gone, and other rows are usable meanwhile
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_after_a_restart_an_empty_answer_still_ends_no_blindness_of_a_format(uow_factory: MemoryUnitOfWork) -> None:
    health_monitor(uow_factory).failed(HUNT, H100, UNREADABLE, NOON)
    again = health_monitor(uow_factory, started_at=later(60))
    again.answered(HUNT, H100, False, later(90))
    assert again.lanes[HUNT].blind_since == NOON
    again.answered(HUNT, H100, True, later(120))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_what_was_silent_and_then_is_not_understood_is_one_blindness(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork
) -> None:
    guard.check(HUNT, INTERVAL_S, later(300))
    guard.failed(HUNT, H100, UNREADABLE, later(330))
    guard.answered(HUNT, H100, False, later(360))
    assert kinds(uow_factory) == [AlertKind.BLIND]
    guard.answered(HUNT, H100, True, later(390))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.RECOVERED]


@pytest.mark.parametrize("silent", [HUNT, SWEEP])
def test_a_format_that_changes_after_a_reported_silence_is_reported_as_the_change_alone(
    guard: HealthMonitor, uow_factory: MemoryUnitOfWork, silent: str
) -> None:
    guard.failed(silent, H100, DOWN, later(1))
    guard.check(silent, INTERVAL_S, later(300))
    changed = NoRowUnderstood("vastai: none of 12 rows can be used", 12, ["price field gone: dph_total"])
    for seconds in (330, 360):
        for lane in (HUNT, SWEEP):
            guard.failed(lane, H100, changed, later(seconds))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.DRIFT]
    for lane in (HUNT, SWEEP):
        guard.answered(lane, H100, True, later(400))
    assert kinds(uow_factory) == [AlertKind.BLIND, AlertKind.DRIFT, AlertKind.RECOVERED]


# --- the log ---------------------------------------------------------------------------------------------------------
def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_dead_provider_is_a_warning_with_host_and_cause_at_once_then_a_line_an_hour_with_a_count(
    guard: HealthMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    """Its blindness and its recovery are alerts, which are logged completely (`bootstrap.log_alert`)."""
    caplog.set_level(logging.INFO)
    for second in range(0, 2 * 3600 + 60, 30):
        guard.failed(HUNT, H100, DOWN, later(second))
        guard.check(HUNT, INTERVAL_S, later(second))
    guard.answered(HUNT, H100, True, later(7300))
    where = "(console.vast.ai, hunt): no such host console.vast.ai"
    assert logged(caplog) == [
        ("WARNING", f"vastai is not answering {where}"),
        ("WARNING", f"vastai is still not answering, 121 failures since 2026-11-21 12:00 UTC {where}"),
        ("WARNING", f"vastai is still not answering, 241 failures since 2026-11-21 12:00 UTC {where}"),
    ]


def test_failures_that_come_and_go_are_not_logged_each_time(
    guard: HealthMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for second in range(0, 3600, 60):
        guard.failed(HUNT, H100, DOWN, later(second))
        guard.answered(HUNT, H100, True, later(second + 30))
    assert [level for level, _ in logged(caplog)] == ["WARNING", "INFO"]
    assert logged(caplog)[1][1] == "vastai answers again (hunt)"


def test_another_kind_of_failure_is_a_line_of_its_own(guard: HealthMonitor, caplog: pytest.LogCaptureFixture) -> None:
    guard.failed(HUNT, H100, DOWN, NOON)
    guard.failed(SWEEP, H100, DOWN, later(1))
    guard.failed(HUNT, H100, KeyRejected("vastai: 401"), later(30))
    assert [message.rsplit(": ", 1)[1] for _, message in logged(caplog)] == ["no such host console.vast.ai", "401"]


def test_after_a_quiet_hour_a_failure_is_a_first_one(guard: HealthMonitor, caplog: pytest.LogCaptureFixture) -> None:
    for hours in (0, 2):
        guard.failed(HUNT, H100, DOWN, NOON + timedelta(hours=hours))
        guard.answered(HUNT, H100, True, NOON + timedelta(hours=hours, minutes=1))
    assert [message for level, message in logged(caplog) if level == "WARNING"] == [
        "vastai is not answering (console.vast.ai, hunt): no such host console.vast.ai"
    ] * 2
