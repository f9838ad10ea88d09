"""RunPod's requests and answers: each call on the wire, and what each refusal means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import Created, InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from tests.checkout import TESTS
from tests.providers.runpod.bench import BENCH
from tests.sent_requests import sent

RECORDED = TESTS / "recorded" / "runpod"
URL = "https://api.runpod.io"
POD = "7h9k2m4n6p"  # of the recorded answers
K = RefusalKind
pytestmark = pytest.mark.respx(base_url=URL)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_bytes())


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(URL) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def an_order(**values: Any) -> Order:
    plain: dict[str, Any] = {
        "offer_id": "NVIDIA H100 80GB HBM3/SECURE/1/US-KS-2", "label": "gpuwatch-a", "image": "x/y", "disk_gb": 20.0,
    }  # fmt: skip
    return Order(**(plain | values))


def a_problem(status: int, detail: str, **more: Any) -> dict[str, Any]:
    return {"title": "x", "status": status, "detail": detail} | more


# --- what is read -----------------------------------------------------------------------------------------------------


def test_the_catalogue_is_asked_for_by_cloud_and_count_with_the_key(respx_mock: respx.MockRouter) -> None:
    catalogue = respx_mock.get("/v2/catalog/gpus").respond(json=recorded("v2-catalog-gpus-200"))
    secure = msgspec.structs.replace(BENCH, options={"clouds": ("SECURE",)})
    with secure.pointed_at(URL) as adapter:
        assert adapter.market.search(Query(count_max=1)).offers
    assert sent(catalogue.calls) == [
        ("GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&count=1&cloud=SECURE", None)
    ]
    assert catalogue.calls.last.request.headers["authorization"] == "Bearer demo-key"
    assert catalogue.calls.last.request.headers["user-agent"].startswith("gpuwatch/"), "the edge refuses some others"


def test_without_a_key_one_graphql_query_is_the_catalogue(respx_mock: respx.MockRouter) -> None:
    catalogue = respx_mock.post("/graphql").respond(json={"data": {"gpuTypes": [], "dataCenters": []}})
    with BENCH.pointed_at(URL, None) as adapter, pytest.raises(PayloadChanged):
        adapter.market.search(Query())
    [(_, _, body)] = sent(catalogue.calls)
    assert body["query"].startswith("query { gpuTypes { id memoryInGb")
    assert "authorization" not in catalogue.calls.last.request.headers


def test_the_list_includes_members_of_clusters(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get("/v2/pods").respond(json=recorded("v2-pods-list-200"))
    found = launcher.list_instances()
    assert sent(listed.calls) == [("GET", "/v2/pods?includeClusterPods=true", None)]
    assert (found[0].instance_id, found[0].label, found[0].state) == (POD, "pytorch-training", InstanceState.RUNNING)
    assert (found[0].ssh_host, found[0].ssh_port) == ("195.26.233.3", 34446)


def test_one_pod_is_asked_for_by_its_id_and_only_the_api_says_that_it_is_gone(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    shown = respx_mock.get(f"/v2/pods/{POD}").mock(side_effect=[
        httpx.Response(200, json=recorded("v2-pod-get-200")),
        httpx.Response(404, json=recorded("v2-error-404")),
        httpx.Response(404, html="<p>no such page</p>"),
    ])  # fmt: skip
    assert launcher.get(POD).instance_id == POD
    assert launcher.get(POD) is None
    with pytest.raises(PayloadChanged):
        launcher.get(POD)
    assert sent(shown.calls) == [("GET", f"/v2/pods/{POD}", None)] * 3


def test_balance_and_account_are_graphql(respx_mock: respx.MockRouter, launcher: Any) -> None:
    asked = respx_mock.post("/graphql").mock(side_effect=[
        httpx.Response(200, json={"data": {"myself": {"clientBalance": 41.87}}}),
        httpx.Response(200, json={"data": {"myself": {"id": "user_1"}}}),
    ])  # fmt: skip
    assert (launcher.credit_usd(), launcher.account_id()) == (41.87, "user_1")
    queries = ["query { myself { clientBalance } }", "query { myself { id } }"]
    assert sent(asked.calls) == [("POST", "/graphql", {"query": query}) for query in queries]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json=recorded("v2-error-404")),
        httpx.Response(404, html="<html>"),
        httpx.Response(410, json={"error": "GraphQL was retired"}),
        httpx.Response(400, json=recorded("graphql-error-unknown-field-http400-live-2026-06-13")),
        httpx.Response(200, json={"errors": [{"message": "Something went wrong"}], "data": None}),
        httpx.Response(200, json={}),
    ],
)
def test_without_graphql_an_account_has_no_name_and_is_no_outage(
    respx_mock: respx.MockRouter, launcher: Any, answer: httpx.Response
) -> None:
    """It will be retired, and REST names no account: a key that lists pods can rent."""
    respx_mock.post("/graphql").mock(return_value=answer)
    respx_mock.get("/v2/pods").mock(side_effect=[httpx.Response(200, json={"pods": []}), answer])
    assert launcher.account_id() is None
    with pytest.raises(ProviderError):
        launcher.account_id()


def test_charges_are_asked_for_day_by_day(respx_mock: respx.MockRouter, launcher: Any) -> None:
    charged = respx_mock.get("/v2/billing/pods").respond(json=recorded("v2-billing-pods-200"))
    found = launcher.charges(date(2026, 6, 1), date(2026, 6, 2))
    assert {one.kind: one.usd for one in found} == {"gpu": 11.1, "disk": 1.24}
    path = "/v2/billing/pods?bucketSize=day&startTime=2026-06-01T00%3A00%3A00Z&endTime=2026-06-03T00%3A00%3A00Z"
    assert sent(charged.calls) == [("GET", path, None)]


def test_the_edge_that_turns_a_client_away_is_no_wrong_key(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.get("/v2/pods").respond(403, html="<html>error code: 1010</html>")
    with pytest.raises(ProviderDown, match="edge"):
        launcher.list_instances()


# --- creates ----------------------------------------------------------------------------------------------------------


def test_an_order_is_one_pod_with_the_label_as_its_name(respx_mock: respx.MockRouter, launcher: Any) -> None:
    created = respx_mock.post("/v2/pods").respond(201, json=recorded("v2-pods-create-201"))
    assert launcher.create(an_order(env={"A": "b"})) == Created(instance_id=POD)
    body = {
        "name": "gpuwatch-a",
        "image": "x/y",
        "gpu": {"id": "NVIDIA H100 80GB HBM3", "count": 1},
        "cloud": "SECURE",
        "dataCenterIds": ["US-KS-2"],
        "disk": 20,
        "env": {"A": "b"},
        "ports": ["22/tcp"],
        "startSsh": True,
    }
    assert sent(created.calls) == [("POST", "/v2/pods", body)]


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
        (400, recorded("v2-error-400-no-capacity-live-2026-08-18"), OfferGone, None),
        (400, recorded("v2-error-400"), OfferGone, None),
        (400, a_problem(400, "mounts are mutually exclusive"), OrderRefused, K.BAD_ORDER),
        (400, a_problem(400, "Your balance is too low"), OrderRefused, K.NO_CREDIT),
        (401, recorded("v2-error-401"), OrderRefused, K.KEY),
        (402, a_problem(402, "balance too low"), OrderRefused, K.NO_CREDIT),
        (403, recorded("v2-error-403"), OrderRefused, K.KEY),
        (404, recorded("v2-error-404"), OrderRefused, K.OTHER),
        (409, a_problem(409, "not allowed in this state"), OrderRefused, K.OTHER),
        (422, recorded("v2-error-422-live-2026-08-18"), OrderRefused, K.BAD_ORDER),
        (429, recorded("v2-error-429"), OrderRateLimited, None),
        (500, recorded("v1-error-500-no-capacity"), OfferGone, None),
        (500, {"error": "create pod: something went wrong", "status": 500}, OutcomeUnknown, None),
        (201, {"status": "PROVISIONING"}, OutcomeUnknown, None),
    ],
)
def test_every_answer_to_a_create_is_distinguished(
    respx_mock: respx.MockRouter,
    launcher: Any,
    status: int,
    body: Any,
    error: type[Exception],
    kind: RefusalKind | None,
) -> None:
    created = respx_mock.post("/v2/pods").respond(status, json=body)
    with pytest.raises(error) as caught:
        launcher.create(an_order())
    assert getattr(caught.value, "kind", None) is kind
    assert created.call_count == 1


def test_the_fields_that_a_422_names_are_reported(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.post("/v2/pods").respond(422, json=recorded("v2-error-422-live-2026-08-18"))
    with pytest.raises(OrderRefused, match="missing property 'dataCenter'"):
        launcher.create(an_order())


def test_too_many_orders_say_when_to_come_again(respx_mock: respx.MockRouter, launcher: Any) -> None:
    headers = recorded("v2-ratelimit-headers")
    respx_mock.post("/v2/pods").respond(429, json=recorded("v2-error-429"), headers=headers)
    with pytest.raises(OrderRateLimited) as limited:
        launcher.create(an_order())
    assert limited.value.retry_after_s == 12.0


def test_a_quota_that_is_long_used_up_refuses_the_order_unsent(respx_mock: respx.MockRouter, launcher: Any) -> None:
    headers = {"RateLimit": '"day";r=0;t=40000', "Retry-After": "3600"}
    respx_mock.get("/v2/pods").respond(429, json=a_problem(429, "rate limit exceeded"), headers=headers)
    with pytest.raises(RateLimited):
        launcher.list_instances()
    with pytest.raises(OrderRateLimited, match="nothing was sent"):
        launcher.create(an_order())


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "body"), [(204, None), (404, recorded("v2-error-404"))])
def test_a_pod_is_ended_by_its_id_and_one_that_is_gone_is(
    respx_mock: respx.MockRouter, launcher: Any, status: int, body: Any
) -> None:
    ended = respx_mock.delete(f"/v2/pods/{POD}").respond(status, json=body)
    launcher.destroy(POD)
    assert sent(ended.calls) == [("DELETE", f"/v2/pods/{POD}", None)]


@pytest.mark.parametrize("answer", [recorded("v2-error-400"), recorded("v2-error-400-no-capacity-live-2026-08-18")])
def test_a_400_to_an_end_is_no_offer_that_is_gone(respx_mock: respx.MockRouter, launcher: Any, answer: Any) -> None:
    respx_mock.delete(f"/v2/pods/{POD}").respond(400, json=answer)
    with pytest.raises(OrderRefused):
        launcher.destroy(POD)
