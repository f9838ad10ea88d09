"""Idle and wasted time from samples, with gaps and unknown values."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.instances.instance_checks import (
    UtilisationSample,
    idle_cause,
    mean_utilisation,
    useful_usd_gpu_hour,
    wasted_microusd,
)
from gpuwatch.domain.launches.launch import EndReason
from tests.builders import NOON

BELOW, FOR_S = 10.0, 1200.0


def at(second: float, percent: float | None) -> UtilisationSample:
    return UtilisationSample(NOON + timedelta(seconds=second), percent)


def after(second: float, *samples: UtilisationSample) -> EndReason | None:
    found = idle_cause(samples, BELOW, FOR_S, NOON + timedelta(seconds=second))
    return None if found is None else found[0]


def test_idle_for_the_whole_span_is_idle_and_not_a_second_earlier() -> None:
    samples = [at(0, 3.0), at(600, 4.0), at(1199, 2.0)]
    assert after(1199, *samples) is None
    assert after(1200, *samples, at(1200, 2.0)) is EndReason.IDLE


def test_the_words_say_how_idle_and_since_when() -> None:
    found = idle_cause([at(0, 3.0), at(1200, 2.5)], BELOW, FOR_S, NOON + timedelta(seconds=1200))
    assert found == (EndReason.IDLE, "GPU utilisation 2.5 %, under 10 % since 12:00 UTC")


def test_one_busy_sample_begins_the_count_anew() -> None:
    assert after(1300, at(0, 3.0), at(100, 10.0), at(200, 3.0), at(1300, 3.0)) is None
    assert after(1400, at(0, 3.0), at(100, 10.0), at(200, 3.0), at(1400, 3.0)) is EndReason.IDLE


def test_one_sample_is_no_row() -> None:
    assert after(1200, at(0, 0.0)) is None


def test_unknown_is_not_zero() -> None:
    assert after(2000, *(at(second, None) for second in range(0, 2001, 10))) is None


def test_where_nobody_looked_for_the_whole_span_the_count_begins_anew() -> None:
    """It may have worked while gpuwatch was down."""
    assert after(7210, at(0, 3.0), at(7200, 3.0), at(7210, 3.0)) is None
    assert after(1210, at(0, 3.0), at(1200, 3.0), at(1210, 3.0)) is EndReason.IDLE


def test_samples_from_a_clock_that_was_ahead_do_not_count() -> None:
    assert after(100, at(-10, 3.0), at(5000, 3.0)) is None


percents = st.one_of(st.none(), st.floats(0, 100, allow_nan=False))
steps = st.lists(st.tuples(st.integers(1, 900), percents), min_size=1, max_size=40)


def _samples(looks: list[tuple[int, float | None]]) -> list[UtilisationSample]:
    second, found = 0, []
    for step_s, percent in looks:
        second += step_s
        found.append(at(second, percent))
    return found


@given(steps)
def test_it_is_idle_only_if_every_known_sample_of_the_span_is_low(looks: list[tuple[int, float | None]]) -> None:
    samples = _samples(looks)
    now = samples[-1].at
    known = [(now - sample.at, sample.percent) for sample in samples if sample.percent is not None]
    row_s = []
    for age, percent in reversed(known):
        if percent >= BELOW:
            break
        row_s.append(age.total_seconds())
    # polls are at most 900 s apart here, so there are no gaps
    expected = len(row_s) >= 2 and row_s[-1] >= FOR_S
    assert (idle_cause(samples, BELOW, FOR_S, now) is not None) is expected


@given(steps, st.sets(st.integers(1, 20_000), max_size=20))
def test_looks_that_reported_nothing_change_nothing(looks: list[tuple[int, float | None]], unknown: set[int]) -> None:
    samples = _samples(looks)
    now = samples[-1].at
    more = sorted([*samples, *(at(second, None) for second in unknown)], key=lambda one: one.at)
    assert idle_cause(more, BELOW, FOR_S, now) == idle_cause(samples, BELOW, FOR_S, now)
    assert mean_utilisation(more, FOR_S, now) == mean_utilisation(samples, FOR_S, now)


@given(steps)
def test_an_average_lies_between_what_was_measured(looks: list[tuple[int, float | None]]) -> None:
    samples = _samples(looks)
    mean = mean_utilisation(samples, FOR_S, samples[-1].at)
    if mean is not None:
        known = [sample.percent for sample in samples if sample.percent is not None]
        assert min(known) - 1e-9 <= mean <= max(known) + 1e-9


def test_an_average_needs_the_whole_span() -> None:
    now = NOON + timedelta(seconds=1200)
    assert mean_utilisation([at(1, 10.0), at(1200, 30.0)], FOR_S, now) is None
    assert mean_utilisation([at(0, 10.0), at(1200, 30.0)], FOR_S, now) == 20.0
    assert mean_utilisation([at(-900, 99.0), at(0, 10.0), at(600, None), at(1200, 30.0)], FOR_S, now) == 20.0


@pytest.mark.parametrize(("percent", "dollars"), [(15, "26.67"), (70, "5.71"), (90, "4.44"), (100, "4.00")])
def test_what_a_useful_hour_costs_at_four_dollars(percent: float, dollars: str) -> None:
    assert useful_usd_gpu_hour(Decimal("4.00"), float(percent)) == Decimal(dollars)


def test_no_use_has_no_useful_hour() -> None:
    assert useful_usd_gpu_hour(Decimal("4.00"), 0.0) is None
    assert useful_usd_gpu_hour(Decimal("4.00"), float("nan")) is None


def test_what_is_wasted_is_what_did_not_work() -> None:
    assert wasted_microusd(10_000_000, 15.0) == 8_500_000
    assert wasted_microusd(10_000_000, 0.0) == 10_000_000
    assert wasted_microusd(10_000_000, 120.0) == 0


def test_the_idle_time_starts_at_the_oldest_low_sample() -> None:
    cause = idle_cause([at(0, 90), at(60, 3), at(120, 2), at(180, 1)], 10, 120, NOON + timedelta(seconds=180))
    assert cause == (EndReason.IDLE, "GPU utilisation 1 %, under 10 % since 12:01 UTC")
