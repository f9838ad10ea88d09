"""What `advise` promises: no more than the history holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.advice import BuyVerdict, advise, reached
from tests.domain.forecasts.test_optimal_stopping import path, series
from tests.drawn import examples


@given(
    st.lists(st.sampled_from([1.0, 1.2, 1.36, 1.5, 2.0]), min_size=80, max_size=160),
    st.sampled_from([0.9, 1.0, 1.01, 1.36]),
    st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_no_saving_exceeds_what_the_lowest_price_leaves(prices: list[float], now: float, falls: bool) -> None:
    """The lowest price ever seen is bought, and no limit is below the history."""
    whole = [price * (1 - at / 400 if falls else 1) for at, price in enumerate(prices)] + [now]
    advice = advise(series(whole), 12)
    assert advice.now_usd is not None
    lowest = min(round(price * 1e6) / 1e6 for price in whole)
    assert all(limit is None or limit >= lowest - 1e-9 for limit in advice.limits_usd)
    if advice.now_usd <= lowest:
        assert advice.verdict is BuyVerdict.BUY_NOW
    if advice.saving is not None:
        most = 1 - lowest / advice.now_usd
        assert max(advice.saving.share, advice.saving.high, advice.saving.mean_high) <= most + 1e-9
    for _, price in advice.reached:
        assert price is not None
        assert lowest - 1e-9 <= price <= advice.now_usd


def test_the_lowest_price_ever_is_no_reason_to_wait() -> None:
    """From 1.56 down to 1.00 in days: relative to the week even 1.00 is dear, but nothing was ever cheaper."""
    days = [1.56, 1.5, 1.44, 1.56, 1.36, 1.3, 1.4, 1.2, 1.3, 1.16, 1.1, 1.2, 1.05, 1.1, 1.02]
    prices = [day * (1 if hour % 6 else 0.64) for day in days for hour in range(24)]
    prices = [max(price, 1.0) for price in prices] + [1.0]
    advice = advise(series(prices), 12)
    assert (advice.now_usd, advice.verdict) == (1.0, BuyVerdict.BUY_NOW)
    assert advice.saving is None or advice.saving.share <= 0


def test_starts_at_or_under_a_price_do_not_say_how_often_it_is_reached() -> None:
    """It falls to 1 on every second day, and never soon after it rose: most starts near 1.05 were already at 1."""
    days = [[1.05] * 20 + [1.0] * 4, [1.05] * 24] * 20
    path_ = path([price for day in days for price in day] + [1.05] * 30)
    now = 1.05
    near = np.ones(len(path_.prices), bool)
    old = reached(path_, 6, 0.5, near)
    new = reached(path_, 6, 0.5, near, now)
    assert new == 1.05, "after 30 hours above it, it was reached within 6 hours in less than half of the cases"
    assert old is not None
