"""A launch: its properties, its cost, its admission, and when it counts as absent. Values only."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.launch import (
    ALLOWED_TRANSITIONS,
    FINAL_STATES,
    EndReason,
    Intent,
    Launch,
    LaunchRefusal,
    LaunchState,
    Promise,
    RefusalReason,
    new_launch,
)
from gpuwatch.domain.launches.life.admission import cooldown_refusal, free_slot
from gpuwatch.domain.launches.money.budgets import budget_checks
from gpuwatch.domain.launches.money.launch_costs import billed_time, cost_microusd
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, an_offer, changed

S = LaunchState
HOUR = timedelta(hours=1)
WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=10 * 3600.0))


def a_launch(**changes: Any) -> Launch:
    """3.00 listed, 3.60 with commission, of which 0.002222 is disk; requested at noon."""
    plain = new_launch(Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    return changed(plain, **changes)  # type: ignore[no-any-return]


def a_running(since: datetime = NOON, **changes: Any) -> Launch:
    return a_launch(**({"state": S.RUNNING, "running_at": since, "instance_id": "1"} | changes))


def a_failed(end: EndReason, at: datetime = NOON, **changes: Any) -> Launch:
    return a_launch(**({"state": S.FAILED, "ended_at": at, "end_reason": end.text("words")} | changes))


# --- states -----------------------------------------------------------------------------------------------------------


def test_what_is_over_is_never_ordered_again() -> None:
    """It is only reopened if its instance is listed."""
    reopened = frozenset({S.STARTING, S.RUNNING, S.STOPPING})
    assert all(ALLOWED_TRANSITIONS[state] == reopened for state in FINAL_STATES)


def test_what_was_lost_is_never_asked_for_again() -> None:
    assert S.REQUESTED not in ALLOWED_TRANSITIONS[S.UNKNOWN]
    assert S.REQUESTED not in ALLOWED_TRANSITIONS[S.HELD]


def test_every_state_can_come_to_an_end() -> None:
    reaches = set(FINAL_STATES)
    for _ in S:
        reaches |= {state for state in S if ALLOWED_TRANSITIONS[state] & reaches}
    assert reaches == set(S)


# --- cost -------------------------------------------------------------------------------------------------------------


def test_cost_is_price_times_the_time_it_runs() -> None:
    assert cost_microusd(a_running(), NOON + 2 * HOUR) == 7_200_000


def test_before_it_runs_only_the_disk_costs() -> None:
    starting = a_launch(state=S.STARTING, instance_id="1")
    assert starting.disk_microusd_hour == 2222
    assert cost_microusd(starting, NOON + 3 * HOUR) == 3 * round(2222 * 1.2)


def test_the_cost_stands_still_after_the_end() -> None:
    ended = a_running(state=S.ENDED, ended_at=NOON + HOUR)
    assert cost_microusd(ended, NOON + 9 * HOUR) == 3_600_000


@pytest.mark.parametrize("state", [S.REQUESTED, S.UNKNOWN, S.HELD])
def test_what_may_run_is_counted_as_running(state: LaunchState) -> None:
    assert cost_microusd(a_launch(state=state), NOON + HOUR) == 3_600_000


def test_what_was_never_made_costs_nothing() -> None:
    assert cost_microusd(a_failed(EndReason.OFFERS_GONE), NOON + HOUR) == 0


def test_a_dry_run_costs_nothing() -> None:
    dry = new_launch(Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=True), 0, NOON)
    assert (dry.state, cost_microusd(dry, NOON + HOUR), dry.counts) == (S.ENDED, 0, False)


def test_the_listed_cost_is_without_the_commission() -> None:
    assert cost_microusd(a_running(), NOON + HOUR, listed=True) == 3_000_000


@given(st.integers(-100, 10_000), st.integers(0, 10_000))
def test_a_cost_is_never_negative_and_parts_add_up(hours: int, part: int) -> None:
    """Even if the clock stepped back behind the start."""
    now, middle = NOON + hours * HOUR, NOON + part * HOUR
    whole = cost_microusd(a_running(), now)
    later = cost_microusd(a_running(), now, since=middle)
    assert 0 <= later <= whole


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_lowest_free_slot_is_taken() -> None:
    spec = LaunchSpec(max_active=3, max_total=0)
    assert free_slot(spec, "w", [a_launch(slot=0), a_launch(slot=2)], 2) == 1


def test_fewer_slots_than_alive_refuse() -> None:
    """The owner lowered max_active below the number of active launches: free slots do not count."""
    got = free_slot(LaunchSpec(max_active=2, max_total=0), "w", [a_launch(slot=5), a_launch(slot=6)], 2)
    assert isinstance(got, LaunchRefusal)


def test_max_total_zero_is_no_limit() -> None:
    assert free_slot(LaunchSpec(max_total=0), "w", [], 1000) == 0


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_instances=1), RefusalReason.MAX_INSTANCES),
        (Budget(max_usd_hour=Decimal("7.19")), RefusalReason.MAX_USD_HOUR),
        (Budget(max_usd_day=Decimal("71.99")), RefusalReason.MAX_USD_DAY),
        (Budget(max_usd_month=Decimal("71.99")), RefusalReason.MAX_USD_MONTH),
    ],
)
def test_a_budget_counts_what_runs_and_this_one(budget: Budget, reason: RefusalReason) -> None:
    """Two launches at 3.60 an hour, for at most ten hours."""
    got = first_refusal(budget_checks(a_launch(), [a_running()], [], budget, NOON))
    assert got is not None
    assert got.reason is reason


def test_a_budget_admits_exactly_its_limit() -> None:
    """Ten hours at 3.60 each, two minutes until each end is proven, and the disk of the one that starts."""
    budget = Budget(max_instances=2, max_usd_hour=Decimal("7.20"), max_usd_day=BOTH, max_usd_month=BOTH)
    assert first_refusal(budget_checks(a_launch(), [a_running()], [], budget, NOON)) is None


def test_what_was_spent_today_counts_and_yesterday_does_not() -> None:
    today = a_running(NOON - 2 * HOUR, state=S.ENDED, ended_at=NOON - HOUR)
    yesterday = a_running(NOON - 26 * HOUR, state=S.ENDED, ended_at=NOON - 25 * HOUR, requested_at=NOON - 26 * HOUR)
    budget = Budget(max_usd_day=Decimal("39.73"))
    assert first_refusal(budget_checks(a_launch(), [], [today, yesterday], budget, NOON)) is None
    assert first_refusal(budget_checks(a_launch(), [], [today, today], budget, NOON)) is not None


BOTH = Decimal("72.25")


def test_a_day_counts_no_more_than_a_day_of_a_long_launch() -> None:
    long = a_launch(max_runtime_s=30 * 86_400.0)
    assert first_refusal(budget_checks(long, [], [], Budget(max_usd_day=Decimal("86.40")), NOON)) is None
    assert first_refusal(budget_checks(long, [], [], Budget(max_usd_month=Decimal(2591)), NOON)) is not None


def test_without_max_runtime_a_day_is_counted() -> None:
    endless = a_launch(max_runtime_s=None)
    assert first_refusal(budget_checks(endless, [], [], Budget(max_usd_day=Decimal("86.40")), NOON)) is None
    assert first_refusal(budget_checks(endless, [], [], Budget(max_usd_day=Decimal("86.39")), NOON)) is not None


# --- after failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [EndReason.NO_CREDIT, EndReason.KEY])
def test_no_credit_and_a_refused_key_rest_the_whole_provider_for_an_hour(end: EndReason) -> None:
    failed = [a_failed(end, watch="another")]
    assert cooldown_refusal(failed, "h100", "vastai", NOON + 59 * timedelta(minutes=1)) is not None
    assert cooldown_refusal(failed, "h100", "vastai", NOON + HOUR) is None
    assert cooldown_refusal(failed, "h100", "elsewhere", NOON) is None


def test_a_wrong_order_rests_its_own_watch_alone() -> None:
    failed = [a_failed(EndReason.BAD_ORDER)]
    assert cooldown_refusal(failed, "h100", "vastai", NOON) is not None
    assert cooldown_refusal(failed, "another", "vastai", NOON) is None


def test_failures_at_one_provider_do_not_rest_a_watch_at_another() -> None:
    failed = [a_failed(EndReason.OFFERS_GONE)] * 3 + [a_failed(EndReason.BAD_ORDER)]
    assert cooldown_refusal(failed, "h100", "vastai", NOON) is not None
    assert cooldown_refusal(failed, "h100", "elsewhere", NOON) is None


def test_one_failure_is_followed_at_once_and_more_rest_longer_and_longer() -> None:
    def rest_s(failures: int) -> int:
        failed = [a_failed(EndReason.OFFERS_GONE)] * failures
        return next(
            s
            for s in range(0, 3601, 30)
            if cooldown_refusal(failed, "h100", "vastai", NOON + timedelta(seconds=s)) is None
        )

    assert [rest_s(n) for n in (0, 1, 2, 3, 4)] == [0, 0, 30, 60, 120]


def test_the_offer_of_an_intent_is_in_its_launch() -> None:
    match = a_match(an_offer(offer_id="42", spot=True), disk_gb=100)
    launch = new_launch(
        Intent(watch=changed(WATCH, disk_gb=100.0), match=match, launch_id="b" * 12, dry_run=False), 3, NOON
    )
    assert (launch.offer_id, launch.slot, launch.spot, launch.state) == ("42", 3, True, S.REQUESTED)
    assert launch.price_microusd_hour == match.price.price_microusd_hour
    assert launch.disk_microusd_hour == 27_778


def test_the_rest_after_many_failures_is_an_hour_at_most() -> None:
    many = [a_failed(EndReason.OFFERS_GONE)] * 12
    refusal = cooldown_refusal(many, "h100", "vastai", NOON + timedelta(minutes=1))
    assert refusal is not None
    assert "the next attempt is at 13:00:00 UTC" in refusal.text


def test_a_launch_takes_over_what_its_watch_and_its_offer_say_of_the_disk() -> None:
    launch = new_launch(Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    assert (launch.disk_microusd_hour, launch.promised.disk_gb) == (2_222, 8.0)
    assert (launch.tries, launch.version, launch.label) == (1, 0, "gpuwatch-" + "a" * 12)
    larger = changed(WATCH, disk_gb=80.0)
    launch = new_launch(Intent(watch=larger, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    assert (launch.disk_microusd_hour, launch.promised.disk_gb) == (22_222, 80.0)


def test_a_promise_of_nothing_bills_what_is_used() -> None:
    nothing = Promise()
    assert (nothing.download_gb, nothing.upload_gb, nothing.commission_rate) == (0.0, 0.0, 0.0)
    assert billed_time(nothing, timedelta(milliseconds=1)) == timedelta(milliseconds=1)
