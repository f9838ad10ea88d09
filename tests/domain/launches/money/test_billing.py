"""A provider's minimum billing and billing steps are part of the cost, and of what budgets count."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, Promise, new_launch
from gpuwatch.domain.launches.money.budgets import budget_checks, remaining_microusd
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S, billed_time, cost_microusd, predicted_cost
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from tests.builders import NOON, a_watch, an_offer, changed

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BY_THE_HOUR = Commission(min_billing_s=3600.0, billing_step_s=3600.0)


def _launch(commission: Commission, max_runtime_s: float | None = 1800.0, terms: OfferTerms | None = None) -> Launch:
    offer = an_offer(disk_usd_gb_month=None, terms=terms or OfferTerms())
    watch = a_watch(launch=LaunchSpec(max_runtime_s=max_runtime_s))
    match = Match(offer, price_of(offer, None, commission))
    return new_launch(Intent(watch=watch, match=match, launch_id="abcdefghijkl", dry_run=False), 0, NOON)


def _ran(launch: Launch, time: timedelta) -> Launch:
    return changed(launch, state=LaunchState.ENDED, instance_id="1", running_at=NOON, ended_at=NOON + time)


def test_ten_minutes_cost_the_minimum_of_an_hour() -> None:
    ended = _ran(_launch(BY_THE_HOUR), 10 * MINUTE)
    assert cost_microusd(ended, NOON + 5 * HOUR) == 3_000_000


def test_where_nothing_is_the_least_ten_minutes_cost_ten_minutes() -> None:
    ended = _ran(_launch(Commission()), 10 * MINUTE)
    assert cost_microusd(ended, NOON + 5 * HOUR) == 500_000


def test_an_offer_may_have_a_minimum_of_its_own() -> None:
    ended = _ran(_launch(Commission(), terms=OfferTerms(min_billing_s=1800.0)), 10 * MINUTE)
    assert cost_microusd(ended, NOON + 5 * HOUR) == 1_500_000


def test_the_minimum_is_owed_from_the_first_second() -> None:
    running = changed(_launch(BY_THE_HOUR), state=LaunchState.RUNNING, instance_id="1", running_at=NOON)
    assert cost_microusd(running, NOON + MINUTE) == 3_000_000
    assert cost_microusd(running, NOON + HOUR + MINUTE) == 6_000_000


def test_what_never_came_to_life_owes_no_minimum() -> None:
    failed = changed(_launch(BY_THE_HOUR), state=LaunchState.FAILED, ended_at=NOON + MINUTE)
    assert cost_microusd(failed, NOON + HOUR) == 0


@pytest.mark.parametrize(("max_runtime_s", "hours"), [(1800.0, 1), (3600.0, 2), (5400.0, 2), (None, 25)])
def test_a_budget_is_admitted_on_what_will_be_billed(max_runtime_s: float | None, hours: int) -> None:
    """After a whole hour, the minute in which its end is proven is an hour more."""
    launch = _launch(BY_THE_HOUR, max_runtime_s)
    enough = Budget(max_usd_month=Decimal(3 * hours))
    assert first_refusal(budget_checks(launch, (), (), enough, NOON)) is None
    assert (
        first_refusal(budget_checks(launch, (), (), Budget(max_usd_month=Decimal(3 * hours) - Decimal("0.01")), NOON))
        is not None
    )


def test_what_is_billed_ahead_is_not_counted_twice() -> None:
    running = changed(_launch(BY_THE_HOUR, 7000.0), state=LaunchState.RUNNING, instance_id="1", running_at=NOON)
    now = NOON + 10 * MINUTE
    assert cost_microusd(running, now) + remaining_microusd(running, now, 31 * 24 * HOUR) == 6_000_000


def test_a_budget_reserves_for_the_start_and_for_the_proof_of_the_end() -> None:
    """A launch of 4 minutes at 1.80 an hour was admitted under 0.12 and ended at more."""
    launch = changed(_launch(Commission(), 240.0), price_microusd_hour=1_800_000, most_microusd_hour=1_800_000)
    launch = changed(launch, disk_microusd_hour=40_000, listed_microusd_hour=1_500_000)
    refused = first_refusal(budget_checks(launch, (), (), Budget(max_usd_day=Decimal("0.12")), NOON))
    assert refused is not None
    assert first_refusal(budget_checks(launch, (), (), Budget(max_usd_day=Decimal("0.1919")), NOON)) is not None
    assert first_refusal(budget_checks(launch, (), (), Budget(max_usd_day=Decimal("0.192")), NOON)) is None
    began, ended = NOON + 15 * MINUTE, NOON + 15 * MINUTE + timedelta(seconds=240 + END_PROVEN_S)
    over = changed(launch, state=LaunchState.ENDED, instance_id="1", running_at=began, ended_at=ended)
    assert cost_microusd(over, NOON + HOUR) <= 192_000


@pytest.mark.parametrize("state", [LaunchState.RUNNING, LaunchState.STOPPING])
def test_what_is_overdue_or_ending_is_billed_until_that_is_proven(state: LaunchState) -> None:
    late = changed(_launch(Commission(), 1800.0), state=state, instance_id="1", running_at=NOON)
    assert remaining_microusd(late, NOON + HOUR, 24 * HOUR) == 100_000


def test_the_report_of_costs_says_the_same() -> None:
    ended = _ran(_launch(BY_THE_HOUR), 10 * MINUTE)
    assert predicted_cost(ended, NOON + 5 * HOUR).effective == 3_000_000


@given(
    least_s=st.integers(0, 10_000),
    step_s=st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
    lived_s=st.floats(0, 1e6),
)
def test_billed_time_is_never_less_than_lived_nor_a_step_too_much(least_s: int, step_s: float, lived_s: float) -> None:
    promised, lived = Promise(min_billing_s=float(least_s), billing_step_s=step_s), timedelta(seconds=lived_s)
    billed = billed_time(promised, lived)
    wanted = max(lived, timedelta(seconds=least_s))
    assert wanted <= billed
    assert billed - wanted < timedelta(seconds=step_s) or billed == wanted
    if step_s:
        assert billed % timedelta(seconds=step_s) == timedelta(0)
