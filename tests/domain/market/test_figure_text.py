"""Figures as text: no float noise, no negative zero, no plural of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.figure_text import count_text, decimal_text, duration_text, number_text, percent_text


def test_counts_have_their_plural() -> None:
    assert [count_text(n, "period") for n in (0, 1, 1200)] == ["0 periods", "1 period", "1,200 periods"]
    assert count_text(2, "watch", "watches") == "2 watches"


@pytest.mark.parametrize(
    ("value", "text"), [(0.416667, "0.417"), (12345.6, "12,346"), (-0.0, "0"), (1.0, "1"), (None, "–"), (25.04, "25")]
)
def test_numbers_are_rounded(value: float | None, text: str) -> None:
    assert number_text(value) == text


@given(st.floats(-1e9, 1e9), st.integers(0, 3))
def test_no_zero_has_a_sign(value: float, decimals: int) -> None:
    texts = [decimal_text(value, decimals), decimal_text(value, decimals, "+"), percent_text(value, decimals)]
    assert not any(text.startswith(("-", "+")) and not any(digit in text for digit in "123456789") for text in texts)


def test_lengths_of_time_are_in_one_unit() -> None:
    assert [duration_text(seconds) for seconds in (25, 3600, 7200, 3 * 86_400)] == ["0 min", "60 min", "2.0 h", "3.0 d"]
