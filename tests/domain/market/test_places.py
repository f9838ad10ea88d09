"""Locations of offers: countries, their groups, and regions, as owners and providers write them."""

from __future__ import annotations

import pytest

from gpuwatch.domain.market.places import country_of, unknown_place, wanted_place

EU = "AT BE BG HR CY CZ DK EE FI FR DE GR HU IE IT LV LT LU MT NL PL PT RO SK SI ES SE"  # source: europa.eu, 2026-11


@pytest.mark.parametrize("code", EU.split())
def test_every_member_state_is_in_the_eu_and_the_eea(code: str) -> None:
    assert wanted_place("EU").holds("anywhere", code)
    assert wanted_place("eea").holds(None, code)


@pytest.mark.parametrize(
    ("wanted", "region", "country", "holds"),
    [
        ("EU", "Oslo", "NO", False),
        ("EEA", "Oslo", "NO", True),
        ("EEA", "London", "GB", False),
        ("NA", "Texas", "US", True),
        ("NA", "Windhoek", "NA", False),  # the group; the country is "Namibia"
        ("Namibia", None, "NA", True),
        ("APAC", "Tokyo", "JP", True),
        ("APAC", "Dubai", "AE", False),
        ("DE", "Frankfurt", "DE", True),
        ("de", None, "DE", True),
        ("DE", "Wilmington, DE", "US", False),
        ("Germany", "Frankfurt", "DE", True),
        ("germany", "Germany", None, True),
        ("UK", "London", "GB", True),
        ("USA", "Texas", "US", True),
        ("Texas", "Dallas, Texas", "US", True),
        ("Georgia", "Georgia", "US", True),  # the state as well as the country
        ("Georgia", "Tbilisi", "GE", True),
        ("Jersey", "New Jersey", "US", False),
        ("Oman", "Romania", None, False),
        ("Washington", "Washington", "US", True),
        ("us-east", "us-east-1", "US", True),
        ("EU", "westeurope", None, True),
        ("EU", "europe-west4", None, True),
        ("EU", "europe-west4-a", None, True),
        ("EU", "Norway", None, False),
        ("NO", "Norway", None, True),
        ("US", "California, United States", None, True),
        ("EU", "somewhere", None, False),
        ("EU", None, None, False),
    ],
)
def test_a_place_holds_what_stands_there(wanted: str, region: str | None, country: str | None, holds: bool) -> None:
    assert wanted_place(wanted).holds(region, country) is holds


@pytest.mark.parametrize("text", ["EU", "eea", "NA", "apac", "DE", "no", "Norway", "UK", "usa", "Texas", "Quebec",
                                  "Frankfurt", "Viet Nam", "us-east-1", "europe-west4", "westus2", "EUR-IS-1",
                                  "CA-MTL-1", "fr-par-2", "US-KS-2"])  # fmt: skip
def test_what_owners_write_is_known(text: str) -> None:
    assert unknown_place(text) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Norwy", "did you mean Norway"),
        ("Germny", "did you mean Germany"),
        ("Texs", "did you mean Texas"),
        ("EUU", "did you mean EU"),
        ("XX", "expected a country, one of EU, EEA, NA, APAC, or a region"),
        ("mars-north-1", "did you mean eu-north-1"),
        ("Atlantis", ""),
    ],
)
def test_what_no_place_is_called_is_refused_with_what_may_have_been_meant(text: str, hint: str) -> None:
    fault = unknown_place(text)
    assert fault is not None
    assert repr(text) in fault
    assert hint in fault


def test_a_region_that_a_provider_has_shown_is_known() -> None:
    assert unknown_place("Atlantis", ["Lower Atlantis, Sea"]) is None
    assert unknown_place("Atlant", ["Lower Atlantis, Sea"]) is not None


@pytest.mark.parametrize(
    ("region", "country", "code"),
    [("Frankfurt", "de", "DE"), ("eastus", None, "US"), ("asia-southeast1", None, "SG"), ("5", None, None),
     ("Norway", None, "NO"), ("Georgia", None, None), (None, None, None), ("fr-par-2", None, "FR"),
     ("pl-waw-2", None, "PL"), ("ewr", None, "US"), ("yto", None, "CA")],
)  # fmt: skip
def test_the_country_of_an_offer_is_what_it_states_or_its_region_stands_for(
    region: str | None, country: str | None, code: str | None
) -> None:
    assert country_of(region, country) == code
