"""The commission that fits the charges: named only with enough data, never because of rounding, without traffic."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.launches.money.charge_comparison import (
    BilledLaunch,
    InvoicedAmounts,
    calibrate,
    fitted_factor,
    invoice_lines,
)
from gpuwatch.domain.launches.money.launch_costs import predicted_cost
from gpuwatch.domain.market.money import Commission, CommissionMode
from tests.builders import NOON, changed
from tests.domain.launches.money.test_costs import DAY, a_row, a_run


def charged_with(factor: float, hours: float = 10.0, several: int = 4, noise: int = 0) -> Any:
    """Invoice lines of launches of different size, charged at a multiple of the listed price."""
    launches = [
        a_run(hours=hours, launch_id=letter * 12, instance_id=letter, listed_microusd_hour=(n + 1) * 1_000_000)
        for n, letter in enumerate("bcdefgh"[:several])
    ]
    rows = [
        a_row(
            round(predicted_cost(launch, NOON + 9 * DAY, None, None).listed * factor) + noise,
            instance_id=launch.instance_id,
        )
        for launch in launches
    ]
    return invoice_lines(launches, rows, NOON + 9 * DAY)


@pytest.mark.parametrize(
    ("factor", "commission", "best", "advice"),
    [
        (1.2, Commission("0.20"), "set", None),
        (1.0, Commission("0.20"), "included", 'commission = { rate = 0, mode = "included" }'),
        (1.0, Commission("0.25", CommissionMode.INCLUDED), "set", None),
        (1.25, Commission("0.25", CommissionMode.INCLUDED), "on_top", "commission = 0.25"),
        (1.1, Commission("0.20"), "fitted", "commission = 0.10"),
        (1.0, Commission("0"), "set", None),
    ],
)
def test_the_commission_that_fits_the_charges_is_named(
    factor: float, commission: Commission, best: str, advice: str | None
) -> None:
    found = calibrate("vastai", charged_with(factor), commission)
    assert found.best is not None
    assert (found.best.name, found.launches, found.billed_hours) == (best, 4, 40.0)
    assert found.best.error_percent < 0.01
    assert (found.advice or "").splitlines()[1:] == ([advice] if advice else [])


def test_rounding_of_the_bill_does_not_advise_another_rate() -> None:
    found = calibrate("vastai", charged_with(1.2, noise=500), Commission("0.20"))
    assert found.advice is None


@pytest.mark.parametrize(("factor", "best"), [(1.202, "set"), (1.21, "fitted")])
def test_another_rate_must_be_nearer_by_more_than_a_trifle(factor: float, best: str) -> None:
    found = calibrate("vastai", charged_with(factor), Commission("0.20"))
    assert found.best is not None
    assert found.best.name == best


def test_no_rate_fits_a_bill_under_the_listed_price() -> None:
    found = calibrate("vastai", charged_with(0.8), Commission("0.20"))
    assert found.best is not None
    assert (found.best.name, found.is_poor) == ("included", True)


@pytest.mark.parametrize(("hours", "several"), [(12.0, 2), (7.9, 3)])
def test_too_little_says_nothing(hours: float, several: int) -> None:
    found = calibrate("vastai", charged_with(1.2, hours, several), Commission("0.20"))
    assert (found.best, found.advice) == (None, None)
    assert "not enough data" in str(found.why_not)


def test_days_that_are_not_final_and_other_providers_are_not_compared() -> None:
    final = charged_with(1.2)
    open_ = [changed(cell, final=False) for cell in final]
    assert calibrate("vastai", open_, Commission("0.20")).launches == 0
    assert calibrate("runpod", final, Commission("0.20")).launches == 0


def test_traffic_takes_no_part() -> None:
    plain = charged_with(1.2)
    loaded = [changed(cell, charged=cell.charged + InvoicedAmounts(download=9_000_000)) for cell in plain]
    assert calibrate("vastai", loaded, Commission("0.20")) == calibrate("vastai", plain, Commission("0.20"))


def test_the_fit_is_weighted_by_what_each_launch_cost() -> None:
    pairs = [
        BilledLaunch(launch_id="a", listed=1, effective=1, charged=2, billed_hours=1),
        BilledLaunch(launch_id="b", listed=10, effective=10, charged=10, billed_hours=1),
    ]
    assert float(fitted_factor(pairs)) == pytest.approx(1002 / 1001)


def test_a_launch_without_a_list_price_is_left_out() -> None:
    free = a_run(launch_id="h" * 12, instance_id="h", listed_microusd_hour=0, price_microusd_hour=0)
    [line] = invoice_lines([free], [a_row(5, instance_id="h")], NOON + 9 * DAY)
    found = calibrate("vastai", [*charged_with(1.2), line], Commission("0.20"))
    assert (found.launches, found.left_out) == (4, 1)


def test_three_launches_of_a_day_in_all_are_enough() -> None:
    assert calibrate("vastai", charged_with(1.2, hours=8.0, several=3), Commission("0.20")).why_not is None
    assert calibrate("vastai", charged_with(1.2, hours=7.9, several=3), Commission("0.20")).why_not is not None
