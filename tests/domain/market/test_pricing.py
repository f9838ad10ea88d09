"""From a quote to money, exact to the micro-dollar."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.domain.market.money import (
    Commission,
    CommissionMode,
    OfferPrice,
    listed_ceiling_usd,
    microusd,
    price_of,
    threshold_microusd,
    usd,
)
from gpuwatch.domain.market.offer import OfferTerms
from tests.builders import an_offer

TWENTY = Commission("0.20")
QUOTES = st.one_of(
    st.floats(0.001, 10_000),
    st.decimals("0.001", "10000", places=7).map(float),  # seven places: ties of half a micro-dollar occur
)
DISKS = st.one_of(st.none(), st.integers(1, 10_000).map(float), st.floats(0.1, 100_000))
DISK_RATES = st.one_of(st.none(), st.just(0.0), st.decimals("0.001", "2", places=3).map(float), st.floats(1e-6, 100))
RATES = st.one_of(st.sampled_from(["0", "0.2", "0.20", "0.05", "1"]), st.decimals("0", "5", places=4).map(str))
THRESHOLDS = st.decimals("0.001", "500", places=6)


def _exactly(number: float) -> Fraction:
    return Fraction(Decimal(repr(number)))


def _listed(quoted: float, disk_gb: float | None, held_gb: float, disk_rate: float | None) -> Fraction:
    """Exact dollars, by the written rule."""
    if disk_gb is None or not disk_rate:
        return _exactly(quoted)
    return _exactly(quoted) + _exactly(disk_rate) * (_exactly(disk_gb) - _exactly(held_gb)) / 720


@given(quoted=QUOTES, disk_gb=DISKS, held_gb=st.sampled_from([0.0, 8.0, 10.0, 16.5]), disk_rate=DISK_RATES, rate=RATES)
@example(quoted=0.0000005, disk_gb=None, held_gb=8.0, disk_rate=None, rate="0")
@example(quoted=0.0000015, disk_gb=None, held_gb=8.0, disk_rate=None, rate="0")
@example(quoted=2.0000125, disk_gb=None, held_gb=8.0, disk_rate=None, rate="0.20")
@example(quoted=9999.9999995, disk_gb=100_000.0, held_gb=8.0, disk_rate=100.0, rate="5")
def test_a_price_is_exact_arithmetic_rounded_half_even_once(
    quoted: float, disk_gb: float | None, held_gb: float, disk_rate: float | None, rate: str
) -> None:
    """The commission is computed on the unrounded listed price; each figure is rounded a single time."""
    offer = an_offer(quoted_usd_hour=quoted, quoted_disk_gb=held_gb, disk_usd_gb_month=disk_rate)
    listed = _listed(quoted, disk_gb, held_gb, disk_rate)
    if listed <= Fraction(1, 10**9):
        listed = _exactly(quoted)
    price = price_of(offer, disk_gb, Commission(rate))
    assert price.listed_microusd_hour == round(listed * 10**6)
    assert price.price_microusd_hour == round(listed * (1 + Fraction(Decimal(rate))) * 10**6)


@pytest.mark.parametrize(("quoted", "whole"), [(0.0000005, 0), (0.0000015, 2), (0.0000025, 2), (1.0000005, 1_000_000)])
def test_a_tie_goes_to_the_even_micro_dollar(quoted: float, whole: int) -> None:
    assert price_of(an_offer(quoted_usd_hour=quoted), None, Commission()).listed_microusd_hour == whole


def test_the_price_is_not_rounded_before_the_commission() -> None:
    """0.0000004 is nothing in micro-dollars, but with a commission of 100 % it is one."""
    assert price_of(an_offer(quoted_usd_hour=0.0000004), None, Commission("1")) == OfferPrice(0, 1, 1.0)


def test_three_dollars_and_twenty_per_cent_fire_at_three_sixty() -> None:
    price = price_of(an_offer(quoted_usd_hour=3.00), None, TWENTY)
    assert price == OfferPrice(3_000_000, 3_600_000, 0.2)
    assert price.price_microusd_hour <= threshold_microusd(Decimal("3.60"), 1)


def test_three_dollars_and_one_cent_do_not() -> None:
    price = price_of(an_offer(quoted_usd_hour=3.01), None, TWENTY)
    assert price.price_microusd_hour > threshold_microusd(Decimal("3.60"), 1)


def test_one_micro_dollar_over_the_threshold_is_over() -> None:
    assert price_of(an_offer(quoted_usd_hour=3.600001), None, Commission()).price_microusd_hour == 3_600_001
    assert threshold_microusd(Decimal("3.60"), 1) == 3_600_000


@given(price=st.integers(0, 10**10), most=st.decimals("0", "10000", places=9), gpus=st.integers(1, 64))
def test_a_threshold_is_compared_without_a_second_rounding(price: int, most: Decimal, gpus: int) -> None:
    fits = Fraction(price, 10**6) <= Fraction(most) * gpus
    assert (price <= threshold_microusd(most, gpus)) is fits


def test_the_threshold_of_several_gpus_is_not_that_of_one_rounded_and_multiplied() -> None:
    assert threshold_microusd(Decimal("0.3333333"), 3) == 999_999
    assert threshold_microusd(Decimal("0.3333336"), 3) == 1_000_000


def test_the_disk_that_is_asked_for_is_part_of_the_price() -> None:
    """72 GB more than quoted, at 0.20 $ a GB and month of 720 hours: two cents an hour."""
    offer = an_offer(quoted_usd_hour=3.0, quoted_disk_gb=8.0, disk_usd_gb_month=0.2)
    assert price_of(offer, 80.0, TWENTY) == OfferPrice(3_020_000, 3_624_000, 0.2)


def test_a_disk_under_the_providers_least_costs_what_the_least_costs() -> None:
    terms = OfferTerms(least_disk_gb=100.0)
    offer = an_offer(quoted_usd_hour=1.0, quoted_disk_gb=100.0, disk_usd_gb_month=7.2, terms=terms)
    assert price_of(offer, 20.0, Commission()) == price_of(offer, 100.0, Commission())
    assert price_of(offer, 101.0, Commission()).listed_microusd_hour == 1_010_000


def test_a_smaller_disk_than_quoted_is_cheaper() -> None:
    offer = an_offer(quoted_usd_hour=3.0, quoted_disk_gb=80.0, disk_usd_gb_month=0.2)
    assert price_of(offer, 8.0, Commission()).listed_microusd_hour == 2_980_000


@pytest.mark.parametrize("disk_gb", [None, 8.0])
def test_a_quote_with_the_right_disk_stands_as_it_is(disk_gb: float | None) -> None:
    assert price_of(an_offer(), disk_gb, Commission()).listed_microusd_hour == 3_000_000


def test_disk_that_is_not_priced_apart_costs_nothing_more() -> None:
    assert price_of(an_offer(disk_usd_gb_month=None), 5_000.0, Commission()).listed_microusd_hour == 3_000_000


@given(quoted=QUOTES, held_gb=st.floats(0, 1e6), disk_rate=st.floats(0, 10_000), disk_gb=st.floats(0, 1e6))
def test_no_hostile_quote_makes_a_price_of_nothing(
    quoted: float, held_gb: float, disk_rate: float, disk_gb: float
) -> None:
    """A disk that supposedly costs more than the whole quote is not credited: renting never earns money."""
    offer = an_offer(quoted_usd_hour=quoted, quoted_disk_gb=held_gb, disk_usd_gb_month=disk_rate)
    assert price_of(offer, disk_gb, TWENTY).price_microusd_hour >= 0
    if disk_gb < held_gb and disk_rate * (held_gb - disk_gb) / 720 > quoted * 1.01:
        assert price_of(offer, disk_gb, Commission()).listed_microusd_hour == round(_exactly(quoted) * 10**6)


@pytest.mark.parametrize(
    ("commission", "fee_rate", "price"),
    [
        (Commission("0.20"), None, 3_600_000),
        (Commission("0.20"), 0.05, 3_600_000),
        (Commission("0.20", CommissionMode.INCLUDED), None, 3_000_000),
        (Commission("0.20", CommissionMode.INCLUDED), 0.05, 3_000_000),
        (Commission("0.20", CommissionMode.FROM_OFFER), 0.05, 3_150_000),
        (Commission("0.20", CommissionMode.FROM_OFFER), 0.0, 3_000_000),
        (Commission("0.20", CommissionMode.FROM_OFFER), None, 3_600_000),
        (Commission("0.20", CommissionMode.FROM_OFFER), -0.5, 3_600_000),
        (Commission(), None, 3_000_000),
    ],
)
def test_a_commission_is_on_top_included_or_the_offers_own(
    commission: Commission, fee_rate: float | None, price: int
) -> None:
    found = price_of(an_offer(fee_rate=fee_rate), None, commission)
    assert (found.listed_microusd_hour, found.price_microusd_hour) == (3_000_000, price)


def test_the_rate_is_shown_with_the_price() -> None:
    assert price_of(an_offer(), None, TWENTY).commission_rate == 0.2
    assert price_of(an_offer(), None, Commission("0.20", CommissionMode.INCLUDED)).commission_rate == 0.0


def test_the_gpu_price_is_the_price_of_one_gpu() -> None:
    assert price_of(an_offer(quoted_usd_hour=24.0), None, TWENTY).gpu_price_usd_hour(8) == Decimal("3.6")


@given(
    quoted=QUOTES,
    disk_gb=st.one_of(st.none(), st.floats(1, 2_000)),
    commission=st.builds(Commission, RATES, st.sampled_from(CommissionMode)),
    fee_rate=st.one_of(st.none(), st.floats(0, 1)),
    most=THRESHOLDS,
    gpus=st.integers(1, 16),
)
def test_the_listed_ceiling_cuts_off_no_offer_that_fits(
    quoted: float,
    disk_gb: float | None,
    commission: Commission,
    fee_rate: float | None,
    most: Decimal,
    gpus: int,
) -> None:
    offer = an_offer(quoted_usd_hour=quoted, fee_rate=fee_rate, gpu_count=gpus)
    price = price_of(offer, disk_gb, commission)
    if price.price_microusd_hour <= threshold_microusd(most, gpus):
        ceiling = listed_ceiling_usd(most, gpus, commission)
        assert _listed(quoted, disk_gb, 8.0, 0.2) <= Fraction(ceiling)
        assert usd(price.listed_microusd_hour) <= ceiling


@given(listed=st.decimals("0.01", "100", places=6), rate=st.decimals("0", "2", places=3), gpus=st.integers(1, 8))
def test_the_listed_ceiling_of_an_offers_own_price_lets_it_in(listed: Decimal, rate: Decimal, gpus: int) -> None:
    """The boundary: the threshold equals the price of the offer."""
    commission = Commission(str(rate))
    price = price_of(an_offer(quoted_usd_hour=float(listed)), None, commission)
    most = usd(price.price_microusd_hour) / gpus
    if price.price_microusd_hour <= threshold_microusd(most, gpus):
        assert float(listed) <= float(listed_ceiling_usd(most, gpus, commission))


def test_the_listed_ceiling_is_not_much_too_high() -> None:
    assert listed_ceiling_usd(Decimal("3.60"), 4, TWENTY) - 12 <= Decimal("0.000001")


def test_dollars_become_micro_dollars_half_even() -> None:
    assert [microusd(text) for text in ("1", "0.0000005", "0.0000015")] == [1_000_000, 0, 2]
    assert usd(3_600_000) == Decimal("3.6")


def test_a_quote_that_is_the_disk_alone_stays_what_is_paid() -> None:
    offer = an_offer(quoted_usd_hour=0.5, quoted_disk_gb=720.0, disk_usd_gb_month=0.5)
    assert price_of(offer, 0.0, Commission()).listed_microusd_hour == 500_000


def test_the_longer_of_both_minimum_billings_counts() -> None:
    own = an_offer(terms=OfferTerms(min_billing_s=3600.0))
    assert price_of(own, None, Commission(min_billing_s=60.0)).min_billing_s == 3600.0
    assert price_of(own, None, Commission(min_billing_s=7200.0)).min_billing_s == 7200.0
    assert price_of(an_offer(), None, Commission(min_billing_s=60.0)).min_billing_s == 60.0
