"""Hyperstack: every request of the adapter, and what it makes of documented and quoted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.hyperstack import INFO
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from tests.checkout import TESTS
from tests.providers.hyperstack.bench import BENCH
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
RECORDED = TESTS / "recorded" / "hyperstack"
FLAVORS = json.loads((RECORDED / "flavors-quoted.json").read_text())
[IN_STOCK, SOLD_OUT] = FLAVORS["data"][0]["flavors"]
INSTANCES = json.loads((RECORDED / "instances-quoted.json").read_text())
QUOTED = json.loads((RECORDED / "errors-quoted.json").read_text())
MACHINE = INSTANCES["instances"][0]
MACHINES = "/core/virtual-machines"


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def with_options(**options: Any) -> Any:
    return msgspec.structs.replace(BENCH, options=options).pointed_at(INFO.base_url)


def order(offer_id: str = "n3-A100x1/CANADA-1", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": "gpuwatch-abcdefgh2345", "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def price(name: str, value: str = "1.35", **more: Any) -> dict[str, Any]:
    """One row of the price book, as the vendor's SDK has it."""
    row = {"id": 1, "name": name, "value": value, "original_value": value, "discount_applied": False}
    return row | {"start_time": None, "end_time": None} | more


def market(respx_mock: respx.MockRouter, *flavors: dict[str, Any], prices: list[dict[str, Any]]) -> None:
    respx_mock.get("/pricebook").respond(json=prices)
    respx_mock.get("/core/flavors").respond(json=FLAVORS | {"data": [{"flavors": list(flavors)}]})


# --- offers -----------------------------------------------------------------------------------------------------------


