"""The results of a replay, for figures computed by hand."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.backtest.replay import replay
from gpuwatch.domain.forecasts.backtest.replay_result import BacktestResult, result_of, saved_share, sweep_thresholds
from gpuwatch.domain.forecasts.backtest.replayed_candidates import find_candidates
from gpuwatch.domain.history.market_history import MarketHistory
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Watch
from tests.domain.forecasts.backtest.replayed_market import a_renting_rule, a_rule, a_setting, a_story, history_of

HOUR = 3600


def result(market_history: MarketHistory, watch: Watch, deadline_h: float = 3, **setting: object) -> BacktestResult:
    rules = a_setting(**setting)
    courses, simulated = replay([(watch, find_candidates(watch, market_history, {}, 0.0))], market_history, rules)
    found = result_of(courses[0], simulated, timedelta(hours=deadline_h))
    assert found is not None
    return found


def hourly(*prices: float | None) -> MarketHistory:
    """One machine, a poll every hour."""
    return history_of([(hour * HOUR, {} if price is None else {"a": price}) for hour, price in enumerate(prices)])


def test_what_was_paid_is_held_against_buying_at_once_and_the_median() -> None:
    found = result(hourly(4, 4, 2, 2, 1, 1, 1), a_renting_rule(2.0, hours=1, launch=LaunchSpec(max_runtime_s=HOUR)))
    assert (found.launches, found.paid_usd_gpu_hour, found.at_once_usd_gpu_hour) == (1, 2.0, 4.0)
    assert found.median_usd_gpu_hour == 1.0, "the last look lasts three hours more: 2 h at 4, 2 h at 2, 5 h at 1"
    assert (found.saved_against_at_once, found.saved_against_median) == (0.5, -1.0)
    first = found.first
    assert first is not None
    assert first.waited == timedelta(hours=2)
    assert first.cheaper_later is not None
    assert (first.cheaper_later.usd_gpu_hour, first.cheaper_later.at - first.at) == (1.0, timedelta(hours=2))


def test_what_is_cheaper_after_the_deadline_was_not_missed() -> None:
    market_history = hourly(2, 2, 2, 2, 1)
    assert result(market_history, a_rule(), deadline_h=3).events[0].cheaper_later is None
    assert result(market_history, a_rule(), deadline_h=4).events[0].cheaper_later is not None


def test_a_launch_costs_its_whole_life_also_where_the_history_ends_before() -> None:
    spec = LaunchSpec(max_total=1, max_runtime_s=24.0 * HOUR)
    assert result(hourly(2, 2), a_renting_rule(launch=spec)).cost_usd == pytest.approx(48.0)
    assert result(hourly(2, 2), a_renting_rule(launch=spec), job=timedelta(hours=5)).cost_usd == pytest.approx(10.0)


def test_windows_that_close_end_what_was_to_end_with_them() -> None:
    spec = LaunchSpec(max_total=1, max_runtime_s=24.0 * HOUR, stop_outside=True)
    watch = a_renting_rule(launch=spec, active=("12:00-15:00",))
    (event,) = [event for event in result(hourly(*[2] * 8), watch).events if event.launched]
    assert (event.hours, event.cost_usd) == (3.0, pytest.approx(6.0))


def test_waiting_from_every_hour_on_by_hand() -> None:
    # polls at hours 0 to 7; available at 2 from hour 2 to 3, and from hour 6 on
    found = result(hourly(5, 5, 2, 2, 5, 5, 2, 2), a_rule(2.0), deadline_h=1).waiting
    assert (found.starts, found.counted) == (8, 7)
    # hours 1 to 3, 5 and 6 find one within an hour; 0 and 4 then buy at 5
    assert found.within_deadline == pytest.approx(5 / 7)
    assert found.paid_usd_gpu_hour == pytest.approx((5 + 2 + 2 + 2 + 5 + 2 + 2) / 7)
    assert found.at_once_usd_gpu_hour == pytest.approx((5 + 5 + 2 + 2 + 5 + 5 + 2) / 7)
    assert found.median_s == 0.0, "waits are 2, 1, 0, 0, 2, 1, 0, 0 hours"
    assert found.saved == pytest.approx(1 - 20 / 26)


def test_waits_that_outlast_the_data_are_no_short_waits() -> None:
    found = result(hourly(2, 5, 5, 5, 5, 5), a_rule(2.0), deadline_h=1).waiting
    assert (found.starts, found.within_deadline) == (6, pytest.approx(1 / 5))
    assert found.median_s is None


def test_what_waiting_saved_has_an_interval_over_days() -> None:
    cheap_at_noon = [5, 5, 4, 4] * 6 * 10  # ten days; waiting three hours finds 4
    found = result(hourly(*cheap_at_noon), a_rule(4.0), deadline_h=3).waiting
    assert found.saved == pytest.approx(1 - 4 / 4.5, abs=0.005)
    assert found.interval is not None
    assert found.interval[0] <= found.saved <= found.interval[1]
    assert found.is_shown
    assert result(hourly(*cheap_at_noon), a_rule(1.0), deadline_h=3).waiting.is_shown is False, "it never meets one"
    few = result(hourly(*cheap_at_noon[:72]), a_rule(4.0), deadline_h=3).waiting
    assert (few.interval, few.is_shown) == (None, False)


def test_a_history_shorter_than_the_deadline_says_nothing_about_waiting() -> None:
    found = result(hourly(2, 2), a_rule(), deadline_h=24).waiting
    assert (found.counted, found.within_deadline, found.saved) == (0, None, None)


def test_nothing_on_offer_is_no_price() -> None:
    found = result(hourly(None, None, None), a_rule())
    assert (found.events, found.at_once_usd_gpu_hour, found.median_usd_gpu_hour) == ((), None, None)
    assert (found.held, found.saved_against_at_once) == (0.0, None)


def test_a_watch_that_nobody_asked_for_has_no_result() -> None:
    watch = a_rule(gpu_names=("B200",), providers=("gcp",))
    found = find_candidates(watch, hourly(2.0), {}, 0.0)
    courses, simulated = replay([(watch, found)], hourly(2.0), a_setting())
    assert result_of(courses[0], simulated, timedelta(hours=1)) is None


@given(a_story(), st.sampled_from([1, 24]))
def test_a_higher_threshold_never_holds_less_nor_waits_longer(looks: list, deadline_h: int) -> None:
    market_history, watch = history_of(looks), a_rule(3.0)
    prices = [Decimal(price) for price in ("1.0", "1.5", "2.0", "3.0")]
    found = find_candidates(watch, market_history, {}, 0.0)
    steps = [
        step
        for _, step in sweep_thresholds(watch, found, market_history, a_setting(), prices, timedelta(hours=deadline_h))
    ]
    known = [step for step in steps if step is not None]
    assert [step.held for step in known] == sorted(step.held for step in known)
    shares = [step.waiting.within_deadline for step in known if step.waiting.within_deadline is not None]
    assert shares == sorted(shares)
    firsts = [step.first.at for step in known if step.first is not None]
    assert firsts == sorted(firsts, reverse=True)
    assert len({step.median_usd_gpu_hour for step in known}) <= 1, "the market is the same"


def test_a_watch_that_rents_waits_for_its_launch_and_one_that_alerts_for_its_first_alert() -> None:
    renting = result(hourly(2, 2, 1), a_renting_rule(2.0), job=timedelta(hours=1))
    assert renting.first is not None
    assert renting.first.launched
    alerting = result(hourly(2, None, None, 2), a_rule())
    assert (alerting.first, alerting.fires, alerting.launches) == (alerting.events[0], 2, 0)
    assert alerting.cost_usd == 0.0


def test_a_reminder_is_no_launch_and_no_first_alert() -> None:
    events = result(hourly(2, 2), a_rule(repeat_every_s=float(HOUR))).events
    assert [event.is_reminder for event in events] == [False, True]


def test_nothing_is_saved_against_a_price_of_nothing() -> None:
    assert saved_share(1.0, 0.0) is None
    assert saved_share(None, 2.0) is None
    assert saved_share(1.0, 2.0) == 0.5
