"""The emulated RunPod agrees with the vendor's documents and recorded answers, without gpuwatch's own adapter."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.checkout import TESTS
from tests.clocks import Clock
from tests.clouds.runpod import NO_CAPACITY, RunPod
from tests.clouds.runpod_pods import Lags
from tests.clouds.runpod_quota import Quotas

RECORDED = TESTS / "recorded" / "runpod"
STOCK = "include=AVAILABILITY&product=POD"


class Answered(NamedTuple):
    status: int
    value: Any
    headers: dict[str, str]


@pytest.fixture
def clock() -> Clock:
    return Clock(1_796_256_000.0)


@pytest.fixture
def cloud(clock: Clock) -> Iterator[RunPod]:
    with RunPod(clock=clock) as cloud:
        yield cloud


def ask(cloud: RunPod, method: str, path: str, body: Any = None, key: str | None = "demo-key") -> Answered:
    connection = http.client.HTTPConnection(cloud.url.removeprefix("http://"), timeout=60)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    names = {name.lower(): value for name, value in reply.getheaders()}
    return Answered(reply.status, json.loads(text) if text else None, names)


def asked(cloud: RunPod, query: str, key: str | None = "demo-key") -> Answered:
    return ask(cloud, "POST", "/graphql", {"query": query}, key)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_bytes())


def a_create(**changes: Any) -> dict[str, Any]:
    return dict(recorded("v2-pods-create-request")) | changes


def shape(value: Any) -> Any:
    """Return the names in an answer, without its values."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in sorted(value.items())}
    return [shape(one) for one in value[:1]] if isinstance(value, list) else None


# --- REST v2 -----------------------------------------------------------------------------------------------------


def test_a_row_of_the_catalogue_has_the_fields_of_the_documented_one(cloud: RunPod) -> None:
    [documented] = recorded("v2-catalog-gpus-200")["gpus"]
    row = ask(cloud, "GET", f"/v2/catalog/gpus?{STOCK}").value["gpus"][0]
    documented["price"].pop("serverless")
    assert shape(row) == shape(documented)
    one = ask(cloud, "GET", f"/v2/catalog/gpus/{quote('NVIDIA L4')}?{STOCK}").value
    assert one["id"] == "NVIDIA L4"


def test_stock_depends_on_the_number_of_gpus_and_the_cloud(cloud: RunPod) -> None:
    def of(gpu_id: str, query: str) -> dict[str, Any]:
        rows = ask(cloud, "GET", f"/v2/catalog/gpus?{STOCK}&{query}").value["gpus"]
        return next(row for row in rows if row["id"] == gpu_id)

    rtx = "NVIDIA GeForce RTX 4090"
    assert [place["id"] for place in of(rtx, "count=1")["dataCenters"]] == ["US-KS-2", "EU-RO-1", "EUR-IS-1"]
    assert [place["id"] for place in of(rtx, "count=8")["dataCenters"]] == ["US-KS-2", "EU-RO-1"]
    assert "dataCenters" not in of(rtx, "cloud=COMMUNITY")
    gone = of("NVIDIA L40S", "count=1")
    assert gone["availability"] == "NONE"
    assert "dataCenters" not in gone


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("include=AVAILABILITY", 400),
        ("product=POD", 400),
        ("count=2", 400),
        (f"{STOCK}&count=0", 422),
        (f"{STOCK}&cloud=ALL", 422),
    ],
)
def test_a_query_that_breaks_a_rule_is_refused(cloud: RunPod, query: str, status: int) -> None:
    answered = ask(cloud, "GET", f"/v2/catalog/gpus?{query}")
    assert answered.status == answered.value["status"] == status
    assert answered.headers["content-type"] == "application/problem+json"


def test_without_stock_the_catalogue_holds_prices_alone(cloud: RunPod) -> None:
    row = ask(cloud, "GET", "/v2/catalog/gpus").value["gpus"][0]
    assert row["price"]["secure"] == 0.74
    assert "availability" not in row


def test_rest_wants_a_key_for_everything(cloud: RunPod) -> None:
    answered = ask(cloud, "GET", f"/v2/catalog/gpus?{STOCK}", key=None)
    assert (answered.status, answered.value) == (401, recorded("v2-error-401"))
    assert "ratelimit" not in answered.headers


def test_a_quota_is_reported_with_every_answer_and_kept(clock: Clock) -> None:
    with RunPod(clock=clock, quotas=Quotas(minute=2)) as cloud:
        left = [ask(cloud, "GET", "/v2/pods").headers["ratelimit"].partition(",")[0] for _ in range(2)]
        assert left == ['"minute";r=1;t=60', '"minute";r=0;t=60']
        clock.seconds += 20
        spent = ask(cloud, "GET", "/v2/pods")
        assert (spent.status, spent.value) == (429, recorded("v2-error-429"))
        assert (spent.headers["retry-after"], spent.headers["ratelimit"][:17]) == ("40", '"minute";r=0;t=40')
        assert spent.headers["ratelimit-policy"] == '"minute";q=2;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400'
        clock.seconds += 40
        assert ask(cloud, "GET", "/v2/pods").status == 200


