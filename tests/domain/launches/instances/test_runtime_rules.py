"""Events of a launch that the clock or its host causes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.domain.launches.instances.end_rules import (
    IncreaseAnswer,
    closes_at,
    contract_too_short,
    due_reminder,
    extra_microusd,
    increase_answer,
    must_end_before_increase,
    offline_too_long,
    outside_windows,
    raised_microusd_hour,
    runtime_nearly_over,
)
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, LaunchState
from gpuwatch.domain.watches.launch_spec import LaunchSpec, PriceIncreasePolicy
from tests.builders import NOON, a_watch, changed
from tests.domain.launches.guard_values import a_running_launch

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = a_watch(active=("22:00-08:00",), launch=LaunchSpec(stop_outside=True))
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SEVEN = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)  # 08:00 in Berlin


def test_windows_that_close_end_it_in_the_zone_of_the_owner() -> None:
    assert outside_windows(NIGHT, SEVEN - MINUTE, BERLIN) is None
    assert outside_windows(NIGHT, SEVEN, BERLIN) == (EndReason.OUTSIDE, "22:00-08:00")
    assert outside_windows(NIGHT, SEVEN, UTC) is None


@pytest.mark.parametrize("launch", [None, LaunchSpec()])
def test_windows_end_nothing_unless_asked_to(launch: LaunchSpec | None) -> None:
    assert outside_windows(changed(NIGHT, launch=launch), SEVEN, BERLIN) is None
    assert closes_at(changed(NIGHT, launch=launch), SEVEN - MINUTE, BERLIN) is None


def test_no_windows_never_close() -> None:
    assert outside_windows(changed(NIGHT, active=()), SEVEN, BERLIN) is None


def test_the_close_is_seen_ten_minutes_ahead() -> None:
    assert closes_at(NIGHT, SEVEN - 11 * MINUTE, BERLIN) is None
    assert closes_at(NIGHT, SEVEN - 10 * MINUTE, BERLIN) == SEVEN
    assert closes_at(NIGHT, SEVEN - timedelta(seconds=30), BERLIN) == SEVEN
    assert closes_at(NIGHT, SEVEN, BERLIN) is None


@pytest.mark.parametrize(("runtime_h", "reported_after_min"), [(10, 480), (0.5, 20), (0.1, -4)])
def test_its_time_is_reported_at_80_percent_and_ten_minutes_before_at_least(
    runtime_h: float, reported_after_min: int
) -> None:
    launch = a_running_launch(max_runtime_s=runtime_h * 3600)
    reported_at = NOON + reported_after_min * MINUTE
    assert not runtime_nearly_over(launch, reported_at - timedelta(seconds=1))
    assert runtime_nearly_over(launch, reported_at)
    assert not runtime_nearly_over(launch, NOON + runtime_h * HOUR)


def test_without_max_runtime_nothing_is_nearly_over() -> None:
    assert not runtime_nearly_over(a_running_launch(), NOON + 100 * HOUR)


def test_a_contract_that_ends_too_early() -> None:
    launch = a_running_launch(max_runtime_s=36_000.0)
    assert contract_too_short(launch, None, NOON) is None
    assert contract_too_short(launch, NOON + 10 * HOUR, NOON) is None
    assert contract_too_short(launch, NOON + 9 * HOUR, NOON) == "early"
    assert contract_too_short(launch, NOON + 9 * HOUR, NOON + 8 * HOUR) == "soon"
    assert contract_too_short(launch, NOON + 9 * HOUR, NOON + 8 * HOUR - MINUTE) == "early"
    assert contract_too_short(a_running_launch(), NOON + 23 * HOUR, NOON) == "early"
    assert contract_too_short(a_running_launch(), NOON + 24 * HOUR, NOON) is None


def test_what_befell_it_is_called_to_mind_after_a_quarter_and_daily() -> None:
    launch = a_running_launch(condition=InstanceCondition.STOPPED, condition_since=NOON)
    assert due_reminder(launch, NOON + 14 * MINUTE) is None
    assert due_reminder(launch, NOON + 15 * MINUTE) == 0
    assert due_reminder(launch, NOON + 23 * HOUR) == 0
    assert due_reminder(launch, NOON + 24 * HOUR) == 1
    assert due_reminder(changed(launch, condition=InstanceCondition.UNLISTED), NOON + HOUR) is None
    assert due_reminder(changed(launch, condition=None), NOON + HOUR) is None


def test_an_offline_host_ends_it_only_where_its_owner_wants_it_elsewhere() -> None:
    launch = a_running_launch(condition=InstanceCondition.OFFLINE, condition_since=NOON)
    assert offline_too_long(launch, True, NOON + 14 * MINUTE) is None
    assert offline_too_long(launch, True, NOON + 15 * MINUTE) == (EndReason.OFFLINE, "since 12:00 UTC")
    assert offline_too_long(launch, False, NOON + 100 * HOUR) is None
    assert offline_too_long(changed(launch, condition=InstanceCondition.STOPPED), True, NOON + HOUR) is None
    assert offline_too_long(changed(launch, state=LaunchState.STARTING), True, NOON + HOUR) is None


def test_a_new_price_holds_disk_and_commission() -> None:
    launch = a_running_launch(
        listed_microusd_hour=3_000_000, price_microusd_hour=3_600_000, disk_microusd_hour=1_000_000
    )
    assert raised_microusd_hour(launch, 3.0) == 4_800_000


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -1.0, 1e300])
def test_a_new_price_that_makes_no_sense_is_not_known(odd: float | None) -> None:
    assert raised_microusd_hour(a_running_launch(), odd) is None


@pytest.mark.parametrize(
    ("policy", "raised", "fits", "answer"),
    [
        (PriceIncreasePolicy.ALERT, 1, True, IncreaseAnswer.NONE),
        (PriceIncreasePolicy.STOP, 1, True, IncreaseAnswer.REJECT),
        (PriceIncreasePolicy.STOP, None, True, IncreaseAnswer.REJECT),
        (PriceIncreasePolicy.ACCEPT_UNDER, 4_800_000, True, IncreaseAnswer.ACCEPT),
        (PriceIncreasePolicy.ACCEPT_UNDER, 4_800_001, True, IncreaseAnswer.REJECT),
        (PriceIncreasePolicy.ACCEPT_UNDER, 4_800_000, False, IncreaseAnswer.REJECT),
        (PriceIncreasePolicy.ACCEPT_UNDER, None, True, IncreaseAnswer.NONE),
    ],
)
def test_the_owners_policy_answers(
    policy: PriceIncreasePolicy, raised: int | None, fits: bool, answer: IncreaseAnswer
) -> None:
    assert increase_answer(policy, raised, 4_800_000, fits) is answer


def test_without_its_watch_nothing_is_accepted() -> None:
    assert increase_answer(PriceIncreasePolicy.ACCEPT_UNDER, 1, None, True) is IncreaseAnswer.NONE


def test_it_ends_before_the_price_holds() -> None:
    assert not must_end_before_increase(NOON + 11 * MINUTE, NOON)
    assert must_end_before_increase(NOON + 10 * MINUTE, NOON)
    assert must_end_before_increase(None, NOON)


def test_what_a_rise_costs_until_its_time_is_over() -> None:
    launch = a_running_launch(max_runtime_s=36_000.0)
    assert extra_microusd(launch, 5_000_000, NOON + 4 * HOUR, NOON + HOUR) == 6_000_000
    assert extra_microusd(launch, 5_000_000, None, NOON + HOUR) == 9_000_000
    assert extra_microusd(launch, 5_000_000, NOON + 11 * HOUR, NOON) == 0
    assert extra_microusd(a_running_launch(), 5_000_000, None, NOON) == 24_000_000
