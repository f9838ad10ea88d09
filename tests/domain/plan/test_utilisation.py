"""Utilisation: the sources' figures."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpuwatch.domain.plan.buy import UtilisationVerdict, price_at_utilisation, useful_usd_hour


@pytest.mark.parametrize(("percent", "useful"), [(15, "26.67"), (70, "5.71"), (90, "4.44"), (100, "4.00")])
def test_four_dollars_at_a_use_are_so_much_an_hour_of_work(percent: float, useful: str) -> None:
    found = useful_usd_hour(Decimal("4.00"), percent)
    assert found is not None
    assert round(found, 2) == Decimal(useful)


def test_what_does_not_work_costs_no_useful_hour_and_all_of_the_price() -> None:
    found = price_at_utilisation(Decimal(4), 0)
    assert (found.useful_usd_hour, found.idle_usd_hour, found.verdict) == (None, 4, UtilisationVerdict.BOTTLENECK)


@pytest.mark.parametrize(
    ("percent", "verdict"), [(69.9, "bottleneck"), (70, "wasteful"), (89.9, "wasteful"), (90, "good")]
)
def test_the_two_thresholds(percent: float, verdict: str) -> None:
    assert price_at_utilisation(Decimal(4), percent).verdict.value == verdict
