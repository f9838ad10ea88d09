"""Renting at Prime Intellect: the requests, the price guard, and what the answers mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.errors import (
    OfferGone,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.primeintellect import INFO
from gpuwatch.testing.bench import Bench
from tests.checkout import TESTS
from tests.clouds.primeintellect import PrimeIntellectServer
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=f"{INFO.base_url}/api/v1")
RECORDED = TESTS / "recorded" / "primeintellect"
BENCH = Bench(name="primeintellect", place=PrimeIntellectServer, gpu="H100 PCIe")
LISTED = json.loads((RECORDED / "availability-gpus-reconstructed.json").read_text())["items"]
POD = json.loads((RECORDED / "pods-create-response-docs.json").read_text()) | {
    "id": "pod1", "name": "gpuwatch-abcdefgh2345", "gpuName": "H100_80GB",
}  # fmt: skip
HYPERSTACK = "hyperstack/n3-H100x1/CANADA-1/secure_cloud/1/on-demand"
RUNPOD = "runpod/NVIDIA H100 PCIe/US-KS-2/secure_cloud/1/on-demand"


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def order(offer_id: str = HYPERSTACK, **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": "gpuwatch-abcdefgh2345", "image": "x/y", "disk_gb": 0.0}
    return Order(**(plain | values))


def offers(respx_mock: respx.MockRouter, *rows: dict[str, Any]) -> respx.Route:
    items = list(rows) or LISTED
    return respx_mock.get("/availability/gpus").respond(json={"items": items, "totalCount": len(items)})


def pods(*rows: Any, total: int | None = None) -> dict[str, Any]:
    return {"total_count": len(rows) if total is None else total, "offset": 0, "limit": 100, "data": list(rows)}


# --- the order --------------------------------------------------------------------------------------------------------


def test_the_order_is_the_documented_request_and_its_guard_is_the_shown_price(
    respx_mock: respx.MockRouter, adapter: Adapter
) -> None:
    """To `/pods/`, as documented: without the slash the answer is a redirect, which no order follows."""
    listed, created = offers(respx_mock), respx_mock.post("/pods/").respond(json=POD)
    adapter.market.search(Query())
    assert adapter.launcher is not None
    assert adapter.launcher.create(order(env={"TOKEN": "s3cr3t-value"})).instance_id == "pod1"
    documented = json.loads((RECORDED / "pods-create-request-reconstructed.json").read_text())
    more = {
        "name": "gpuwatch-abcdefgh2345", "vcpus": 180, "memory": 180, "autoRestart": False,
        "envVars": [{"key": "TOKEN", "value": "s3cr3t-value"}],
    }  # fmt: skip
    assert sent(created.calls) == [("POST", "/api/v1/pods/", documented | {"pod": documented["pod"] | more})]
    assert created.calls.last.request.headers["authorization"] == "Bearer demo-key"
    assert listed.call_count == 1  # the order needs no second list


def test_the_disk_is_in_the_price_guard(respx_mock: respx.MockRouter, launcher: Any) -> None:
    """An offer that the last search did not show is looked up first."""
    offers(respx_mock)
    created = respx_mock.post("/pods/").respond(json=POD)
    launcher.create(order(RUNPOD, disk_gb=500.0))
    pod = sent(created.calls)[0][2]["pod"]
    assert (pod["diskSize"], pod["maxPrice"]) == (500, pytest.approx(2.69 + 0.00014 * 500, abs=2e-4))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prepaidTime": 720}, "in advance"),
        ({"prices": LISTED[0]["prices"] | {"currency": "EUR"}}, "currency"),
        ({"stockStatus": "Perhaps"}, "prove stock"),
    ],
)
def test_what_the_guard_does_not_cover_is_refused(
    respx_mock: respx.MockRouter, launcher: Any, changes: dict[str, Any], why: str
) -> None:
    offers(respx_mock, LISTED[0] | changes)
    if why == "currency":
        respx_mock.get("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml").respond(500)
    with pytest.raises(OrderRefused, match=why) as refused:
        launcher.create(order())
    assert refused.value.kind is RefusalKind.BAD_ORDER


def test_a_spot_offer_is_refused(respx_mock: respx.MockRouter, launcher: Any) -> None:
    offers(respx_mock, LISTED[0] | {"isSpot": True})
    with pytest.raises(OrderRefused, match="spot"):
        launcher.create(order(HYPERSTACK.replace("on-demand", "spot")))


def test_an_offer_that_is_no_longer_listed_is_gone(respx_mock: respx.MockRouter, launcher: Any) -> None:
    offers(respx_mock, LISTED[1])
    with pytest.raises(OfferGone, match="no longer listed"):
        launcher.create(order())


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
        (400, {"detail": "The requested configuration is not available"}, OfferGone, None),
        (400, {"detail": "Price of the pod exceeds maxPrice"}, OrderRefused, RefusalKind.BAD_ORDER),
        (402, {"detail": "Insufficient balance"}, OrderRefused, RefusalKind.NO_CREDIT),
        (422, {"errors": [{"param": "pod.x", "details": "Extra inputs"}]}, OrderRefused, RefusalKind.BAD_ORDER),
        (404, {"detail": "Not found"}, OfferGone, None),
    ],
)
def test_a_refusal_says_what_is_refused(
    respx_mock: respx.MockRouter, launcher: Any, status: int, body: Any, error: type[Exception], kind: object
) -> None:
    offers(respx_mock)
    respx_mock.post("/pods/").respond(status, json=body)
    with pytest.raises(error) as refused:
        launcher.create(order())
    assert getattr(refused.value, "kind", None) == kind


@pytest.mark.parametrize(("status", "kind"), [(401, RefusalKind.KEY), (503, RefusalKind.NOT_SENT)])
def test_without_a_list_to_look_the_offer_up_nothing_is_ordered(
    respx_mock: respx.MockRouter, launcher: Any, status: int, kind: RefusalKind
) -> None:
    respx_mock.get("/availability/gpus").respond(status)
    with pytest.raises(OrderRefused) as refused:
        launcher.create(order())
    assert refused.value.kind is kind


# --- pods -------------------------------------------------------------------------------------------------------------


def test_the_list_is_read_to_its_end_without_those_that_have_ended(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get("/pods/")
    listed.side_effect = [
        httpx.Response(200, json=pods(POD, total=2)),
        httpx.Response(200, json=pods(POD | {"id": "pod2", "status": "TERMINATED"}, total=2)),
    ]
    [found] = launcher.list_instances()
    assert [path for _method, path, _body in sent(listed.calls)] == [
        "/api/v1/pods/?offset=0&limit=100",
        "/api/v1/pods/?offset=1&limit=100",
    ]
    assert (found.instance_id, found.label, found.state) == ("pod1", order().label, InstanceState.STARTING)
    assert (found.listed_usd_hour, found.stopped_usd_hour, found.gpu_wire) == (1.23, 0.005, "H100_80GB")
    assert POD["jupyterPassword"] not in repr(found)


@pytest.mark.parametrize(
    "value", [pods(total=1), {"data": [POD]}, pods(None), pods(POD | {"id": None}), pods(POD | {"status": 7})]
)
def test_a_list_that_may_lack_a_pod_is_none(respx_mock: respx.MockRouter, launcher: Any, value: Any) -> None:
    respx_mock.get("/pods/").respond(json=value)
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"status": "ACTIVE", "installationStatus": "PENDING"}, InstanceState.STARTING),
        ({"status": "ACTIVE", "installationStatus": "FINISHED"}, InstanceState.RUNNING),
        ({"status": "ACTIVE", "installationStatus": "FINISHED", "a new field": {}}, InstanceState.RUNNING),
        ({"status": "ACTIVE", "installationStatus": "ERROR"}, InstanceState.FAILED),
        ({"status": "ACTIVE", "installationStatus": "TERMINATED"}, InstanceState.FAILED),
        ({"status": "DELETING", "installationStatus": None}, InstanceState.ENDING),
        ({"status": "UNKNOWN", "installationStatus": None}, InstanceState.UNKNOWN),
        ({"status": "TERMINATED", "installationStatus": None}, InstanceState.ENDED),
    ],
)
def test_a_pod_runs_when_it_is_active_and_installed(
    respx_mock: respx.MockRouter, launcher: Any, changes: dict[str, Any], state: InstanceState
) -> None:
    respx_mock.get("/pods/pod1").respond(json=POD | changes)
    assert launcher.get("pod1").state is state


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        (None, (None, None, None)),
        ([None], (None, None, None)),
        (["ssh root@1.2.3.4 -p 2222"], ("root", "1.2.3.4", 2222)),
        ("root@1.2.3.4 -p 2222", ("root", "1.2.3.4", 2222)),
        ("ubuntu@1.2.3.4", ("ubuntu", "1.2.3.4", 22)),
    ],
)
def test_its_address_is_a_text_or_in_a_list(
    respx_mock: respx.MockRouter, launcher: Any, connection: Any, address: tuple[Any, ...]
) -> None:
    respx_mock.get("/pods/pod1").respond(json=POD | {"sshConnection": connection})
    found = launcher.get("pod1")
    assert (found.ssh_user, found.ssh_host, found.ssh_port) == address


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_end_is_one_request(respx_mock: respx.MockRouter, launcher: Any) -> None:
    ended = respx_mock.delete("/pods/pod1").respond(json={"status": "deleted"})
    launcher.destroy("pod1")
    assert sent(ended.calls) == [("DELETE", "/api/v1/pods/pod1", None)]


@pytest.mark.parametrize("end", [{"terminatedAt": "2026-11-21T13:00:00Z"}, {"status": "TERMINATED"}])
def test_the_end_may_stand_on_any_page_of_the_history_as_a_time_or_as_a_status(
    respx_mock: respx.MockRouter, launcher: Any, end: dict[str, str]
) -> None:
    """A pod whose end is not recognised would be stopping forever."""
    respx_mock.route(path="/pods/pod1").respond(404, json={"detail": "Pod not found"})
    past = [{"id": "other", "terminatedAt": "2026-11-20T13:00:00Z"}, {"id": "pod1", "terminatedAt": None} | end]
    pages = [httpx.Response(200, json=pods(one, total=2)) for one in past]
    history = respx_mock.get("/pods/history")
    history.side_effect = pages + pages
    assert launcher.get("pod1") is None
    launcher.destroy("pod1")
    assert [path for _method, path, _body in sent(history.calls)][:2] == [
        "/api/v1/pods/history?offset=0&limit=100",
        "/api/v1/pods/history?offset=1&limit=100",
    ]


@pytest.mark.parametrize(
    "history", [httpx.Response(200, json=pods()), httpx.Response(200, json=pods({"id": "pod1"})), httpx.Response(500)]
)
def test_a_404_without_the_pods_end_in_the_history_proves_nothing(
    respx_mock: respx.MockRouter, launcher: Any, history: httpx.Response
) -> None:
    respx_mock.route(path="/pods/pod1").respond(404, json={"detail": "Not found"})
    respx_mock.get("/pods/history").mock(return_value=history)
    with pytest.raises(ProviderDown if history.status_code == 500 else ProviderError):
        launcher.get("pod1")
    with pytest.raises(OutcomeUnknown) as unknown:
        launcher.destroy("pod1")
    assert unknown.value.instance_id == "pod1"
