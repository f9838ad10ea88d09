"""How many waits a mean of `advise` covers, and their outcomes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.forecasts import optimal_stopping
from gpuwatch.domain.forecasts.advice import advise
from tests.domain.forecasts.outcome_reference import Poll, outcome
from tests.domain.forecasts.test_optimal_stopping import series
from tests.drawn import examples


@given(
    st.lists(st.sampled_from([2.0, 2.5, 3.0, 4.0, None]), min_size=120, max_size=240),
    st.lists(st.booleans(), min_size=240, max_size=240),
    st.sampled_from([3, 8]),
)
@settings(max_examples=examples(20), deadline=None)
def test_the_waits_behind_a_mean_are_bought_or_missed_or_unknown_as_the_reference_says(
    prices: list[float | None], polled: list[bool], hours: int
) -> None:
    """Below its limits only at times; its median is met only by the 2.0 at the beginning."""
    flags = [True] * 24 + [seen or at % 3 == 0 for at, seen in enumerate(polled, 24)]
    lows = [2.0] * 24 + [price if seen else None for price, seen in zip(prices, flags[24:], strict=False)]
    whole = optimal_stopping.price_path_of(series(lows, flags[: len(lows)]))
    found = optimal_stopping.best_stopping_rule(whole, hours, is_simple=True)
    polls = [Poll(at * 3600.0, low, None) for at, low in enumerate(lows) if flags[at]]
    kinds = {int(poll.at_s // 3600): outcome(polls, n, hours * 3600.0, 0.0).kind for n, poll in enumerate(polls)}
    for at in np.nonzero(found.waits)[0]:
        assert np.isnan(found.costs[at]) == (kinds[at] == "unknown")
        assert not found.missed[at] or kinds[at] == "missed", "a miss by its limits is one without any limit, too"
    assert not (found.missed & np.isnan(found.costs)).any()


def test_a_saving_says_how_many_waits_are_behind_it() -> None:
    """3.0 from noon on, 2.0 in the morning, no offers at night, no polls on every fifth day."""
    day = [2.0] * 6 + [3.0] * 12 + [None] * 6
    lows = [None if (at // 24) % 5 == 4 else low for at, low in enumerate(day * 40 + [2.0] * 6 + [3.0] * 2)]
    flags = [(at // 24) % 5 != 4 for at in range(len(lows))]
    advice = advise(series(lows, flags), 8)
    saving = advice.saving
    assert saving is not None
    assert saving.starts == saving.hours + saving.unknown
    assert saving.missed > 0, "a wait from the afternoon on ends at night"
    assert saving.unknown > 0, "or at midnight of a day that nobody saw, or it is still ahead"
    assert saving.missed < saving.hours
