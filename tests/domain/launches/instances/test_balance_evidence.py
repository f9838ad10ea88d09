"""A balance as evidence about an unlisted instance."""

from __future__ import annotations

import pytest

from gpuwatch.domain.launches.instances.absence import SPAN_S, BalanceReading, is_unpaid, read_balance
from gpuwatch.ports import Instance, InstanceState

ITS_PRICE = 3_000_000  # micro-dollars an hour


def an_instance(price: float | None = 2.0, state: InstanceState = InstanceState.RUNNING, one: str = "1") -> Instance:
    return Instance(
        instance_id=one, label=None, state=state, status=state.value, listed_usd_hour=price, stopped_usd_hour=0.1
    )


def reading(balance: float, tick_s: float = 0.0, *instances: Instance) -> BalanceReading:
    return read_balance(tick_s, balance, instances)


def unpaid(before: float, after: float, *instances: Instance, seconds: float = 1800.0) -> bool | None:
    first, last = reading(before, 0.0, *instances), reading(after, seconds, *instances)
    return is_unpaid(first, last, ITS_PRICE)


def test_a_balance_that_stands_still_pays_for_nothing() -> None:
    assert unpaid(50.0, 50.0) is True


def test_a_balance_that_falls_as_if_it_existed_speaks_against_its_absence() -> None:
    assert unpaid(50.0, 48.5) is False


@pytest.mark.parametrize(("after", "says"), [(49.0, True), (47.5, False), (50.0, None)])
def test_what_the_others_cost_is_known(after: float, says: bool | None) -> None:
    """They cost 1 $ in that half hour; a balance that did not change is not up to date."""
    assert unpaid(50.0, after, an_instance()) is says


def test_a_stopped_instance_costs_its_disk() -> None:
    assert unpaid(50.0, 49.95, an_instance(state=InstanceState.STOPPED)) is True


def test_over_a_short_time_it_says_nothing() -> None:
    assert unpaid(50.0, 50.0, seconds=SPAN_S - 1) is None
    assert unpaid(50.0, 50.0, seconds=SPAN_S) is True


def test_money_that_is_paid_in_hides_everything() -> None:
    assert unpaid(50.0, 60.0) is None


def test_a_price_that_is_not_given_hides_everything() -> None:
    assert unpaid(50.0, 50.0, an_instance(price=None)) is None


def test_other_instances_than_before_hide_everything() -> None:
    assert is_unpaid(reading(50.0, 0.0, an_instance()), reading(49.0, 1800.0), ITS_PRICE) is None
    dearer = reading(49.0, 1800.0, an_instance(price=4.0))
    assert is_unpaid(reading(50.0, 0.0, an_instance()), dearer, ITS_PRICE) is None


def test_what_is_lost_in_rounding_proves_nothing() -> None:
    assert is_unpaid(reading(50.0), reading(50.0, 1800.0), 30_000) is None
