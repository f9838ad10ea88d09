"""The rank of a price in its history, as an alert states it."""

from __future__ import annotations

import pytest

from gpuwatch.domain.history.past_lows import MIN_HOURS, HourlyLows, rank_in
from gpuwatch.domain.history.price_series import PriceSeries, percentile_rank

MONTH = HourlyLows(lows=tuple(range(1_000_000, 1_000_700)), days=30)


@pytest.mark.parametrize(
    ("price", "text"),
    [
        (999_999, "the lowest of 30 days (n = 700 hours)"),
        (1_000_024, "cheapest 4 % of 30 days (n = 700 hours)"),
        (1_000_001, "cheapest 1 % of 30 days (n = 700 hours)"),
        (1_000_600, "85 % of 30 days were cheaper (n = 700 hours)"),
        (2_000_000, "100 % of 30 days were cheaper (n = 700 hours)"),
    ],
)
def test_a_rank_says_what_it_rests_on(price: int, text: str) -> None:
    rank = rank_in(MONTH, price)
    assert rank is not None
    assert rank.text == text


def test_a_short_history_gives_no_rank() -> None:
    assert rank_in(HourlyLows(lows=MONTH.lows[: MIN_HOURS - 1], days=3), 1_000_000) is None
    assert rank_in(HourlyLows(lows=MONTH.lows[:MIN_HOURS], days=3), 1_000_000) is not None


def test_it_is_the_percentile_of_gpuwatch_market() -> None:
    """Hours at exactly this price count half, in both."""
    lows = (5, 5, 5, 7, 7, 9) * 20
    series = PriceSeries(first_hour=0, lows=lows, polled=[True] * len(lows), source="")
    for price in (4, 5, 6, 7, 9, 10):
        rank = rank_in(HourlyLows(lows=tuple(sorted(lows)), days=5), price)
        assert rank is not None
        assert rank.share == pytest.approx(percentile_rank(series, price))
