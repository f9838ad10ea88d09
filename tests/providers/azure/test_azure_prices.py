"""Which rows of Azure's price list are offers, and the hardware of a machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.azure.market import families_of, filter_of, machine, parse_prices
from gpuwatch.testing.suite import case
from tests.clouds.azure import price_row

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
H100 = "Standard_ND96isr_H100_v5"
NVL = "Standard_NC40ads_H100_v5"
REAL = price_row(H100, "eastus", 98.32)


def test_a_row_that_is_no_linux_hour_for_everyone_is_left_out_without_a_fault() -> None:
    cases: list[Any] = [
        {"type": "Reservation", "reservationTerm": "1 Year"},
        {"type": "DevTestConsumption"},
        {"unitOfMeasure": "1/Month"},
        {"productName": "Virtual Machines NDsr H100 v5 Srs Win"},
        {"productName": "Virtual Machines NDsr H100 v5 Series Windows"},
        {"productName": "NDsr H100 v5 Series CloudServices"},
        {"productName": "NDsr H100 v5 Dedicated Host"},
        {"meterName": "ND96isr H100 v5 Low Priority"},
        {"armRegionName": "usgovvirginia"},
        {"armRegionName": "usdodcentral"},
        {"armRegionName": "chinanorth3"},
        {"armRegionName": "centraluseuap"},
        {"armRegionName": "eastusstg"},
        {"tierMinimumUnits": 100.0},
    ]
    for changes in cases:
        with case(changes):
            seen = parse_prices([REAL, REAL | changes | {"retailPrice": 90.0}], NOW)
            assert [offer.quoted_usd_hour for offer in seen.offers] == [98.32]
            assert seen.skipped == {}


def test_a_placeholder_or_a_hostile_price_is_skipped_and_counted() -> None:
    cases: list[Any] = [
        0,
        0.0,
        0.00001,
        999_999,
        -3.0,
        float("nan"),
        float("inf"),
        None,
        "",
        "cheap",
        [1],
        {},
        True,
        10**400,
    ]
    for price in cases:
        with case(price):
            seen = parse_prices([REAL, price_row(NVL, "eastus", price)], NOW)  # type: ignore[arg-type]
            assert [offer.gpu for offer in seen.offers] == ["H100 SXM"]
            assert seen.skipped == {"no price, or a placeholder": 1}


def test_a_price_under_a_fifth_of_its_types_median_is_a_placeholder() -> None:
    rows = [price_row(NVL, region, 6.98) for region in ("eastus", "westus3", "uksouth")]
    seen = parse_prices([*rows, price_row(NVL, "ukwest", 1.39), price_row(NVL, "italynorth", 1.4)], NOW)
    assert sorted(offer.region or "" for offer in seen.offers) == ["eastus", "italynorth", "uksouth", "westus3"]
    assert seen.skipped == {"a placeholder: far under the median of its type over the regions": 1}


def test_spot_is_reported_by_the_meters_name_and_a_full_price_says_so() -> None:
    spot = {"meterName": "NC40ads H100 v5 Spot"}
    rows = [
        price_row(NVL, "eastus", 6.98),
        price_row(NVL, "eastus", 2.79, **spot),
        price_row(NVL, "uksouth", 8.38),
        price_row(NVL, "uksouth", 8.38, **spot),
    ]
    found = {offer.offer_id: offer for offer in parse_prices(rows, NOW).offers}
    assert found[f"{NVL}/eastus/spot"].spot
    assert not found[f"{NVL}/eastus/od"].spot
    assert found[f"{NVL}/eastus/spot"].terms.note is None
    assert "without a discount" in (found[f"{NVL}/uksouth/spot"].terms.note or "")


def test_the_number_in_a_machines_name_is_not_its_gpus() -> None:
    cases: list[Any] = [
        ("ND128isr_NDR_GB200_v6", "GB200", 4),
        ("ND96isr_H200_v5", "H200 SXM", 8),
        ("ND96is_H100_v5", "H100 SXM", 8),
        ("NCC40ads_H100_v5", "H100 NVL", 1),
        ("NC80adis_H100_v5", "H100 NVL", 2),
        ("ND96amsr_A100_v4", "A100 SXM 80GB", 8),
        ("ND96asr_v4", "A100 SXM 40GB", 8),
        ("NC48ads_A100_v4", "A100 PCIe 80GB", 2),
        ("NV36adms_A10_v5", "A10", 1),
        ("NC64as_T4_v3", "T4", 4),
        ("NC24rs_v3", "V100 PCIe 16GB", 4),
        ("ND40rs_v2", "V100 SXM2 32GB", 8),
    ]
    for sku, gpu, gpus in cases:
        with case((sku, gpu, gpus)):
            found = machine(f"Standard_{sku}")
            assert found is not None
            assert (found.gpu, found.gpus) == (gpu, gpus)


def test_a_part_of_a_gpu_is_no_gpu() -> None:
    cases: list[Any] = [("NV6", 6, 4.0), ("NV12", 3, 8.0), ("NV18", 2, 12.0)]
    for sku, parts, gib in cases:
        with case((sku, parts, gib)):
            [offer] = parse_prices([price_row(f"Standard_{sku}ads_A10_v5", "eastus", 0.9)], NOW).offers
            assert offer.terms.gpu_fraction == pytest.approx(1 / parts)
            assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib) == ("A10", 1, gib)


def test_an_unknown_machine_is_reported_by_name_and_never_guessed() -> None:
    seen = parse_prices([REAL, price_row("Standard_ND96ixr_H100_v7", "eastus", 88.0)], NOW)
    assert len(seen.offers) == 1
    assert "new machine type: Standard_ND96ixr_H100_v7" in seen.drift
    assert seen.skipped == {"a machine type that is in no table": 1}


def test_an_offer_is_listed_and_carries_its_region_and_machine() -> None:
    [offer] = parse_prices([REAL, REAL], NOW).offers
    assert offer.kind is OfferKind.LISTED
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib, offer.vcpu) == ("H100 SXM", 8, 80, 96)
    assert (offer.region, offer.terms.instance_type, offer.terms.currency) == ("eastus", H100, "USD")
    assert offer.machine_id == f"eastus/{H100}"
    assert offer.observed_at == NOW


def test_a_price_in_another_currency_is_not_taken_for_dollars() -> None:
    euros = price_row(NVL, "eastus", 6.5, currencyCode="EUR")
    seen = parse_prices([REAL, euros], NOW)
    assert (len(seen.offers), seen.skipped) == (1, {"no price, or a placeholder": 1})
    windows = euros | {"productName": f"{euros['productName']} Windows"}
    with pytest.raises(PayloadChanged, match="1 × no price, or a placeholder"):
        parse_prices([euros, windows], NOW)  # no dollar price at all is not "nothing for sale"


@pytest.mark.parametrize(
    "span", [{"effectiveStartDate": "2026-12-01T00:00:00Z"}, {"effectiveEndDate": "2026-11-01T00:00:00Z"}]
)
def test_a_price_of_another_time_is_not_the_price_of_today(span: dict[str, str]) -> None:
    seen = parse_prices([REAL, REAL | {"retailPrice": 80.0} | span], NOW)
    assert [offer.quoted_usd_hour for offer in seen.offers] == [98.32]


def test_a_renamed_field_is_a_changed_format_and_not_an_empty_market() -> None:
    renamed = {("price" if name == "retailPrice" else name): value for name, value in REAL.items()}
    with pytest.raises(PayloadChanged):
        parse_prices([renamed, "text", None, []], NOW)
    seen = parse_prices([REAL, renamed], NOW)
    assert "field gone: retailPrice" in seen.drift
    assert seen.skipped == {"a row without what a price needs": 1}


def test_only_the_families_that_are_asked_for_are_in_the_filter() -> None:
    assert families_of(["H100 NVL", "A100 SXM 40GB"]) == ("H100", "A100")
    assert families_of(["RTX 4090"]) == ()
    assert len(families_of([])) == 8
    assert filter_of("H100", ("eastus", "uksouth")) == (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and (contains(armSkuName,'H100'))"
        " and (armRegionName eq 'eastus' or armRegionName eq 'uksouth')"
    )


def test_a_list_without_one_hourly_price_is_a_changed_format() -> None:
    with pytest.raises(PayloadChanged, match="none of 1 row "):
        parse_prices([REAL | {"unitOfMeasure": "1 hour of use"}], NOW)


@pytest.mark.parametrize("field", ["meterName", "skuName"])
def test_spot_and_low_priority_are_seen_in_either_name(field: str) -> None:
    spot = price_row(NVL, "eastus", 2.79, **{field: "NC40ads H100 v5 Spot"})
    low = price_row(NVL, "eastus", 1.4, **{field: "NC40ads H100 v5 Low Priority"})
    assert [(offer.spot, offer.quoted_usd_hour) for offer in parse_prices([REAL, spot, low], NOW).offers] == [
        (True, 2.79),
        (False, 98.32),
    ]


def test_a_row_without_its_words_is_not_taken_for_linux_on_demand() -> None:
    cases: list[Any] = ["productName", "meterName", "armRegionName"]
    for field in cases:
        with case(field):
            for value in (None, 5, ["x"], {}):
                seen = parse_prices([REAL, price_row(NVL, "eastus", 1.0, **{field: value})], NOW)
                assert [offer.quoted_usd_hour for offer in seen.offers] == [98.32]
                assert seen.skipped == {"a row without what a price needs": 1}