def test_the_documented_create_makes_a_pod_of_the_documented_shape(cloud: RunPod, clock: Clock) -> None:
    cloud.lags = Lags(starting_s=5, running_s=10, container_s=20)
    made = ask(cloud, "POST", "/v2/pods", a_create(ports=["22/tcp"]))
    documented = recorded("v2-pods-create-201")
    assert made.status == 201
    assert made.value.keys() == documented.keys()
    assert (made.value["status"], made.value["runtime"]) == ("PROVISIONING", {})
    clock.seconds += 15
    shown = ask(cloud, "GET", f"/v2/pods/{made.value['id']}").value
    assert (shown["status"], shown["runtime"]) == ("RUNNING", {})
    clock.seconds += 15
    [listed] = ask(cloud, "GET", "/v2/pods").value["pods"]
    [documented] = recorded("v2-pods-list-200")["pods"]
    assert listed.keys() == documented.keys()
    assert shape(listed["runtime"]) == shape(documented["runtime"])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (a_create(dataCenterId="x"), 422, "$: additional properties 'dataCenterId' not allowed"),
        (a_create(name=""), 422, "$: missing property 'name'"),
        (a_create(gpu={"id": "NVIDIA L4", "type": "x"}), 422, "$.gpu: additional properties 'type' not allowed"),
        (a_create(env={"A": 1}), 422, "$.env: expected strings"),
        ([], 422, "$: expected an object"),
        (a_create(mounts={"persistent": {}, "network": []}), 400, None),
        (a_create(gpu={"id": "NVIDIA L4", "minCudaVersion": "12.8", "allowedCudaVersions": ["12.8"]}), 400, None),
        (a_create(gpu={"id": "NVIDIA L40S"}), 400, None),
        (a_create(gpu={"id": "no such GPU"}), 400, None),
        (a_create(dataCenterIds=["SEA-SG-1"]), 400, None),
    ],
)
def test_a_create_that_cannot_be_is_refused(cloud: RunPod, body: Any, status: int, says: str | None) -> None:
    answered = ask(cloud, "POST", "/v2/pods", body)
    assert (answered.status, answered.value["title"]) == (status, recorded(f"v2-error-{status}")["title"])
    assert says is None or says in answered.value["errors"]
    assert cloud.pods == {}


def test_no_capacity_is_reported_in_the_recorded_words(cloud: RunPod) -> None:
    cloud.sell_out("NVIDIA GeForce RTX 4090")
    answered = ask(cloud, "POST", "/v2/pods", a_create())
    assert answered.value == recorded("v2-error-400-no-capacity-live-2026-08-18")
    assert answered.value["detail"] == NO_CAPACITY


def test_what_is_rented_is_no_stock_until_it_ends(cloud: RunPod) -> None:
    body = a_create(gpu={"id": "NVIDIA B200", "count": 8})
    first = ask(cloud, "POST", "/v2/pods", body).value
    assert ask(cloud, "POST", "/v2/pods", body).status == 400
    assert ask(cloud, "DELETE", f"/v2/pods/{first['id']}").status == 204
    assert ask(cloud, "DELETE", f"/v2/pods/{first['id']}").value["detail"] == "pod not found"
    assert ask(cloud, "POST", "/v2/pods", body).status == 201


def test_a_balance_under_an_hour_of_it_is_a_402(cloud: RunPod) -> None:
    cloud.credit = 0.7
    assert ask(cloud, "POST", "/v2/pods", a_create()).status == 402


def test_a_pod_is_stopped_started_and_terminated_by_actions(cloud: RunPod) -> None:
    pod_id = ask(cloud, "POST", "/v2/pods", a_create()).value["id"]

    def act(action: str) -> Answered:
        return ask(cloud, "POST", f"/v2/pods/{pod_id}/action", {"action": action})

    stopped = act("stop").value
    assert (stopped["status"], stopped["cost"]) == ("EXITED", 0)
    assert act("stop").status == 409
    assert act("start").value["status"] == "RUNNING"
    assert act("dance").status == 422
    assert act("terminate").status == 204
    assert act("start").status == 404


def test_a_filter_of_the_list_is_ignored_and_clusters_are_hidden(cloud: RunPod) -> None:
    pod_id = ask(cloud, "POST", "/v2/pods", a_create()).value["id"]
    assert len(ask(cloud, "GET", "/v2/pods?name=other").value["pods"]) == 1
    cloud.pods[pod_id].cluster = "c1"
    assert ask(cloud, "GET", "/v2/pods").value == {"pods": []}
    assert len(ask(cloud, "GET", "/v2/pods?includeClusterPods=true").value["pods"]) == 1


def test_a_restart_loop_shows_an_uptime_that_never_grows(cloud: RunPod, clock: Clock) -> None:
    pod_id = ask(cloud, "POST", "/v2/pods", a_create()).value["id"]
    cloud.pods[pod_id].looping = True
    seen = []
    for _ in range(5):
        reported = ask(cloud, "GET", f"/v2/pods/{pod_id}").value
        seen.append((reported["status"], reported["runtime"]["uptime"]))
        clock.seconds += 30
    assert seen == [("RUNNING", uptime) for uptime in (7, 0, -14, -9, 7)]


