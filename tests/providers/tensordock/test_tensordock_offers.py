"""From locations and hosts to offers: the parts of a price, and values that are not prices."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
import respx

from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.ports import Query
from gpuwatch.providers.tensordock import INFO
from gpuwatch.providers.tensordock.create import OfferKey, country_of, gpu_of, parse_offer_key
from gpuwatch.providers.tensordock.offers import ResourcesPerGpu, parse_hostnodes, parse_locations
from gpuwatch.testing.suite import case
from tests.providers.tensordock.stand_in import BENCH, HOSTS, recorded
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=f"{INFO.base_url}/api/v2")
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def locations() -> Any:
    return recorded("v2-locations-docs")


def changed(**fields: Any) -> Any:
    """The documented answer with only the H100, changed."""
    value = deepcopy(locations())
    place = value["data"]["locations"][0]
    place["gpus"] = [place["gpus"][0] | fields]
    return value


def prices(value: Any, recipe: ResourcesPerGpu | None = None) -> list[float]:
    return [offer.quoted_usd_hour for offer in parse_locations(value, recipe or ResourcesPerGpu(), NOW).offers]


# --- the price --------------------------------------------------------------------------------------------------------


def test_a_price_is_the_sum_of_its_parts() -> None:
    assert prices(changed(max_count=2)) == pytest.approx([2.293, 2 * 2.2 + 16 * 0.003 + 64 * 0.002 + 100 * 0.00005])


def test_what_goes_with_a_gpu_is_the_owners_wish() -> None:
    assert prices(changed(max_count=1), ResourcesPerGpu(vcpu_per_gpu=4, ram_gb_per_gpu=16)) == pytest.approx(
        [2.2 + 4 * 0.003 + 16 * 0.002 + 100 * 0.00005]
    )


def test_what_goes_with_a_gpu_is_cut_to_what_there_is_in_even_steps() -> None:
    room = {"max_vcpus": 5, "max_ram_gb": 31, "max_storage_gb": 1000}
    [offer] = parse_locations(changed(max_count=1, resources=room), ResourcesPerGpu(), NOW).offers
    assert (offer.vcpu, offer.ram_gib) == (4, 24)
    assert offer.quoted_usd_hour == pytest.approx(2.2 + 4 * 0.003 + 24 * 0.002 + 100 * 0.00005)


def test_more_disk_costs_its_rate() -> None:
    [offer] = parse_locations(changed(max_count=1), ResourcesPerGpu(), NOW).offers
    assert (offer.quoted_disk_gb, offer.disk_usd_gb_month) == (100, pytest.approx(0.036))
    more = price_of(offer, 300.0, Commission()).listed_microusd_hour
    assert more == round((2.293 + 200 * 0.00005) * 1_000_000)


@pytest.mark.parametrize("key", ["per_vcpu_hr", "per_gb_ram_hr", "per_gb_storage_hr"])
@pytest.mark.parametrize("rate", [None, "free", -0.1, float("nan"), True])
def test_a_rate_that_is_missing_or_none_is_never_zero(key: str, rate: Any) -> None:
    pricing = {"per_vcpu_hr": 0.003, "per_gb_ram_hr": 0.002, "per_gb_storage_hr": 0.00005} | {key: rate}
    seen = parse_locations(changed(pricing=pricing), ResourcesPerGpu(), NOW)
    assert seen.offers == []
    [(reason, rows)] = seen.skipped.items()
    assert (reason.startswith("the rate of "), rows) == (True, 1)


def test_a_location_whose_rates_were_left_out_gives_no_price() -> None:
    value = recorded("v2-locations-live-2025-excerpt")
    seen = parse_locations(value, ResourcesPerGpu(), NOW)
    assert (seen.offers, list(seen.skipped.values())) == ([], [1])


# --- stock ------------------------------------------------------------------------------------------------------------


def test_there_is_one_offer_for_each_number_of_gpus_up_to_the_largest() -> None:
    offers = parse_locations(changed(max_count=8), ResourcesPerGpu(), NOW).offers
    assert [offer.gpu_count for offer in offers] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len({offer.offer_id for offer in offers}) == 8
    assert len({offer.machine_id for offer in offers}) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_none_left_is_no_offer_and_no_fault(count: int) -> None:
    seen = parse_locations(changed(max_count=count), ResourcesPerGpu(), NOW)
    assert (seen.offers, seen.skipped) == ([], {})


def test_a_number_of_gpus_that_is_none_is_skipped() -> None:
    cases: list[Any] = [None, "many", 1.5, 65, 10**9, float("inf")]
    for count in cases:
        with case(count):
            seen = parse_locations(changed(max_count=count), ResourcesPerGpu(), NOW)
            assert (seen.offers, seen.skipped) == ([], {"a number of GPUs that is none": 1})


def test_where_something_else_is_used_up_nothing_is_offered() -> None:
    cases: list[Any] = [{"max_vcpus": 1}, {"max_ram_gb": 7}, {"max_storage_gb": 99}]
    for short in cases:
        with case(short):
            room = {"max_vcpus": 128, "max_ram_gb": 300, "max_storage_gb": 1000} | short
            assert prices(changed(resources=room)) == []


def test_a_place_that_forwards_no_ports_is_not_rentable() -> None:
    offers = parse_locations(
        changed(network_features={"port_forwarding_available": False}), ResourcesPerGpu(), NOW
    ).offers
    assert {offer.rentable for offer in offers} == {False}


def test_gpus_are_understood_as_a_list_and_as_a_map() -> None:
    value = locations()
    place = value["data"]["locations"][0]
    place["gpus"] = {gpu["v0Name"]: {k: v for k, v in gpu.items() if k != "v0Name"} for gpu in place["gpus"]}
    assert prices(value) == prices(locations())
    assert prices(value["data"]) == prices(locations())  # one source saw it without its envelope


def test_a_new_field_and_one_that_is_gone_are_reported() -> None:
    value = changed(max_count=1, colour="red")
    del value["data"]["locations"][0]["gpus"][0]["max_count"]
    assert list(parse_locations(value, ResourcesPerGpu(), NOW).drift) == ["new field: colour", "field gone: max_count"]


def test_no_list_is_no_market_without_offers() -> None:
    cases: list[Any] = [{}, {"data": {}}, {"data": {"locations": {}}}, {"data": []}, [], None, 5]
    for value in cases:
        with case(value), pytest.raises(PayloadChanged):
            parse_locations(value, ResourcesPerGpu(), NOW)


def test_an_empty_list_is_what_an_account_without_a_deposit_gets_and_not_sold_out() -> None:
    seen = parse_locations({"data": {"locations": []}}, ResourcesPerGpu(), NOW)
    assert seen.partial
    assert "without a deposit" in " ".join(seen.missing)
    seen = parse_hostnodes({"data": {"hostnodes": []}}, ResourcesPerGpu(), NOW)
    assert (seen.partial, list(seen.missing)) == (
        True,
        ["no host is listed: an account without a deposit may see none"],
    )


def test_a_host_tells_uptime_line_and_ports() -> None:
    value = recorded("v2-hostnodes-client-test")
    [offer] = parse_hostnodes(value, ResourcesPerGpu(), NOW).offers
    assert (offer.reliability, offer.download_mbps, offer.upload_mbps, offer.ports) == (
        pytest.approx(0.999), 2500, 10500, 2,
    )  # fmt: skip
    assert (offer.host_id, offer.country, offer.datacenter) == ("host-1", "US", False)
    assert offer.quoted_usd_hour == pytest.approx(0.7 + 8 * 0.01 + 32 * 0.002 + 100 * 0.0001)
    value["data"]["hostnodes"][0]["available_resources"]["available_ports"] = []
    assert [offer.rentable for offer in parse_hostnodes(value, ResourcesPerGpu(), NOW).offers] == [False]


def test_a_place_is_a_stock_and_a_host_is_one_machine() -> None:
    hosts = recorded("v2-hostnodes-client-test")
    assert {offer.terms.fungible for offer in parse_locations(locations(), ResourcesPerGpu(), NOW).offers} == {True}
    assert {offer.terms.fungible for offer in parse_hostnodes(hosts, ResourcesPerGpu(), NOW).offers} == {False}


# --- names ------------------------------------------------------------------------------------------------------------


def test_their_ids_of_gpus_are_understood() -> None:
    cases: list[Any] = [
        ("h100-sxm5-80gb", "H100 SXM", 80), ("h100-pcie-80gb", "H100 PCIe", 80),
        ("a100-sxm4-80gb", "A100 SXM 80GB", 80), ("a100-pcie-40gb", "A100 PCIe 40GB", 40), ("l40s-48gb", "L40S", 48),
        ("a6000-pcie-48gb", "RTX A6000", 48), ("rtxa5000-pcie-24gb", "RTX A5000", 24),
        ("rtx6000ada-48gb", "RTX 6000 Ada", 48), ("geforcertx5090-pcie-32gb", "RTX 5090", 32),
        ("geforcertx4080-pcie-16gb", "RTX 4080", 16), ("geforcertx3080ti-pcie-12gb", "RTX 3080 Ti", 12),
        ("geforcertx3060tilhr-pcie-8gb", "RTX 3060 Ti", 8), ("geforcegtx1070-pcie-8gb", "GTX 1070", 8),
        ("teslav100-pcie-16gb", "V100 PCIe 16GB", 16), ("v100-sxm2-16gb", "V100 SXM2 16GB", 16),
    ]  # fmt: skip
    for wire, name, memory in cases:
        with case((wire, name, memory)):
            found, memory_gb = gpu_of(wire, None)
            assert (found.name, found.known, memory_gb) == (name, True, memory)


def test_a_gpu_that_nobody_knows_keeps_its_spelling() -> None:
    found, _ = gpu_of("quux9000-pcie-3gb", "NVIDIA Quux 9000")
    assert (found.known, found.name) == (False, "quux9000-pcie-3gb")


def test_a_name_that_leaves_the_card_open_says_so() -> None:
    offers = parse_locations(changed(v0Name="rtxpro6000-96gb", max_count=1), ResourcesPerGpu(), NOW).offers
    assert [(o.gpu, str(o.terms.note).startswith("it may be")) for o in offers] == [("RTX PRO 6000", True)]


@pytest.mark.parametrize("is_host", [False, True])
@pytest.mark.parametrize("place", ["8dd95ff0-dff9-489c-9b02-b38a366b6ab1", "loc-uuid-12345"])
def test_an_offer_id_holds_the_whole_order_and_fits_the_store(place: str, is_host: bool) -> None:
    ware = OfferKey(place=place, is_host=is_host, gpu="geforcertx3060tilhr-pcie-8gb", count=8, vcpu=64, ram_gb=256)
    assert parse_offer_key(ware.offer_id) == ware
    assert max(len(ware.offer_id), len(ware.machine_id)) <= 64


def test_what_is_no_offer_id_of_theirs_is_none() -> None:
    cases: list[Any] = ["", "1", "a/b/c", "u!!/x/1/8/32", "uAAAA/h100/1/8/32", "p../x/1/8/32", "xabc/h1/1/8/32"]
    for text in cases:
        with case(text):
            assert parse_offer_key(text) is None


def test_countries_are_reported_by_their_code() -> None:
    assert [country_of(name) for name in ("United States", "USA", "Poland", "de", "Atlantis", None)] == [
        "US", "US", "PL", "DE", None, None,
    ]  # fmt: skip


# --- queries ----------------------------------------------------------------------------------------------------------


def test_one_catalogue_answers_all_watches_without_a_key(respx_mock: respx.MockRouter) -> None:
    listed = respx_mock.get("/locations").respond(json=locations())
    with BENCH.pointed_at(INFO.base_url, None) as adapter:
        first = adapter.market.search(Query(gpus=("RTX 4090",)))
        adapter.market.search(Query(gpus=("H100 SXM",)))
    assert sent(listed.calls) == [("GET", "/api/v2/locations", None)]
    assert "authorization" not in listed.calls.last.request.headers
    assert ([offer.gpu_count for offer in first.offers], first.completeness.value) == ([1, 2, 3, 4], "complete")


def test_hosts_are_asked_for_where_the_owner_wants_them_and_need_the_key(respx_mock: respx.MockRouter) -> None:
    listed = respx_mock.get("/hostnodes").respond(json=recorded("v2-hostnodes-client-test"))
    with HOSTS.pointed_at(INFO.base_url) as adapter:
        [offer] = adapter.market.search(Query()).offers
    with HOSTS.pointed_at(INFO.base_url, None) as adapter, pytest.raises(KeyRejected):
        adapter.market.search(Query())
    assert (sent(listed.calls), offer.host_id) == ([("GET", "/api/v2/hostnodes", None)], "host-1")
    assert listed.calls.last.request.headers["authorization"] == "Bearer demo-key"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": "Unauthorized", "status": 401}, KeyRejected),
        ({"error": "Invalid token"}, KeyRejected),
        ({"error": "Too many requests", "status": 429}, RateLimited),
        ({"error": "oops", "status": 503}, ProviderDown),
        ({"error": "something else"}, ProviderDown),
        ({"error": "Bad Request", "status": 400}, PayloadChanged),
        ({"errors": [{"title": "No", "detail": "not now"}]}, ProviderError),
        ([{"code": "invalid", "message": "no", "path": []}], PayloadChanged),
    ],
)
def test_an_error_that_comes_as_http_200_is_distinguished(
    respx_mock: respx.MockRouter, body: Any, error: type[Exception]
) -> None:
    respx_mock.get("/locations").respond(json=body)
    with BENCH.pointed_at(INFO.base_url) as adapter, pytest.raises(error):
        adapter.market.search(Query())
