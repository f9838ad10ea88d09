"""Tests and intervals, compared with scipy, with enumerated cases, and with data whose answer is known."""

from __future__ import annotations

import itertools
import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.nonparametric import (
    abs_t_statistic,
    holm,
    max_statistic_p_values,
    mean_interval,
    rotation_p_value,
    t_quantile,
    t_two_sided_p,
)


@pytest.fixture(scope="module")
def stats() -> Any:
    """scipy.stats: 60 MB, which only the workers that use it should hold, and seconds: its tests are slow ones."""
    return import_module("scipy.stats")


@pytest.mark.slow
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 13, 27, 364])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 12.0])
def test_students_tail_is_that_of_scipy(t: float, freedom: int, stats: Any) -> None:
    assert t_two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), abs=1e-12)


def test_what_never_varies_is_beyond_chance() -> None:
    assert t_two_sided_p(math.inf, 3) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("freedom", [1, 3, 13, 200])
@pytest.mark.parametrize("share", [0.8, 0.975])
def test_students_quantile_is_that_of_scipy(share: float, freedom: int, stats: Any) -> None:
    assert t_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-9)


@pytest.mark.slow
def test_t_is_mean_by_standard_error(stats: Any) -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 20)
    assert float(abs_t_statistic(values)) == pytest.approx(abs(stats.ttest_1samp(values, 0).statistic))


def test_t_of_nothing_is_0_and_of_the_same_each_time_without_end() -> None:
    assert abs_t_statistic(np.array([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1]])).tolist() == [0.0, math.inf]


def test_holm_as_in_the_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_lowers_no_p_and_keeps_their_order(ps: list[float]) -> None:
    found = holm(ps)
    assert all(p <= higher <= 1 for p, higher in zip(ps, found, strict=True))
    assert [found[at] for at in np.argsort(ps, kind="stable")] == sorted(found)


def test_a_rotation_test_counts_what_all_turns_would() -> None:
    turned = np.random.default_rng(3).normal(size=(4, 5)) + np.array([0.9, 0, 0, 0, 0])
    own = abs_t_statistic(turned[:, 0])
    every = [abs_t_statistic(np.array([turned[row, at] for row, at in enumerate(turns)])) for turns in
             itertools.product(range(5), repeat=4)]  # fmt: skip
    exact = np.mean([one >= own * (1 - 1e-9) for one in every])
    assert rotation_p_value(turned, seed=1) == pytest.approx(exact, abs=0.02)


def test_the_largest_of_all_columns_counts_what_all_turns_would() -> None:
    rows = np.random.default_rng(4).normal(size=(3, 4)) + np.array([1.5, 0, 0, 0])
    turned = [np.stack([np.roll(rows[row], turn) for row, turn in enumerate(turns)]) for turns in
              itertools.product(range(4), repeat=3)]  # fmt: skip
    expected = []
    for column in range(4):
        as_large = [np.mean([np.max(size(one)) >= size(rows)[column] * (1 - 1e-9) for one in turned]) for size in
                    (lambda one: np.abs(one.mean(0)), lambda one: abs_t_statistic(one.T))]  # fmt: skip
        expected.append(max(as_large))
    assert max_statistic_p_values(rows, seed=1) == pytest.approx(expected, abs=0.025)


def test_where_nothing_differs_p_is_1() -> None:
    assert rotation_p_value(np.zeros((14, 24)), seed=1) == 1.0
    assert max_statistic_p_values(np.zeros((14, 24)), seed=1).tolist() == [1.0] * 24


def test_p_is_the_same_each_time() -> None:
    rows = np.random.default_rng(5).normal(size=(20, 24))
    assert rotation_p_value(rows, seed=7) == rotation_p_value(rows, seed=7)
    assert max_statistic_p_values(rows, seed=7).tolist() == max_statistic_p_values(rows, seed=7).tolist()


@pytest.mark.parametrize("count", [4, 15, 30])
def test_the_interval_of_a_mean_holds_it_19_times_in_20(count: int) -> None:
    held = 0
    for run in range(100):
        low, high = mean_interval(np.random.default_rng([count, run]).normal(0.1, 0.02, count), seed=run)
        held += low <= 0.1 <= high
    assert held / 100 >= (0.88 if count > 4 else 0.8)  # four values cannot show their spread


def test_the_interval_of_a_constant_is_that_constant() -> None:
    assert mean_interval(np.full(14, 0.25), seed=1) == (0.25, 0.25)


def test_the_interval_minds_neighbours_that_are_alike() -> None:
    noise = np.random.default_rng(6).normal(size=40)
    alike = np.repeat(noise[:20], 3)
    apart = np.random.default_rng(7).permutation(alike)
    widths = [np.mean([np.diff(mean_interval(one, seed=run))[0] for run in range(5)]) for one in (alike, apart)]
    assert widths[0] > 1.2 * widths[1]