def test_billing_has_the_fields_of_the_documented_record(cloud: RunPod, clock: Clock) -> None:
    pod_id = ask(cloud, "POST", "/v2/pods", a_create()).value["id"]
    clock.seconds += 7200
    reported = ask(cloud, "GET", "/v2/billing/pods?bucketSize=day").value
    assert shape(reported["records"]) == shape(recorded("v2-billing-pods-200")["records"])
    assert (reported["records"][0]["podId"], reported["records"][0]["gpuAmount"]) == (pod_id, pytest.approx(1.48))


# --- GraphQL -----------------------------------------------------------------------------------------------------


def test_types_are_reported_without_a_key_and_with_the_sentinel(cloud: RunPod) -> None:
    query = """{ gpuTypes { id displayName memoryInGb secureCloud communityCloud
        lowestPrice(input: {gpuCount: 1}) { minimumBidPrice uninterruptablePrice } } }"""
    live = recorded("graphql-gputypes-lowestprice-live-2026-05-31")["data"]["gpuTypes"]
    reported = asked(cloud, query, key=None).value["data"]["gpuTypes"]
    assert shape(reported) == shape(live)
    assert "unknown" in {row["id"] for row in reported} & {row["id"] for row in live}


def test_the_lowest_price_is_of_all_gpus_and_nothing_without_their_number(cloud: RunPod) -> None:
    query = """query Q { gpuTypes(input: {id: "NVIDIA H100 PCIe"}) {
        both: lowestPrice(input: {gpuCount: 2}) { uninterruptablePrice stockStatus }
        own: lowestPrice(input: {gpuCount: 4, secureCloud: true}) { uninterruptablePrice stockStatus }
        none: lowestPrice(input: {gpuCount: 8, secureCloud: true}) { uninterruptablePrice stockStatus }
        bare: lowestPrice(input: {}) { uninterruptablePrice stockStatus } } }"""
    [row] = asked(cloud, query).value["data"]["gpuTypes"]
    assert row == {
        "both": {"uninterruptablePrice": 3.98, "stockStatus": "High"},
        "own": {"uninterruptablePrice": 9.56, "stockStatus": "Low"},
        "none": {"uninterruptablePrice": None, "stockStatus": None},
        "bare": {"uninterruptablePrice": None, "stockStatus": None},
    }


def test_a_stale_community_price_stands_beside_a_false_and_countries_hold_a_null(cloud: RunPod) -> None:
    query = '{ gpuTypes(input: {id: "NVIDIA H200"}) { communityCloud communityPrice } countryCodes }'
    data = asked(cloud, query, key=None).value["data"]
    assert data["gpuTypes"] == [{"communityCloud": False, "communityPrice": 0.5}]
    assert None in data["countryCodes"]


def test_the_account_wants_a_key(cloud: RunPod) -> None:
    assert asked(cloud, "{ myself { clientBalance } }", key=None).status == 401
    assert asked(cloud, "{ myself { clientBalance } }").value == {"data": {"myself": {"clientBalance": 100.0}}}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ('{ pod(input: {podId: "x"}) { runtime { disk } } }', "graphql-error-unknown-field-http400-live-2026-06-13"),
        (
            'mutation { podFindAndDeployOnDemand(input: {restartPolicy: "no"}) { id } }',
            "graphql-error-unknown-input-live-2026-06-13",
        ),
    ],
)
def test_what_the_schema_lacks_is_refused_in_the_recorded_words(cloud: RunPod, query: str, name: str) -> None:
    answered, live = asked(cloud, query), recorded(name)["errors"][0]
    [error] = answered.value["errors"]
    assert answered.status == 400
    assert (error["message"], error["extensions"]["code"]) == (live["message"], live["extensions"]["code"])


def test_a_failure_of_business_is_a_200_with_errors(cloud: RunPod) -> None:
    answered = asked(cloud, 'mutation { podTerminate(input: {podId: "gone"}) }')
    live = recorded("graphql-error-business-rule-http200-live-2026-06-13")
    assert (answered.status, answered.value["data"]) == (200, {"podTerminate": None})
    [error] = answered.value["errors"]
    assert error["message"] == "pod not found to terminate"
    assert error["extensions"]["code"] == live["errors"][0]["extensions"]["code"]


@pytest.mark.parametrize("query", ["", "{", "{ myself }", "{ countryCodes { x } }", "{ a(b: ) }", "@"])
def test_a_question_that_is_none_is_a_400(cloud: RunPod, query: str) -> None:
    assert asked(cloud, query).status == 400
    assert asked(cloud, "{ countryCodes }").status == 200


def test_variables_are_filled_in(cloud: RunPod) -> None:
    body = {"query": "query Q($id: String!) { gpuTypes(input: {id: $id}) { id } }", "variables": {"id": "NVIDIA L4"}}
    assert ask(cloud, "POST", "/graphql", body).value == {"data": {"gpuTypes": [{"id": "NVIDIA L4"}]}}
