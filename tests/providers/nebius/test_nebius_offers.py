"""Nebius's offers with its emulator, which uses real gRPC, and the emulator with another client of the API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpuwatch.errors import KeyRejected, NoRowUnderstood
from gpuwatch.ports import Completeness, Query
from gpuwatch.ports.declarations import Adapter
from tests.late import LateModule
from tests.providers.nebius.bench import BENCH

if TYPE_CHECKING:
    from tests.clouds.nebius import Nebius

cloud, market = LateModule("tests.clouds.nebius"), LateModule("tests.clouds.nebius_market")

H100_8 = "gpu-h100-sxm/8gpu-128vcpu-1600gb/eu-north1"


@pytest.fixture
def place() -> Iterator[Nebius]:
    with cloud.Nebius() as place:
        yield place


@pytest.fixture
def adapter(place: Nebius) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def found(adapter: Adapter, spot: bool = False) -> dict[str, Any]:
    return {offer.offer_id: offer for offer in adapter.market.search(Query(spot=spot)).offers}


def test_what_any_fabric_has_free_is_one_offer_at_the_calculators_price(adapter: Adapter) -> None:
    offers = found(adapter)
    assert set(offers) == {
        "gpu-h100-sxm/1gpu-16vcpu-200gb/eu-north1", H100_8, "gpu-l40s-a/1gpu-8vcpu-32gb/eu-north1",
        "gpu-rtx6000/1gpu-24vcpu-218gb/us-central1",
    }  # fmt: skip
    eight = offers[H100_8]
    assert eight.quoted_usd_hour == pytest.approx(23.6 + 50 * cloud.DISK_USD_GIB_HOUR)
    assert (eight.gpu, eight.gpu_count, eight.gpu_memory_gib, eight.country) == ("H100 SXM", 8, 80.0, "FI")
    assert (eight.terms.interconnect, eight.terms.fungible) == ("NVLink", True)
    assert eight.disk_usd_gb_month == pytest.approx(cloud.DISK_USD_GIB_HOUR * 720)


def test_a_preemptible_machine_costs_the_spot_price_of_each_gpu(place: Nebius, adapter: Adapter) -> None:
    place.spot["eu-north1", "gpu-h100-sxm"] = 1.4
    eight = found(adapter, spot=True)[f"{H100_8}/spot"]
    assert eight.quoted_usd_hour == pytest.approx(8 * 1.4 + 50 * cloud.DISK_USD_GIB_HOUR)
    assert eight.spot
    assert eight.machine_id == found(adapter)[H100_8].machine_id


def test_a_preemptible_machine_without_a_spot_price_is_skipped_and_counted(place: Nebius, adapter: Adapter) -> None:
    del place.spot["us-central1", "gpu-h200-sxm"]
    answer = adapter.market.search(Query(spot=True))
    assert {offer.gpu for offer in answer.offers} == {"H100 SXM"}
    assert answer.skipped == {"no price of a preemptible GPU": 1}


def test_prices_on_demand_are_asked_for_once_an_hour(place: Nebius) -> None:
    clock = [0.0]
    with BENCH.pointed_at(place.url) as adapter:
        market: Any = adapter.market
        market._cache._monotonic = market._prices._spot_prices._monotonic = lambda: clock[0]
        for _ in range(3):
            found(adapter)
            clock[0] += 60.0
    assert place.count("ResourceAdviceService") == 3
    assert place.count("CalculatorService") == 4 + 2  # presets with machines on demand, and a disk in each region


def test_a_missing_spot_price_does_not_hide_the_offer_on_demand(place: Nebius, adapter: Adapter) -> None:
    """Preemptible L40S had a flat rate: they may not be in the spot market."""
    place.presets = [market.Preset("eu-north1", "gpu-l40s-a", "1gpu-8vcpu-32gb", 1, 48, 1.55, 3, 5)]
    answer = adapter.market.search(Query())
    assert ([offer.gpu for offer in answer.offers], answer.skipped) == (["L40S"], {"no price of a preemptible GPU": 1})


@pytest.mark.parametrize("spot", [{}, {("eu-north1", "gpu-h100-sxm"): 1e-9}])
def test_spot_prices_of_which_none_can_be_read_are_not_sold_out(
    place: Nebius, adapter: Adapter, spot: dict[tuple[str, str], float]
) -> None:
    place.spot = spot
    for is_spot, offers in ((False, 4), (True, 0)):
        answer = adapter.market.search(Query(spot=is_spot))
        assert (len(answer.offers), answer.completeness) == (offers, Completeness.PARTIAL)
        assert "spot prices can be used" in answer.incomplete_because


@pytest.mark.parametrize("usd", [float("nan"), -2.0, 0.00001, 1e9])
def test_prices_on_demand_of_which_none_can_be_used_are_not_sold_out(
    place: Nebius, adapter: Adapter, usd: float
) -> None:
    place.presets = [one._replace(usd=usd) for one in place.presets]
    for is_spot, offers in ((False, 0), (True, 3)):
        answer = adapter.market.search(Query(spot=is_spot))
        assert (len(answer.offers), answer.completeness) == (offers, Completeness.PARTIAL)
        assert answer.incomplete_because == "no price on demand can be used"


def test_a_placeholder_is_no_spot_price(place: Nebius, adapter: Adapter) -> None:
    place.spot["eu-north1", "gpu-h100-sxm"] = 0.00001
    assert {offer.gpu for offer in adapter.market.search(Query(spot=True)).offers} == {"H200 SXM"}


def test_no_advice_at_all_is_not_sold_out(place: Nebius, adapter: Adapter) -> None:
    place.presets = []
    answer = adapter.market.search(Query())
    assert (list(answer.offers), answer.completeness) == ([], Completeness.PARTIAL)


def test_a_preset_with_two_numbers_of_gpus_is_skipped(place: Nebius, adapter: Adapter) -> None:
    place.presets.append(market.Preset("eu-north1", "gpu-h200-sxm", "8gpu-128vcpu-1600gb", 1, 141, 28.0, 1, 1))
    answer = adapter.market.search(Query(spot=True))
    assert answer.skipped == {"two different numbers of its GPUs": 1}


def test_stock_that_is_not_fresh_makes_the_answer_a_part(place: Nebius, adapter: Adapter) -> None:
    place.state = market.STALE
    answer = adapter.market.search(Query())
    assert (list(answer.offers), answer.completeness) == ([], Completeness.PARTIAL)


def test_a_quota_that_is_used_up_is_no_offer_and_no_fault(place: Nebius, adapter: Adapter) -> None:
    place.at_limit.add(("gpu-h100-sxm", False))
    answer = adapter.market.search(Query())
    assert {offer.gpu for offer in answer.offers} == {"L40S", "RTX PRO 6000"}
    assert (answer.skipped, answer.completeness) == ({}, Completeness.COMPLETE)


def test_an_offer_that_may_find_no_machine_says_so(place: Nebius, adapter: Adapter) -> None:
    place.level = market.LOW
    assert found(adapter)[H100_8].terms.note == "Nebius: an order may find no machine"


def test_a_region_without_a_project_has_no_offers(place: Nebius, adapter: Adapter) -> None:
    del place.projects["project-u00demo"]
    assert {one.region for one in found(adapter).values()} == {"eu-north1"}


def test_rows_of_which_none_can_be_used_are_an_error(place: Nebius, adapter: Adapter) -> None:
    place.presets = [market.Preset("EU NORTH\n", "gpu-h100-sxm", "x y", 1, 80, 1.0, 1, 1)]
    with pytest.raises(NoRowUnderstood):
        found(adapter)


def test_several_tenants_must_be_named(place: Nebius) -> None:
    place.tenant_ids.append("tenant-e00other")
    with (
        BENCH.pointed_at(place.url) as adapter,
        pytest.raises(KeyRejected, match=r"2 tenants; name one in options\.tenant"),
    ):
        found(adapter)


def test_without_credentials_it_says_what_to_set(place: Nebius) -> None:
    with BENCH.pointed_at(place.url, None) as adapter, pytest.raises(KeyRejected, match="credentials_file"):
        found(adapter)
    assert place.calls == []


def test_another_reader_of_nebius_finds_the_same_list_prices(
    place: Nebius, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gpuhunt queries platforms and estimates with its own requests: neither it nor they are ours."""
    from gpuhunt.providers import nebius as judge
    from nebius.base.options import INSECURE
    from nebius.base.resolver import Constant
    from nebius.sdk import SDK

    address = place.url.removeprefix("http://")
    monkeypatch.setattr(judge, "SDK", partial(SDK, resolver=Constant(address), options=[(INSECURE, True)]))
    priced = {
        (item.location, item.instance_name): item.price
        for item in judge.NebiusProvider("demo-key").get()
        if item.gpu_count
    }
    ours = {
        (one.region, one.terms.instance_type): one.quoted_usd_hour - 50 * cloud.DISK_USD_GIB_HOUR
        for one in found(adapter).values()
    }
    assert len(ours) == 4
    assert {name: priced[name] for name in ours} == pytest.approx(ours)
