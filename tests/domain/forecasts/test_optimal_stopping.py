"""The waiting rule: correct for known answers, honest if waiting gains nothing, and without knowledge of the future."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gpuwatch.domain.forecasts import optimal_stopping
from gpuwatch.domain.forecasts.advice import (
    Advice,
    BuyVerdict,
    advise,
    hours_until,
    limit_changes,
    met_within,
    reached,
    saving_of,
    why_too_little_data,
)
from gpuwatch.domain.history.price_rows import PriceRow, canonical_gpu
from gpuwatch.domain.history.price_series import PriceSeries, series_of
from gpuwatch.domain.history.row_conversion import history_of_rows
from gpuwatch.storage.history.imports.price_file_rows import read_rows
from tests.checkout import TESTS
from tests.domain.forecasts.outcome_reference import Poll, outcome
from tests.drawn import examples

HOURS = 24


def series(prices: Sequence[float | None], polled: Sequence[bool] | None = None) -> PriceSeries:
    lows = [None if price is None else round(price * 1e6) for price in prices]
    return PriceSeries(first_hour=480_000, lows=lows, polled=polled or [True] * len(lows), source="a test")


def path(prices: Sequence[float | None]) -> optimal_stopping.PricePath:
    return optimal_stopping.price_path_of(series(prices))


def independent(count: int, seed: int = 1) -> list[float]:
    return list(np.random.default_rng(seed).uniform(1, 3, count))


def plateaus(count: int, mean_h: float, seed: int) -> list[float]:
    """Prices that stay for hours or days, then change."""
    random, prices = np.random.default_rng(seed), []
    while len(prices) < count:
        prices += [float(2 * np.exp(0.15 * random.normal()))] * int(random.exponential(mean_h) + 1)
    return prices[:count]


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_of_independent_prices_it_finds_the_textbook_s_limits() -> None:
    """With uniform prices, the limit with k draws left is the expected cost of the rule for k - 1 draws."""
    prices = path(independent(20_000))
    limits = optimal_stopping.fit_limits(prices, prices.prices, 5, miss=3.0)
    value, known = 2.0, []
    for _ in range(5):
        known.append(value)
        below = (value - 1) / 2
        value = below * (1 + value) / 2 + (1 - below) * value
    assert limits[1:] == pytest.approx(known, abs=0.08)  # costs are flat around the best limit …
    costs = optimal_stopping.rule_costs(prices, prices.prices, limits, miss=3.0)
    assert np.nanmean(costs) == pytest.approx(value, abs=0.01)  # … and these are
    assert limits[0] == np.inf


@given(st.lists(st.sampled_from([1.0, 1.5, 2.0, None]), min_size=1, max_size=60), st.integers(1, 20))
def test_a_limit_never_falls_as_the_deadline_nears(prices: list[float | None], hours: int) -> None:
    limits = optimal_stopping.fit_limits(path(prices), path(prices).prices, hours, miss=3.0)
    assert all(longer <= shorter for shorter, longer in pairwise(limits))
    assert len(limits) == hours + 1


@given(st.lists(st.sampled_from([1.0, 1.2, 1.5, 2.0, None]), min_size=8, max_size=40), st.integers(1, 5))
def test_following_a_rule_costs_what_a_walk_hour_by_hour_costs(prices: list[float | None], hours: int) -> None:
    whole = path(prices)
    limits = [np.inf, *sorted(np.random.default_rng(hours).uniform(0.9, 2.1, hours), reverse=True)]
    costs = optimal_stopping.rule_costs(whole, whole.prices, limits, miss=9.0)
    for start in range(len(prices) - hours):
        assert costs[start] == walked(prices, start, limits)


def walked(prices: Sequence[float | None], start: int, limits: Sequence[float]) -> float:
    hours = len(limits) - 1
    for left in range(hours, -1, -1):
        price = prices[start + hours - left]
        if price is not None and price <= limits[left]:
            return price
    return 9.0


@settings(deadline=None, max_examples=examples(20))
@given(st.integers(0, 99), st.integers(0, 300))
def test_what_comes_later_changes_nothing_before_it(seed: int, cut: int) -> None:
    """The level of an hour, and a rule's decision then, do not depend on later hours."""
    prices = plateaus(400, 20, seed)
    level = optimal_stopping.level_of(path(prices))
    assert np.array_equal(level[: cut + 1], optimal_stopping.level_of(path(prices[: cut + 1])), equal_nan=True)


