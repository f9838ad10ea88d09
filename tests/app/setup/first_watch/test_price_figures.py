"""The figures beside the questions of `gpuwatch init`."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpuwatch.app.setup.first_watch.market_reader import public_lows
from gpuwatch.app.setup.first_watch.price_figures import (
    LowPrice,
    PriceFigures,
    limit_text,
    low_prices,
    recorded_text,
    rounded_up,
    today_text,
)
from tools.recorded_lows import TARGET, recorded_lows

RATES = {"vastai": Decimal("0.20"), "runpod": Decimal(0)}
TITLES = {"vastai": "vast.ai", "runpod": "RunPod"}
PRICES = ("1.00", "0.90", "1.10", "0.95")
DAYS = low_prices(("vastai", f"2026-11-0{day}", Decimal(price)) for day, price in enumerate(PRICES, 1))
OWN = PriceFigures(today=(LowPrice("vastai", Decimal("1.50")),), recorded=DAYS, source="your own history", is_own=True)


def test_the_own_history_suggests_what_half_of_its_days_reached() -> None:
    assert OWN.suggested(RATES) == Decimal("1.14")  # 0.95 on the bill: two of four days were at or under it
    assert (
        limit_text(OWN, Decimal("1.14"), RATES) == "today's cheapest is 58 % above it; reached on 2 of 4 recorded days"
    )


def test_public_prices_far_from_todays_suggest_todays() -> None:
    public = PriceFigures(today=OWN.today, recorded=DAYS, source="public prices")
    assert public.suggested(RATES) == Decimal("1.80")
    near = PriceFigures(today=(LowPrice("vastai", Decimal("1.05")),), recorded=DAYS)
    assert near.suggested(RATES) == Decimal("1.14")


def test_without_a_market_the_recorded_prices_suggest() -> None:
    silent = PriceFigures(recorded=DAYS, faults=("vast.ai: no answer",))
    assert silent.suggested(RATES) == Decimal("1.14")
    assert today_text(silent, RATES, TITLES) == "today's price is unknown"
    assert limit_text(silent, Decimal("1.20"), RATES) == "reached on 3 of 4 recorded days"
    assert PriceFigures().suggested(RATES) is None
    assert today_text(PriceFigures(), RATES, TITLES) == "not on sale today"


def test_the_cheapest_is_the_one_after_the_reserve() -> None:
    figures = PriceFigures(today=(LowPrice("vastai", Decimal("1.00")), LowPrice("runpod", Decimal("1.10"))))
    assert today_text(figures, RATES, TITLES) == "from $1.10/GPU-h today at RunPod, vast.ai $1.20"
    none = {"vastai": Decimal(0), "runpod": Decimal(0)}
    assert today_text(figures, none, TITLES) == "from $1.00/GPU-h today at vast.ai, RunPod $1.10"
    only_vast = PriceFigures(today=figures.today[:1])
    assert today_text(only_vast, RATES, TITLES) == "from $1.20/GPU-h today at vast.ai ($1.00 on the bill)"


def test_the_rank_counts_the_cheaper_days() -> None:
    assert recorded_text(OWN, RATES) == (
        "lowest of 4 recorded days: $1.08 to $1.32 (your own history); 4 of them cheaper than today"
    )
    cheap = PriceFigures(today=(LowPrice("vastai", Decimal("0.50")),), recorded=DAYS, source="your own history")
    assert recorded_text(cheap, RATES).endswith("; none cheaper than today")


@pytest.mark.parametrize(("price", "shown"), [("1.1304", "1.14"), ("1.13", "1.13"), ("0.0211", "0.022")])
def test_a_suggestion_is_never_under_the_price_it_stands_for(price: str, shown: str) -> None:
    assert rounded_up(Decimal(price)) == Decimal(shown)


def test_the_public_prices_are_those_of_the_recorded_series() -> None:
    """`python -m tools.recorded_lows` writes them."""
    assert TARGET.read_text(encoding="utf-8") == recorded_lows()


def test_public_prices_are_of_one_market() -> None:
    """Two markets of different months are no series."""
    lows = public_lows(["H100 SXM", "H100 PCIe"])
    assert {low.provider for low in lows} == {"vastai"}
    assert len({low.day for low in lows}) == 5
    assert public_lows(["B200 SXM"])[0].provider == "primeintellect"
    assert public_lows(["GT 710"]) == ()
