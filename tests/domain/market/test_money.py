"""One formatter for money: prices with two to four decimals, amounts in cents, half-even, and exact numbers in JSON."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.json_view import number, usd_number
from gpuwatch.domain.market.money import above_text, amount_text, distinct_prices, dollars, price_text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("3.6", "3.60"),
        ("3", "3.00"),
        ("0.123456", "0.1235"),
        ("3.60004", "3.60"),
        ("0.00005", "0.00"),
        ("1E+2", "100.00"),
    ],
)
def test_a_price_has_two_to_four_decimals(amount: str, text: str) -> None:
    assert price_text(Decimal(amount)) == text


@given(st.integers(min_value=0, max_value=10**11))
def test_a_shown_price_is_within_half_a_hundredth_of_a_cent(microusd: int) -> None:
    amount = Decimal(microusd) / 10**6
    assert abs(Decimal(price_text(amount)) - amount) <= Decimal("0.00005")


@pytest.mark.parametrize(("amount", "text"), [(float("inf"), "Infinity"), (1e300, f"{Decimal.from_float(1e300):.2f}")])
def test_a_number_that_makes_no_sense_is_still_shown(amount: float, text: str) -> None:
    assert price_text(amount) == text


def test_a_column_of_prices_has_one_width() -> None:
    assert [price_text(Decimal(one), least=4) for one in ("3.6", "0.12345", "12")] == ["3.6000", "0.1234", "12.0000"]


def test_a_price_can_show_every_micro_dollar() -> None:
    assert price_text(Decimal("3.600001"), most=6) == "3.600001"


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0.00"), ("1234.5", "1,234.50"), ("0.125", "0.12"), ("0.135", "0.14"), ("-3", "-3.00"), ("0.004", "<0.01")],
)
def test_an_amount_is_shown_in_cents(amount: str, text: str) -> None:
    assert amount_text(Decimal(amount)) == text


def test_a_difference_shows_its_sign() -> None:
    assert [amount_text(Decimal(one), "+") for one in ("3", "-3", "-0.001")] == ["+3.00", "-3.00", ">-0.01"]


def test_an_upper_bound_is_rounded_up() -> None:
    assert amount_text(Decimal("20.000001"), rounding=ROUND_CEILING) == "20.01"


@pytest.mark.parametrize(
    ("amount", "text"), [("1234.5", "$1,234.50"), ("-3", "-$3.00"), ("0.001", "<$0.01"), ("0", "$0.00")]
)
def test_dollars_have_their_sign_in_front(amount: str, text: str) -> None:
    assert dollars(Decimal(amount)) == text


def test_a_comparison_shows_as_many_decimals_as_it_needs() -> None:
    assert above_text(Decimal("3.61"), Decimal("3.6")) == "3.61 > 3.60"
    assert above_text(Decimal("3.6001"), Decimal("3.6")) == "3.6001 > 3.6000"
    assert above_text(Decimal("3.6000001"), Decimal("3.6")) == "3.6000001 > 3.6"
    assert above_text(Decimal("3.60000001"), Decimal("3.6")) == "3.60000001 > 3.6"


def test_json_shows_exact_dollars() -> None:
    assert (usd_number(3_600_001), usd_number(None)) == (3.600001, None)


def test_a_json_number_is_a_float_or_unknown() -> None:
    assert number(Decimal("1.5")) == 1.5
    assert number(None) is None


# --- compared prices --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("prices", "texts"),
    [
        (["3.4816", "2.9013", "3.5"], ["3.48", "2.90", "3.50"]),
        (["3.5951", "3.6"], ["3.5951", "3.60"]),  # both would be 3.60
        (["3.6", "3.6"], ["3.60", "3.60"]),
        (["0.0042", "0.5"], ["0.0042", "0.50"]),  # it is not free
        (["0", "1"], ["0.00", "1.00"]),
        ([], []),
    ],
)
def test_prices_have_cents_unless_two_would_look_alike(prices: list[str], texts: list[str]) -> None:
    assert distinct_prices([Decimal(price) for price in prices]) == texts
