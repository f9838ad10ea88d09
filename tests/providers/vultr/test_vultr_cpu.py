"""Vultr's machines without GPUs: which plans are some, what is asked for them, and that they are rented like others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.search_query import query_of
from gpuwatch.errors import NoRowUnderstood, OfferGone
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.vultr.plans import offers_of, parse_plans, stock_queries
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clouds.vultr import Vultr
from tests.providers.vultr.bench import BENCH

NOW = datetime(2026, 11, 30, tzinfo=UTC)
CPU = query_of(NO_GPU, spot=False)
QUOTED = json.loads((TESTS / "recorded/vultr/plans-cpu-quoted.json").read_text())
WITH_GPU = json.loads((TESTS / "recorded/vultr/plans-quoted.json").read_text())[0]


@pytest.fixture
def place() -> Iterator[Vultr]:
    with Vultr() as opened:
        yield opened


@pytest.fixture
def adapter(place: Vultr) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as opened:
        yield opened


def asked(place: Vultr) -> list[str]:
    """Return each request's path and parameters."""
    return sorted(
        f"{one.path}{''.join(f' {name}={value}' for name, value in one.params.items())}" for one in place.requests
    )


def an_order(offer_id: str) -> Order:
    return Order(offer_id=offer_id, label="gpuwatch-ab_c", image="x/y", disk_gb=50.0)


def test_quoted_plans_are_read_with_their_size_and_price_except_the_free_one_and_that_without_ipv4() -> None:
    result, plans = parse_plans([*QUOTED, WITH_GPU], NOW, cpu=True)
    found = {plan.name: (plan.vcpu, plan.ram_gib, plan.disk_gb, plan.usd_hour) for plan in plans if plan.is_cpu}
    assert found.keys() == {row["id"] for row in QUOTED} - {"vc2-1c-0.5gb-free", "vc2-1c-0.5gb-v6"}
    assert found["vc2-1c-0.5gb"] == (1, 0.5, 10, 0.005)
    assert found["vhp-8c-16gb-amd"] == (8, 16, 350, 0.132)
    assert found["vc2-8c-32gb-sc1"] == (8, 32, 640, 0.329)
    assert result.skipped == {}
    (plan,) = [one for one in plans if one.name == "vc2-8c-32gb-sc1"]
    (offer,) = offers_of(plan, {("", "sao"): frozenset({plan.name})}, {"sao": "BR"}, NOW)
    assert (offer.gpu, offer.gpu_count, offer.gpu_known, offer.vcpu, offer.ram_gib) == (NO_GPU, 0, True, 8, 32)
    assert (offer.offer_id, offer.country, offer.quoted_disk_gb) == ("vc2-8c-32gb-sc1/sao", "BR", 640)


def test_a_plan_that_an_order_of_it_alone_does_not_get_is_none_and_an_unreadable_one_is_counted() -> None:
    known = QUOTED[3]
    cases: list[Any] = [
        ({"id": "vx1-g-2c-8g", "type": "vx1", "disk": 0}, None),  # boots from a volume that is another order
        ({"type": "vzz"}, None),  # of a type that is in no source
        ({"deploy_ondemand": False}, None),
        ({"hourly_cost": "?"}, "no usable price"),
        ({"locations": None}, "no list of places"),
        ({"type": ["vc2"]}, "a plan with GPUs of a type that is not known"),
    ]
    for changes, skipped in cases:
        with case((changes, skipped)):
            row = known | changes | ({"gpu_brand": "NVIDIA"} if "type" in changes and skipped else {})
            result, plans = parse_plans([known, row], NOW, cpu=True)
            assert [plan.name for plan in plans] == [known["id"]]
            assert result.skipped == ({} if skipped is None else {skipped: 1})


def test_each_sort_of_plan_says_nothing_about_how_well_the_other_can_be_read() -> None:
    broken_cpu, broken_gpu = QUOTED[3] | {"hourly_cost": None}, WITH_GPU | {"hourly_cost": None}
    assert parse_plans([WITH_GPU, broken_cpu], NOW)[0].skipped == {}
    assert parse_plans([QUOTED[3], broken_gpu], NOW, cpu=True)[0].skipped == {}
    for rows, cpu in (([QUOTED[3], broken_gpu], False), ([WITH_GPU, broken_cpu], True)):
        with case(cpu), pytest.raises(NoRowUnderstood, match="no usable price"):
            parse_plans(rows, NOW, cpu=cpu)


def test_stock_is_asked_once_a_place_for_all_types_without_gpus() -> None:
    plans = [plan for plan in parse_plans([*QUOTED, WITH_GPU], NOW, cpu=True)[1] if plan.is_cpu]
    assert stock_queries(plans, []) == [("", place) for place in ("dfw", "ewr", "ord", "sao", "sea")]


def test_a_search_for_gpus_sends_what_it_sent_before_and_one_for_machines_without_its_own(
    place: Vultr, adapter: Adapter
) -> None:
    found = adapter.market.search(Query()).offers
    assert found
    assert not any(offer.gpu == NO_GPU for offer in found)
    places = ("blr", "ewr", "fra")
    assert asked(place) == [
        "/plans type=all per_page=500",
        "/regions per_page=500",
        *(f"/regions/{one}/availability type={kind}" for one in places for kind in ("vcg", "vdm")),
    ]
    place.requests.clear()
    found = adapter.market.search(CPU).offers
    assert [(offer.offer_id, offer.quoted_usd_hour) for offer in found] == [
        ("vc2-1c-1gb/ewr", 0.007), ("vc2-1c-1gb/fra", 0.007), ("vhp-8c-16gb-amd/fra", 0.132),
        ("voc-g-8c-32gb-160s-amd/blr", 0.329), ("voc-g-8c-32gb-160s-amd/ewr", 0.329),
    ]  # fmt: skip
    assert asked(place) == [
        "/plans type=all per_page=500", *(f"/regions/{one}/availability" for one in places)
    ]  # fmt: skip
    place.requests.clear()
    adapter.market.search(CPU)
    adapter.market.search(Query())
    assert asked(place) == []  # each catalogue is kept for some seconds


def test_a_machine_without_gpus_is_rented_listed_at_its_price_and_ended(place: Vultr, adapter: Adapter) -> None:
    launcher: Any = adapter.launcher
    offer = adapter.market.search(CPU).offers[2]
    made = launcher.create(an_order(offer.offer_id))
    (machine,) = place.machines.values()
    assert (machine["plan"], machine["region"], machine["os_id"]) == ("vhp-8c-16gb-amd", "fra", 1743)
    (listed,) = launcher.list_instances()
    assert (listed.gpu, listed.gpu_count, listed.gpu_memory_gib) == (NO_GPU, 0, None)
    assert (listed.state, listed.listed_usd_hour, listed.machine_id) == (InstanceState.RUNNING, 0.132, offer.machine_id)
    adapter.market.search(Query())  # a search for GPUs knows its price, too: it reads the same list
    assert launcher.list_instances()[0].listed_usd_hour == 0.132
    launcher.destroy(made.instance_id)
    assert place.machines == {}


def test_a_plan_without_gpus_that_sold_out_is_gone(place: Vultr, adapter: Adapter) -> None:
    launcher: Any = adapter.launcher
    place.sell_out("vc2-1c-1gb/ewr")
    with pytest.raises(OfferGone):
        launcher.create(an_order("vc2-1c-1gb/ewr"))
