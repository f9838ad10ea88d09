"""Buy or rent: the sources' figures to the cent, and the corrected calculation."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.plan.buy import (
    MachineUsage,
    PaybackVerdict,
    RentTariff,
    buy_verdict,
    cards_holding,
    compare_with_rent,
    discounted,
)
from gpuwatch.domain.plan.plan_schema import OwnedMachine
from tests.builders import changed

WEEK = MachineUsage(job_hours=Decimal(168))
LOSS = (Decimal(30), Decimal(40))
EXAMPLE = OwnedMachine()
TARIFF = RentTariff(name="on demand", usd_hour=Decimal("98.32"), extra_percent=Decimal(10))
FREE = OwnedMachine.model_validate(
    {"cards": 4, "card_price": 1500, "other": 0, "card_watts": 0, "system_watts": 0, "kwh": 0, "cooling": 0}
)
MONEY = st.decimals(min_value=1, max_value=10_000, places=2)


def test_cards_are_rounded_up_where_the_source_counts_one_too_many() -> None:
    assert 96 // 24 + 1 == 5  # the source's count
    assert cards_holding(Decimal(96), Decimal(24)) == 4
    assert cards_holding(Decimal(140), Decimal(24)) == 6
    assert cards_holding(Decimal("96.01"), Decimal(24)) == 5


def test_the_pay_back_counts_the_running_cost_and_the_speed() -> None:
    """The source's 6.55 days count neither; 6.59 with the running cost, 16.61 with slower cards, too."""
    for changes, days in (({"kwh": 0}, "6.5494"), ({}, "6.587"), ({"slower": Decimal("2.5")}, "16.61")):
        own = EXAMPLE.model_copy(update=changes)
        found = compare_with_rent(own, TARIFF, WEEK, LOSS).payback_days or Decimal(0)
        assert round(found, len(days.partition(".")[2])) == Decimal(days)


def test_the_simple_case_is_700_hours_or_310_with_a_resale() -> None:
    ten = RentTariff(name="x", usd_hour=Decimal(10))
    spent = FREE.model_copy(update={"other": Decimal(1000)})
    gone = compare_with_rent(spent, ten, WEEK, (Decimal(100),))
    assert (gone.hours_a_year, round(gone.payback_days or 0, 2)) == ((700, 700), Decimal("29.17"))
    year = compare_with_rent(FREE.model_copy(update={"yearly": Decimal(1000)}), ten, WEEK, (Decimal(35),))
    assert year.hours_a_year == (310, 310)


@pytest.mark.parametrize(
    ("days", "verdict"),
    [("29.999", "green"), ("30", "amber"), ("89.999", "amber"), ("90", "red"), (None, "red")],
)
def test_the_verdict_changes_at_30_and_90_days(days: str | None, verdict: str) -> None:
    assert buy_verdict(None if days is None else Decimal(days)).value == verdict


def test_discounts_are_columns_of_their_own() -> None:
    found = discounted(TARIFF, "reserved", (Decimal(40), Decimal(60)))
    assert [(one.name, one.usd_hour) for one in found] == [
        ("reserved −40 %", Decimal("58.992")),
        ("reserved −60 %", Decimal("39.328")),
    ]


def test_a_machine_whose_power_costs_more_than_the_rent_never_pays() -> None:
    dear = FREE.model_copy(update={"card_watts": Decimal(1000), "kwh": Decimal(1)})  # 4 $ an hour
    found = compare_with_rent(dear, RentTariff(name="x", usd_hour=Decimal(3)), WEEK, LOSS)
    assert (found.payback_days, found.verdict, found.hours_a_year) == (None, PaybackVerdict.RED, (None, None))


def test_an_own_machine_cannot_work_more_than_a_day_in_a_day() -> None:
    half = compare_with_rent(
        FREE.model_copy(update={"slower": Decimal(2)}), RentTariff(name="x", usd_hour=Decimal(10)), WEEK, LOSS
    )
    assert half.saved_usd_day == 120  # of 240 that are rented
    idle = compare_with_rent(
        FREE, RentTariff(name="x", usd_hour=Decimal(10)), changed(WEEK, hours_a_day=Decimal(6)), LOSS
    )
    assert idle.saved_usd_day == 60


@given(MONEY, MONEY, st.decimals(min_value=1, max_value=24, places=1))
def test_after_the_pay_back_owning_has_cost_what_renting_did(price: Decimal, rent: Decimal, hours: Decimal) -> None:
    own = FREE.model_copy(update={"card_price": price, "card_watts": Decimal(300), "kwh": Decimal("0.30")})
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