def test_a_search_reads_prices_and_stock_with_the_key_in_a_header_of_its_own(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    market(respx_mock, IN_STOCK, SOLD_OUT, prices=[price("A100-80G-PCIe"), price("vCPU", "0.03")])
    answer = adapter.market.search(Query())
    assert sent(respx_mock.calls) == [("GET", "/v1/pricebook", None), ("GET", "/v1/core/flavors", None)]
    headers = [call.request.headers for call in respx_mock.calls]
    assert {(one.get("api_key"), one.get("authorization")) for one in headers} == {("demo-key", None)}
    [offer] = answer.offers
    assert (offer.offer_id, offer.gpu, offer.gpu_count) == ("n3-A100x1/CANADA-1", "A100 PCIe 80GB", 1)
    assert (offer.quoted_usd_hour, offer.country, offer.vcpu, offer.quoted_disk_gb) == (1.35, "CA", 28, 850)
    assert (answer.completeness.value, answer.skipped) == ("complete", {})


@pytest.mark.parametrize(
    ("changes", "found", "skipped"),
    [
        ({"gpu_count": 8}, ("A100 PCIe 80GB", 10.8, None), {}),
        ({"gpu": "H100-80G-PCIe-NVLink", "gpu_count": 8}, ("H100 PCIe", 15.6, "NVLink"), {}),
        ({"gpu": "A100-80G-PCIe-spot"}, None, {}),
        ({"is_spot": True}, None, {}),
        ({"gpu": "", "gpu_count": 0}, None, {}),
        ({"gpu": "L41"}, None, {"a GPU without one clear price": 1}),
        ({"gpu": "L40"}, None, {"a GPU without one clear price": 1}),  # two prices
        ({"stock_available": "yes"}, None, {"nothing about its stock": 1}),
        ({"a new field": 1}, ("A100 PCIe 80GB", 1.35, None), {}),
    ],
)
def test_a_flavor_is_an_offer_at_the_one_price_of_its_gpus(
    respx_mock: respx.MockRouter, adapter: Adapter, changes: dict[str, Any], found: object, skipped: dict[str, int]
) -> None:
    names = ("A100-80G-PCIe", "A100-80G-PCIe-spot", "L40")
    prices = [*map(price, names), price("L40", "1.00"), price("H100-80G-PCIe-NVLink", "1.95")]
    market(respx_mock, SOLD_OUT, IN_STOCK | changes, prices=prices)
    answer = adapter.market.search(Query())
    offers = [(o.gpu, o.quoted_usd_hour, o.terms.interconnect) for o in answer.offers]
    assert offers == ([] if found is None else [pytest.approx(found)])
    assert answer.skipped == skipped


# --- renting ----------------------------------------------------------------------------------------------------------


def test_one_machine_is_ordered_in_the_environment_of_its_region(respx_mock: respx.MockRouter, launcher: Any) -> None:
    created = respx_mock.post(MACHINES).respond(json={"status": True, "instances": [MACHINE]})
    made = launcher.create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
    assert made.instance_id == "123"
    rule = {
        "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0",
        "port_range_min": 22, "port_range_max": 22,
    }  # fmt: skip
    body = {
        "name": "gpuwatch-abcdefgh2345", "environment_name": "default-CANADA-1", "flavor_name": "n3-A100x1",
        "image_name": "Ubuntu Server 22.04 LTS R535 CUDA 12.2", "key_name": "demo-key-pair", "count": 1,
        "assign_floating_ip": True, "enable_port_randomization": False, "security_rules": [rule],
        "labels": ["gpuwatch"], "user_data": first_boot_script("echo hello", {"TOKEN": "s3cr3t-value"}),
    }  # fmt: skip
    assert sent(created.calls) == [("POST", f"/v1{MACHINES}", body)]
    assert created.calls.last.request.headers["api_key"] == "demo-key"


def test_environment_and_image_of_the_settings_are_taken(respx_mock: respx.MockRouter) -> None:
    created = respx_mock.post(MACHINES).respond(json={"status": True, "instances": [MACHINE]})
    with with_options(ssh_key="k", environment="mine-{region}", image="Ubuntu Server 24.04 LTS") as adapter:
        adapter.launcher.create(order())
    body = sent(created.calls)[0][2]
    assert (body["environment_name"], body["image_name"]) == ("mine-CANADA-1", "Ubuntu Server 24.04 LTS")


def test_without_a_key_pair_nothing_is_sent(respx_mock: respx.MockRouter) -> None:
    with with_options() as adapter, pytest.raises(OrderRefused, match="ssh_key"):
        adapter.launcher.create(order())
    assert list(respx_mock.calls) == []


@pytest.mark.parametrize("instances", [[], [MACHINE, MACHINE | {"id": 124}], [{"id": "new"}], None])
def test_an_answer_that_does_not_name_one_machine_leaves_the_outcome_unknown(
    respx_mock: respx.MockRouter, launcher: Any, instances: object
) -> None:
    respx_mock.post(MACHINES).respond(json={"status": True, "instances": instances})
    with pytest.raises(OutcomeUnknown):
        launcher.create(order())


@pytest.mark.parametrize(
    ("quoted", "kind"), [("key", RefusalKind.KEY), ("wrong flavor", RefusalKind.OTHER), ("not yet", RefusalKind.OTHER)]
)
def test_a_quoted_refusal_is_one(respx_mock: respx.MockRouter, launcher: Any, quoted: str, kind: RefusalKind) -> None:
    """Hyperstack cannot end a machine that it is still creating, and says so."""
    answer = QUOTED[quoted]
    route = respx_mock.delete(f"{MACHINES}/123") if quoted == "not yet" else respx_mock.post(MACHINES)
    route.respond(answer["http_status"], json=answer["body"])
    with pytest.raises(OrderRefused, match=answer["body"]["message"]) as refused:
        launcher.destroy("123") if quoted == "not yet" else launcher.create(order())
    assert refused.value.kind is kind


# --- instances --------------------------------------------------------------------------------------------------------


def test_the_list_is_read_page_by_page_to_its_end(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get(MACHINES)
    listed.side_effect = [httpx.Response(200, json=INSTANCES | {"instances": [row]}) for row in INSTANCES["instances"]]
    running, theirs = launcher.list_instances()
    assert [path for _method, path, _body in sent(listed.calls)] == [
        f"/v1{MACHINES}?page=1&pageSize=100",
        f"/v1{MACHINES}?page=2&pageSize=100",
    ]
    assert (running.instance_id, running.label, running.state) == ("123", order().label, InstanceState.RUNNING)
    assert (running.ssh_host, running.ssh_port, running.ssh_user) == ("203.0.113.5", 22, "ubuntu")
    assert (running.machine_id, running.gpu) == ("n3-A100x1/CANADA-1", "A100 PCIe 80GB")
    assert (theirs.state, theirs.ssh_host) == (InstanceState.STOPPED, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3},
        {"count": None},
        {"status": False},
        {"instances": [MACHINE | {"id": None}]},
        {"instances": [MACHINE | {"status": None}]},
        {"instances": [None]},
    ],
)
def test_a_list_that_may_lack_a_machine_is_none(
    respx_mock: respx.MockRouter, launcher: Any, changes: dict[str, Any]
) -> None:
    first, last = INSTANCES | {"count": 1} | changes, INSTANCES | changes | {"instances": []}
    respx_mock.get(MACHINES).side_effect = [httpx.Response(200, json=value) for value in (first, last)]
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


