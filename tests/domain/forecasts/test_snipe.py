"""Snipe odds: the chance that polls at some interval see an offer before it is gone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuwatch.domain.forecasts.snipe import OfferLifetime, poll_spacing_s, snipe_odds
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll

DAY_S = 86_400


def market_history(every_s: int = 600, days: int = 10) -> MarketHistory:
    polls = [MarketPoll(at, "vastai", "", False, True) for at in range(0, days * DAY_S + 1, every_s)]
    return MarketHistory(listings=(), intervals=(), polls=polls, source="a test")


def exact(seconds: float) -> OfferLifetime:
    return OfferLifetime(seconds, seconds, observed=True)


def test_the_chance_is_the_mean_of_life_over_interval() -> None:
    found = snipe_odds([exact(30), exact(90)] * 10, market_history(), 60)
    assert found is not None
    whole, half = found.odds
    assert (whole.chance, half.chance) == (pytest.approx(0.75), pytest.approx(1.0))
    assert (found.a_day, whole.a_day, half.a_day) == pytest.approx((2.0, 1.5, 2.0))
    assert (found.lifetimes, found.ended, found.median_s) == (20, 20, 30)


def test_a_simulated_market_agrees() -> None:
    random = np.random.default_rng(3)
    lifetimes = random.exponential(45, 4000)
    seen = np.mean(lifetimes > random.uniform(0, 60, 4000))
    found = snipe_odds([exact(float(lifetime)) for lifetime in lifetimes], market_history(), 60)
    assert found is not None
    assert found.odds[0].chance == pytest.approx(seen, abs=0.02)


def test_what_is_not_known_of_lives_is_not_known_of_the_chance() -> None:
    found = snipe_odds([OfferLifetime(0, 1200, observed=True)] * 12, market_history(), 1200)
    assert found is not None
    assert [found.odds[0].chance_low, found.odds[0].chance, found.odds[0].chance_high] == [0.0, 0.5, 1.0]


def test_those_that_still_stand_count_as_long() -> None:
    found = snipe_odds([OfferLifetime(600, math.inf, observed=False)] * 12, market_history(), 300)
    assert found is not None
    assert (found.median_s, found.odds[0].chance) == (None, 1.0)


def test_too_few_say_nothing() -> None:
    assert snipe_odds([exact(30)] * 9, market_history(), 60) is None
    assert snipe_odds([exact(30)] * 20, MarketHistory(listings=(), intervals=(), polls=(), source=""), 60) is None


def test_how_far_the_looks_lie_apart() -> None:
    assert poll_spacing_s(market_history(600)) == 600
    assert poll_spacing_s(market_history(600, 0)) == math.inf
