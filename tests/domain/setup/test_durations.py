"""Durations as people write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.setup.durations import MAX_S, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("6h", 21_600),
        ("2d", 172_800),
        ("1h30m", 5_400),
        ("1d2h3m4s", 93_784),
        ("0s", 0),
        ("0.5s", 0.5),
        ("1.5h", 5_400),
        (" 15M ", 900),
        ("3650d", MAX_S),
    ],
)
def test_a_duration_is_numbers_with_units_largest_first(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "15", "m", "15 m", "-5m", "+5m", "5m5m", "30s1h", "1w", "1e3s", "nan", "inf", ".5s", "1.s", "5µs", "٣m"],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a duration such as 90s, 15m, 6h, 2d or 1h30m$"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3651d", "999999999999d", "3650d1s"])
def test_more_than_ten_years_is_a_slip(text: str) -> None:
    with pytest.raises(ValueError, match="at most 3650d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-3, "0s"), (90, "1m30s"), (5_400, "1h30m"), (86_400, "1d"), (0.25, "0.25s"), (600, "10m")],
)
def test_a_duration_is_shown_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, round(MAX_S * 1000)))
def test_what_is_shown_is_read_back_to_the_millisecond(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.0005)


@given(st.text(max_size=30))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= parse_duration(text) <= MAX_S
