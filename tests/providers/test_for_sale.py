"""At every provider: rental types are never mixed up, and what is announced to end is not an offer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Query
from gpuwatch.providers.aws.offers import parse_instance_type
from gpuwatch.providers.azure.market import parse_prices as azure_prices
from gpuwatch.providers.gcp.parts import PartPrices, read_skus
from gpuwatch.providers.gpuhunt.market import parse_items
from gpuwatch.providers.hyperstack import parse_prices as book_prices
from gpuwatch.providers.pricelist.declaration import built_in_sources
from gpuwatch.providers.pricelist.source_reader import SourceReader
from gpuwatch.providers.primeintellect import parse_rows
from gpuwatch.providers.runpod.catalogue import CatalogueRequest, parse_catalogue
from gpuwatch.providers.tensordock.offers import ResourcesPerGpu, parse_locations
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.post_processing import ParseResult, matching
from gpuwatch.testing.suite import case
from tests.builders import an_offer
from tests.checkout import TESTS
from tests.providers.clouds import cloud

NOW = datetime(2026, 11, 28, tzinfo=UTC)
RECORDED = TESTS / "recorded"
REPORTED = Path(__file__).parent / "reported"
DOLLAR = ExchangeRate(currency="USD", usd=1.0)


def recorded(path: str) -> Any:
    return json.loads((RECORDED / path).read_text())


def runpod_offers(**changes: Any) -> list[Offer]:
    [row] = json.loads((REPORTED / "runpod-pro-4500.json").read_text())["gpus"]
    return list(parse_catalogue({"gpus": [row | changes]}, CatalogueRequest("SECURE", 1, 10.0, NOW)).offers)


def shadeform_offers(**changes: Any) -> list[Offer]:
    value = json.loads((REPORTED / "shadeform-spot.json").read_text())
    return list(cloud("shadeform").parse_types({"instance_types": [value["instance_types"][1] | changes]}, NOW).offers)


def prime_offers(**changes: Any) -> list[Offer]:
    row = {"cloudId": "n3", "gpuType": "H100_80GB", "socket": "PCIe", "provider": "hyperstack", "dataCenter": "C-1",
           "gpuCount": 1, "gpuMemory": 80, "stockStatus": "Available", "isSpot": None,
           "prices": {"onDemand": 1.9, "currency": "USD"}}  # fmt: skip
    return list(parse_rows([row | changes], lambda _currency: DOLLAR, NOW).offers)


def verda_offers(**changes: Any) -> list[Offer]:
    row = {"instance_type": "1H100.80S.30V", "price_per_hour": "2.0", "spot_price": "1.0", "currency": "usd",
           "gpu": {"description": "1x H100 SXM5 80GB", "number_of_gpus": 1},
           "gpu_memory": {"size_in_gigabytes": 80}}  # fmt: skip
    stock = {False: {"FIN-01": ["1H100.80S.30V"]}, True: {"FIN-01": ["1H100.80S.30V"]}}
    return list(cloud("verda").parse_offers([row | changes], stock, 0.2, NOW).offers)


def flavor_offers(**changes: Any) -> list[Offer]:
    row = {"name": "n3-A100x1", "region_name": "NORWAY-1", "gpu": "A100-80G-PCIe", "gpu_count": 1, "cpu": 8, "ram": 64,
           "disk": 100, "ephemeral": 0, "stock_available": True}  # fmt: skip
    value = {"status": True, "data": [{"flavors": [row | changes]}]}
    return list(
        cloud("hyperstack").parse_flavors(value, {"A100-80G-PCIe": 1.35, "A100-80G-PCIe-spot": 1.0}, NOW).offers
    )


def tensordock_offers(**changes: Any) -> list[Offer]:
    gpu = {"v0Name": "geforcertx4090-pcie-24gb", "max_count": 1, "price_per_hr": 0.4,
           "resources": {"max_vcpus": 16, "max_ram_gb": 64, "max_storage_gb": 500},
           "pricing": {"per_vcpu_hr": 0.003, "per_gb_ram_hr": 0.002, "per_gb_storage_hr": 0.00005}}  # fmt: skip
    row = {"id": "1a779525-4c04-4f2c-aa45-58b47d54bb38", "country": "Norway", "gpus": [gpu | changes]}
    return list(parse_locations({"data": {"locations": [row]}}, ResourcesPerGpu(), NOW).offers)


def scaleway_offers(**changes: Any) -> list[Offer]:
    reader = SourceReader(built_in_sources()["scaleway"], lambda _currency: DOLLAR, NOW)
    reader.add_page({"servers": {"L4-1-24G": {"hourly_price": 0.75, "gpu": 1, "ncpus": 8} | changes}}, "fr-par-1")
    return list(reader.result.offers)


def lambda_offers(**changes: Any) -> list[Offer]:
    kind = {
        "name": "gpu_1x_a10",
        "description": "1x A10 (24 GB PCIe)",
        "gpu_description": "A10 (24 GB PCIe)",
        "price_cents_per_hour": 75,
        "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": 1},
    }
    row = {"instance_type": kind | changes, "regions_with_capacity_available": [{"name": "us-west-1"}]}
    parse = cloud("lambda").parse_types
    return list(parse({"data": {"gpu_1x_a10": row}}, NOW).offers)


SOURCES: dict[str, Callable[..., list[Offer]]] = {
    "runpod": runpod_offers, "shadeform": shadeform_offers, "primeintellect": prime_offers, "verda": verda_offers,
    "hyperstack": flavor_offers, "tensordock": tensordock_offers, "pricelist": scaleway_offers,
    "lambda": lambda_offers,
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(
    "announced", [{"end_of_sale": True}, {"deprecated": True}, {"status": "retiring"}, {"valid_until": "2026-11-27"}]
)
def test_a_row_that_is_announced_to_end_is_no_offer(name: str, announced: dict[str, Any]) -> None:
    offers = SOURCES[name]
    assert offers()
    assert offers(valid_until="2027-01-01", deprecated=False)
    assert offers(**announced) == []


def test_an_offer_whose_end_has_passed_is_no_offer() -> None:
    """The host's end date at vast.ai, and the end of any other offer."""
    now, past = an_offer(available_until=None), an_offer().observed_at
    assert matching([now], Query())
    assert matching([an_offer(available_until=past)], Query()) == []


