"""The same stock from its owner and from resellers is shown once; nothing else is merged."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.market.offer import OfferKind, OfferTerms
from gpuwatch.domain.market.resold import fold_resold, known_as
from gpuwatch.domain.watches.decide import Match
from tests.builders import a_match, an_offer


def direct(provider: str = "lambda", **changes: Any) -> Match:
    plain = {"provider": provider, "region": "us-east-1", "country": "US", "disk_usd_gb_month": None}
    return a_match(an_offer(**(plain | changes)), commission="0")


def resold(provider: str = "shadeform", seller: str = "lambdalabs", **changes: Any) -> Match:
    return direct(provider, **({"terms": OfferTerms(seller=seller)} | changes))


def shown(*found: Match, keep_first: bool = False) -> list[tuple[str, str]]:
    return [(one.primary.offer.provider, one.also_text) for one in fold_resold(found, keep_first=keep_first)]


def test_an_aggregators_offer_is_folded_into_its_sellers_own() -> None:
    assert shown(resold(), direct()) == [("lambda", "also via shadeform")]


def test_two_aggregators_of_one_seller_are_one_line_without_the_seller() -> None:
    assert shown(resold(), resold("primeintellect", "Lambda Labs")) == [("shadeform", "also via primeintellect")]


def test_several_aggregators_are_named_beside_the_owner() -> None:
    assert shown(resold(), direct(), resold("primeintellect")) == [("lambda", "also via shadeform, primeintellect")]


def test_what_comes_first_stays_first_if_it_is_what_is_rented() -> None:
    assert shown(resold(), direct(), keep_first=True) == [("shadeform", "also at lambda")]
    assert shown(direct(), resold(), keep_first=True) == [("lambda", "also via shadeform")]


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "H100 PCIe"},
        {"gpu_count": 2},
        {"spot": True},
        {"kind": OfferKind.LISTED},
        {"region": "us-east-2"},
        {"region": None, "country": "DE"},
        {"quoted_usd_hour": 3.04},
        {"terms": OfferTerms(seller="hyperstack")},
        {"terms": OfferTerms(seller="lambda", gpu_fraction=0.5)},
    ],
)
def test_what_differs_stays(other: dict[str, Any]) -> None:
    assert shown(resold(**other), direct()) == [("shadeform", ""), ("lambda", "")]


@pytest.mark.parametrize(
    ("region", "country"),
    [("US East 1 (Virginia)", "US"), ("any", None), (None, None), ("united_states", "US"), ("US-EAST-1", "us")],
)
def test_a_place_that_is_spelled_otherwise_or_not_at_all_does_not_hide_the_same_stock(
    region: str | None, country: str | None
) -> None:
    assert shown(resold(region=region, country=country), direct()) == [("lambda", "also via shadeform")]


@pytest.mark.parametrize("listed", [2.97, 3.0, 3.03])
def test_prices_within_a_percent_are_the_same(listed: float) -> None:
    assert shown(direct(), resold(quoted_usd_hour=listed)) == [("lambda", "also via shadeform")]


def test_offers_of_one_provider_are_never_folded() -> None:
    assert len(fold_resold([direct(offer_id="1"), direct(offer_id="2"), resold(offer_id="3")])) == 2
    assert len(fold_resold([resold(offer_id="1"), resold(offer_id="2")])) == 2


def test_a_large_market_of_one_provider_is_folded_without_comparing_its_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was compared with each before a launch was reserved."""
    compared: list[object] = []
    monkeypatch.setattr("gpuwatch.domain.market.resold._is_same", lambda *pair: compared.append(pair))
    assert len(fold_resold([direct(offer_id=str(n)) for n in range(300)])) == 300
    assert compared == []


def test_the_order_is_kept_and_nothing_is_lost_that_has_no_twin() -> None:
    found = [resold(seller="oblivus"), direct("runpod"), resold(), direct()]
    assert shown(*found) == [("shadeform", ""), ("runpod", ""), ("lambda", "also via shadeform")]


@pytest.mark.parametrize(
    ("spelled", "name"), [("Lambda Labs", "lambda"), ("Amazon EC2", "aws"), ("hyperstack", "hyperstack")]
)
def test_a_seller_has_one_name(spelled: str, name: str) -> None:
    assert known_as(spelled) == name


def test_nothing_folds_to_nothing() -> None:
    assert fold_resold([], keep_first=True) == []


def test_a_place_that_is_unknown_on_one_side_does_not_keep_them_apart() -> None:
    assert shown(resold(region=None), direct()) == [("lambda", "also via shadeform")]
    assert shown(resold(), direct(region=None)) == [("lambda", "also via shadeform")]
