"""Vultr's offers and launcher, with its emulator: what the conformance suites do not cover."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.errors import OfferGone, OrderRefused, PayloadChanged, RefusalScope
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.vultr.offers import offers_of, parse_plans
from gpuwatch.testing.relay import relaying
from tests.clouds.vultr import OWN_PRICES, SSH_KEY, Vultr
from tests.providers.vultr.bench import BENCH

LABEL = "gpuwatch-abcdefgh2345"
NOW = datetime(2026, 11, 28, tzinfo=UTC)
REPORTED = Path(__file__).parents[1] / "reported"
L40S = "vcg-l40s-16c-180g-48vram"


@pytest.fixture
def place() -> Iterator[Vultr]:
    with Vultr() as place:
        yield place


@pytest.fixture
def adapter(place: Vultr) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def order(offer_id: str = f"{L40S}/fra", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


# --- offers -----------------------------------------------------------------------------------------------------------


def test_only_whole_gpus_where_the_stock_has_them_are_offers(adapter: Adapter) -> None:
    found = {offer.offer_id: offer for offer in adapter.market.search(Query()).offers}
    assert set(found) == {
        "vcg-a100-12c-120g-80vram/ewr", "vcg-a100-24c-240g-160vram/ewr", f"{L40S}/fra", f"{L40S}/blr",
        "vcg-a16-12c-128g-32vram/blr", "vcg-a40-96c-480g-192vram/blr",
    }  # fmt: skip
    two = found["vcg-a100-24c-240g-160vram/ewr"]
    assert (two.gpu_count, two.gpu_memory_gib, two.gpu_family) == (2, 80.0, "A100")
    assert found["vcg-a16-12c-128g-32vram/blr"].gpu_count == 2


def test_dedicated_plans_state_neither_gpu_nor_place(adapter: Adapter) -> None:
    """Type `vdm`: the GPUs follow from a table of names, the places from the stock of each place of that type."""
    answer = adapter.market.search(Query())
    [dedicated] = [offer for offer in answer.offers if offer.terms.instance_type == "vcg-a40-96c-480g-192vram"]
    assert (dedicated.gpu, dedicated.gpu_count, dedicated.gpu_memory_gib) == ("A40", 4, 48.0)
    assert (dedicated.region, dedicated.country, dedicated.quoted_usd_hour) == ("blr", "IN", 6.848)
    assert answer.skipped == {"a dedicated plan of an unknown configuration: vcg-b200-999c-1g-1vram": 1}


def test_the_reported_plan_is_an_offer_where_its_type_is_in_stock() -> None:
    """Its `locations` is empty; a part of a GPU, of the other type, is none."""
    rows = json.loads((REPORTED / "vultr-vdm.json").read_text())["plans"]
    result, plans = parse_plans(rows)
    stock = {
        ("vdm", "blr"): frozenset({"vcg-a40-24c-120g-48vram"}),
        ("vcg", "ams"): frozenset(row["id"] for row in rows),
    }
    offers = [offer for plan in plans for offer in offers_of(plan, stock, {"blr": "IN"}, NOW)]
    assert [(offer.gpu, offer.gpu_count, offer.region, offer.quoted_usd_hour) for offer in offers] == [
        ("A40", 1, "blr", 1.712)
    ]
    assert result.skipped == {}


@pytest.mark.parametrize(
    ("changes", "skipped"),
    [
        ({"id": "vcg-a40-48c-240g-96vram"}, "a dedicated plan of an unknown configuration: vcg-a40-48c-240g-96vram"),
        ({"type": "vxg"}, "a plan with GPUs of a type that is not known: vxg"),
        ({"gpu_type": "NVIDIA_A40", "gpu_vram_gb": 48, "gpu_count": 4}, "memory and number of its GPUs do not fit"),
        ({"deploy_ondemand": False, "deploy_preemptible": True}, None),
        ({"gpu_brand": "none", "type": "vc2", "id": "vc2-1c-1gb"}, None),
        ({"end_of_sale": True}, None),
    ],
)
def test_a_plan_that_is_not_understood_is_counted_and_one_not_for_sale_is_not(
    changes: dict[str, Any], skipped: str | None
) -> None:
    known, other = json.loads((REPORTED / "vultr-vdm.json").read_text())["plans"][1], {}
    other = known | changes
    result, plans = parse_plans([known, other])
    assert [plan.name for plan in plans] == [known["id"]]
    assert result.skipped == ({} if skipped is None else {skipped: 1})


def test_a_place_may_have_a_price_of_its_own(adapter: Adapter) -> None:
    found = {offer.region: offer for offer in adapter.market.search(Query(gpus=("L40S",))).offers}
    assert found["fra"].quoted_usd_hour == 1.671
    assert found["blr"].quoted_usd_hour == OWN_PRICES[L40S]["blr"]
    assert (found["fra"].country, found["blr"].country) == ("DE", "IN")


def test_a_place_whose_stock_is_unknown_makes_the_answer_a_part(place: Vultr, adapter: Adapter) -> None:
    place.fail("GET /regions/fra/availability", 404, times=2)  # of both types
    answer = adapter.market.search(Query())
    assert answer.completeness.value == "partial"
    assert f"{L40S}/fra" not in {offer.offer_id for offer in answer.offers}
    assert "fra" in answer.incomplete_because


def test_number_and_memory_that_contradict_each_other_are_no_offer(place: Vultr) -> None:
    with relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        relay.corrupt = lambda body: body.replace(b'"gpu_vram_gb":48', b'"gpu_vram_gb":480')
        answer = adapter.market.search(Query())
    assert not any(offer.offer_id.startswith(L40S) for offer in answer.offers)
    assert answer.skipped


# --- renting ----------------------------------------------------------------------------------------------------------


def test_the_order_names_what_it_wants_and_switches_off_what_costs(place: Vultr) -> None:
    with relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        made = launcher(adapter).create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
        assert relay.count(r'^POST /instances .*"backups":\s?"disabled"') == 1
        assert relay.count(rf'^POST /instances .*"sshkey_id":\s?\["{SSH_KEY}"\]') == 1
    script = b64decode(place.user_data[made.instance_id]).decode()
    assert script.startswith("#!/bin/bash")
    assert place.machines[made.instance_id]["os_id"] == 1743


@pytest.mark.parametrize("image", [2284, "2284"])
def test_the_system_is_chosen_by_its_number(place: Vultr, image: object) -> None:
    bench = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY, "image": image})
    with bench.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
    assert place.machines[made.instance_id]["os_id"] == 2284


def test_without_a_key_to_log_in_nothing_is_sent(place: Vultr) -> None:
    bare = msgspec.structs.replace(BENCH, options={})
    with bare.pointed_at(place.url) as adapter, pytest.raises(OrderRefused, match="ssh_key"):
        launcher(adapter).create(order())
    assert place.requests == []


def test_an_account_without_the_product_is_refused_for_all_of_it() -> None:
    refusing = pytest.raises(OrderRefused, match="support request")
    with Vultr(enabled=False) as place, BENCH.pointed_at(place.url) as adapter, refusing as refused:
        launcher(adapter).create(order())
    assert refused.value.scope is RefusalScope.ACCOUNT


def test_a_plan_that_is_gone_is_gone_there_alone(place: Vultr, adapter: Adapter) -> None:
    place.sell_out(f"{L40S}/fra")
    with pytest.raises(OfferGone):
        launcher(adapter).create(order())
    assert launcher(adapter).create(order(f"{L40S}/blr")).instance_id in place.machines


def test_it_is_starting_until_its_system_is_there() -> None:
    now = [1_795_262_400.0]
    with Vultr(boots_s=120.0, clock=lambda: now[0]) as place, BENCH.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
        shown = []
        for _ in range(3):
            found = launcher(adapter).get(made.instance_id)
            shown.append((found.state, found.ssh_host is not None))
            now[0] += 65.0
    assert shown == [
        (InstanceState.STARTING, False), (InstanceState.STARTING, True), (InstanceState.RUNNING, True),
    ]  # fmt: skip


def test_a_stopped_machine_is_billed_all_the_same(place: Vultr, adapter: Adapter) -> None:
    adapter.market.search(Query())
    made = launcher(adapter).create(order(f"{L40S}/blr"))
    place.machines[made.instance_id]["power_status"] = "stopped"
    [found] = launcher(adapter).list_instances()
    assert found.state is InstanceState.STOPPED
    assert found.stopped_usd_hour == found.listed_usd_hour == OWN_PRICES[L40S]["blr"]


def test_a_404_of_another_kind_is_no_proof_that_it_is_gone(place: Vultr, adapter: Adapter) -> None:
    made = launcher(adapter).create(order())
    place.fail("GET /instances/", 404, {"error": "Invalid endpoint.", "status": 404})
    with pytest.raises(PayloadChanged):
        launcher(adapter).get(made.instance_id)


# --- before the first rent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "met"), [(SSH_KEY, True), ("another", False), (None, False)])
def test_the_key_to_log_in_is_a_prerequisite(place: Vultr, key: str | None, met: bool) -> None:
    bench = msgspec.structs.replace(BENCH, options={} if key is None else {"ssh_key": key})
    with bench.pointed_at(place.url) as adapter:
        rights, ssh_key = launcher(adapter).prerequisites([])
    assert rights.met is True
    assert ssh_key.met is met
    assert bool(ssh_key.mend) is not met
    assert place.machines == {}


def test_a_question_without_an_answer_refuses_nothing(place: Vultr, adapter: Adapter) -> None:
    place.fail("GET /(account|ssh-keys)", 500, times=9)
    assert [prerequisite.met for prerequisite in launcher(adapter).prerequisites([])] == [None, None]