def test_the_reported_edition_is_the_catalogued_card() -> None:
    assert {offer.gpu for offer in runpod_offers()} == {"RTX PRO 4500"}


def test_a_rental_type_that_is_not_stated_plainly_is_no_offer_at_prime_intellect() -> None:
    cases: list[Any] = [(None, [False]), (False, [False]), (True, [True]), ("true", []), (1, [])]
    for value, spots in cases:
        with case((value, spots)):
            assert [offer.spot for offer in prime_offers(isSpot=value)] == spots


def test_a_flavor_of_another_rental_type_is_not_on_demand() -> None:
    cases: list[Any] = [{"name": "n3-A100x1-spot"}, {"gpu": "A100-80G-PCIe-spot"}, {"is_spot": True},
    {"name": "n3-A100x1-reserved"}]  # fmt: skip
    for changes in cases:
        with case(changes):
            assert flavor_offers(**changes) == []


def test_verda_shows_spot_only_at_a_price_of_its_own() -> None:
    assert {offer.spot for offer in verda_offers()} == {False, True}
    assert {offer.spot for offer in verda_offers(spot_price=None)} == {False}


def test_a_price_of_the_book_counts_while_it_is_in_force() -> None:
    book = [
        {"name": "A100", "value": "1.0", "start_time": "2026-01-01T00:00:00", "end_time": "2026-11-01T00:00:00"},
        {"name": "A100", "value": "1.5", "start_time": "2026-11-01T00:00:00", "end_time": None},
        {"name": "A100", "value": "9.0", "start_time": "2027-01-01T00:00:00Z", "end_time": None},
    ]
    assert book_prices(book, NOW) == {"A100": 1.5}
    with pytest.raises(PayloadChanged):
        book_prices(book[:1], NOW)


# --- Azure ------------------------------------------------------------------------------------------------------------
def azure_row(**changes: Any) -> dict[str, Any]:
    row = {"armSkuName": "Standard_ND96isr_H100_v5", "armRegionName": "eastus", "retailPrice": 98.0,
           "unitOfMeasure": "1 Hour", "meterName": "ND96isr H100 v5", "skuName": "ND96isr H100 v5",
           "productName": "Virtual Machines NDsr H100 v5 Series", "type": "Consumption", "currencyCode": "USD",
           "effectiveStartDate": "2024-01-01T00:00:00Z"}  # fmt: skip
    return row | changes


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("other", "price"),
    [
        ({"retailPrice": 88.0, "effectiveStartDate": "2026-06-01T00:00:00Z"}, 88.0),  # in force last
        ({"retailPrice": 88.0, "effectiveStartDate": "2023-06-01T00:00:00Z"}, 98.0),
        ({"retailPrice": 99.0}, 99.0),  # from one day: the higher
        ({"retailPrice": 88.0, "effectiveStartDate": "2027-01-01T00:00:00Z"}, 98.0),  # announced
    ],
)
def test_of_two_prices_in_force_the_newest_counts(other: dict[str, Any], price: float, reverse: bool) -> None:
    rows = [azure_row(), azure_row(**other)]
    [offer] = azure_prices(rows[::-1] if reverse else rows, NOW).offers
    assert offer.quoted_usd_hour == price


