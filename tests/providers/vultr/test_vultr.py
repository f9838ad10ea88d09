"""Vultr: every request of the adapter, and what it makes of documented and quoted answers."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import OfferGone, OrderRefused, PayloadChanged, RefusalKind, RefusalScope
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.vultr import INFO
from gpuwatch.providers.vultr.plans import offers_of, parse_plans
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.providers.vultr.bench import BENCH
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
NOW = datetime(2026, 11, 28, tzinfo=UTC)
SSH_KEY = "cb676a46-66fd-4dfb-b839-443f2e6c0b60"
PLANS = json.loads((TESTS / "recorded/vultr/plans-quoted.json").read_text())  # whole, a quarter, dedicated, without GPU
INSTANCES = json.loads((TESTS / "recorded/vultr/instances-client-tests.json").read_text())
QUOTED = json.loads((TESTS / "recorded/vultr/errors-quoted.json").read_text())
DEDICATED = json.loads((TESTS / "providers/reported/vultr-vdm.json").read_text())["plans"]
L40S = PLANS[0]["id"]
ID = INSTANCES[0]["id"]


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def with_options(**options: Any) -> Any:
    return msgspec.structs.replace(BENCH, options=options).pointed_at(INFO.base_url)


def page(name: str, rows: list[Any], following: str = "", total: int | None = None) -> dict[str, Any]:
    meta = {"total": len(rows) if total is None else total, "links": {"next": following, "prev": ""}}
    return {name: rows, "meta": meta}


def order(offer_id: str = f"{L40S}/fra", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": "gpuwatch-ab_c", "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def market(respx_mock: respx.MockRouter, plans: list[Any], stock: dict[str, Any]) -> None:
    """Route the requests of a search. `stock`: "TYPE PLACE" → plans, or an answer."""
    respx_mock.get("/plans").respond(json=page("plans", plans))
    places = [{"id": place, "country": country} for place, country in (("ewr", "US"), ("lhr", "GB"))]
    respx_mock.get("/regions").respond(json=page("regions", places))
    for key, plans_there in stock.items():
        kind, place = key.split()
        route = respx_mock.get(f"/regions/{place}/availability", params={"type": kind})
        known = isinstance(plans_there, list)
        route.return_value = httpx.Response(200, json={"available_plans": plans_there}) if known else plans_there


IN_STOCK = {"vcg ewr": [L40S, PLANS[1]["id"]], "vdm ewr": [], "vdm lhr": [PLANS[2]["id"]]}


# --- offers -----------------------------------------------------------------------------------------------------------


def test_a_search_reads_plans_places_and_the_stock_of_each_type(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    market(respx_mock, PLANS, IN_STOCK)
    answer = adapter.market.search(Query())
    assert sorted(sent(respx_mock.calls)) == [
        ("GET", "/v2/plans?type=all&per_page=500", None),
        ("GET", "/v2/regions/ewr/availability?type=vcg", None),
        ("GET", "/v2/regions/ewr/availability?type=vdm", None),
        ("GET", "/v2/regions/lhr/availability?type=vdm", None),
        ("GET", "/v2/regions?per_page=500", None),
    ]
    assert {call.request.headers["authorization"] for call in respx_mock.calls} == {"Bearer demo-key"}
    found = [(o.offer_id, o.gpu, o.gpu_count, o.quoted_usd_hour, o.country) for o in answer.offers]
    assert found == [(f"{L40S}/ewr", "L40S", 1, 1.671, "US"), ("vcg-a40-24c-120g-48vram/lhr", "A40", 1, 1.7, "GB")]
    assert (answer.completeness.value, answer.skipped) == ("complete", {})


def test_places_are_read_once_an_hour(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    market(respx_mock, PLANS, IN_STOCK)
    market_side: Any = adapter.market
    for seconds in (0.0, 60.0, 3600.0):
        market_side._client.tools.sleep(seconds)
        adapter.market.search(Query())
    paths = [path for _method, path, _body in sent(respx_mock.calls)]
    assert [paths.count(path) for path in ("/v2/plans?type=all&per_page=500", "/v2/regions?per_page=500")] == [3, 2]


def test_a_place_may_have_a_price_of_its_own(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    plan = PLANS[0] | {"locations": ["ewr", "lhr"], "location_cost": {"lhr": {"hourly_cost": 1.85}}}
    market(respx_mock, [plan], {"vcg ewr": [L40S], "vcg lhr": [L40S]})
    found = {offer.region: offer.quoted_usd_hour for offer in adapter.market.search(Query()).offers}
    assert found == {"ewr": 1.671, "lhr": 1.85}


@pytest.mark.parametrize("stock", [httpx.Response(404), httpx.Response(200, json={"available_plans": [7]})])
def test_a_place_whose_stock_is_unknown_makes_the_answer_a_part(
    respx_mock: respx.MockRouter, adapter: Adapter, stock: httpx.Response
) -> None:
    market(respx_mock, PLANS, IN_STOCK | {"vcg ewr": stock})
    answer = adapter.market.search(Query())
    assert [offer.region for offer in answer.offers] == ["lhr"]
    assert (answer.completeness.value, "the stock of ewr" in answer.incomplete_because) == ("partial", True)


def test_the_reported_plan_is_an_offer_where_its_type_is_in_stock() -> None:
    """Its `locations` is empty; a part of a GPU, of the other type, is none."""
    result, plans = parse_plans(DEDICATED)
    stock = {
        ("vdm", "blr"): frozenset({"vcg-a40-24c-120g-48vram"}),
        ("vcg", "ams"): frozenset(row["id"] for row in DEDICATED),
    }
    offers = [offer for plan in plans for offer in offers_of(plan, stock, {"blr": "IN"}, NOW)]
    assert [(offer.gpu, offer.gpu_count, offer.region, offer.quoted_usd_hour) for offer in offers] == [
        ("A40", 1, "blr", 1.712)
    ]
    assert result.skipped == {}


def test_a_plan_that_is_not_understood_is_counted_and_one_not_for_sale_is_not() -> None:
    cases: list[Any] = [
        ({"id": "vcg-a40-48c-240g-96vram"}, "a dedicated plan of an unknown configuration: vcg-a40-48c-240g-96vram"),
        ({"type": "vxg"}, "a plan with GPUs of a type that is not known: vxg"),
        ({"gpu_type": "NVIDIA_A40", "gpu_vram_gb": 48, "gpu_count": 4}, "memory and number of its GPUs do not fit"),
        ({"deploy_ondemand": False, "deploy_preemptible": True}, None),
        ({"gpu_brand": "none", "type": "vc2", "id": "vc2-1c-1gb", "hourly_cost": "?"}, None),  # without GPUs
        ({"type": "vc2", "gpu_type": "NVIDIA_A40"}, "a plan with GPUs of a type that is not known: vc2"),
        ({"end_of_sale": True}, None),
    ]
    for changes, skipped in cases:
        with case((changes, skipped)):
            known = DEDICATED[1]
            result, plans = parse_plans([known, known | changes])
            assert [plan.name for plan in plans] == [known["id"]]
            assert result.skipped == ({} if skipped is None else {skipped: 1})


@pytest.mark.parametrize(("count", "gpus"), [("2", 2), (None, 2)])
def test_the_number_of_gpus_is_stated_or_follows_from_their_memory(count: str | None, gpus: int) -> None:
    _, [plan] = parse_plans([PLANS[0] | {"gpu_vram_gb": 96, "gpu_count": count}])
    assert (plan.gpu_count, plan.gpu_memory_gib) == (gpus, 48.0)


# --- renting ----------------------------------------------------------------------------------------------------------


def test_the_order_names_what_it_wants_and_switches_off_what_costs(respx_mock: respx.MockRouter, launcher: Any) -> None:
    created = respx_mock.post("/instances").respond(202, json={"instance": INSTANCES[0]})
    assert launcher.create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"})).instance_id == ID
    [(method, path, body)] = sent(created.calls)
    script = b64decode(body.pop("user_data")).decode()
    assert script == first_boot_script("echo hello", {"TOKEN": "s3cr3t-value"})
    assert (method, path, body) == (
        "POST",
        "/v2/instances",
        {
            "region": "fra", "plan": L40S, "label": "gpuwatch-ab_c", "hostname": "gpuwatch-ab-c", "os_id": 1743,
            "sshkey_id": [SSH_KEY], "backups": "disabled", "enable_ipv6": False, "activation_email": False,
        },
    )  # fmt: skip
    assert created.calls.last.request.headers["authorization"] == "Bearer demo-key"


@pytest.mark.parametrize("image", [2284, "2284"])
def test_the_system_is_chosen_by_its_number(respx_mock: respx.MockRouter, image: object) -> None:
    created = respx_mock.post("/instances").respond(202, json={"instance": {"id": ID}})
    with with_options(ssh_key=SSH_KEY, image=image) as adapter:
        adapter.launcher.create(order())
    assert sent(created.calls)[0][2]["os_id"] == 2284


@pytest.mark.parametrize("options", [{}, {"ssh_key": SSH_KEY, "image": "ubuntu"}])
def test_an_order_that_lacks_something_is_not_sent(respx_mock: respx.MockRouter, options: dict[str, str]) -> None:
    with with_options(**options) as adapter, pytest.raises(OrderRefused, match="nothing was sent") as refused:
        adapter.launcher.create(order())
    assert (refused.value.kind, list(respx_mock.calls)) == (RefusalKind.BAD_ORDER, [])


@pytest.mark.parametrize(
    ("quoted", "error", "kind", "scope"),
    [
        ("no stock", OfferGone, None, None),
        ("not enabled", OrderRefused, RefusalKind.OTHER, RefusalScope.ACCOUNT),
        ("wrong plan", OrderRefused, RefusalKind.BAD_ORDER, None),
        ("address", OrderRefused, RefusalKind.KEY, None),
    ],
)
def test_a_quoted_refusal_says_what_is_refused(
    respx_mock: respx.MockRouter, launcher: Any, quoted: str, error: type[Any], kind: object, scope: object
) -> None:
    answer = QUOTED[quoted]
    respx_mock.post("/instances").respond(answer["http_status"], json=answer["body"])
    with pytest.raises(error, match=answer["body"]["error"]) as refused:
        launcher.create(order())
    assert (getattr(refused.value, "kind", None), refused.value.scope) == (kind, scope)


# --- instances --------------------------------------------------------------------------------------------------------


def test_the_list_is_read_by_its_cursor_to_the_end(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get("/instances")
    listed.side_effect = [
        httpx.Response(200, json=page("instances", INSTANCES[:1], "bmV4dF9fMQ==", 2)),
        httpx.Response(200, json=page("instances", INSTANCES[1:], total=2)),
    ]
    running, pending = launcher.list_instances()
    assert [path for _method, path, _body in sent(listed.calls)] == [
        "/v2/instances?per_page=500",
        "/v2/instances?per_page=500&cursor=bmV4dF9fMQ%3D%3D",
    ]
    assert (running.instance_id, running.label, running.state) == (ID, "gpuwatch-abcdefgh2345", InstanceState.RUNNING)
    assert (running.machine_id, running.ssh_host, running.ssh_port) == (f"{L40S}/ewr", "123.123.123.123", 22)
    assert (pending.state, pending.ssh_host) == (InstanceState.STARTING, None)
    assert "nreqnusibni" not in repr((running, pending))


@pytest.mark.parametrize(
    "value",
    [
        page("instances", INSTANCES, total=3),
        {"instances": INSTANCES},  # whether it goes on is unknown
        page("instances", [INSTANCES[0] | {"id": None}]),
        page("instances", [INSTANCES[0] | {"status": None}]),
    ],
)
def test_a_list_that_may_lack_an_instance_is_none(respx_mock: respx.MockRouter, launcher: Any, value: Any) -> None:
    respx_mock.get("/instances").respond(json=value)
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, InstanceState.RUNNING),
        ({"a new field": [{}]}, InstanceState.RUNNING),
        ({"status": "pending", "server_status": "none", "main_ip": "0.0.0.0"}, InstanceState.STARTING),
        ({"server_status": "installingbooting"}, InstanceState.STARTING),
        ({"power_status": "stopped"}, InstanceState.STOPPED),
    ],
)
def test_it_runs_when_contract_system_and_machine_do(
    respx_mock: respx.MockRouter, launcher: Any, changes: dict[str, Any], state: InstanceState
) -> None:
    respx_mock.get(f"/instances/{ID}").respond(json={"instance": INSTANCES[0] | changes})
    found = launcher.get(ID)
    assert (found.state, found.ssh_host is None) == (state, "main_ip" in changes)


def test_a_stopped_machine_is_billed_all_the_same(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    market(respx_mock, PLANS, IN_STOCK)
    adapter.market.search(Query())
    respx_mock.get("/instances").respond(json=page("instances", [INSTANCES[0] | {"power_status": "stopped"}]))
    assert adapter.launcher is not None
    [found] = adapter.launcher.list_instances()
    assert (found.state, found.listed_usd_hour, found.stopped_usd_hour) == (InstanceState.STOPPED, 1.671, 1.671)


def test_it_is_gone_if_vultr_itself_says_so(respx_mock: respx.MockRouter, launcher: Any) -> None:
    gone = QUOTED["no such instance"]
    for method in ("GET", "DELETE"):
        respx_mock.request(method, f"/instances/{ID}").respond(gone["http_status"], json=gone["body"])
    assert launcher.get(ID) is None
    launcher.destroy(ID)
    assert sent(respx_mock.calls) == [("GET", f"/v2/instances/{ID}", None), ("DELETE", f"/v2/instances/{ID}", None)]


def test_a_404_of_another_kind_is_no_proof_that_it_is_gone(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.route(url__regex=rf"/instances/{ID}$").respond(404, json={"error": "Invalid endpoint.", "status": 404})
    with pytest.raises(PayloadChanged):
        launcher.get(ID)
    with pytest.raises(OrderRefused):
        launcher.destroy(ID)


def test_an_end_is_an_empty_answer(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.delete(f"/instances/{ID}").respond(204)
    launcher.destroy(ID)


# --- before the first rent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "acls", "met"),
    [
        (SSH_KEY, ["provisioning"], [True, True]),
        ("another", ["manage_users"], [False, False]),
        (SSH_KEY, None, [None, True]),
    ],
)
def test_the_right_to_rent_and_the_key_to_log_in_are_prerequisites(
    respx_mock: respx.MockRouter, key: str, acls: object, met: list[bool | None]
) -> None:
    respx_mock.get("/account").respond(json={"account": {"balance": -100.55, "acls": acls}})
    respx_mock.get("/ssh-keys").respond(json=page("ssh_keys", [{"id": SSH_KEY, "name": "demo"}]))
    with with_options(ssh_key=key) as adapter:
        found = adapter.launcher.prerequisites([])
    assert [one.met for one in found] == met
    assert [bool(one.mend) for one in found] == [one is False for one in met]
    assert sent(respx_mock.calls) == [("GET", "/v2/account", None), ("GET", "/v2/ssh-keys?per_page=500", None)]
