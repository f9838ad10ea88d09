"""The status of a GPU, from a market history."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.snipe import lifetime_curve, offer_lifetimes
from gpuwatch.domain.history import gpu_status
from gpuwatch.domain.history.gpu_status import (
    MIN_HOURS,
    MIN_LIFETIMES,
    GpuStatus,
    gpu_histories_of,
    gpu_status_of,
    lifetime_curve_at,
    turnover_of,
)
from tests.domain.history.test_price_series import START_S, Looks, a_history, listed, some_looks

DAY_MIN = 24 * 60
NEXT_MONTH_S = START_S + 30 * 24 * 3600


def standing(looks: Looks, under: int | None = None) -> GpuStatus:
    (past,) = gpu_histories_of(a_history(looks), listed, NEXT_MONTH_S)
    return gpu_status_of(past, START_S, under)


@given(looks=some_looks(), limit=st.integers(1, 5))
def test_lifetimes_are_those_of_the_single_offers(looks: Looks, limit: int) -> None:
    market_history = a_history(looks)
    (past,) = gpu_histories_of(market_history, listed, NEXT_MONTH_S)
    ours = lifetime_curve_at(past.intervals, limit * 100_000, START_S)
    assert ours == lifetime_curve(offer_lifetimes(market_history, limit * 100_000, listed))


def test_now_is_the_newest_look_and_changes_are_against_the_hours_before() -> None:
    looks = [(0, {0: 100_000}), (6 * DAY_MIN, {0: 200_000}), (7 * DAY_MIN, {0: 150_000, 1: 400_000})]
    found = standing(looks)
    assert (found.now, found.offers) == (150_000, 2)
    assert found.changes == {24: pytest.approx(-0.25), 168: pytest.approx(0.5), 720: None}


def test_a_gpu_that_is_sold_out_has_no_price_now() -> None:
    found = standing([(0, {0: 100_000}), (60, {})])
    assert (found.now, found.offers, found.percentile) == (None, 0, None)
    assert found.changes == {24: None, 168: None, 720: None}


def test_the_place_is_among_the_hours_that_are_known() -> None:
    prices = [300_000] * 18 + [100_000] * 3 + [200_000]
    found = standing([(hour * 60, {0: price}) for hour, price in enumerate(prices)])
    assert found.known_hours == MIN_HOURS == 24  # the last poll is valid for two more hours
    assert found.percentile == pytest.approx((3 + 0.5 * 3) / 24)
    fewer = standing([(hour * 60, {0: price}) for hour, price in enumerate(prices[1:])])
    assert (fewer.known_hours, fewer.percentile) == (23, None)


def test_a_gap_does_not_weigh_in_the_median() -> None:
    looks = [(0, {0: 100_000}), (20 * 60, {0: 200_000}), (22 * 60, {0: 200_000}), (24 * 60, {})]
    assert standing(looks).under == 200_000  # 3 hours at 100,000 until the gap, 4 at 200,000


def test_few_lives_tell_no_median() -> None:
    looks = [(hour * 60, {0: 100_000} if hour % 2 else {}) for hour in range(2 * MIN_LIFETIMES - 1)]
    assert not standing(looks).is_lifetime_known
    looks.append((len(looks) * 60, {0: 100_000}))
    found = standing(looks)
    assert found.is_lifetime_known
    assert (found.lifetime.samples, found.lifetime.ended, found.lifetime.median_s) == (
        MIN_LIFETIMES,
        MIN_LIFETIMES - 1,
        3600,
    )


def test_lives_are_about_the_price_that_is_asked() -> None:
    looks = [(0, {}), (60, {0: 100_000}), (120, {0: 300_000}), (180, {})]
    assert standing(looks, 100_000).lifetime.ended == 1
    assert standing(looks, 100_000).lifetime.longest_s == 3600
    assert standing(looks, 300_000).lifetime.longest_s == 2 * 3600
    assert standing(looks, 50_000).lifetime.samples == 0


@given(looks=some_looks())
def test_turnover_is_what_the_looks_say(looks: Looks) -> None:
    pasts = gpu_histories_of(a_history(looks), listed, NEXT_MONTH_S)
    seen = {offer: [number for number, (_, prices) in enumerate(looks) if offer in prices] for offer in range(4)}
    seen = {offer: numbers for offer, numbers in seen.items() if numbers}
    if not seen:
        return
    with patch.object(gpu_status, "MIN_LIFETIMES", 1):
        found = turnover_of(pasts[0], START_S)
    times = [at for at, _ in looks]
    covered = [min(after - at, 180) for at, after in pairwise(times)] + [0]  # nobody looked after the last
    known = sum(sum(covered[numbers[0] : numbers[-1] + 1]) for numbers in seen.values())
    on_offer = sum(covered[number] for numbers in seen.values() for number in numbers)
    assert found.offers == len(seen)
    assert found.away == (pytest.approx(1 - on_offer / known) if known else None)
    days = (sum(covered) + 180) / 1440
    if days < 1:
        assert (found.new_a_day, found.gone_a_day) == (None, None)
        return
    new = sum(number > 0 and number - 1 not in numbers for numbers in seen.values() for number in numbers)
    gone = sum(number + 1 < len(looks) and number + 1 not in numbers for numbers in seen.values() for number in numbers)
    assert found.new_a_day == pytest.approx(new / days)
    assert found.gone_a_day == pytest.approx(gone / days)


def test_turnover_before_the_asked_time_does_not_count() -> None:
    hours = [(hour * 60, {0: 100_000} if hour % 4 else {1: 100_000}) for hour in range(60)]
    (past,) = gpu_histories_of(a_history(hours), listed, NEXT_MONTH_S)
    whole, half = turnover_of(past, START_S), turnover_of(past, START_S + 30 * 3600)
    assert whole.new_a_day is not None
    assert half.new_a_day == pytest.approx(whole.new_a_day, rel=0.1)
    assert (half.offers, turnover_of(past, NEXT_MONTH_S).offers) == (2, 0)