def test_a_price_that_ended_or_is_not_for_everyone_is_no_offer_at_azure() -> None:
    cases: list[Any] = [
        {"meterName": "ND96isr H100 v5 - Expired"},
        {"skuName": "ND96isr H100 v5 (deprecated)"},
        {"reservationTerm": "1 Year"},
        {"type": "DevTestConsumption"},
        {"effectiveEndDate": "2026-01-01T00:00:00Z"},
    ]
    for other in cases:
        with case(other):
            rows = [azure_row(armRegionName="westus"), azure_row(retailPrice=1.0, **other)]
            assert [offer.region for offer in azure_prices(rows, NOW).offers] == ["westus"]


# --- Google Cloud -----------------------------------------------------------------------------------------------------
def sku(description: str, usage: str, *prices: tuple[str, int]) -> dict[str, Any]:
    timeline = [
        {"effectiveTime": at, "pricingExpression": {
            "usageUnit": "h", "tieredRates": [{"unitPrice": {"units": str(usd), "currencyCode": "USD"}}]}}
        for at, usd in prices
    ]  # fmt: skip
    return {
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": ["r"],
        "pricingInfo": timeline,
    }


def test_of_a_timeline_of_prices_the_newest_in_force_counts() -> None:
    timeline = (("2024-01-01T00:00:00Z", 1), ("2026-01-01T00:00:00Z", 2), ("2027-01-01T00:00:00Z", 3))
    prices: PartPrices = {}
    read_skus({"skus": [sku("Nvidia L4 GPU running in Iowa", "OnDemand", *timeline)]}, prices, ParseResult(), NOW)
    assert list(prices.values()) == [2.0]


def test_a_sku_of_another_rental_type_is_no_price() -> None:
    cases: list[Any] = [
        ("Spot Preemptible Nvidia L4 GPU running in Iowa", "OnDemand", 1),
        ("Nvidia L4 GPU running in Iowa", "Preemptible", 1),
        ("Nvidia L4 GPU attached to DWS Flex Start running in Iowa", "OnDemand", 0),
        ("Nvidia L4 GPU running in Iowa (Deprecated)", "OnDemand", 0),
        ("Nvidia L4 GPU running in Iowa", "Commit1Yr", 0),
    ]
    for description, usage, skips in cases:
        with case((description, usage, skips)):
            prices, result = PartPrices(), ParseResult()
            read_skus({"skus": [sku(description, usage, ("2024-01-01T00:00:00Z", 1))]}, prices, result, NOW)
            assert (prices, sum(result.skipped.values())) == ({}, skips)


# --- others -----------------------------------------------------------------------------------------------------------
def test_a_catalogue_row_that_is_reserved_or_a_cluster_is_no_offer() -> None:
    cases: list[Any] = [
        ([], 1),
        (["gcp-g4"], 1),
        (["gcp-dws-calendar-mode"], 0),
        (["runpod-cluster"], 0),
        (["aws-capacity-block"], 0),
    ]
    for flags, offers in cases:
        with case((flags, offers)):
            item = SimpleNamespace(
                instance_name="g4-standard-48",
                gpu_name="L4",
                location="us-central1",
                gpu_count=1,
                price=1.0,
                gpu_memory=24.0,
                gpu_vendor="nvidia",
                spot=False,
                disk_size=0,
                cpu=8,
                memory=32,
                cpu_arch="x86",
                flags=flags,
                provider_data={},
            )
            assert len(parse_items([item], "gcp", "note", OfferKind.LISTED, NOW).offers) == offers


def test_a_type_that_is_sold_as_blocks_only_is_no_machine_to_rent() -> None:
    cases: list[Any] = [(["on-demand", "spot"], True), (["spot"], True), (["capacity-block"], False), (None, True)]
    for usages, sold in cases:
        with case((usages, sold)):
            gpu = {"Name": "H100", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}
            row = {"InstanceType": "p9.48xlarge", "GpuInfo": {"Gpus": [gpu]}, "SupportedUsageClasses": usages}
            assert (parse_instance_type(row) is not None) is sold
