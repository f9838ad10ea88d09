"""The computed costs of launches, compared with charges; the forecast of the month."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState, PriceSpan, Promise, new_launch
from gpuwatch.domain.launches.money.charge_comparison import (
    NO_CHARGE,
    InvoicedAmounts,
    InvoiceRow,
    invoice_lines,
    open_days,
    summarize,
    summarize_by,
    unbroken_runs,
)
from gpuwatch.domain.launches.money.launch_costs import (
    billed_days,
    burn_rate,
    cost_microusd,
    midnight,
    month_of,
    predicted_cost,
    price_segments,
    remaining_cost,
    total_cost,
)
from gpuwatch.domain.launches.money.month_forecast import BudgetUse, budget_uses, forecast_costs, past_uses
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, changed

S = LaunchState
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=10 * 3600.0))
TODAY = NOON.date()


def a_launch(**changes: Any) -> Launch:
    """3.00 listed, 3.60 with commission, of which 0.002222 is disk; requested at noon."""
    plain = new_launch(Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    return changed(plain, **changes)  # type: ignore[no-any-return]


def a_run(began: datetime = NOON, hours: float = 1.0, **changes: Any) -> Launch:
    """It ran from its request on, and ended."""
    plain = {
        "state": S.ENDED,
        "instance_id": "1",
        "intended_at": began,
        "requested_at": began,
        "running_at": began,
        "ended_at": began + hours * HOUR,
    }
    return a_launch(**(plain | changes))


def a_row(microusd: int, day: date = TODAY, **changes: Any) -> InvoiceRow:
    plain = {"provider": "vastai", "instance_id": "1", "kind": "gpu", "final": True}
    return InvoiceRow(day=day, microusd=microusd, **(plain | changes))


# --- predicted --------------------------------------------------------------------------------------------------------


def test_an_hour_is_split_into_gpu_disk_and_commission() -> None:
    cost = predicted_cost(a_run(), NOON + DAY)
    assert (cost.gpu, cost.disk, cost.commission) == (2_997_778, 2_222, 600_000)
    assert (cost.listed, cost.effective, cost.total) == (3_000_000, 3_600_000, 3_600_000)
    assert cost.billed_hours == 1.0


def test_before_it_runs_its_disk_alone_is_billed() -> None:
    launch = a_run(running_at=NOON + HOUR, hours=1.0)
    cost = predicted_cost(launch, NOON + DAY)
    assert (cost.gpu, cost.disk, cost.commission) == (0, 2_222, 444)


def test_while_it_is_stopped_its_disk_alone_is_billed() -> None:
    spans = (PriceSpan(NOON, 3_000_000, 3_600_000), PriceSpan(NOON + HOUR, 2_222, 2_666))
    cost = predicted_cost(a_run(hours=3, spans=spans), NOON + DAY)
    assert (cost.gpu, cost.disk) == (2_997_778, 3 * 2_222)


def test_a_price_rise_counts_from_its_moment_on() -> None:
    spans = (PriceSpan(NOON, 3_000_000, 3_600_000), PriceSpan(NOON + HOUR, 4_000_000, 4_800_000))
    cost = predicted_cost(a_run(hours=2, spans=spans), NOON + DAY)
    assert (cost.listed, cost.commission) == (7_000_000, 1_400_000)


def test_traffic_is_estimated_once_it_ran() -> None:
    promised = Promise(download_gb=100, download_usd_gb=0.02, upload_gb=10, upload_usd_gb=0.01)
    assert predicted_cost(a_run(promised=promised), NOON + DAY).traffic == 2_100_000
    unborn = a_run(promised=promised, running_at=None, state=S.FAILED)
    assert predicted_cost(unborn, NOON + DAY).traffic == 0


@pytest.mark.parametrize("price", [None, float("nan"), float("inf"), -1.0])
def test_a_traffic_price_that_is_none_costs_nothing(price: float | None) -> None:
    launch = a_run(promised=Promise(download_gb=100, download_usd_gb=price))
    assert predicted_cost(launch, NOON + DAY).traffic == 0


def test_a_dry_run_costs_nothing() -> None:
    assert predicted_cost(a_run(dry_run=True), NOON + DAY).total == 0
    assert list(billed_days(a_run(dry_run=True), NOON + DAY)) == []


def test_what_failed_with_an_instance_costs_its_disk() -> None:
    failed = a_run(state=S.FAILED, running_at=None, end_reason=EndReason.NOT_READY.text())
    assert predicted_cost(failed, NOON + DAY).disk == 2_222
    assert predicted_cost(changed(failed, instance_id=None), NOON + DAY).total == 0


def test_a_list_price_under_the_disks_makes_no_negative_gpu() -> None:
    cost = predicted_cost(a_run(listed_microusd_hour=1_000, price_microusd_hour=1_200), NOON + DAY)
    assert (cost.gpu, cost.disk, cost.commission) == (0, 1_000, 200)


def test_days_are_utc_and_the_last_is_the_one_of_its_end() -> None:
    launch = a_run(datetime(2026, 11, 30, 23, 0, tzinfo=UTC), hours=25)
    assert list(billed_days(launch, NOON + 30 * DAY)) == [date(2026, 11, 30), date(2026, 12, 1)]
    assert month_of(date(2026, 12, 5)) == (midnight(date(2026, 12, 1)), midnight(date(2027, 1, 1)))


def test_segments_lie_side_by_side() -> None:
    spans = (PriceSpan(NOON + HOUR, 3_000_000, 3_600_000), PriceSpan(NOON + 2 * HOUR, 2_222, 2_666))
    found = price_segments(a_run(hours=3, running_at=NOON + HOUR, spans=spans), NOON + DAY)
    assert [(one.start, one.end) for one in found] == [(NOON + n * HOUR, NOON + (n + 1) * HOUR) for n in range(3)]
    assert [one.gpu for one in found] == [0, 2_997_778, 0]


MICROUSD = st.integers(0, 50_000_000)
SECONDS = st.floats(0, 200_000)


@st.composite
def lives(draw: st.DrawFn) -> Launch:
    """Any course: waiting, running, price changes, stops; with any disk, commission and traffic."""
    disk, commission = draw(st.integers(0, 500_000)), Decimal(draw(st.integers(0, 50))) / 100
    at, spans = NOON + timedelta(seconds=draw(SECONDS)), []
    for _ in range(draw(st.integers(0, 5))):
        listed = draw(st.one_of(st.just(disk), MICROUSD))
        spans.append(PriceSpan(at, listed, round(listed * (1 + commission))))
        at += timedelta(seconds=draw(SECONDS))
    return a_launch(
        state=draw(st.sampled_from([S.RUNNING, S.ENDED])),
        disk_microusd_hour=disk,
        running_at=spans[0].since if spans else None,
        ended_at=at,
        spans=tuple(spans),
        instance_id="1",
        promised=Promise(download_gb=draw(st.floats(0, 1e4)), download_usd_gb=draw(st.floats(0, 0.1))),
    )


@given(lives(), st.lists(SECONDS, max_size=4))
def test_parts_of_time_and_components_add_up_to_the_cost_to_the_micro_dollar(launch: Launch, cuts: list[float]) -> None:
    now = NOON + 60 * DAY
    whole = predicted_cost(launch, now)
    assert whole.total == whole.gpu + whole.disk + whole.commission + whole.traffic
    assert whole.effective == cost_microusd(launch, now)
    assert whole.listed == cost_microusd(launch, now, listed=True)
    edges = [None, *sorted(NOON + timedelta(seconds=cut) for cut in cuts), None]
    pieces = [predicted_cost(launch, now, since, until) for since, until in pairwise(edges)]
    assert total_cost(pieces) == whole
    assert all(part >= -1 for piece in pieces for part in (piece.gpu, piece.disk, piece.commission, piece.traffic))


@given(lives())
def test_days_add_up_to_the_cost(launch: Launch) -> None:
    now = NOON + 60 * DAY
    assert total_cost(cell.cost for cell in invoice_lines([launch], [], now)) == predicted_cost(launch, now)


def test_traffic_of_what_ended_as_it_began_is_on_that_day() -> None:
    launch = a_run(hours=0, promised=Promise(download_gb=1.0, download_usd_gb=0.0625))
    now = NOON + DAY
    assert predicted_cost(launch, now).traffic == 62_500
    assert total_cost(cell.cost for cell in invoice_lines([launch], [], now)) == predicted_cost(launch, now)


# --- charged ----------------------------------------------------------------------------------------------------------


def test_without_charges_nothing_is_known_and_that_is_not_nought() -> None:
    found = summarize("all", invoice_lines([a_run()], [], NOON + DAY))
    assert (found.charged, found.difference, found.difference_percent, found.final_to) == (None, None, None, None)


def test_the_difference_is_charged_less_predicted() -> None:
    charges = [a_row(2_900_000), a_row(100_000, kind="disk")]
    found = summarize("all", invoice_lines([a_run()], charges, NOON + DAY))
    assert found.charged == InvoicedAmounts(gpu=2_900_000, disk=100_000)
    assert found.difference == -600_000
    assert found.difference_percent == pytest.approx(-16.6667, abs=1e-3)
    assert found.final_to == TODAY


def test_days_that_may_still_change_are_shown_and_not_compared() -> None:
    launch = a_run(midnight(TODAY) + 12 * HOUR, hours=24)
    charges = [a_row(36_000_000), a_row(1, day=TODAY + DAY, final=False)]
    found = summarize("all", invoice_lines([launch], charges, NOON + 2 * DAY))
    assert found.charged is not None
    assert found.charged.total == 36_000_001
    assert found.compared_cost.effective == 12 * 3_600_000
    assert (found.difference, found.final_to) == (36_000_000 - 43_200_000, TODAY)


def test_a_gap_ends_what_is_final() -> None:
    launch = a_run(hours=72)
    charges = [a_row(1), a_row(1, day=TODAY + 2 * DAY)]
    assert summarize("all", invoice_lines([launch], charges, NOON + 5 * DAY)).final_to == TODAY


def test_the_providers_nothing_is_known_to_be_nothing() -> None:
    found = summarize("all", invoice_lines([a_run()], [a_row(0, kind=NO_CHARGE)], NOON + DAY))
    assert found.charged == InvoicedAmounts()
    assert found.difference == -3_600_000


def test_charges_of_other_instances_providers_and_dry_runs_are_not_ours() -> None:
    charges = [a_row(5, instance_id="2"), a_row(5, provider="runpod")]
    assert summarize("all", invoice_lines([a_run()], charges, NOON + DAY)).charged is None
    assert invoice_lines([a_run(dry_run=True)], [a_row(5)], NOON + DAY) == []


def test_two_launches_never_share_a_charge() -> None:
    both = [a_run(), a_run(NOON + HOUR, launch_id="b" * 12)]
    found = summarize("all", invoice_lines(both, [a_row(7)], NOON + DAY))
    assert found.charged is not None
    assert (found.charged.total, found.charged_launches, found.launches) == (7, 1, 2)


def test_a_charge_on_a_day_that_was_not_predicted_is_seen() -> None:
    found = summarize_by(
        invoice_lines([a_run()], [a_row(9, day=TODAY + DAY)], NOON + 2 * DAY), lambda cell: str(cell.day)
    )
    assert [one.key for one in found] == [str(TODAY), str(TODAY + DAY)]
    assert found[1].difference == 9
    assert found[1].difference_percent is None


def test_a_month_holds_its_own_days_alone() -> None:
    launch = a_run(datetime(2026, 10, 31, 23, 0, tzinfo=UTC), hours=2)
    charges = [a_row(1, day=date(2026, 10, 31)), a_row(2, day=date(2026, 11, 1))]
    found = summarize("all", invoice_lines([launch], charges, NOON, date(2026, 11, 1), date(2026, 11, 30)))
    assert found.cost.effective == 3_600_000
    assert found.charged is not None
    assert found.charged.total == 2
    october = invoice_lines([launch], charges, NOON, until=date(2026, 10, 31))
    assert [line.day for line in october] == [date(2026, 10, 31)]


def test_days_are_asked_for_until_they_are_final() -> None:
    running = a_launch(state=S.RUNNING, running_at=NOON, instance_id="1")
    other = a_run(NOON + 2 * DAY, instance_id="2")
    days = open_days([running, other], {("1", TODAY)}, NOON + 2 * DAY + HOUR)
    assert days == {TODAY + DAY: frozenset({"1"}), TODAY + 2 * DAY: frozenset({"1", "2"})}


def test_days_long_past_dry_runs_and_what_never_was_are_not_asked_for() -> None:
    assert open_days([a_run()], set(), NOON + 35 * DAY) == {TODAY: frozenset({"1"})}
    assert open_days([a_run()], set(), NOON + 36 * DAY) == {}
    assert open_days([a_run(dry_run=True), a_run(instance_id=None)], set(), NOON + DAY) == {}


def test_days_are_asked_for_in_unbroken_runs() -> None:
    days = {TODAY + n * DAY: 0 for n in (0, 1, 3, 5, 6)}
    assert unbroken_runs(days) == [(TODAY, TODAY + DAY), (TODAY + 3 * DAY,) * 2, (TODAY + 5 * DAY, TODAY + 6 * DAY)]


# --- burn, forecast, budgets ------------------------------------------------------------------------------------------


def test_the_burn_rate_is_what_is_billed_now() -> None:
    launches = [
        a_launch(state=S.RUNNING, running_at=NOON, instance_id="1"),
        a_launch(state=S.STARTING, instance_id="2"),
        a_launch(state=S.HELD),
        a_run(),
        a_launch(state=S.RUNNING, running_at=NOON, dry_run=True),
    ]
    rate = burn_rate(launches, NOON + HOUR)
    assert (rate.listed, rate.effective) == (6_002_222, 7_202_666)
    assert rate.launches == 3


def test_an_outbid_instance_burns_its_disk() -> None:
    spans = (PriceSpan(NOON, 3_000_000, 3_600_000), PriceSpan(NOON + HOUR, 2_222, 2_666))
    rate = burn_rate([a_launch(state=S.RUNNING, running_at=NOON, spans=spans, instance_id="1")], NOON + 2 * HOUR)
    assert (rate.listed, rate.effective) == (2_222, 2_666)


def test_what_runs_goes_on_to_its_max_runtime_or_the_end_of_the_month() -> None:
    running = a_launch(state=S.RUNNING, running_at=NOON, instance_id="1")
    end = month_of(TODAY)[1]
    assert remaining_cost(running, NOON + 4 * HOUR, end) == (18_000_000, 21_600_000)
    assert remaining_cost(running, NOON + 4 * HOUR, NOON + 5 * HOUR) == (3_000_000, 3_600_000)
    assert remaining_cost(running, NOON + 11 * HOUR, end) == (0, 0)
    endless = changed(running, max_runtime_s=None)
    assert remaining_cost(endless, end - HOUR, end) == (3_000_000, 3_600_000)


@pytest.mark.parametrize("state", [S.STOPPING, S.ENDED])
def test_what_is_being_stopped_costs_no_more(state: LaunchState) -> None:
    launch = a_launch(state=state, running_at=NOON, instance_id="1", ended_at=NOON + HOUR if state is S.ENDED else None)
    assert remaining_cost(launch, NOON + HOUR, NOON + DAY) == (0, 0)


def test_what_starts_is_computed_with_its_whole_price() -> None:
    starting = a_launch(state=S.STARTING, instance_id="1", max_runtime_s=3600.0, ready_within_s=0.0)
    assert remaining_cost(starting, NOON, NOON + DAY) == (3_000_000, 3_600_000)


def test_a_mean_of_fewer_than_three_days_is_not_enough() -> None:
    found = forecast_costs([a_run()], NOON + DAY)
    assert (found.mean_effective, found.mean_listed) == (None, None)
    assert found.sample_days == 1.5
    assert found.running_effective == 3_600_000
    assert forecast_costs([a_run()], midnight(TODAY) + 3 * DAY).mean_effective is not None


def test_the_mean_of_the_days_so_far_goes_on() -> None:
    """From the day of the first launch on: 3.60 in four days, with six days of November left."""
    found = forecast_costs([a_run()], midnight(TODAY) + 4 * DAY)
    assert found.sample_days == 4.0
    assert found.mean_effective == round(3_600_000 * (1 + Decimal(6) / 4))


def test_the_days_before_count_where_gpuwatch_rented_already() -> None:
    earlier = a_run(NOON - 30 * DAY, launch_id="b" * 12)
    found = forecast_costs([a_run(), earlier], midnight(TODAY) + 4 * DAY)
    assert found.sample_days == 24.0
    assert found.mean_effective == round(3_600_000 * 30 / 24)


def test_budgets_are_used_by_price_with_commission() -> None:
    launches = [a_run(NOON - DAY), a_launch(state=S.RUNNING, running_at=NOON, instance_id="2", launch_id="b" * 12)]
    budget = Budget(max_usd_hour=Decimal(4), max_usd_day=Decimal(36), max_usd_month=Decimal(72), max_instances=4)
    uses = {use.limit_name: use for use in budget_uses(None, budget, launches, NOON + HOUR)}
    percent = {name: use.percent(use.used) for name, use in uses.items()}
    assert percent == {"max_usd_hour": 90.0, "max_usd_day": 10.0, "max_usd_month": 10.0}
    assert uses["max_usd_month"].forecast_running == 11 * 3_600_000
    assert budget_uses(None, Budget(), launches, NOON) == []


def test_a_launch_that_is_being_verified_costs_what_it_is_billed() -> None:
    launch = a_launch(
        state=S.STARTING, instance_id="1", running_at=NOON, spans=(PriceSpan(NOON, 5_000_000, 6_000_000),)
    )
    assert remaining_cost(launch, NOON, NOON + HOUR) == (5_000_000, 6_000_000)


def test_traffic_counts_on_the_day_on_which_the_launch_starts_running_even_at_midnight() -> None:
    launch = a_run(midnight(TODAY), promised=Promise(download_gb=10.0, download_usd_gb=0.1))
    assert predicted_cost(launch, NOON, midnight(TODAY - DAY), midnight(TODAY)).traffic == 0
    assert predicted_cost(launch, NOON, midnight(TODAY), midnight(TODAY + DAY)).traffic == 1_000_000


def test_a_limit_of_nothing_has_no_percentage() -> None:
    assert BudgetUse(watch=None, limit_name="max_usd_day", limit=0, used=1).percent(1) is None


def test_what_hourly_prices_explain_is_everything_but_traffic() -> None:
    charged = InvoicedAmounts(gpu=1, disk=2, download=4, upload=8, other=16)
    assert (charged.without_traffic, charged.total) == (19, 31)


def test_a_past_month_used_what_was_billed_in_it() -> None:
    first = datetime(2026, 10, 1, tzinfo=UTC)
    launches = [a_run(first + 30 * DAY, hours=24 * 3), a_run(NOON, instance_id="2")]
    [use] = past_uses(None, Budget(max_usd_month=Decimal(100)), launches, first, NOON + DAY)
    assert (use.limit, use.used) == (100_000_000, 24 * 3_600_000)
    assert past_uses(None, Budget(), launches, first, NOON) == []
