"""Owning for years: resale, falling rents, people, a base of own cards under rented peaks, and commitments."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.plan.owners.owner_cases import (
    CreditProgram,
    Way,
    WayCost,
    cheapest_way,
    credit_use,
    used_percent,
)
from gpuwatch.domain.plan.ownership import (
    Commitment,
    LoadStep,
    OwnedWork,
    base_and_peaks,
    payback_days,
    rented_days,
    years_of_owning,
)
from gpuwatch.domain.plan.plan_schema import OwnedMachine

LOSS = (Decimal(30), Decimal(40))
FREE = OwnedMachine.model_validate(
    {"cards": 4, "card_price": 1500, "other": 0, "card_watts": 0, "system_watts": 0, "kwh": 0, "cooling": 0}
)
POWERED = FREE.model_copy(update={"card_watts": Decimal(450), "kwh": Decimal("0.15"), "yearly": Decimal(500)})


def test_a_year_costs_price_less_resale_and_what_runs() -> None:
    """The simple case of the articles: 6,000 $, 1,000 $ a year, 35 % lost: even after 310 hours of 10 $."""
    own = FREE.model_copy(update={"yearly": Decimal(1000)})
    (year,) = years_of_owning(own, OwnedWork(Decimal(10), Decimal(310) / 365), (Decimal(35),), 1)
    assert year.owned_usd == (pytest.approx(3100), pytest.approx(3100))
    assert year.rented_usd == pytest.approx(3100)


def test_the_value_falls_by_the_loss_of_each_year() -> None:
    """30–40 % a year: of 6,000 $ between 2,160 and 2,940 are left after two."""
    second = years_of_owning(FREE, OwnedWork(Decimal(1), Decimal(1)), LOSS, 2)[-1]
    assert second.owned_usd == (6000 - 2940, 6000 - 2160)


def test_while_it_is_set_up_the_work_is_rented_and_people_are_paid() -> None:
    work = OwnedWork(Decimal(2), Decimal(10))
    own = FREE.model_copy(
        update={
            "setup_weeks": Decimal(3), "setup_hours": Decimal(40), "upkeep_hours": Decimal(8),
            "people_usd_hour": Decimal(50),
        }
    )  # fmt: skip
    (plain,), (with_people,) = (years_of_owning(one, work, LOSS, 1) for one in (FREE, own))
    more = with_people.owned_usd[0] - plain.owned_usd[0]
    assert more == pytest.approx(Decimal(21 * 20 + 40 * 50 + 12 * 8 * 50))
    days = [payback_days(one, work) or 0 for one in (FREE, own)]
    assert days[0] == 300
    assert days[1] == pytest.approx(Decimal(21) + 8000 / (20 - Decimal(4800) / 365))


def test_work_beyond_its_capacity_stays_rented() -> None:
    slow = FREE.model_copy(update={"slower": Decimal(2)})  # does 12 of 24 rented hours
    year = years_of_owning(slow, OwnedWork(Decimal(1), Decimal(24)), (Decimal(0),), 1)[0]
    assert year.owned_usd[0] == pytest.approx(Decimal(365 * 12))


def test_a_falling_rent_makes_buying_worse() -> None:
    days = [payback_days(POWERED, OwnedWork(Decimal(2), Decimal(10), change)) for change in (0.1, 0.0, -0.1, -0.3)]
    found = [day for day in days if day is not None]
    assert found == sorted(found)
    assert len(found) == 4
    assert payback_days(POWERED, OwnedWork(Decimal(2), Decimal(10), -0.8)) is None
    assert round(rented_days(Decimal(365), -0.5), 1) == Decimal("263.3")  # 365 × 0.5 ÷ ln 2


@given(
    st.decimals(min_value=1, max_value=20, places=2),
    st.decimals(min_value=1, max_value=24, places=1),
    st.floats(min_value=-0.5, max_value=0.5).filter(lambda change: abs(change) > 1e-6),
)
def test_at_the_pay_back_owning_has_cost_what_renting_did(rent: Decimal, hours: Decimal, change: float) -> None:
    work = OwnedWork(rent, hours, change)
    days = payback_days(POWERED, work)
    if days is None:
        assert change < 0 or rent * hours <= POWERED.running_usd_day(hours)
        return
    owned = POWERED.investment_usd + POWERED.running_usd_day(hours) * days
    assert float(owned) == pytest.approx(float(work.rent_usd(days)), rel=1e-6)


def test_the_base_is_owned_and_the_peaks_are_rented() -> None:
    load = (LoadStep(2, Decimal(20)), LoadStep(10, Decimal(1)))
    farms = base_and_peaks(POWERED, load, OwnedWork(Decimal("0.50"), Decimal(24)), Decimal(40), 3)
    assert [farm.cards for farm in farms] == list(range(11))
    best = min(farms, key=lambda farm: farm.usd)
    assert best.cards == 2
    assert best.busy_percent == pytest.approx(Decimal(100) * 21 / 24)
    assert best.peak_percent == pytest.approx(Decimal(100) * 8 / 50)
    rented = Decimal(3 * 365) * 50 / 2
    assert {farm.rented_usd for farm in farms} == {rented}
    power = 2 * Decimal("0.45") * Decimal("0.15") * 21 * 365 * 3
    by_hand = 3000 * (1 - Decimal("0.6") ** 3) + 1500 + power + rented * 8 / 50
    assert best.usd == pytest.approx(by_hand)


def test_slower_cards_need_more_of_them() -> None:
    slow = POWERED.model_copy(update={"slower": Decimal(2)})
    farms = base_and_peaks(slow, (LoadStep(2, Decimal(24)),), OwnedWork(Decimal(5), Decimal(24)), Decimal(40), 3)
    assert [round(farm.peak_percent) for farm in farms] == [100, 75, 50, 25, 0]
    assert {round(farm.busy_percent) for farm in farms[1:]} == {100}


def test_nothing_to_do_owns_nothing() -> None:
    (none,) = base_and_peaks(POWERED, (), OwnedWork(Decimal(1), Decimal(24)), Decimal(40), 3)
    assert (none.cards, none.usd) == (0, 0)


# --- commitments and credits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("discount", "even"), [(40, 60), (60, 40), (66, 34)])
def test_a_commitment_pays_from_one_minus_its_discount(discount: int, even: int) -> None:
    """A published calculator (getnable.com): a discount of 40 % breaks even at 60 % of the hours."""
    assert Commitment(Decimal(discount), 1).break_even_percent(0.0) == even


def test_a_falling_rent_moves_the_break_even_up_for_long_terms_most() -> None:
    one, three = (Commitment(Decimal(40), years).break_even_percent(-0.2) for years in (1, 3))
    assert 60 < one < three


def test_a_commitment_pays_every_hour_of_each_term_at_its_start_price() -> None:
    commitment = Commitment(Decimal(40), 1)
    assert commitment.usd(Decimal(10), 0.0, 1) == 6 * 8760
    assert commitment.usd(Decimal(10), -0.5, 2) == 6 * 8760 * Decimal("1.5")
    assert Commitment(Decimal(40), 3).usd(Decimal(10), 0.0, 1) == 6 * 8760 * 3  # the whole term is owed


def test_a_capacity_block_is_a_reservation_at_minus_60_percent() -> None:
    """AWS listed p5.48xlarge at 39.33 $/h for Capacity Blocks while it was 98.32 on demand: 60 % less."""
    assert round(Commitment(Decimal(60), 1).usd(Decimal("98.32"), 0.0, 1) / 8760, 2) == Decimal("39.33")


def a_program(usd: int | None, days: int | None) -> CreditProgram:
    day = date(2026, 11, 30)
    return CreditProgram(
        name="x", provider="gcp", cases=(), usd=usd if usd is None else Decimal(usd), days=days, open=True, who="",
        url="", looked_up=day, page_date=None,
    )  # fmt: skip


def test_a_credit_is_worth_the_rent_of_the_hours_that_it_pays_before_it_expires() -> None:
    work = OwnedWork(Decimal(2), Decimal(10))
    dear = credit_use(a_program(300, 90), work, Decimal(11), 2)  # the cloud asks 11 $ for what costs 2 elsewhere
    assert (round(dear.hours, 1), round(dear.saved_usd, 2)) == (Decimal("27.3"), Decimal("54.55"))
    expired = credit_use(a_program(300, 7), work, None, 2)
    assert (expired.hours, expired.saved_usd) == (70, 140)
    assert credit_use(a_program(None, None), work, None, 2).hours == 3650
    assert credit_use(a_program(9999, 1000), work, None, 1).hours == 3650, "after the year there is no work to pay"


def test_peaks_do_not_make_a_reserved_machine_busier() -> None:
    """4 GPUs for 11 h and 16 for one: four of them are reserved, and work 12 of 24 h; 12 are rented for that hour."""
    steps = (LoadStep(4, Decimal(11)), LoadStep(16, Decimal(1)))
    assert used_percent(OwnedWork(Decimal(4), Decimal(15)), steps, 4) == 50
    assert used_percent(OwnedWork(Decimal(4), Decimal(48)), (), 4) == 100


def test_more_cards_than_a_machine_holds_need_more_machines() -> None:
    """A machine of 4 cards with 1,000 $ of other hardware: 5 cards stand in two of them."""
    own = FREE.model_copy(update={"other": Decimal(1000), "system_watts": Decimal(1000), "kwh": Decimal("0.10")})
    four, five = base_and_peaks(own, (LoadStep(5, Decimal(1)),), OwnedWork(Decimal(0), Decimal(24)), Decimal(0), 1)[4:]
    power = 365 * Decimal("0.10")  # of a kW for an hour a day
    assert four.usd == pytest.approx(power)
    assert five.usd == pytest.approx(2 * power)
    lost = base_and_peaks(own, (LoadStep(5, Decimal(1)),), OwnedWork(Decimal(0), Decimal(24)), Decimal(100), 1)[5]
    assert lost.usd == pytest.approx(5 * 1500 + 2 * 1000 + 2 * power)


def test_only_what_is_advised_and_known_is_the_cheapest() -> None:
    ways = [
        WayCost(way=Way.RENT, how="", usd=Decimal(9)),
        WayCost(way=Way.SPOT, how="", usd=Decimal(1), why_not="no"),
        WayCost(way=Way.HYBRID, how="", usd=None),
        WayCost(way=Way.BUY, how="", usd=Decimal(8)),
    ]
    assert cheapest_way(ways).way is Way.BUY
