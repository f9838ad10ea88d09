"""The price list on loopback behaves like the real one."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from tests.clouds.azure import AzurePrices

VM = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption'"


def asked(url: str) -> Any:
    with urlopen(url, timeout=240) as answer:
        return json.load(answer)


def rows(place: AzurePrices, wanted: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(f"{place.url}/api/retail/prices?$filter={quote(wanted)}")["Items"]
    return found


def test_values_of_a_filter_are_compared_with_their_case() -> None:
    with AzurePrices() as place:
        assert rows(place, VM)
        assert rows(place, VM.replace("Virtual", "virtual")) == []
        assert rows(place, VM.replace("Consumption", "consumption")) == []
        assert rows(place, f"{VM} and (contains(armSkuName,'h100'))") == []


def test_a_filter_narrows_by_machine_and_by_region() -> None:
    with AzurePrices() as place:
        wanted = f"{VM} and (contains(armSkuName,'A100') or armSkuName eq 'Standard_ND96asr_v4')"
        assert {row["armSkuName"] for row in rows(place, wanted)} >= {"Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"}
        narrowed = rows(place, f"{wanted} and (armRegionName eq 'eastus')")
        assert {row["armRegionName"] for row in narrowed} == {"eastus"}


def test_the_kind_of_price_is_a_filters_name_and_type_in_a_row() -> None:
    with AzurePrices() as place:
        reserved = rows(place, VM.replace("Consumption", "Reservation"))
        assert [row["type"] for row in reserved] == ["Reservation"]
        assert "priceType" not in reserved[0]


def test_pages_are_joined_by_links_and_the_last_has_none() -> None:
    with AzurePrices(page_size=100) as place:
        page = asked(f"{place.url}/api/retail/prices?api-version=2023-01-01-preview")
        counts = [page["Count"]]
        while page["NextPageLink"]:
            page = asked(page["NextPageLink"])
            counts.append(page["Count"])
        assert counts == [100, 100, 100, len(place.rows) - 300]
