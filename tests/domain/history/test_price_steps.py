"""Slow markets are judged by the day or the week, and the hours between two polls are not invented."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.advice import BuyVerdict, advise, limit_changes, why_too_little_data
from gpuwatch.domain.history.price_series import PriceSeries, on_own_step, step_name, with_step

DAY = 24


def a_series(prices: list[float | None], every_h: int, *, lasts_h: int = 3, more_h: int = 0) -> PriceSeries:
    """A poll every few hours, each valid for three; then some hours to now. None: no offers."""
    hours = (len(prices) - 1) * every_h + 1 + more_h
    lows, polled = [None] * hours, [False] * hours
    for number, price in enumerate(prices):
        for hour in range(number * every_h, min(number * every_h + lasts_h, hours)):
            lows[hour] = None if price is None else round(price * 1e6)  # type: ignore[call-overload]
            polled[hour] = True
    return PriceSeries(first_hour=480_000, lows=lows, polled=polled, source="a test")


@pytest.mark.parametrize(
    ("every_h", "step"), [(1, "hour"), (6, "hour"), (24, "day"), (30, "day"), (168, "week"), (200, "week")]
)
@pytest.mark.parametrize("more_h", [0, 1, 2])
def test_the_step_is_the_shortest_with_polls_in_a_quarter_of_it(every_h: int, step: str, more_h: int) -> None:
    assert step_name(on_own_step(a_series([2.0] * 40, every_h, more_h=more_h)).step_h) == step


def test_a_poll_a_month_is_too_seldom_for_any_step() -> None:
    found = on_own_step(a_series([2.0] * 12, 30 * DAY))
    assert found.step_h == 1
    assert "polled" in (why_too_little_data(found, 48) or "")


def test_a_poll_a_day_has_an_answer_by_the_day() -> None:
    """The price fell on every third day: by the hour nothing was known, as seven of eight hours lack a poll."""
    hourly = a_series([2.0 if day % 3 == 0 else 3.0 for day in range(60)], DAY)
    assert why_too_little_data(hourly, 48) is not None
    found = advise(on_own_step(hourly), 4 * DAY)
    assert (found.step_h, found.hours, len(found.limits_usd), found.span_hours) == (DAY, 4 * DAY, 5, 60)
    assert found.now_usd == 3.0
    assert found.limit_usd is not None
    assert found.limit_usd < 3.0
    assert dict(found.reached)[0.5] == 2.0
    assert next(left for left, _ in limit_changes(found)) == 4


def test_a_deadline_shorter_than_the_step_is_judged_as_one_step() -> None:
    found = advise(on_own_step(a_series([2.0] * 60, 168)), 48)
    assert (found.hours, found.verdict, found.now_usd) == (168, BuyVerdict.BUY_NOW, 2.0)


def test_a_history_by_the_hour_with_long_gaps_stays_by_the_hour() -> None:
    days = [day % 6 == 0 for day in range(60)]
    polled = [known for known in days for _ in range(DAY)]
    series = PriceSeries(
        first_hour=0, lows=[2_000_000 if known else None for known in polled], polled=polled, source=""
    )
    assert on_own_step(series) is series
    assert why_too_little_data(series, 24) == "polled in only 240 of 1440 hours; a quarter is required"


@pytest.mark.parametrize(("days", "reported"), [(13, "polled in 13 days; 14 are required"), (14, None)])
def test_so_many_days_are_needed(days: int, reported: str | None) -> None:
    assert why_too_little_data(on_own_step(a_series([2.0] * days, DAY)), 48) == reported


def test_a_week_nobody_looked_in_stays_a_gap() -> None:
    """Twenty days, a gap of ten, twenty more: a deadline in the gap is unknown, not the price after it."""
    prices: list[float | None] = [2.0] * 20
    first, last = a_series(prices, DAY), a_series([1.0] * 20, DAY)
    between = [None] * (DAY * 10 - 1)
    joined = PriceSeries(
        first_hour=first.first_hour,
        lows=[*first.lows, *between, *last.lows],
        polled=[*first.polled, *(False for _ in between), *last.polled],
        source="a test",
    )
    stepped = on_own_step(joined)
    assert stepped.step_h == DAY
    assert stepped.known == 40
    assert [is_known for is_known in stepped.polled if not is_known] == [False] * 9


@given(
    st.lists(st.one_of(st.none(), st.floats(0.5, 9.0)), min_size=1, max_size=30),
    st.sampled_from([24, 168]),
    st.integers(1, 40),
)
def test_a_step_says_what_its_hours_say(prices: list[float | None], step_h: int, every_h: int) -> None:
    series = a_series(prices, every_h)
    found = with_step(series, step_h)
    hours = len(series.polled)
    assert len(found.polled) == math.ceil(hours / step_h)
    assert found.first_hour + len(found.polled) * step_h == series.first_hour + hours, "never past now"
    for at in range(len(found.polled)):
        part = range(max(0, hours - (len(found.polled) - at) * step_h), hours - (len(found.polled) - at - 1) * step_h)
        known = [series.lows[hour] for hour in part if series.lows[hour] is not None]
        assert found.polled[at] == any(series.polled[hour] for hour in part)
        if at < len(found.polled) - 1:
            assert found.lows[at] == min(known, default=None)
    newest = max(hour for hour in range(hours) if series.polled[hour])
    assert found.lows[-1] == series.lows[newest], "the last entry is the newest price, not the lowest of the step"