def test_a_stretch_is_judged_by_a_rule_that_knows_of_the_past_alone() -> None:
    prices = [2.0] * 300
    prices[250:252] = [0.5, 0.5]  # in the last stretch
    found = optimal_stopping.evaluate_rule(path(prices), None, HOURS, miss=2.0)
    assert found.rule.limits[HOURS] == 0.5
    assert not any(found.waits(slice(start, start + 50)).any() for start in (100, 150, 200))
    assert np.isnan(found.costs[:50]).all()


def test_it_waits_for_the_nightly_fall_and_saves_it() -> None:
    prices = [2.0 if hour % 24 < 18 else 1.0 for hour in range(24 * 30)]
    found = optimal_stopping.best_stopping_rule(path(prices), HOURS, miss=2.0)
    assert found.rule.limits[HOURS] * (1.0 if not found.rule.relative else 2.0) < 2.0
    saving = saving_of(found, 480_000, HOURS)
    assert saving is not None
    assert saving.share == pytest.approx(0.5, abs=0.01)
    assert saving.low == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_where_the_market_moved_up_it_does_not_wait_for_what_is_gone(seed: int) -> None:
    """A step up by half: correcting a wrong yardstick costs little."""
    noise = np.random.default_rng(seed).uniform(-0.02, 0.02, 1000)
    prices = np.where(np.arange(1000) < 500, 1.0, 1.5) * (1 + noise)
    found = optimal_stopping.best_stopping_rule(path(list(prices)), 48, miss=2.0)
    known = ~np.isnan(found.costs)
    assert found.costs[known].sum() <= found.at_once[known].sum() * 1.03


def test_a_price_that_has_just_come_up_is_not_taken_for_one_that_stays() -> None:
    """Until it has been watched for as long as the deadline is away; then it accepts any price."""
    limits = {
        hours: optimal_stopping.fit_limits(found := path([1.0] * 300 + [1.5] * hours), found.prices, HOURS, miss=1.5)[
            HOURS
        ]
        for hours in (10, 40)
    }
    assert limits == {10: 1.0, 40: 1.5}
    new = advise(series([1.0] * 300 + [1.5] * 10), HOURS)
    assert (new.verdict, new.limit_usd) == (BuyVerdict.EITHER, 1.0)


def test_nothing_is_bought_above_the_cap() -> None:
    prices = path([2.0, 1.5, 1.0] * 200)
    found = optimal_stopping.best_stopping_rule(prices, HOURS, miss=1.2, cap=1.2)
    assert np.nanmax(found.costs) <= 1.2
    assert np.nanmax(found.at_once) <= 1.2


def test_where_waiting_costs_more_than_buying_at_once_it_says_so() -> None:
    """Prices rise hour by hour: every wait costs."""
    advice = advise(series(list(np.linspace(1, 2, 600))), HOURS)
    assert advice.verdict is BuyVerdict.BUY_NOW
    assert set(advice.limits_usd) == {None}


# --- out of sample ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mean_h", [6, 24])
def test_on_days_it_never_saw_it_is_cheaper_than_buying_at_once(mean_h: float) -> None:
    shares = []
    for seed in range(12):
        prices = plateaus(1000, mean_h, seed)
        found = optimal_stopping.best_stopping_rule(path(prices[:700]), HOURS, miss=max(prices[:700]))
        whole = path(prices)
        signal = whole.prices / optimal_stopping.level_of(whole) if found.rule.relative else whole.prices
        held = slice(700, 1000 - HOURS)
        costs = optimal_stopping.rule_costs(whole, signal, found.rule.limits, miss=max(prices))[held]
        shares.append(1 - costs.mean() / whole.prices[held].mean())
    assert np.mean(shares) > 0.02


@pytest.mark.slow
def test_where_nothing_can_be_gained_the_interval_seldom_says_otherwise() -> None:
    """Random walks over two months: on average prices do not change. By chance 2.5 % may look like a gain."""
    wrong = 0
    for seed in range(50):
        walk = 2 * np.exp(np.cumsum(np.random.default_rng(seed).normal(0, 0.01, 1500)))
        saving = saving_of(
            optimal_stopping.best_stopping_rule(path(list(walk)), HOURS, miss=float(walk.max())), 480_000, HOURS
        )
        wrong += saving is not None and saving.low > 0
    assert wrong <= 4


# --- the parts of an answer -------------------------------------------------------------------------------------------


