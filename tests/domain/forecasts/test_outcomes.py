"""Outcomes of waits, compared with a reference that follows each of them poll by poll."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.wait_outcomes import PollPrices, WaitOutcomes, wait_outcomes
from tests.domain.forecasts.outcome_reference import Poll, mean_paid, outcome

LASTS_S = 3 * 3600.0
HOUR = 3600.0
DAY = 24 * HOUR


def outcomes_of(polls: Sequence[Poll], deadline_s: float) -> WaitOutcomes:
    columns = [[np.nan if value is None else value for value in column] for column in zip(*polls, strict=True)]
    at_s, offered, taken = (np.array(column, float) for column in columns)
    prices = PollPrices(at_s=at_s, offered=offered, taken=taken, lasts_s=LASTS_S)
    return wait_outcomes(prices, np.arange(len(polls)), deadline_s)


def hourly(offered: Sequence[float | None], limit: float) -> list[Poll]:
    return [
        Poll(hour * HOUR, price, price if price is not None and price <= limit else None)
        for hour, price in enumerate(offered)
    ]


@st.composite
def markets(draw: st.DrawFn) -> list[Poll]:
    steps = draw(st.lists(st.sampled_from([600.0, HOUR, 2 * HOUR, 5 * HOUR, 2 * DAY]), min_size=1, max_size=40))
    prices = draw(st.lists(st.sampled_from([None, 1.0, 1.5, 2.0, 3.0]), min_size=len(steps), max_size=len(steps)))
    held = draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))  # its windows, hold_for
    times = np.cumsum(steps)
    return [
        Poll(float(at), price, price if price is not None and price <= 1.5 and may else None)
        for at, price, may in zip(times, prices, held, strict=True)
    ]


@given(markets(), st.sampled_from([0.0, HOUR, 3 * HOUR, DAY, 5 * DAY]))
def test_every_start_comes_to_what_the_reference_says(polls: list[Poll], deadline_s: float) -> None:
    found = outcomes_of(polls, deadline_s)
    expected = [outcome(polls, start, deadline_s, LASTS_S) for start in range(len(polls))]
    kinds = np.select([found.bought, found.missed, found.unknown], ["bought", "missed", "unknown"], "none")
    assert kinds.tolist() == [one.kind for one in expected]
    prices = [np.nan if one.paid is None else one.paid for one in expected]
    np.testing.assert_array_equal(found.paid, prices)
    known = ~np.isnan(found.paid)
    means = (found.paid[known].mean(), found.at_once[known].mean()) if known.any() else None
    assert means == (None if (reference := mean_paid(expected)) is None else pytest.approx(reference))


@given(markets(), st.sampled_from([HOUR, DAY]))
def test_each_start_is_bought_or_missed_or_unknown(polls: list[Poll], deadline_s: float) -> None:
    found = outcomes_of(polls, deadline_s)
    assert (found.bought.astype(int) + found.missed + found.unknown).tolist() == [1] * len(polls)
    assert not (found.in_time & ~found.bought).any()
    assert not (found.no_later_offer & ~found.missed).any()


def test_a_start_with_nothing_on_offer_at_its_deadline_counts_and_pays_the_next_offer() -> None:
    found = outcomes_of(hourly([2.0, None, None, 3.0, 3.0], limit=1.0), 1 * HOUR)
    assert found.missed.tolist() == [True, True, False, False, False]
    assert found.paid[:4].tolist() == [3.0, 3.0, 3.0, 3.0]
    assert found.at_once[:4].tolist() == [2.0, 3.0, 3.0, 3.0]


def test_a_miss_after_which_nothing_came_costs_the_highest_price() -> None:
    found = outcomes_of(hourly([2.0, 4.0, 1.5, None, None], limit=1.0), 1 * HOUR)
    assert found.no_later_offer.tolist() == [False, False, True, True, False]
    assert found.paid[2] == 4.0


def test_a_threshold_that_was_never_met_saves_nothing_by_starts_left_out() -> None:
    """Cheap when a wait starts, nothing a day later, expensive when offers return: only lucky starts remained."""
    week = [2.0] * 12 + [None] * 24 + [4.0] * 12
    found = outcomes_of(hourly(week * 4, limit=1.0), 24 * HOUR)
    paid, once = found.paid[found.counted], found.at_once[found.counted]
    assert not found.in_time.any()
    assert paid.mean() >= once.mean(), "nothing was ever cheaper than what there was at once"


def test_a_deadline_that_nobody_saw_is_unknown_however_the_next_poll_looks() -> None:
    month = 30 * DAY
    found = outcomes_of([Poll(0.0, 3.0, None), Poll(month, 2.0, None), Poll(2 * month, 2.0, None)], DAY)
    assert found.unknown.all()


def test_a_wait_that_would_have_bought_before_a_gap_is_left_out_like_one_that_would_not() -> None:
    polls = [Poll(0.0, 2.0, None), Poll(HOUR, 1.0, 1.0), Poll(9 * DAY, 2.0, None), Poll(10 * DAY, 2.0, None)]
    assert outcomes_of(polls, DAY).unknown.tolist() == [True, True, False, True]
