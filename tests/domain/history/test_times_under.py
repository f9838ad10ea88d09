"""How often a price was under a limit: an outage is no rise, and little history says nothing."""

from __future__ import annotations

import pytest

from gpuwatch.domain.history.past_lows import times_under
from gpuwatch.domain.history.price_series import PriceSeries

UNDER, OVER = 3_000_000, 3_000_001


def _series(text: str) -> PriceSeries:
    """One hour a letter: u under, o over, n polled without an offer, . not polled."""
    lows = [{"u": UNDER, "o": OVER}.get(letter) for letter in text]
    return PriceSeries(first_hour=0, lows=lows, polled=[letter != "." for letter in text], source="a test")


@pytest.mark.parametrize(
    ("past", "times"),
    [
        ("o" * 24, 0), ("u" * 24, 1), ("o" * 22 + "uu", 1), ("uo" * 12, 12), ("uun" * 8, 8), ("uu..uu" * 6, 1),
        ("o" * 23, None), ("." * 168, None), ("u" + "." * 100 + "o" * 23, 1),
    ],
)  # fmt: skip
def test_each_fall_under_the_limit_counts_once(past: str, times: int | None) -> None:
    assert times_under(_series(past), UNDER) == times
