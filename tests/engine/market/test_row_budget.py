"""The row quota is planned and not exceeded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.engine.market.row_budget import HUNT_ROWS, RowDemand, next_reset, plan_rows

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DAY = RowDemand(rows_per_day=20_000, poll_every_s=30.0)


def test_the_quota_resets_at_midnight_utc() -> None:
    assert next_reset(NOON) == datetime(2026, 11, 22, 0, 0, tzinfo=UTC)
    assert next_reset(datetime(2026, 11, 22, 0, 0, tzinfo=UTC)) == datetime(2026, 11, 23, 0, 0, tzinfo=UTC)


def test_a_hunt_that_finds_nothing_is_asked_at_the_owners_interval() -> None:
    assert plan_rows(DAY, 0, NOON).matched_every_s == 30.0


def test_watches_that_stay_matched_are_asked_less_often() -> None:
    many = RowDemand(rows_per_day=20_000, poll_every_s=30.0, matched_rows=40 * HUNT_ROWS)
    assert plan_rows(many, 0, NOON).matched_every_s > 30.0


def test_a_matched_watch_is_planned_with_the_rows_that_it_costs() -> None:
    """One offer at or under the limit is one row a poll, not a handful."""
    one = RowDemand(rows_per_day=20_000, poll_every_s=30.0, matched_rows=5)
    assert plan_rows(one, 0, NOON).matched_every_s == 30.0


def test_a_spent_quota_plans_no_sweep() -> None:
    plan = plan_rows(DAY, 20_000, NOON)
    assert plan.spent
    assert plan.sweep_every_s is None


def test_no_quota_means_no_limit() -> None:
    plan = plan_rows(RowDemand(rows_per_day=0, poll_every_s=30.0), 1_000_000, NOON)
    assert not plan.spent
    assert plan.sweep_every_s == 300.0


def test_auto_never_sweeps_more_often_than_every_five_minutes() -> None:
    cheap = RowDemand(rows_per_day=20_000, poll_every_s=30.0, sweep_rows=1)
    assert plan_rows(cheap, 0, NOON).sweep_every_s == 300.0


def test_the_owners_interval_gives_way_to_the_quota() -> None:
    dear = RowDemand(rows_per_day=20_000, poll_every_s=30.0, sweep_rows=4_000, sweep_every_s=60.0)
    assert (plan_rows(dear, 0, NOON).sweep_every_s or 0) > 3_600


@given(
    used=st.integers(0, 25_000),
    matched_rows=st.integers(0, 200 * HUNT_ROWS),
    sweep_rows=st.one_of(st.none(), st.integers(1, 30_000)),
    minutes=st.integers(0, 24 * 60 - 1),
)
def test_following_the_plan_to_the_reset_never_exceeds_the_quota(
    used: int, matched_rows: int, sweep_rows: int | None, minutes: int
) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(minutes=minutes)
    demand = RowDemand(rows_per_day=20_000, poll_every_s=30.0, matched_rows=matched_rows, sweep_rows=sweep_rows)
    plan = plan_rows(demand, used, now)
    rest_s = (plan.resets_at - now).total_seconds()
    hunts = int(rest_s // plan.matched_every_s) * matched_rows
    sweeps = int(rest_s // plan.sweep_every_s) * (sweep_rows or 500) if plan.sweep_every_s else 0
    left = max(0, 20_000 - used)
    # one round more than planned may be under way when the plan is remade
    assert hunts + sweeps <= left + matched_rows