def test_how_often_a_price_was_met() -> None:
    prices = path([2.0, 2.0, 2.0, 1.0] * 50)
    assert met_within(prices, 1.0, 3) == 1.0
    assert met_within(prices, 1.0, 1) == pytest.approx(0.5)
    assert [reached(prices, 1, share) for share in (0.4, 0.49, 0.95)] == [1.0, 1.0, 2.0]
    waited, met = hours_until(np.array([False, True, False]))
    assert (waited.tolist(), met.tolist()) == ([1.0, 0.0, 0.0], [True, True, False])


@given(st.lists(st.sampled_from([1.0, 1.2, 1.5, None]), min_size=5, max_size=80), st.integers(0, 9))
def test_a_price_that_is_met_oftener_is_never_lower(prices: list[float | None], hours: int) -> None:
    found = [reached(path(prices), hours, share) for share in (0.2, 0.5, 0.8)]
    known = [price for price in found if price is not None]
    assert known == sorted(known)
    assert None not in found[: len(known)]


@pytest.mark.parametrize(
    ("given_", "hours", "reported"),
    [
        (series([2.0] * 71), 2, "71 hours"),
        (series([2.0] * 100), 26, "4 times the deadline, 104"),
        (series([2.0] * 100 + [None] * 301, [True] * 100 + [False] * 301), 2, "100 of 401"),
        (series([None] * 100), 2, "no offers in that time"),
        (series([]), 2, "were not polled in that time"),
    ],
)
def test_too_little_is_said(given_: PriceSeries, hours: int, reported: str) -> None:
    assert reported in (why_too_little_data(given_, hours) or "")


def test_enough_is_enough() -> None:
    assert why_too_little_data(series([2.0] * 100), 25) is None


def test_a_flat_market_says_buy_now() -> None:
    advice = advise(series([2.0] * 400), 48)
    assert (advice.verdict, advice.now_usd, advice.saving) == (BuyVerdict.BUY_NOW, 2.0, None)


def test_where_waiting_paid_and_the_price_is_high_it_says_wait() -> None:
    prices = [2.0 if hour % 24 < 18 else 1.0 for hour in range(24 * 30 + 4)]
    advice = advise(series(prices), 24)
    assert advice.verdict is BuyVerdict.WAIT
    assert advice.limit_usd is not None
    assert 1.0 <= advice.limit_usd < 2.0
    assert shown(advice)[-1] == (0, None)


def test_nothing_on_offer_now_says_wait() -> None:
    advice = advise(series([2.0] * 400 + [None]), 48)
    assert (advice.verdict, advice.now_usd) == (BuyVerdict.WAIT, None)


def test_of_many_limits_a_handful_is_shown() -> None:
    advice = advise(series(independent(2000)), 48)
    rows = shown(advice)
    assert 3 <= len(rows) <= 9
    assert (rows[0][0], rows[-1]) == (48, (0, None))


def shown(advice: Advice) -> list[tuple[int, float | None]]:
    return list(limit_changes(advice))


# --- the public series ------------------------------------------------------------------------------------------------

PRIME = TESTS / "recorded" / "price-history" / "primeintellect-best-2025-10-19_11-03.csv.gz"


