"""What makes a query urgent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.past_lows import HourlyLows, arrivals_at
from gpuwatch.domain.watches.query_plan import query_priority

HOUR = 3600.0
some = st.one_of(st.none(), st.floats(0.01, 100.0))


@given(some, some, st.one_of(st.none(), st.floats(-HOUR, 100 * HOUR)), st.floats(0.0, 100.0))
def test_priority_has_bounds(
    limit: float | None, cheapest: float | None, left_s: float | None, arrivals: float
) -> None:
    assert 1.0 <= query_priority(limit, cheapest, left_s, arrivals) <= 4.0


@pytest.mark.parametrize(
    ("cheapest", "left_s", "arrivals", "priority"),
    [
        (None, None, 1.0, 1.0),
        (1.20, None, 1.0, 1.0),
        (1.05, None, 1.0, 1.5),
        (1.00, None, 1.0, 2.0),
        (None, 12 * HOUR, 1.0, 1.0),
        (None, 3 * HOUR, 1.0, 1.5),
        (None, 0.0, 1.0, 2.0),
        (None, None, 1.5, 1.5),
        (None, None, 0.2, 1.0),
        (1.0, 0.0, 3.0, 4.0),
    ],
)
def test_near_its_limit_short_of_time_or_at_its_hour(
    cheapest: float | None, left_s: float | None, arrivals: float, priority: float
) -> None:
    assert query_priority(1.0, cheapest, left_s, arrivals) == priority


def lows(days: int, cheap_at: int) -> HourlyLows:
    """Days of hourly prices: cheap at one hour of the day, expensive at the others."""
    by_hour = {hour: 1_000_000 if hour % 24 == cheap_at else 2_000_000 for hour in range(24 * days)}
    return HourlyLows(lows=sorted(by_hour.values()), days=days, hours=sorted(by_hour, key=lambda hour: by_hour[hour]))


def test_an_hour_at_which_it_was_cheap_counts_more_than_the_others() -> None:
    month = lows(30, cheap_at=3)
    assert arrivals_at(month, 1_500_000, 3) > 10
    assert arrivals_at(month, 1_500_000, 15) < 0.1
    assert arrivals_at(month, 3_000_000, 3) == pytest.approx(1.0)


def test_a_few_days_and_a_price_never_met_say_nothing() -> None:
    assert arrivals_at(lows(6, cheap_at=3), 1_500_000, 3) == 1.0
    assert arrivals_at(lows(30, cheap_at=3), 500_000, 3) == 1.0
