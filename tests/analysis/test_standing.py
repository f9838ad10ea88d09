"""How a GPU stands, by a tape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.analysis.standing import LEAST_HOURS, LEAST_LIVES, Standing, lives_at, pasts_of, standing_of
from gpuwatch.analysis.survival import lives_under
from tests.analysis.test_summary import START_S, Looks, a_tape, listed, some_looks

DAY_MIN = 24 * 60


def standing(looks: Looks, under: int | None = None) -> Standing:
    (past,) = pasts_of(a_tape(looks), listed)
    return standing_of(past, START_S, under)


@given(looks=some_looks(), limit=st.integers(1, 5))
def test_lives_are_those_of_the_survival_module(looks: Looks, limit: int) -> None:
    tape = a_tape(looks)
    (past,) = pasts_of(tape, listed)
    ours = lives_at(past.stays, limit * 100_000, START_S)
    theirs = lives_under(tape, limit * 100_000, listed)
    assert sorted(zip(*ours, strict=True)) == sorted(zip(*theirs, strict=True))


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
    assert found.known_hours == LEAST_HOURS == 24  # the last look vouches for two hours more
    assert found.percentile == pytest.approx((3 + 0.5 * 3) / 24)
    fewer = standing([(hour * 60, {0: price}) for hour, price in enumerate(prices[1:])])
    assert (fewer.known_hours, fewer.percentile) == (23, None)


def test_few_lives_tell_no_median() -> None:
    looks = [(hour * 60, {0: 100_000} if hour % 2 else {}) for hour in range(2 * LEAST_LIVES - 1)]
    assert not standing(looks).is_life_known
    looks.append((len(looks) * 60, {0: 100_000}))
    found = standing(looks)
    assert found.is_life_known
    assert (found.life.samples, found.life.ended, found.life.median_s) == (LEAST_LIVES, LEAST_LIVES - 1, 3600)


def test_lives_are_about_the_price_that_is_asked() -> None:
    looks = [(0, {}), (60, {0: 100_000}), (120, {0: 300_000}), (180, {})]
    assert standing(looks, 100_000).life.ended == 1
    assert standing(looks, 100_000).life.longest_s == 3600
    assert standing(looks, 300_000).life.longest_s == 2 * 3600
    assert standing(looks, 50_000).life.samples == 0
