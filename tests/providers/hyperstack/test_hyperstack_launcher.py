"""Hyperstack's offers and launcher, with its emulator: what the conformance suites do not cover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gpuwatch.errors import OrderError, OrderRefused, PayloadChanged
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.relay import relaying
from tests.clouds.hyperstack import PRICES, SSH_KEY, Hyperstack
from tests.providers.hyperstack.bench import BENCH

LABEL = "gpuwatch-abcdefgh2345"


@pytest.fixture
def place() -> Iterator[Hyperstack]:
    with Hyperstack() as place:
        yield place


@pytest.fixture
def adapter(place: Hyperstack) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def order(offer_id: str = "n3-L40x1/NORWAY-1", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


def test_only_what_is_in_stock_on_demand_is_an_offer(adapter: Adapter) -> None:
    found = {offer.offer_id: offer for offer in adapter.market.search(Query()).offers}
    assert set(found) == {
        "n3-H100x1/CANADA-1", "n3-H100x8-NVLink/CANADA-1", "n3-H100-SXM5x8/US-1", "n3-L40x1/NORWAY-1",
        "n3-L40x1/CANADA-1",
    }  # fmt: skip
    eight = found["n3-H100-SXM5x8/US-1"]
    assert eight.quoted_usd_hour == pytest.approx(8 * float(PRICES["H100-80G-SXM5"]))
    assert (eight.gpu, eight.gpu_memory_gib, eight.country) == ("H100 SXM", 80.0, "US")
    assert found["n3-H100x8-NVLink/CANADA-1"].terms.interconnect == "NVLink"


def test_a_gpu_without_a_price_is_skipped_and_counted(place: Hyperstack) -> None:
    with relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        relay.corrupt = lambda body: body.replace(b'"name":"L40",', b'"name":"L41",')
        answer = adapter.market.search(Query())
    assert not any(offer.offer_id.startswith("n3-L40x1/") for offer in answer.offers)
    assert answer.skipped == {"a GPU without one clear price": 2}


def test_the_key_is_a_header_of_its_own(place: Hyperstack, adapter: Adapter) -> None:
    adapter.market.search(Query())
    assert {(request.headers.get("api_key"), request.headers.get("authorization")) for request in place.requests} == {
        ("demo-key", None)
    }


def test_one_machine_is_ordered_in_the_environment_of_its_region(place: Hyperstack, adapter: Adapter) -> None:
    made = launcher(adapter).create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
    machine = place.machines[int(made.instance_id)]
    assert machine["environment"]["name"] == "default-NORWAY-1"
    assert machine["port_randomization"] is False
    assert [rule["port_range_min"] for rule in machine["security_rules"]] == [22]
    assert place.user_data[int(made.instance_id)].startswith("#!/bin/bash")


def test_an_environment_of_the_settings_is_taken(place: Hyperstack) -> None:
    place.environments["mine"] = "NORWAY-1"
    bench = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY, "environment": "mine"})
    with bench.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
    assert place.machines[int(made.instance_id)]["environment"]["name"] == "mine"


def test_without_a_key_pair_nothing_is_sent(place: Hyperstack) -> None:
    bare = msgspec.structs.replace(BENCH, options={})
    with bare.pointed_at(place.url) as adapter, pytest.raises(OrderRefused, match="ssh_key"):
        launcher(adapter).create(order())
    assert place.requests == []


def test_what_is_still_being_created_cannot_be_ended_and_says_so() -> None:
    now = [1_795_262_400.0]
    with Hyperstack(boots_s=120.0, clock=lambda: now[0]) as place, BENCH.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
        [listed] = launcher(adapter).list_instances()
        assert (listed.state, listed.ssh_host) == (InstanceState.STARTING, None)
        with pytest.raises(OrderError, match="being created"):
            launcher(adapter).destroy(made.instance_id)
        now[0] += 121.0
        [listed] = launcher(adapter).list_instances()
        assert listed.state is InstanceState.RUNNING
        launcher(adapter).destroy(made.instance_id)
        assert launcher(adapter).get(made.instance_id) is None


@pytest.mark.parametrize("text", ["flavor not found", "The requested URL was not found"])
def test_a_404_about_something_else_is_no_proof_that_it_is_gone(place: Hyperstack, adapter: Adapter, text: str) -> None:
    made = launcher(adapter).create(order())
    place.fail("GET /core/virtual-machines/", 404, {"status": False, "message": text, "error_reason": "not_found"})
    with pytest.raises(PayloadChanged):
        launcher(adapter).get(made.instance_id)


def test_the_credit_is_reported(adapter: Adapter) -> None:
    assert launcher(adapter).credit_usd() == 100.0


def test_the_key_pair_must_be_in_the_environment_of_the_region(place: Hyperstack, adapter: Adapter) -> None:
    del place.environments["default-US-1"]
    found = launcher(adapter).prerequisites([order(), order("n3-H100-SXM5x8/US-1")])
    assert [(one.met, one.place) for one in found] == [(True, "default-NORWAY-1"), (False, "default-US-1")]
    assert found[1].offer_ids == ("n3-H100-SXM5x8/US-1",)
    assert found[1].mend
    assert place.machines == {}
