"""Kaplan–Meier against scipy and a textbook's table; lifetimes of offers from market histories."""

from __future__ import annotations

import math
import warnings
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.snipe import OfferLifetime, lifetime_curve, offer_lifetimes
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.history.nonparametric import kaplan_meier
from tests.builders import a_listing

# Remission times of the 6-MP arm (Gehan, 1965), as in every textbook: weeks, and whether it ended.
WEEKS = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
ENDED = [bool(int(one)) for one in "111010100110001100000"]


def test_the_textbook_s_table() -> None:
    curve = kaplan_meier(WEEKS, ENDED)
    assert curve.times_s == [6, 7, 10, 13, 16, 22, 23]
    assert curve.survival == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
    assert (curve.samples, curve.ended, curve.longest_s) == (21, 9, 35)
    assert curve.median_s == 23
    assert curve.median_interval_s == (13, None)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=60))
def test_it_is_scipy_s(pairs: list[tuple[int, bool]]) -> None:
    stats = import_module("scipy.stats")
    durations, ended = [float(d) for d, _ in pairs], [e for _, e in pairs]
    curve = kaplan_meier(durations, ended)
    data = stats.CensoredData.right_censored(durations, [not e for e in ended])
    theirs = stats.ecdf(data).sf
    assert [curve.at(q) for q in theirs.quantiles] == pytest.approx(list(theirs.probabilities), abs=1e-12)
    with warnings.catch_warnings():  # if nothing or everything is left, the formula is undefined
        warnings.simplefilter("ignore")
        bounds = theirs.confidence_interval(method="log-log")
    low, high = (dict(zip(theirs.quantiles, one.probabilities, strict=True)) for one in (bounds.low, bounds.high))
    for index, time in enumerate(curve.times_s):
        if curve.survival[index] == 0:
            break
        assert curve.low[index] == pytest.approx(low[time], abs=1e-8)
        assert curve.high[index] == pytest.approx(high[time], abs=1e-8)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(1, 120))
def test_where_all_ended_it_is_plain_counting(durations: list[int], limit: int) -> None:
    curve = kaplan_meier(durations, [True] * len(durations))
    assert curve.at(limit) == pytest.approx(sum(d > limit for d in durations) / len(durations))
    assert curve.mean_up_to(limit) == pytest.approx(sum(min(d, limit) for d in durations) / len(durations))
    assert all(0 <= low <= high <= 1 for low, high in zip(curve.low, curve.high, strict=True))


def test_nothing_ended_and_nothing_at_all() -> None:
    curve = kaplan_meier([5.0, 9.0], [False, False])
    assert (curve.median_s, curve.at(100), curve.mean_up_to(3)) == (None, 1.0, 3.0)
    assert kaplan_meier([], []).samples == 0


def market_history(*intervals: OfferInterval, looks: range = range(0, 1000, 100), gpu: str = "") -> MarketHistory:
    polls = [MarketPoll(at, "vastai", gpu, False, True) for at in looks]
    return MarketHistory(listings=(a_listing("a"), a_listing("b")), intervals=intervals, polls=polls, source="a test")


def price(_listing: int, interval: OfferInterval) -> float:
    return float(interval.machine_microusd_hour)


def test_a_life_is_known_between_looks() -> None:
    seen = market_history(OfferInterval(0, 200, 400, 500, 10, None))
    assert offer_lifetimes(seen, 10, price) == [OfferLifetime(200.0, 400.0, observed=True)]
    curve = lifetime_curve(offer_lifetimes(seen, 10, price))
    assert (curve.times_s, curve.samples) == ([300.0], 1)  # the middle
    assert offer_lifetimes(seen, 9, price) == []


def test_a_change_of_price_below_x_does_not_end_it_and_one_above_does() -> None:
    intervals = (
        OfferInterval(0, 200, 300, 400, 10, None),
        OfferInterval(0, 400, 400, 500, 12, None),
        OfferInterval(0, 500, 700, 800, 9, None),
    )
    assert offer_lifetimes(market_history(*intervals), 12, price) == [OfferLifetime(500.0, 700.0, observed=True)]
    assert [lifetime.longest_s for lifetime in offer_lifetimes(market_history(*intervals), 10, price)] == [300.0, 400.0]


def test_what_stood_at_the_first_look_or_at_the_last_one() -> None:
    at_first, at_last = OfferInterval(0, 0, 300, 400, 10, None), OfferInterval(1, 300, 900, None, 10, None)
    assert offer_lifetimes(market_history(at_first, at_last), 10, price) == [
        OfferLifetime(600.0, math.inf, observed=False)
    ]
    curve = lifetime_curve(offer_lifetimes(market_history(at_first, at_last), 10, price))
    assert (curve.longest_s, curve.ended) == (600.0, 0)


@pytest.mark.parametrize(("gpu", "lifetimes"), [("", 1), ("H100 SXM", 1), ("A100 PCIe", 0)])
def test_looks_at_other_gpus_say_nothing_of_when_it_began(gpu: str, lifetimes: int) -> None:
    assert (
        len(offer_lifetimes(market_history(OfferInterval(0, 200, 400, 500, 10, None), gpu=gpu), 10, price)) == lifetimes
    )
