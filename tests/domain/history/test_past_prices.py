"""The prices that `new_low` and `drop_by` compare with, and when there are too few of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.past_lows import drop_limit, new_low_limit, percentile_limit
from gpuwatch.domain.history.price_series import PriceSeries, with_newer
from gpuwatch.domain.watches.past_limits import PastLimit
from tests.builders import NOON

DAY_S = 86_400.0
LAST = int(NOON.timestamp()) // 3600
LOWS = st.lists(st.none() | st.integers(1, 10**9), min_size=1, max_size=200)


def a_series(*lows: int | None, polled: bool = True) -> PriceSeries:
    """One price an hour, the last one at noon."""
    return PriceSeries(first_hour=LAST - len(lows) + 1, lows=lows, polled=[polled] * len(lows), source="test")


def low(series: PriceSeries, days: float = 30) -> PastLimit:
    return new_low_limit("H100 SXM", False, series, days * DAY_S, NOON)


def drop(series: PriceSeries, by: float = 0.2, days: float = 7) -> PastLimit:
    return drop_limit("H100 SXM", False, series, by, days * DAY_S, NOON)


def test_the_lowest_of_the_span_with_how_many_and_since_when() -> None:
    found = low(a_series(*[2_000_000] * 479, 1_900_000))
    assert found.microusd_gpu_hour == 1_900_000
    assert (found.hours, found.since) == (480, NOON - timedelta(hours=479))
    assert found.basis == f"$1.90, the lowest of 480 hours since {NOON - timedelta(hours=479):%Y-%m-%d %H:%M} UTC"


def test_what_is_older_than_the_span_does_not_count() -> None:
    assert low(a_series(1, *[2_000_000] * 721)).microusd_gpu_hour == 2_000_000
    assert low(a_series(1, *[2_000_000] * 720)).microusd_gpu_hour == 1  # exactly thirty days ago


@pytest.mark.parametrize(("hours", "fires"), [(216, False), (217, True)])
def test_less_history_than_a_third_of_the_span_says_so_and_does_not_fire(hours: int, fires: bool) -> None:
    """Of thirty days ten must be known, and a day is known after one poll."""
    found = low(a_series(*[2_000_000] * hours))
    assert (found.microusd_gpu_hour is not None) is fires
    assert fires or found.basis == "too little history: 9d of 30d is known, 10d required"


def test_a_price_a_day_is_a_history_and_one_price_of_long_ago_is_none() -> None:
    daily = [2_000_000 if hour % 24 == 0 else None for hour in range(720)]
    looked = only_looked_then(a_series(*daily))
    assert low(looked).hours == 30
    once = only_looked_then(a_series(2_000_000, *[None] * 700))
    assert low(once).microusd_gpu_hour is None


def only_looked_then(series: PriceSeries) -> PriceSeries:
    """Polls only where there is a price."""
    polled = [one is not None for one in series.lows]
    return PriceSeries(first_hour=series.first_hour, lows=series.lows, polled=polled, source="test")


def test_a_span_without_offers_has_no_lowest_price() -> None:
    found = low(a_series(*[None] * 700))
    assert found.microusd_gpu_hour is None
    assert "no offers within 30d" in found.basis
    assert low(PriceSeries(first_hour=0, lows=(), polled=(), source="test")).basis.startswith("too little history: 0s")


def test_a_new_low_is_under_the_lowest_and_not_at_it() -> None:
    found = low(a_series(*[2_000_000] * 480))
    assert not found.is_met_by(2_000_000.4, or_equal=False)
    assert not found.is_met_by(1_999_999.6, or_equal=False)  # rounding is no new low
    assert found.is_met_by(1_999_900, or_equal=False)
    assert found.is_met_by(2_000_000.4, or_equal=True)


@given(LOWS, st.floats(1, 60))
def test_no_price_that_was_stored_within_the_span_is_a_new_low(lows: list[int | None], days: float) -> None:
    found = low(a_series(*lows), days)
    within = [one for one in lows[-int(days * 24) :] if one is not None]
    assert not any(found.is_met_by(one, or_equal=False) for one in within)
    assert found.microusd_gpu_hour is None or found.hours == sum(
        one is not None for one in lows[-int(LAST - (NOON.timestamp() - days * DAY_S) // 3600 + 1) :]
    )


def test_a_drop_is_measured_from_the_median_and_says_how_many_hours() -> None:
    found = drop(a_series(*[2_400_000] * 100, *[1_000_000] * 20))
    assert found.microusd_gpu_hour == pytest.approx(1_920_000)
    assert found.basis.startswith("$1.92, 20 % below the median of $2.40 (n = 120 hours of 7d, since ")
    assert found.is_met_by(1_920_000, or_equal=True)
    assert not found.is_met_by(1_921_000, or_equal=True)


@pytest.mark.parametrize(("hours", "fires"), [(50, False), (52, True)])
def test_too_few_observations_do_not_fire(hours: int, fires: bool) -> None:
    """A third of seven days is 56 hours, which ten of its thirtieths (5.6 h) cover."""
    found = drop(a_series(*[2_400_000] * hours))
    assert (found.microusd_gpu_hour is not None) is fires
    assert fires or "require" in found.basis


def test_hours_without_an_offer_are_no_observations_of_a_price() -> None:
    assert drop(a_series(*[None] * 160, *[2_400_000] * 8)).microusd_gpu_hour is None


def percentile(series: PriceSeries, percent: float = 5, days: float = 7) -> PastLimit:
    return percentile_limit("H100 SXM", False, series, percent, days * DAY_S, NOON)


def test_a_percentile_is_the_highest_of_the_cheapest_part() -> None:
    found = percentile(a_series(*(2_000_000 + hour * 10_000 for hour in range(100))))
    assert found.microusd_gpu_hour == 2_040_000  # the fifth of a hundred
    assert found.basis.startswith("$2.04, the lowest 5 % (n = 100 hours of 7d, since ")
    assert found.is_met_by(2_040_000, or_equal=True)
    assert not found.is_met_by(2_041_000, or_equal=True)


def test_a_part_of_less_than_an_hour_is_rounded_up() -> None:
    assert percentile(a_series(*range(1, 102))).microusd_gpu_hour == 6  # 5.05 hours


@pytest.mark.parametrize(("hours", "percent", "fires"), [(50, 5, False), (52, 5, True), (99, 1, False), (100, 1, True)])
def test_a_percentile_of_too_little_says_so_and_does_not_fire(hours: int, percent: float, fires: bool) -> None:
    """A third of the span must be known, and that percentile must cover as many hours."""
    found = percentile(a_series(*[2_000_000] * hours), percent)
    assert (found.microusd_gpu_hour is not None) is fires
    assert fires or (found.basis.startswith("too little history: ") and "require" in found.basis)


@given(LOWS, st.sampled_from([0.5, 1.0, 5.0, 25.0, 50.0, 99.0]))
def test_at_least_that_share_and_no_more_is_strictly_cheaper(lows: list[int | None], percent: float) -> None:
    found = percentile(a_series(*lows), percent)
    if found.microusd_gpu_hour is None:
        return
    known = [one for one in lows[-169:] if one is not None]
    assert sum(one <= found.microusd_gpu_hour for one in known) >= len(known) * percent / 100 - 1e-6
    assert sum(one < found.microusd_gpu_hour for one in known) < len(known) * percent / 100 + 1e-6


@given(LOWS, st.integers(0, 50), LOWS)
def test_what_was_read_later_only_adds(first: list[int | None], apart: int, then: list[int | None]) -> None:
    older = PriceSeries(first_hour=100, lows=first, polled=[True] * len(first), source="test")
    newer = PriceSeries(first_hour=100 + apart, lows=then, polled=[True] * len(then), source="test")
    both = with_newer(older, newer)
    for one in (older, newer):
        for at, price in enumerate(one.lows):
            joined = both.lows[one.first_hour + at - both.first_hour]
            assert price is None or (joined is not None and joined <= price)
            assert both.polled[one.first_hour + at - both.first_hour]
    assert {low for low in both.lows if low is not None} <= {low for low in (*first, *then) if low is not None}
