"""Buy or rent: the sources' figures to the cent, and the corrected calculation."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.plan.buy import (
    SOURCE_OWN,
    SOURCE_TARIFF,
    MachineUsage,
    OwnedMachine,
    PaybackVerdict,
    RentTariff,
    buy_verdict,
    cards_holding,
    compare_with_rent,
    discounted,
    simple_payback,
    source_calculation,
    source_payback_corrected,
)
from tests.builders import changed

WEEK = MachineUsage(job_hours=Decimal(168))
LOSS = (Decimal(30), Decimal(40))
FREE = OwnedMachine(
    card="RTX 4090",
    cards=4,
    card_usd=Decimal(1500),
    other_usd=Decimal(0),
    card_watts=Decimal(0),
    system_watts=Decimal(0),
    usd_kwh=Decimal(0),
    cooling_percent=Decimal(0),
)
MONEY = st.decimals(min_value=1, max_value=10_000, places=2)


def test_the_calculator_prints_what_the_source_prints() -> None:
    seed = source_calculation()
    assert seed.cards == 140 // 24 + 1 == 6  # the source's own count
    assert seed.investment_usd == Decimal("17000.00")
    assert seed.operating_usd == Decimal("104.832")
    assert seed.own_total_usd == Decimal("17104.832")
    assert seed.kilowatt_hours == Decimal("537.6")
    assert (seed.compute_usd, seed.extra_usd) == (Decimal("16517.76"), Decimal("1651.776"))
    assert seed.rented_total_usd == Decimal("18169.536")
    assert round(seed.rented_usd_day, 2) == Decimal("2595.65")
    assert round(seed.payback_days, 4) == Decimal("6.5494")
    assert seed.verdict is PaybackVerdict.GREEN


def test_cards_are_rounded_up_where_the_source_counts_one_too_many() -> None:
    assert 96 // 24 + 1 == 5  # the source's count
    assert cards_holding(Decimal(96), Decimal(24)) == 4
    assert cards_holding(Decimal(140), Decimal(24)) == 6
    assert cards_holding(Decimal("96.01"), Decimal(24)) == 5


def test_corrected_it_takes_the_running_cost_and_the_speed_into_account() -> None:
    running, slower, both = source_payback_corrected()
    assert (round(running, 3), round(slower, 1), round(both, 2)) == (
        Decimal("6.587"),
        Decimal("16.4"),
        Decimal("16.61"),
    )
    assert compare_with_rent(SOURCE_OWN, SOURCE_TARIFF, WEEK, LOSS).payback_days == running
    slow = compare_with_rent(changed(SOURCE_OWN, slower=Decimal("2.5")), SOURCE_TARIFF, WEEK, LOSS)
    assert round(slow.payback_days or 0, 10) == round(both, 10)


def test_the_simple_case_is_700_hours_or_310_with_a_resale() -> None:
    plain = simple_payback(Decimal(7000), Decimal(10))
    assert (plain.hours, round(plain.days, 2)) == (700, Decimal("29.17"))
    ten = RentTariff(name="x", usd_hour=Decimal(10))
    year = compare_with_rent(changed(FREE, yearly_usd=Decimal(1000)), ten, WEEK, (Decimal(35),))
    assert year.hours_a_year == (310, 310)


@pytest.mark.parametrize(
    ("days", "verdict"),
    [("29.999", "green"), ("30", "amber"), ("89.999", "amber"), ("90", "red"), (None, "red")],
)
def test_the_verdict_changes_at_30_and_90_days(days: str | None, verdict: str) -> None:
    assert buy_verdict(None if days is None else Decimal(days)).value == verdict


def test_discounts_are_columns_of_their_own() -> None:
    found = discounted(SOURCE_TARIFF, "reserved", (Decimal(40), Decimal(60)))
    assert [(one.name, one.usd_hour) for one in found] == [
        ("reserved −40 %", Decimal("58.992")),
        ("reserved −60 %", Decimal("39.328")),
    ]


def test_a_machine_whose_power_costs_more_than_the_rent_never_pays() -> None:
    dear = changed(FREE, card_watts=Decimal(1000), usd_kwh=Decimal(1))  # 4 $ an hour
    found = compare_with_rent(dear, RentTariff(name="x", usd_hour=Decimal(3)), WEEK, LOSS)
    assert (found.payback_days, found.verdict, found.hours_a_year) == (None, PaybackVerdict.RED, (None, None))


def test_an_own_machine_cannot_work_more_than_a_day_in_a_day() -> None:
    half = compare_with_rent(changed(FREE, slower=Decimal(2)), RentTariff(name="x", usd_hour=Decimal(10)), WEEK, LOSS)
    assert half.saved_usd_day == 120  # of 240 that are rented
    idle = compare_with_rent(
        FREE, RentTariff(name="x", usd_hour=Decimal(10)), changed(WEEK, hours_a_day=Decimal(6)), LOSS
    )
    assert idle.saved_usd_day == 60


@given(MONEY, MONEY, st.decimals(min_value=1, max_value=24, places=1))
def test_after_the_pay_back_owning_has_cost_what_renting_did(price: Decimal, rent: Decimal, hours: Decimal) -> None:
    own = changed(FREE, card_usd=price, card_watts=Decimal(300), usd_kwh=Decimal("0.30"))
    usage = changed(WEEK, hours_a_day=hours)
    found = compare_with_rent(own, RentTariff(name="x", usd_hour=rent), usage, LOSS)
    if found.payback_days is None:
        assert rent <= own.usd_hour
        return
    owned = own.investment_usd + own.running_usd_day(hours) * found.payback_days
    assert round(owned, 6) == round(rent * hours * found.payback_days, 6)


def test_owning_that_saves_nothing_never_pays() -> None:
    free = compare_with_rent(FREE, RentTariff(name="free", usd_hour=Decimal(0)), WEEK, LOSS)
    assert (free.saved_usd_day, free.payback_days, free.verdict) == (0, None, PaybackVerdict.RED)


def test_a_larger_loss_takes_more_rented_hours() -> None:
    few, many = compare_with_rent(FREE, RentTariff(name="rented", usd_hour=Decimal(2)), WEEK, LOSS).hours_a_year
    assert (few, many) == (Decimal(900), Decimal(1200))
