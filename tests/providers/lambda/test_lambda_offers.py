"""Lambda's types × regions as offers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
import respx

from gpuwatch import providers
from gpuwatch.domain.market.offer import ARM64, Offer, OfferKind, arch_of
from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clocks import Clock
from tests.providers.clouds import cloud

BENCH = import_module("tests.providers.lambda.bench").BENCH
RECORDED = TESTS / "recorded" / "lambda"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def parsed(value: Any) -> ParseResult:
    found: ParseResult = cloud("lambda").parse_types(value, NOW)
    return found


def a_type(name_: str, gpu: str | None, **changes: Any) -> dict[str, Any]:
    specs = {"gpus": int(name_.split("_")[1][:-1]), "vcpus": 8, "memory_gib": 64, "storage_gib": 512}
    kind = {"name": name_, "price_cents_per_hour": 199, "specs": specs} | (
        {} if gpu is None else {"gpu_description": gpu}
    )
    here = [{"name": "us-west-1", "description": "California, USA"}]
    return {"instance_type": kind | changes, "regions_with_capacity_available": here}


def the_offer(name: str, gpu: str | None, **changes: Any) -> Offer:
    [offer] = parsed({"data": {name: a_type(name, gpu, **changes)}}).offers
    return offer


def test_its_name_is_a_word_of_python_and_it_is_a_provider_like_all() -> None:
    assert "lambda" in providers.names()
    assert providers.info("lambda").title == "Lambda"
    with BENCH.pointed_at("https://cloud.lambda.ai") as adapter:
        assert adapter.launcher is not None


def test_every_recorded_type_gets_its_gpu() -> None:
    value = json.loads((RECORDED / "instance-types-live-2026-08-20-trimmed.json").read_text())
    for row in value["data"].values():
        row["regions_with_capacity_available"] = [{"name": "us-east-1"}]
    seen = parsed(value)
    assert (len(seen.offers), seen.skipped) == (22, {})
    assert {offer.terms.instance_type: offer.gpu for offer in seen.offers} == {
        "gpu_1x_a10": "A10",
        "gpu_1x_a100": "A100 PCIe 40GB",
        "gpu_1x_a100_sxm4": "A100 SXM 40GB",
        "gpu_1x_a6000": "RTX A6000",
        "gpu_1x_b200_sxm6": "B200 SXM",
        "gpu_1x_gh200": "GH200 96GB",
        "gpu_1x_h100_pcie": "H100 PCIe",
        "gpu_1x_h100_sxm5": "H100 SXM",
        "gpu_1x_rtx6000": "Quadro RTX 6000",
        "gpu_2x_a100": "A100 PCIe 40GB",
        "gpu_2x_a6000": "RTX A6000",
        "gpu_2x_b200_sxm6": "B200 SXM",
        "gpu_2x_h100_sxm5": "H100 SXM",
        "gpu_4x_a100": "A100 PCIe 40GB",
        "gpu_4x_a6000": "RTX A6000",
        "gpu_4x_h100_sxm5": "H100 SXM",
        "gpu_8x_a100": "A100 SXM 40GB",
        "gpu_8x_a100_80gb_sxm4": "A100 SXM 80GB",
        "gpu_8x_b200_sxm6": "B200 SXM",
        "gpu_8x_h100_sxm5": "H100 SXM",
        "gpu_8x_v100": "V100 16GB",  # SXM2 or PCIe: not stated
        "gpu_8x_v100_n": "V100 16GB",
    }


def test_without_a_description_the_name_and_the_number_of_gpus_decide() -> None:
    cases: list[Any] = [
        ("gpu_8x_a100", "A100 SXM 40GB"),
        ("gpu_4x_a100", "A100 PCIe 40GB"),
        ("gpu_1x_rtx6000", "Quadro RTX 6000"),
        ("gpu_8x_h100_sxm5gdr", "H100 SXM"),
        ("gpu_8x_a100_80gb_sxm4", "A100 SXM 80GB"),
    ]
    for name, gpu in cases:
        with case((name, gpu)):
            assert the_offer(name, None).gpu == gpu


def test_where_name_and_description_disagree_the_description_is_right() -> None:
    offer = the_offer("gpu_1x_a100_sxm4", "A100 (80 GB SXM4)")
    assert (offer.gpu, offer.gpu_memory_gib) == ("A100 SXM 80GB", 80.0)


def test_an_offer_is_live_in_dollars_with_its_disk_included() -> None:
    offer = the_offer("gpu_8x_a100", "A100 (40 GB SXM4)", price_cents_per_hour=1592)
    assert (offer.quoted_usd_hour, offer.disk_usd_gb_month, offer.kind) == (15.92, None, OfferKind.LIVE)
    assert (offer.offer_id, offer.region, offer.country) == ("gpu_8x_a100/us-west-1", "us-west-1", "US")
    assert (offer.gpu_count, offer.disk_free_gb, offer.quoted_disk_gb) == (8, 549.8, 549.8)
    assert (offer.terms.interconnect, offer.terms.multi_node) == ("NVLink", False)


def test_gh200_machines_are_arm64_whether_reported_or_not() -> None:
    for reported in ({"architecture": "arm64"}, {}):
        assert arch_of(the_offer("gpu_1x_gh200", "GH200 (96 GB)", **reported)) == ARM64
    assert the_offer("gpu_1x_a10", "A10 (24 GB PCIe)", architecture="arm64").cpu_arch == "arm64"


def test_a_form_factor_that_is_not_reported_is_noted() -> None:
    assert "V100 PCIe 16GB" in (the_offer("gpu_8x_v100", "Tesla V100 (16 GB)").terms.note or "")
    assert the_offer("gpu_1x_a10", "A10 (24 GB PCIe)").terms.note is None


def test_types_without_a_gpu_and_without_a_region_are_no_offers_and_no_fault() -> None:
    nowhere = a_type("gpu_1x_a10", "A10 (24 GB PCIe)") | {"regions_with_capacity_available": []}
    seen = parsed({"data": {"gpu_1x_a10": nowhere, "cpu_0x": a_type("cpu_0x", "N/A")}})
    assert (seen.offers, seen.skipped, seen.rows) == ([], {}, 2)


def test_an_odd_type_is_skipped_with_its_reason() -> None:
    cases: list[Any] = [
        ({"price_cents_per_hour": 0}, "no usable price"),
        ({"price_cents_per_hour": float("nan")}, "no usable price"),
        ({"price_cents_per_hour": 10**12}, "no usable price"),
        ({"specs": {"gpus": "eight"}}, "no number of GPUs"),
        ({"specs": {"gpus": 1}}, "its name and its specs tell different numbers of GPUs"),
        ({"name": "a/b"}, "no name"),
    ]
    for changes, reason in cases:
        with case((changes, reason)):
            good, odd = a_type("gpu_1x_a10", "A10"), a_type("gpu_8x_a100", "A100 (40 GB SXM4)", **changes)
            seen = parsed({"data": {"good": good, "odd": odd}})
            assert ([offer.gpu for offer in seen.offers], seen.skipped) == (["A10"], {reason: 1})


def test_a_missing_list_of_regions_is_not_an_empty_one() -> None:
    odd = {"instance_type": a_type("gpu_1x_a10", "A10")["instance_type"]}
    assert parsed({"data": {"good": a_type("gpu_1x_a10", "A10"), "odd": odd}}).skipped == {"no list of regions": 1}
    with pytest.raises(PayloadChanged):
        parsed({"data": {"odd": odd}})


def test_what_is_no_map_of_types_is_no_market_without_offers() -> None:
    cases: list[Any] = [{"data": []}, {"data": {}}, {"data": None}, [], {"data": {"a": {}}}]
    for value in cases:
        with case(value), pytest.raises(PayloadChanged):
            parsed(value)


def test_a_new_field_is_reported() -> None:
    assert list(parsed({"data": {"x": a_type("gpu_1x_a10", "A10", description="", preemptible=True)}}).drift) == [
        "new field: preemptible"
    ]


def test_all_watches_share_one_answer_for_five_seconds(respx_mock: respx.MockRouter, http: PooledHttpClient) -> None:
    types = {
        "data": {"a": a_type("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)"), "b": a_type("gpu_1x_a10", "A10 (24 GB PCIe)")}
    }
    route, clock = respx_mock.get("https://cloud.lambda.ai/api/v1/instance-types").respond(json=types), Clock()
    settings = ProviderSettings(
        name="lambda", base_url="https://cloud.lambda.ai/api/v1", api_key="k", search_interval_s=0.0
    )
    market = providers.build(settings, http, lambda: NOW, clock, clock.sleep).market
    assert len(market.search(Query(gpus=("H100 SXM",))).offers) == 1
    clock.sleep(4)
    assert len(market.search(Query(gpus=("A10",))).offers) == 1
    assert route.call_count == 1
    clock.sleep(2)
    market.search(Query())
    assert route.call_count == 2


@pytest.mark.respx
def test_nothing_is_asked_without_a_key() -> None:
    with BENCH.pointed_at("https://cloud.lambda.ai", None) as adapter, pytest.raises(KeyRejected):
        adapter.market.search(Query())
