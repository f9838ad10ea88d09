"""Shadeform's types × regions as offers of other sellers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import respx

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Query
from gpuwatch.providers.shadeform import INFO, hardware_of
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.providers.clouds import cloud
from tests.providers.shadeform.bench import BENCH
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
LAMBDA = import_module("tests.providers.lambda.bench").BENCH
RECORDED = TESTS / "recorded" / "shadeform"
GUIDE = json.loads((RECORDED / "instance-types-guide.json").read_text())
TYPES = "/instances/types"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def a_type(**changes: Any) -> dict[str, Any]:
    hardware = {
        "num_gpus": 1, "gpu_type": "H100", "interconnect": "pcie", "vram_per_gpu_in_gb": 80, "vcpus": 8,
        "memory_in_gb": 64, "storage_in_gb": 500,
    } | changes.pop("configuration", {})  # fmt: skip
    row = {
        "cloud": "hyperstack", "shade_instance_type": "H100", "cloud_instance_type": "n3", "hourly_price": 240,
        "configuration": hardware, "availability": [{"region": "canada-1", "available": True}],
    }  # fmt: skip
    return row | changes


def parsed(*rows: Any) -> ParseResult:
    return cloud("shadeform").parse_types({"instance_types": list(rows)}, NOW)


def the_offer(**changes: Any) -> Offer:
    [offer] = parsed(a_type(**changes)).offers
    return offer


def test_the_vendors_example_is_three_offers_of_other_sellers() -> None:
    seen = cloud("shadeform").parse_types(GUIDE, NOW)
    reported = [(o.terms.seller, o.gpu, o.gpu_count, o.region, o.country, o.quoted_usd_hour) for o in seen.offers]
    assert reported == [
        ("runpod", "A100 PCIe 80GB", 1, "any", None, 2.03),
        ("oblivus", "H100 PCIe", 8, "MON1", "CA", 32.8),
        ("massedcompute", "RTX A6000", 1, "us-central-2", "US", 0.57),
    ]
    assert {offer.kind for offer in seen.offers} == {OfferKind.LIVE}
    assert (seen.skipped, list(seen.drift)) == ({}, [])


def test_a_gpu_is_reported_by_model_memory_and_form() -> None:
    cases: list[Any] = [
        ("A100", 40, "pcie", "A100 PCIe 40GB"),
        ("A100_80G", 80, "pcie", "A100 PCIe 80GB"),
        ("A100_80G", 80, "sxm4", "A100 SXM 80GB"),
        ("H100", 80, "pcie", "H100 PCIe"),
        ("H100_sxm5", 80, "sxm5", "H100 SXM"),
        ("H100_nvl", 94, "pcie", "H100 NVL"),
        ("A6000", 48, "pcie", "RTX A6000"),
        ("MI300X", 192, "oam", "MI300X"),
        ("GAUDI2", 96, "", "Gaudi 2"),
    ]
    for gpu_type, vram_gb, interconnect, gpu in cases:
        with case((gpu_type, vram_gb, interconnect, gpu)):
            reported = {
                "gpu_type": gpu_type,
                "vram_per_gpu_in_gb": vram_gb,
                "interconnect": interconnect,
                "num_gpus": 8,
            }
            assert hardware_of(reported).gpu.name == gpu


def test_a_gpu_whose_form_nobody_tells_is_noted_as_open() -> None:
    offer = the_offer(configuration={"interconnect": None})
    assert "H100 SXM or H100 PCIe" in (offer.terms.note or "")


REPORTED = Path(__file__).parents[1] / "reported"


def an_entry(**changes: Any) -> dict[str, Any]:
    return {"region": "canada-1", "available": True, "rental_type": "on_demand"} | changes


def test_a_region_that_is_free_as_spot_only_is_not_on_demand() -> None:
    """The reported answer: one entry of `availability` per rental type, the free one is spot."""
    seen = cloud("shadeform").parse_types(json.loads((REPORTED / "shadeform-spot.json").read_text()), NOW)
    found = [(offer.gpu, offer.spot, offer.quoted_usd_hour, offer.kind) for offer in seen.offers]
    assert found == [("B300 SXM", True, 36.0, OfferKind.LISTED), ("L40S", False, 1.5, OfferKind.LIVE)]
    assert "cannot order spot" in (seen.offers[0].terms.note or "")
    assert seen.skipped == {}


def test_an_entry_is_an_offer_of_its_rental_type_at_its_own_price() -> None:
    cases: list[Any] = [
        ({}, [(False, 2.4)], None),
        ({"rental_type": None}, [(False, 2.4)], None),
        ({"hourly_price": 300}, [(False, 3.0)], None),  # a region's own price
        ({"hourly_price": "soon"}, [], "a region's price that is not understood"),
        ({"rental_type": "spot"}, [], "spot without a price of its own"),
        ({"rental_type": "spot", "hourly_price": "0"}, [], "spot without a price of its own"),
        ({"rental_type": "spot", "hourly_price": 120}, [(True, 1.2)], None),  # cents
        ({"rental_type": "spot", "hourly_price": "1.2"}, [(True, 1.2)], None),  # dollars
        ({"rental_type": "reserved"}, [], None),
        ({"rental_type": "auction", "hourly_price": 100}, [], "a rental type that is not known: auction"),
        ({"rental_type": 7}, [], "a rental type that is not known"),
        ({"deprecated": True}, [], None),
    ]
    for entry, found, skipped in cases:
        with case((entry, found, skipped)):
            seen = parsed(a_type(availability=[an_entry(**entry)]))
            assert [(offer.spot, offer.quoted_usd_hour) for offer in seen.offers] == found
            assert seen.skipped == ({} if skipped is None else {skipped: 1})


def test_a_socket_in_a_name_against_the_field_leaves_the_card_open() -> None:
    cases: list[Any] = [
        ({"shade_instance_type": "A100_80G_sxm4x8", "cloud_instance_type": "a100-80gb-sxm-ib.8x"}, "A100 80GB", None),
        ({"shade_instance_type": "A100_80Gx8"}, "A100 PCIe 80GB", "PCIe"),
        ({"shade_instance_type": "A100_80Gx8", "cloud_instance_type": "A100-SXM4-80GB"}, "A100 80GB", None),
    ]
    for changes, gpu, link in cases:
        with case((changes, gpu, link)):
            hardware = {"gpu_type": "A100_80G", "num_gpus": 8, "interconnect": "pcie"}
            offer = the_offer(**changes, configuration=hardware)
            assert (offer.gpu, offer.terms.interconnect) == (gpu, link)


def test_a_slice_is_seen_in_the_sellers_own_name() -> None:
    offer = the_offer(cloud="vultr", cloud_instance_type="vcg-a16-2c-8g-2vram", shade_instance_type="A16")
    assert offer.terms.gpu_fraction == 1 / 8


def test_a_seller_bears_the_name_that_gpuwatch_knows_it_by() -> None:
    assert the_offer(cloud="lambdalabs").terms.seller == "lambda"
    assert the_offer(cloud="hyperstack").terms.seller == "hyperstack"


def test_what_joins_the_gpus_is_reported_where_it_is_known() -> None:
    cases: list[Any] = [
        ({"nvlink": True}, "NVLink"),
        ({}, "PCIe"),
        ({"interconnect": "sxm5"}, "NVLink"),
        ({"interconnect": "?"}, None),
    ]
    for configuration, reported in cases:
        with case((configuration, reported)):
            assert the_offer(configuration=configuration).terms.interconnect == reported


def test_a_country_is_read_and_not_guessed() -> None:
    cases: list[Any] = [("US, Kansas City, KS", "US"), ("UK, London", "GB"), ("Toronto, Canada", None), (17, None)]
    for place, country in cases:
        with case((place, country)):
            here = [{"region": "r-1", "available": True, "display_name": place}]
            assert the_offer(availability=here).country == country


def test_a_container_is_noted() -> None:
    assert "container" in (the_offer(deployment_type="container").terms.note or "")


def test_an_id_holds_what_a_create_needs_and_the_price() -> None:
    offer = the_offer()
    assert (offer.offer_id, offer.machine_id) == ("hyperstack/H100/canada-1/240", "hyperstack/H100/canada-1")
    assert (offer.quoted_usd_hour, offer.quoted_disk_gb, offer.disk_usd_gb_month) == (2.4, 500.0, None)


def test_only_a_plain_true_is_available() -> None:
    regions = [
        {"region": name, "available": value} for name, value in (("a", "true"), ("b", 1), ("c", None), ("d", True))
    ]
    assert [offer.region for offer in parsed(a_type(availability=regions)).offers] == ["d"]


def test_what_is_nowhere_available_is_an_answer_without_offers() -> None:
    seen = parsed(a_type(availability=[]), a_type(availability=[{"region": "a", "available": False}]))
    assert (seen.offers, seen.rows, seen.skipped) == ([], 2, {})


def test_an_odd_row_is_skipped_with_its_reason() -> None:
    cases: list[Any] = [
        ({"hourly_price": 0}, "no usable price"),
        ({"hourly_price": "NaN"}, "no usable price"),
        ({"configuration": {"num_gpus": 0}}, "no number of GPUs"),
        ({"configuration": {"gpu_type": None}}, "no GPU"),
        ({"shade_instance_type": "H100x8"}, "its name and its configuration tell different numbers of GPUs"),
        ({"cloud": "a/b"}, "no cloud or type"),
        ({"availability": None}, "no list of regions"),
    ]
    for changes, reason in cases:
        with case((changes, reason)):
            seen = parsed(a_type(), a_type(**changes))
            assert (len(seen.offers), seen.skipped) == (1, {reason: 1})


def test_an_id_that_cannot_be_kept_is_counted() -> None:
    far = [{"region": "r" * 40, "available": True}]
    seen = parsed(a_type(shade_instance_type="t" * 30, availability=far))
    assert (seen.offers, seen.skipped) == ([], {"a longer id than can be kept": 1})


def test_what_is_no_list_of_types_is_no_market_without_offers() -> None:
    cases: list[Any] = [{"instance_types": []}, {"instance_types": {}}, {}, [], {"instance_types": [{}]}]
    for value in cases:
        with case(value), pytest.raises(PayloadChanged):
            cloud("shadeform").parse_types(value, NOW)


def test_prices_are_asked_for_without_a_key_and_once_for_all_watches(respx_mock: respx.MockRouter) -> None:
    listed = respx_mock.get(TYPES).respond(json=GUIDE)
    with BENCH.pointed_at(INFO.base_url, None) as adapter:
        assert adapter.market.search(Query(gpus=("H100 PCIe",))).offers
        assert adapter.market.search(Query(gpus=("RTX A6000",))).offers
        assert list(adapter.market.search(Query(spot=True)).offers) == []
    assert sent(listed.calls) == [("GET", f"/v1{TYPES}?sort=price", None)]
    assert "x-api-key" not in listed.calls.last.request.headers
