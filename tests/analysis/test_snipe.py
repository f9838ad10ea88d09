"""Snipe odds: the chance that a look at every so many seconds sees an offer before it is gone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuwatch.analysis.snipe import looks_apart_s, snipe
from gpuwatch.analysis.survival import Life
from gpuwatch.analysis.tape import Poll, Tape

DAY_S = 86_400


def tape(every_s: int = 600, days: int = 10) -> Tape:
    polls = [Poll(at, "vastai", "", False, True) for at in range(0, days * DAY_S + 1, every_s)]
    return Tape(listings=(), spells=(), polls=polls, source="a test")


def exact(seconds: float) -> Life:
    return Life(seconds, seconds, observed=True)


def test_the_chance_is_the_mean_of_life_over_interval() -> None:
    found = snipe([exact(30), exact(90)] * 10, tape(), 60)
    assert found is not None
    whole, half = found.odds
    assert (whole.chance, half.chance) == (pytest.approx(0.75), pytest.approx(1.0))
    assert (found.a_day, whole.a_day, half.a_day) == pytest.approx((2.0, 1.5, 2.0))
    assert (found.lives, found.ended, found.median_s) == (20, 20, 30)


def test_a_simulated_market_agrees() -> None:
    random = np.random.default_rng(3)
    lives = random.exponential(45, 4000)
    seen = np.mean(lives > random.uniform(0, 60, 4000))
    found = snipe([exact(float(life)) for life in lives], tape(), 60)
    assert found is not None
    assert found.odds[0].chance == pytest.approx(seen, abs=0.02)


def test_what_is_not_known_of_lives_is_not_known_of_the_chance() -> None:
    found = snipe([Life(0, 1200, observed=True)] * 12, tape(), 1200)
    assert found is not None
    assert [found.odds[0].chance_low, found.odds[0].chance, found.odds[0].chance_high] == [0.0, 0.5, 1.0]


def test_those_that_still_stand_count_as_long() -> None:
    found = snipe([Life(600, math.inf, observed=False)] * 12, tape(), 300)
    assert found is not None
    assert (found.median_s, found.odds[0].chance) == (None, 1.0)


def test_too_few_say_nothing() -> None:
    assert snipe([exact(30)] * 9, tape(), 60) is None
    assert snipe([exact(30)] * 20, Tape(listings=(), spells=(), polls=(), source=""), 60) is None


def test_how_far_the_looks_lie_apart() -> None:
    assert looks_apart_s(tape(600)) == 600
    assert looks_apart_s(tape(600, 0)) == math.inf
