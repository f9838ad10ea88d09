"""Budgets compared with real spending."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState, PriceSpan
from gpuwatch.domain.launches.money.budgets import (
    BudgetStatus,
    EndedCosts,
    budget_statuses,
    current_rate_microusd_hour,
    launches_to_end,
)
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.watches.launch_spec import Budget, BudgetPolicy
from tests.builders import NOON, changed
from tests.domain.launches.guard_values import a_running_launch

HOUR = timedelta(hours=1)
STOPS = Budget(max_usd_day=Decimal(10), on_reached=BudgetPolicy.STOP)


def looked(launches: list[Launch], budget: Budget, now: datetime, watch: str | None = None) -> list[BudgetStatus]:
    ours = [launch for launch in launches if watch in {None, launch.watch}]
    return budget_statuses(
        [launch for launch in ours if not launch.is_over],
        EndedCosts([launch for launch in ours if launch.is_over]),
        budget,
        now,
        watch,
    )


def test_a_day_is_reported_at_80_percent_and_full_at_100() -> None:
    launch = a_running_launch()
    assert looked([launch], STOPS, NOON + 1.99 * HOUR) == []
    (nearly,) = looked([launch], STOPS, NOON + 2 * HOUR)
    assert (nearly.is_full, nearly.spent_microusd, nearly.by_end_microusd) == (False, 8_000_000, 48_000_000)
    assert launches_to_end([nearly], [launch], STOPS, NOON + 2 * HOUR) == {}
    (full,) = looked([launch], STOPS, NOON + 2.5 * HOUR)
    assert full.is_full
    assert full.words == "$10.00 spent in 2026-11-21 (max_usd_day = 10.00)"


def test_a_budget_that_ends_launches_is_reached_while_it_still_pays_for_the_proof_of_their_ends() -> None:
    launch = a_running_launch()  # 4 $ an hour: two minutes cost 0.13
    (nearly,) = looked([launch], STOPS, NOON + 2.46 * HOUR)
    assert not nearly.is_full
    now = NOON + 2.47 * HOUR
    (full,) = looked([launch], STOPS, now)
    assert (full.is_full, full.spent_microusd) == (True, 9_880_000)
    assert set(launches_to_end([full], [launch], STOPS, now)) == {launch.launch_id}
    (warned,) = looked([launch], changed(STOPS, on_reached=BudgetPolicy.WARN), now)
    assert not warned.is_full


def test_what_runs_counts_no_longer_than_it_may() -> None:
    launch = a_running_launch(max_runtime_s=10_800.0)
    (nearly,) = looked([launch], STOPS, NOON + 2 * HOUR)
    assert nearly.by_end_microusd == 12_000_000


def test_what_ended_today_counts_and_yesterday_does_not() -> None:
    early = NOON - 13 * HOUR
    ended = a_running_launch(
        launch_id="b", state=LaunchState.ENDED, requested_at=early, running_at=early, ended_at=NOON - 10 * HOUR
    )
    (nearly,) = looked([ended], STOPS, NOON)
    assert nearly.spent_microusd == 8_000_000  # two of its three hours


def test_a_month_is_a_window_of_its_own() -> None:
    begun = NOON - 30 * 24 * HOUR
    launch = a_running_launch(requested_at=begun, running_at=begun)
    (month,) = looked([launch], Budget(max_usd_month=Decimal(2000)), NOON)
    assert month.name == "max_usd_month"
    assert month.spent_microusd == round(20.5 * 24 * 4_000_000)
    assert month.window == "2026-11"


def test_a_full_day_ends_everything_that_runs_if_the_policy_says_so() -> None:
    one, two = a_running_launch(), a_running_launch(launch_id="b", instance_id="9001")
    going = changed(two, launch_id="c", state=LaunchState.STOPPING)
    now = NOON + 2 * HOUR
    found = looked([one, two, going], STOPS, now)
    ending = launches_to_end(found, [one, two, going], STOPS, now)
    assert set(ending) == {one.launch_id, "b"}
    assert {end for end, _ in ending.values()} == {EndReason.BUDGET_REACHED}
    assert launches_to_end(found, [one, two], changed(STOPS, on_reached=BudgetPolicy.WARN), now) == {}


def test_a_watch_pays_for_itself_alone() -> None:
    mine, other = a_running_launch(), a_running_launch(launch_id="b", watch="a100")
    now = NOON + 2.5 * HOUR
    (full,) = looked([mine, other], STOPS, now, "a100")
    assert (full.watch, full.spent_microusd) == ("a100", 10_000_000)
    assert set(launches_to_end([full], [mine, other], STOPS, now)) == {"b"}
    assert full.words.endswith("(max_usd_day = 10.00 of watch a100)")


def test_an_hour_may_be_used_up_to_its_limit_and_the_newest_end_until_the_rest_fits() -> None:
    budget = Budget(max_usd_hour=Decimal(8), on_reached=BudgetPolicy.STOP)
    launches = [
        a_running_launch(launch_id=name, intended_at=NOON + index * timedelta(minutes=1))
        for index, name in enumerate("abc")
    ]
    assert looked(launches[:2], budget, NOON) == []
    (over,) = looked(launches, budget, NOON)
    assert over.words == "$12.00 an hour (max_usd_hour = 8.00)"
    assert set(launches_to_end([over], launches, budget, NOON)) == {"c"}
    ending = changed(launches[2], state=LaunchState.STOPPING)
    assert looked([*launches[:2], ending], budget, NOON) == []


def test_what_is_stopped_is_billed_its_disk_alone() -> None:
    spans = (PriceSpan(NOON, 3_333_333, 4_000_000), PriceSpan(NOON + HOUR, 10_000, 12_000))
    assert current_rate_microusd_hour(a_running_launch(spans=spans), NOON + 2 * HOUR) == 12_000


def test_a_rehearsal_costs_nothing() -> None:
    launch = a_running_launch(dry_run=True, state=LaunchState.ENDED, running_at=None, ended_at=NOON)
    assert looked([launch], Budget(max_usd_day=Decimal(0), max_usd_hour=Decimal(0)), NOON + HOUR) == []


def test_what_ended_is_computed_once_for_each_day_and_month() -> None:
    """A guard asks every few seconds, for each watch: thousands of ended launches must not cost it anything."""
    ended = [
        changed(a_running_launch(), state=LaunchState.ENDED, ended_at=NOON + n * HOUR / 10, end_reason="max_runtime")
        for n in range(1, 50)
    ]
    costs, later = EndedCosts(ended), NOON + 6 * HOUR
    day, month = later.replace(hour=0), later.replace(day=1, hour=0)
    expected = [sum(cost_microusd(one, later, since) for one in ended) for since in (day, month)]
    assert [costs.microusd(since, later) for since in (day, month)] == expected
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        again = [costs.microusd(since, later + HOUR) for since in (day, month)]
    finally:
        sys.setprofile(None)
    assert again == expected
    assert "cost_microusd" not in calls