def test_one_that_runs_without_an_address_is_starting(respx_mock: respx.MockRouter, launcher: Any) -> None:
    answer = {"status": True, "instance": MACHINE | {"floating_ip": None}}
    respx_mock.get(f"{MACHINES}/123").respond(json=answer)
    found = launcher.get("123")
    assert (found.state, found.ssh_host, found.ssh_port) == (InstanceState.STARTING, None, None)


def test_it_is_gone_if_hyperstack_names_the_machine(respx_mock: respx.MockRouter, launcher: Any) -> None:
    gone = QUOTED["gone"]
    respx_mock.route(path=f"{MACHINES}/123").respond(gone["http_status"], json=gone["body"])
    assert launcher.get("123") is None
    launcher.destroy("123")
    assert [method for method, _path, _body in sent(respx_mock.calls)] == ["GET", "DELETE"]


@pytest.mark.parametrize("text", ["flavor not found", "The requested URL was not found"])
def test_a_404_about_something_else_is_no_proof_that_it_is_gone(
    respx_mock: respx.MockRouter, launcher: Any, text: str
) -> None:
    body = {"status": False, "message": text, "error_reason": "not_found"}
    respx_mock.route(path=f"{MACHINES}/123").respond(404, json=body)
    with pytest.raises(PayloadChanged):
        launcher.get("123")
    with pytest.raises(OrderRefused):
        launcher.destroy("123")


# --- before the first rent --------------------------------------------------------------------------------------------


def test_the_credit_is_reported(respx_mock: respx.MockRouter, launcher: Any) -> None:
    credit = respx_mock.get("/billing/user-credit/credit")
    credit.respond(json={"status": True, "data": {"credit": 100.5, "threshold": 0.0, "can_create_instance": True}})
    assert launcher.credit_usd() == 100.5
    credit.respond(json={"status": True, "data": {}})
    with pytest.raises(PayloadChanged, match="no credit balance"):
        launcher.credit_usd()


def test_the_key_pair_must_be_in_the_environment_of_the_region(respx_mock: respx.MockRouter, launcher: Any) -> None:
    pair = {"id": 1, "name": "demo-key-pair", "environment": {"name": "default-CANADA-1", "region": "CANADA-1"}}
    other = {"id": 2, "name": "another", "environment": {"name": "default-US-1", "region": "US-1"}}
    respx_mock.get("/core/keypairs").respond(json={"status": True, "count": 2, "keypairs": [pair, other]})
    found = launcher.prerequisites([order(), order("n3-H100-SXM5x8/US-1")])
    assert [(one.met, one.place, bool(one.mend)) for one in found] == [
        (True, "default-CANADA-1", False),
        (False, "default-US-1", True),
    ]
    assert found[1].offer_ids == ("n3-H100-SXM5x8/US-1",)
    assert sent(respx_mock.calls) == [("GET", "/v1/core/keypairs?page=1&pageSize=100", None)]