@pytest.fixture(scope="module")
def public() -> dict[tuple[str, int], PriceSeries]:
    """The lowest price on demand of each GPU × count, at an aggregator."""
    groups: dict[tuple[str, int], list[PriceRow]] = {}
    for row in read_rows(PRIME).rows:
        if not row.spot:
            groups.setdefault((canonical_gpu(row.gpu_wire, row.gpu_memory_gib)[0], row.gpu_count), []).append(row)
    return {
        key: series_of(
            history_of_rows(rows, "a file"), lambda _, interval, n=key[1]: interval.machine_microusd_hour / n
        )  # type: ignore[misc]
        for key, rows in groups.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("hours", [12, 48])
def test_out_of_sample_the_rule_that_is_followed_never_costs_more_than_the_fixed_median(
    public: dict[tuple[str, int], PriceSeries], hours: int
) -> None:
    """Fitted on the first 60 % of each series, again every other day, from every hour with a covered deadline."""
    against_median = []
    for found in public.values():
        begin = int(len(found.lows) * 0.6)
        first = structs.replace(found, lows=found.lows[:begin], polled=found.polled[:begin])
        if why_too_little_data(first, hours) is None:
            whole = optimal_stopping.price_path_of(found)
            median = [np.inf, *[float(np.nanmedian(whole.prices[:begin]))] * hours]
            fixed = optimal_stopping.rule_costs(whole, whole.prices, median, None)
            ours = followed(whole, begin, hours)
            known = ~np.isnan(ours) & ~np.isnan(fixed)
            if known.any():
                against_median.append(ours[known].mean() / fixed[known].mean() - 1)
    assert len(against_median) > 40
    assert max(against_median) < 1e-9
    assert np.mean(against_median) < -0.0001


def followed(whole: optimal_stopping.PricePath, begin: int, hours: int) -> np.ndarray:
    level, costs = optimal_stopping.level_of(whole), np.full(len(whole.prices), np.nan)
    for at in range(begin, len(costs), 48):
        past = optimal_stopping.PricePath(prices=whole.prices[:at], polled=whole.polled[:at])
        rule = optimal_stopping.best_stopping_rule(past, hours).rule
        signal = whole.prices / level if rule.relative else whole.prices
        costs[at : at + 48] = optimal_stopping.rule_costs(whole, signal, rule.limits, None)[at : at + 48]
    return costs


@given(
    st.lists(st.sampled_from([1.0, 1.5, 2.0, None]), min_size=8, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.integers(1, 6),
)
def test_an_hourly_wait_comes_to_what_the_reference_says(
    prices: list[float | None], polled: list[bool], hours: int
) -> None:
    """Each hour with a poll is one poll of the reference, valid for an hour."""
    prices = [price if seen else None for price, seen in zip(prices, polled, strict=False)]
    whole = optimal_stopping.price_path_of(series(prices, polled[: len(prices)]))
    limits = [np.inf, *[1.0] * hours]
    costs = optimal_stopping.rule_costs(whole, whole.prices, limits, None)
    polls = [
        Poll(hour * 3600.0, price, price if price is not None and price <= 1.0 else None)
        for hour, (price, seen) in enumerate(zip(prices, polled, strict=False))
        if seen
    ]
    for start, poll in enumerate(polls):
        expected = outcome(polls, start, hours * 3600.0, lasts_s=0.0)
        cost = costs[int(poll.at_s // 3600)]
        assert np.isnan(cost) if expected.paid is None else cost == expected.paid


def test_what_is_said_of_a_wait_is_about_starts_at_prices_like_the_one_now() -> None:
    """Half of the time it is 1 and never falls; half of the time it is 2 and falls to 1.8 on a third of the days."""
    low, high = [1.0] * 24, [2.0] * 20 + [1.8] * 4
    prices = [price for day in range(60) for price in (low if day < 30 else high if day % 3 == 0 else [2.0] * 24)]
    advice = advise(series(prices), 12)
    assert advice.now_usd == 2.0
    assert dict(advice.reached)[0.8] == 2.0, "1.0 was met by half of all starts, and by none that began at 2.0"
    assert advice.reached_starts < len(prices) / 2


def test_a_single_wait_varies_more_than_the_mean_of_many() -> None:
    found = optimal_stopping.best_stopping_rule(path(plateaus(1000, 12, 3)), HOURS)
    saving = saving_of(found, 480_000, HOURS)
    assert saving is not None
    assert saving.low < saving.mean_low < saving.mean_high < saving.high <= 1.0
    assert abs(saving.share) <= abs(saving.mean_low + saving.mean_high) / 2 + 1e-9, "shrunk, never stretched"


def test_few_independent_waits_ask_for_the_extremes_seen() -> None:
    """Ten waits of a day, of which one has an hour or five at twice the price: the range contains that cost."""
    once, costs = np.full(240, 1.0), np.full(240, 0.9)
    costs[100:105] = 2.0
    rule = optimal_stopping.StoppingRule(limits=(np.inf, 1.0), relative=False)
    kind, always = optimal_stopping.RuleKind.MEDIAN, np.ones(240, bool)
    found = optimal_stopping.BestRule(kind=kind, rule=rule, costs=costs, at_once=once, waits=always, missed=~always)
    saving = saving_of(found, first_hour=0, hours=24)
    assert saving is not None
    assert saving.low <= -1.0


def test_with_too_few_days_to_tell_the_fixed_median_is_followed() -> None:
    found = optimal_stopping.best_stopping_rule(path([2.0 if hour % 24 < 18 else 1.0 for hour in range(48)]), HOURS)
    assert (found.kind, set(found.rule.limits[1:])) == (optimal_stopping.RuleKind.MEDIAN, {2.0})
