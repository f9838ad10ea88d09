"""Verda's requests and answers: signing in, each call on the wire, and what each refusal means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    RefusalKind,
)
from gpuwatch.ports import Created, InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from tests.checkout import TESTS
from tests.clouds.verda import CLIENT_ID, SSH_KEY
from tests.providers.verda.bench import BENCH
from tests.sent_requests import sent

RECORDED = TESTS / "recorded" / "verda"
URL = "https://api.verda.com/v1"
LABEL = "gpuwatch-abcdefgh2345"
ID, DISK = "deadc0de-a5d2-4972-ae4e-d429115d055b", "46fc0247-8f65-4d8a-ad73-852a8b3dc1d3"  # of the recorded list
SCRIPT = "5c4d9f2e-0000-4000-8000-000000000001"
TYPES = json.loads((RECORDED / "instance-types-client-tests.json").read_bytes())
INSTANCES = json.loads((RECORDED / "instances-client-tests.json").read_bytes())
QUOTED = {
    name: httpx.Response(case["http_status"], json=case["body"])
    for name, case in json.loads((RECORDED / "errors-quoted.json").read_bytes()).items()
}
CREATED = httpx.Response(202, text=ID)
pytestmark = pytest.mark.respx(base_url=URL)


@pytest.fixture
def token(respx_mock: respx.MockRouter) -> respx.Route:
    """The route that signs in: tokens t1, t2, …, valid for an hour."""
    tokens = ({"access_token": f"t{n}", "expires_in": 3600, "token_type": "Bearer"} for n in range(1, 9))
    return respx_mock.post("/oauth2/token").mock(side_effect=(httpx.Response(200, json=one) for one in tokens))


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(URL) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def order(offer_id: str = "1H100.80S.30V/FIN-03", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


# --- signing in -------------------------------------------------------------------------------------------------------


def test_id_and_secret_are_exchanged_for_a_token_that_serves_until_it_is_old(
    respx_mock: respx.MockRouter, token: respx.Route, launcher: Any
) -> None:
    listed = respx_mock.get("/instances").respond(json=[])
    for _ in range(2):
        launcher.list_instances()
    credentials = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": "demo-key"}
    assert sent(token.calls) == [("POST", "/v1/oauth2/token", credentials)]
    assert "authorization" not in token.calls.last.request.headers
    assert [call.request.headers["authorization"] for call in listed.calls] == ["Bearer t1"] * 2


def test_a_token_that_ends_early_is_replaced_once(
    respx_mock: respx.MockRouter, token: respx.Route, launcher: Any
) -> None:
    ok = httpx.Response(200, json=[])
    listed = respx_mock.get("/instances").mock(side_effect=[ok, QUOTED["token"], ok])
    assert [launcher.list_instances() for _ in range(2)] == [[], []]
    assert [call.request.headers["authorization"] for call in listed.calls] == ["Bearer t1", "Bearer t1", "Bearer t2"]


@pytest.mark.usefixtures("token")
def test_a_new_token_that_is_rejected_is_a_wrong_key(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get("/instances").mock(return_value=QUOTED["token"])
    with pytest.raises(KeyRejected):
        launcher.list_instances()
    assert listed.call_count == 1


def test_an_order_with_a_token_that_ended_is_refused_and_sent_once(
    respx_mock: respx.MockRouter, token: respx.Route, launcher: Any
) -> None:
    created = respx_mock.post("/instances").mock(side_effect=[QUOTED["token"], CREATED])
    with pytest.raises(OrderRefused) as refused:
        launcher.create(order())
    assert (refused.value.kind, created.call_count) == (RefusalKind.KEY, 1)
    assert launcher.create(order()) == Created(instance_id=ID)
    assert token.call_count == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(401, json={"code": "unauthorized_request", "message": "Invalid client"}), RefusalKind.KEY),
        (httpx.Response(200, json={"token_type": "Bearer"}), RefusalKind.NOT_SENT),
        (httpx.Response(200, json={"access_token": "a b", "expires_in": 3600}), RefusalKind.NOT_SENT),
        (httpx.Response(502, html="<p>bad gateway</p>"), RefusalKind.NOT_SENT),
        (httpx.ReadTimeout("silent"), RefusalKind.NOT_SENT),
    ],
)
def test_without_a_token_nothing_is_ordered(
    respx_mock: respx.MockRouter, launcher: Any, answer: httpx.Response | Exception, kind: RefusalKind
) -> None:
    respx_mock.post("/oauth2/token").mock(side_effect=repeat(answer))
    with pytest.raises(OrderRefused) as refused:
        launcher.create(order())
    assert refused.value.kind is kind


def test_half_of_the_credentials_is_no_key() -> None:
    half = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY})
    with half.pointed_at(URL) as adapter, pytest.raises(KeyRejected, match="client_id"):
        adapter.market.search(Query())


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("token")
def test_offers_are_types_in_stock_on_demand_and_as_spot(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    disk = [{"type": "NVMe", "price": {"currency": "usd", "price_per_month_per_gb": 0.2}}]
    routes = [
        respx_mock.get("/volume-types").respond(json=disk),
        respx_mock.get("/instance-types", params={"currency": "usd"}).respond(json=TYPES),
        respx_mock.get("/instance-availability", params={"isSpot": "false"}).respond(
            json=[{"location_code": "FIN-03", "availabilities": ["8V100.48M"]}, {"location_code": 7}]
        ),
        respx_mock.get("/instance-availability", params={"isSpot": "true"}).respond(
            json=[{"location_code": "ICE-01", "availabilities": ["8V100.48M", "another"]}]
        ),
    ]
    demand, spot = (adapter.market.search(Query(spot=spot)) for spot in (False, True))
    assert [offer.offer_id for offer in demand.offers] == ["8V100.48M/FIN-03"]
    assert [offer.offer_id for offer in spot.offers] == ["8V100.48M/ICE-01/spot"]
    assert demand.completeness.value == "partial", "the stock of one place cannot be read"
    assert demand.offers[0].quoted_usd_hour == pytest.approx(5.0 + 0.2 * 50 / 720)
    assert [route.call_count for route in routes] == [1] * 4


@pytest.mark.usefixtures("token")
def test_the_list_is_one_request_and_one_instance_is_asked_for_by_its_id(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    listed = respx_mock.get("/instances").respond(json=INSTANCES)
    shown = respx_mock.get(f"/instances/{ID}").mock(
        side_effect=[httpx.Response(200, json=INSTANCES[0]), QUOTED["no such instance"]]
    )
    running, ordered = launcher.list_instances()
    assert (running.state, running.ssh_host, running.spot) == (InstanceState.RUNNING, "1.2.3.4", True)
    assert (ordered.state, ordered.ssh_host) == (InstanceState.STARTING, None)
    assert launcher.get(ID) == running
    assert launcher.get(ID) is None
    assert sent(listed.calls) == [("GET", "/v1/instances", None)]
    assert sent(shown.calls) == [("GET", f"/v1/instances/{ID}", None)] * 2


@pytest.mark.usefixtures("token")
def test_the_balance_is_the_credit_and_the_ssh_key_is_looked_up(respx_mock: respx.MockRouter, launcher: Any) -> None:
    amounts = [{"amount": 41.87, "currency": "usd"}, {"amount": 41.87, "currency": "eur"}]
    respx_mock.get("/balance").mock(side_effect=[httpx.Response(200, json=one) for one in amounts])
    assert [launcher.credit_usd(), launcher.credit_usd()] == [41.87, None]
    keys = [[{"id": SSH_KEY, "name": "demo", "key": "ssh-ed25519 AAAA"}], []]
    respx_mock.get("/sshkeys").mock(side_effect=[httpx.Response(200, json=one) for one in keys])
    assert [[one.met for one in launcher.prerequisites([order()])] for _ in range(2)] == [[True], [False]]


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("value", [{"instances": []}, [*INSTANCES, {"id": ID}]])
def test_what_is_no_list_of_instances_is_refused(respx_mock: respx.MockRouter, launcher: Any, value: Any) -> None:
    respx_mock.get("/instances").respond(json=value)
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


# --- renting ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("token")
def test_an_order_names_type_place_disk_and_label(respx_mock: respx.MockRouter, launcher: Any) -> None:
    created = respx_mock.post("/instances").mock(return_value=CREATED)
    assert launcher.create(order()) == Created(instance_id=ID)
    body = {
        "instance_type": "1H100.80S.30V",
        "image": "ubuntu-24.04-cuda-12.8-open-docker",
        "ssh_key_ids": [SSH_KEY],
        "hostname": LABEL,
        "description": LABEL,
        "location_code": "FIN-03",
        "is_spot": False,
        "contract": "PAY_AS_YOU_GO",
        "pricing": "FIXED_PRICE",
        "os_volume": {"name": f"{LABEL}-disk", "size": 50},
    }
    assert sent(created.calls) == [("POST", "/v1/instances", body)]


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("wanted", "ordered"),
    [
        (order(disk_gb=0.0), {"os_volume": {"name": f"{LABEL}-disk", "size": 50}}),
        (order(disk_gb=120.5), {"os_volume": {"name": f"{LABEL}-disk", "size": 121}}),
        (order("1V100.6V/FIN-01"), {"image": "2088da25-bb0d-41cc-a191-dccae45d96fd"}),
        (
            order("1H100.80S.30V/FIN-02/spot", bid_usd_hour=0.9),
            {
                "is_spot": True,
                "contract": "SPOT",
                "os_volume": {"name": f"{LABEL}-disk", "size": 50, "on_spot_discontinue": "delete_permanently"},
            },
        ),
    ],
    ids=["least disk", "whole GB", "an older GPU", "spot"],
)
def test_disk_image_and_rental_type_of_an_order(
    respx_mock: respx.MockRouter, launcher: Any, wanted: Order, ordered: dict[str, Any]
) -> None:
    created = respx_mock.post("/instances").mock(return_value=CREATED)
    launcher.create(wanted)
    [(_, _, body)] = sent(created.calls)
    assert {name: body[name] for name in ordered} == ordered


@pytest.mark.parametrize("wrong", [order("1H100.80S.30V/FIN-02/spot"), order(bid_usd_hour=0.9)])
def test_an_offer_of_the_other_rental_type_is_refused(launcher: Any, wrong: Order) -> None:
    with pytest.raises(OrderRefused) as refused:
        launcher.create(wrong)
    assert refused.value.kind is RefusalKind.BAD_ORDER


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("gone", [True, False])
def test_a_start_script_is_stored_before_the_order_and_removed_if_it_is_refused(
    respx_mock: respx.MockRouter, launcher: Any, gone: bool
) -> None:
    stored = respx_mock.post("/scripts").respond(201, text=SCRIPT)
    created = respx_mock.post("/instances").mock(return_value=QUOTED["no stock"] if gone else CREATED)
    if gone:
        removed = respx_mock.delete(f"/scripts/{SCRIPT}").respond(200)
        with pytest.raises(OfferGone, match="Not enough resources"):
            launcher.create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
        assert removed.call_count == 1
    else:
        launcher.create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
    [(_, _, script)], [(_, _, body)] = sent(stored.calls), sent(created.calls)
    assert script["name"] == LABEL
    assert script["script"].startswith("#!/bin/bash\n")
    assert body["startup_script_id"] == SCRIPT
    assert "s3cr3t-value" not in str(body)


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.ReadTimeout("silent"), httpx.Response(201, text="no id")]
)
def test_without_a_start_script_stored_nothing_is_rented(
    respx_mock: respx.MockRouter, launcher: Any, answer: httpx.Response | Exception
) -> None:
    respx_mock.post("/scripts").mock(side_effect=[answer])
    with pytest.raises(OrderRefused, match="nothing was rented"):
        launcher.create(order(onstart="echo hello"))


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        (QUOTED["no stock"], OfferGone, None),
        (QUOTED["another 503"], OutcomeUnknown, None),
        (QUOTED["no money"], OrderRefused, RefusalKind.NO_CREDIT),
        (QUOTED["wrong image"], OrderRefused, RefusalKind.BAD_ORDER),
        (QUOTED["token"], OrderRefused, RefusalKind.KEY),
        (httpx.Response(202, json={"id": ID}), OutcomeUnknown, None),
    ],
)
def test_what_a_refusal_says_is_understood(
    respx_mock: respx.MockRouter,
    launcher: Any,
    answer: httpx.Response,
    error: type[Exception],
    kind: RefusalKind | None,
) -> None:
    created = respx_mock.post("/instances").mock(return_value=answer)
    with pytest.raises(error) as failed:
        launcher.create(order())
    assert (type(failed.value), getattr(failed.value, "kind", None)) == (error, kind)
    assert created.call_count == 1


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("token")
def test_an_end_deletes_the_system_disk_for_good_and_the_start_script(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    respx_mock.get("/instances").respond(json=INSTANCES)
    ended = respx_mock.put("/instances").respond(202)
    scripts = [{"id": SCRIPT, "name": LABEL, "script": "x"}, {"id": ID, "name": "by hand", "script": "x"}]
    respx_mock.get("/scripts").respond(json=scripts)
    removed = respx_mock.delete(f"/scripts/{SCRIPT}").respond(200)
    launcher.list_instances()
    launcher.destroy(ID)
    body = {"id": [ID], "action": "delete", "volume_ids": [DISK], "delete_permanently": True}
    assert sent(ended.calls) == [("PUT", "/v1/instances", body)]
    assert removed.call_count == 1


@pytest.mark.usefixtures("token")
def test_the_disk_of_an_instance_that_was_not_listed_is_looked_up_first(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    respx_mock.get(f"/instances/{ID}").respond(json=INSTANCES[0])
    ended = respx_mock.put("/instances").respond(202)
    respx_mock.get("/scripts").respond(json=[])
    launcher.destroy(ID)
    assert sent(ended.calls)[0][2]["volume_ids"] == [DISK]


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("gone", ["ended", "no such instance"])
def test_an_end_of_what_is_gone_is_done(respx_mock: respx.MockRouter, launcher: Any, gone: str) -> None:
    respx_mock.get("/instances").respond(json=INSTANCES)
    respx_mock.put("/instances").mock(return_value=QUOTED[gone])
    respx_mock.get("/scripts").respond(json=[])
    launcher.list_instances()
    launcher.destroy(ID)


@pytest.mark.usefixtures("token")
def test_what_is_still_provisioning_cannot_be_ended(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.get("/instances").respond(json=INSTANCES)
    respx_mock.put("/instances").mock(return_value=QUOTED["not yet"])
    launcher.list_instances()
    with pytest.raises(OrderRefused, match="provisioning"):
        launcher.destroy(ID)
