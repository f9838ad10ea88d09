"""A trend over years: what it computes, what makes it unsure, and how it did on later prices."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.evidence.trend import CUTS, later_prices
from gpuwatch.app.forecasts.trend import public_prices
from gpuwatch.domain.forecasts.long_trend import QuarterPrice, parse_quarter, price_trend, quarter_text
from tools.long_prices import TARGET, long_prices


def a_series(usd: list[float], *, gpu: str = "X", source: str = "s", start: int = 8000) -> list[QuarterPrice]:
    return [QuarterPrice(source, False, gpu, start + at, price) for at, price in enumerate(usd)]


def test_a_price_that_loses_a_tenth_each_year_falls_ten_percent_a_year() -> None:
    trend = price_trend(a_series([3 * 0.9 ** (at / 4) for at in range(9)]), ("X",), spot=False)
    assert trend is not None
    assert trend.a_year == pytest.approx(-0.1)
    assert (trend.low, trend.high) == (pytest.approx(-0.1), pytest.approx(-0.1))  # without any spread
    assert (trend.quarters, trend.changes, trend.series) == (8, 8, 1)


def test_levels_of_sources_do_not_matter_and_a_gap_counts_its_quarters() -> None:
    two = [*a_series([12.0, 12.0, 6.0]), *a_series([2.0, 2.0], source="t", start=8001)]
    trend = price_trend([*two, QuarterPrice("t", False, "X", 8004, 2.0)], ("X",), spot=False)
    assert trend is not None
    assert (trend.quarters, trend.sources) == (2 + 3, ("s", "t"))
    assert trend.drift == pytest.approx(math.log(0.5) / 5)


def test_a_card_that_never_moved_is_as_unsure_as_all_cards_are() -> None:
    calm = a_series([1.0] * 9)
    alone = price_trend(calm, ("X",), spot=False)
    assert alone is not None
    assert (alone.low, alone.high) == (0, 0)
    beside = price_trend([*calm, *a_series([2.0, 1.0, 2.0, 1.0, 2.0], gpu="Y")], ("X",), spot=False)
    assert beside is not None
    assert beside.a_year == 0
    assert beside.low < -0.2 < 0.2 < beside.high


def test_fewer_than_four_quarters_are_no_trend() -> None:
    assert price_trend(a_series([1.0, 1.0, 1.0, 1.0]), ("X",), spot=False) is None
    assert price_trend(a_series([1.0] * 9), ("Y",), spot=False) is None
    assert price_trend(a_series([1.0] * 9), ("X",), spot=True) is None


def test_quarters_are_read_and_written() -> None:
    assert quarter_text(parse_quarter("2024Q3")) == "2024Q3"
    assert parse_quarter("2025Q1") - parse_quarter("2024Q4") == 1
    with pytest.raises(ValueError, match="such as 2024Q3"):
        parse_quarter("2024Q5")


def test_nineteen_of_twenty_intervals_hold_the_true_drift() -> None:
    drawn, held = random.Random(20261130), 0
    for _ in range(400):
        trend = price_trend(a_series(_walk(drawn, 13)), ("X",), spot=False)
        assert trend is not None
        held += trend.low <= math.expm1(4 * -0.03) <= trend.high
    assert 0.92 <= held / 400 <= 0.98


def _walk(drawn: random.Random, length: int) -> list[float]:
    logs = [0.0]
    for _ in range(length - 1):
        logs.append(logs[-1] - 0.03 + drawn.gauss(0, 0.1))
    return [math.exp(log) for log in logs]


# --- the public series ------------------------------------------------------------------------------------------------


def test_the_file_is_what_the_recorded_series_give() -> None:
    assert TARGET.read_text(encoding="utf-8") == long_prices()


def test_each_price_names_its_page() -> None:
    rows = [line for line in TARGET.read_text().splitlines() if not line.startswith(("#", "source,"))]
    assert len(rows) == len(public_prices())
    assert all(row.rpartition(",")[2].startswith("https://") for row in rows)


def test_published_price_cuts_come_out() -> None:
    """AWS announced up to 45 % less for P5 and P4 in June 2025: 98.32 → 55.04 and 32.77 → 21.96 for a machine."""
    for gpu, cut in (("H100 SXM", 0.44), ("A100 SXM 40GB", 0.33), ("A100 SXM 80GB", 0.33), ("T4", 0.0)):
        prices = sorted(
            (price for price in public_prices() if (price.source, price.gpu) == ("aws", gpu)),
            key=lambda price: price.quarter,
        )
        assert 1 - prices[-1].usd_gpu_hour / prices[0].usd_gpu_hour == pytest.approx(cut, abs=0.005), gpu


def test_held_out_prices_are_in_their_intervals_as_often_as_the_documents_say() -> None:
    counted = [[one.is_within for one in later_prices(cut)] for cut in CUTS]
    assert [(sum(one), len(one)) for one in counted] == [(12, 12), (16, 17), (9, 12)]
