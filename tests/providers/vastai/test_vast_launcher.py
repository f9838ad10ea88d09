"""Renting: the requests, and what is known afterwards. Nothing that changes something is ever sent twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from vast_double import KEY, URL, an_adapter

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import AccountLookup, Created, InstanceLookup, InstanceState, Launcher, Order
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clocks import Clock
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=f"{URL}/api/v0")
RECORDED = TESTS / "recorded" / "vastai"
ORDER = Order(offer_id="123", label="gpuwatch-abc", image="pytorch/pytorch", disk_gb=100.0)


MADE = httpx.Response(200, json={"success": True, "new_contract": 7, "instance_api_key": "s" * 64})


def test_a_rent_on_demand_names_no_price(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    route = respx_mock.put("/asks/123/").mock(return_value=MADE)
    assert launcher.create(ORDER) == Created(instance_id="7")
    assert route.calls.last.request.headers["authorization"] == f"Bearer {KEY}"
    body = {
        "client_id": "me", "image": "pytorch/pytorch", "disk": 100.0, "label": "gpuwatch-abc", "env": {},
        "runtype": "ssh_direc ssh_proxy", "cancel_unavail": True, "force": False,
    }  # fmt: skip
    assert sent(route.calls) == [("PUT", "/api/v0/asks/123/", body)]


@pytest.mark.parametrize("status", [400, 404, 409, 410, 429, 500, 202])
def test_a_refusal_that_names_a_contract_is_none(respx_mock: respx.MockRouter, launcher: Launcher, status: int) -> None:
    """The named instance may run and be billed: nothing else is rented because of such an answer."""
    body = {"success": False, "error": "no_such_ask", "new_contract": 7}
    respx_mock.put("/asks/123/").respond(status, json=body)
    with pytest.raises(OutcomeUnknown) as unknown:
        launcher.create(ORDER)
    assert unknown.value.instance_id == "7"


def test_a_bid_always_names_its_price(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    """Without it the marketplace rents at the full price, without saying so."""
    route = respx_mock.put("/asks/1/").mock(return_value=MADE)
    order = Order(offer_id="1", label="l", image="i", disk_gb=10.0, bid_usd_hour=0.45, onstart="run", env={"A": "b"})
    launcher.create(order)
    [(_, _, body)] = sent(route.calls)
    assert (body["price"], body["onstart"], body["env"], body["cancel_unavail"]) == (0.45, "run", {"A": "b"}, True)


@pytest.mark.parametrize("bid", [0.0, -1.0, 129.0, float("nan")])
def test_an_impossible_bid_is_not_sent(launcher: Launcher, bid: float) -> None:
    with pytest.raises(OrderRefused):
        launcher.create(Order(offer_id="1", label="l", image="i", disk_gb=10.0, bid_usd_hour=bid))


@pytest.mark.parametrize("offer_id", ["", "1/../2", "1?x=1", "a b", "../users/current"])
def test_an_id_that_is_none_is_not_sent(launcher: Launcher, offer_id: str) -> None:
    with pytest.raises(OrderRefused):
        launcher.create(Order(offer_id=offer_id, label="l", image="i", disk_gb=10.0))


def test_success_false_with_a_contract_is_an_instance_that_exists(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    respx_mock.put("/asks/123/").respond(json={"success": False, "new_contract": 44743274})
    assert launcher.create(ORDER) == Created(instance_id="44743274", starting=False)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            {"error": "invalid_args", "msg": "error 404/3603: no_such_ask  Instance type by id 1 is not available."},
            None,
        ),
        (404, {"error": "no_such_ask"}, None),
        (410, {"success": False}, None),
        (200, {"success": False, "error": "no_such_ask"}, None),
        (404, {"error": "auth_error", "msg": "Invalid user key"}, RefusalKind.KEY),
        (401, {}, RefusalKind.KEY),
        (400, {"error": "insufficient_credit"}, RefusalKind.NO_CREDIT),
        (400, {"error": "missing_billing"}, RefusalKind.NO_CREDIT),
        (400, {"error": "invalid_price"}, RefusalKind.BID_TOO_LOW),
        (400, {"error": "invalid_args", "msg": "bad image"}, RefusalKind.BAD_ORDER),
        (403, {"error": "invalid_args", "msg": "Hosts can only rent their own machines."}, RefusalKind.OTHER),
        (301, {"message": "moved"}, RefusalKind.OTHER),
    ],
)
def test_a_definite_refusal_says_that_nothing_was_made(
    respx_mock: respx.MockRouter, launcher: Launcher, status: int, body: dict[str, Any], kind: RefusalKind | None
) -> None:
    route = respx_mock.put("/asks/123/").respond(status, json=body)
    with pytest.raises(OrderError) as caught:
        launcher.create(ORDER)
    assert route.call_count == 1
    if kind is None:
        assert isinstance(caught.value, OfferGone)
    else:
        assert isinstance(caught.value, OrderRefused)
        assert caught.value.kind is kind


@pytest.mark.parametrize(
    "body",
    [
        b"API requests too frequent: endpoint threshold=4.5",
        b'{"detail": "API requests too frequent endpoint threshold=4.5"}',
    ],
)
def test_too_many_orders_say_when_to_come_again(respx_mock: respx.MockRouter, launcher: Launcher, body: bytes) -> None:
    respx_mock.put("/asks/123/").respond(429, content=body)
    with pytest.raises(OrderRateLimited) as caught:
        launcher.create(ORDER)
    assert caught.value.retry_after_s == 4.5


def test_anything_else_is_unknown_and_sent_once(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    for answer in (
        httpx.Response(200, json={"success": True}),
        httpx.Response(200, json={"success": True, "new_contract": None}),
        httpx.Response(200, json={"success": True, "new_contract": True}),
        httpx.Response(200, json={"success": False}),
        httpx.Response(200, json={"success": False, "error": "resources_unavailable"}),
        httpx.Response(200, json={"new_contract": 5}),
        httpx.Response(202, json={}),
        httpx.Response(303),
        httpx.Response(500, json={"success": False, "error": "no_such_ask"}),
    ):
        respx_mock.reset()
        route = respx_mock.put("/asks/123/").mock(side_effect=[answer])
        with case(answer.text), pytest.raises(OutcomeUnknown):
            launcher.create(ORDER)
        assert route.call_count == 1


def test_an_unknown_outcome_keeps_what_the_answer_named(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    respx_mock.put("/asks/123/").respond(json={"new_contract": 5})
    with pytest.raises(OutcomeUnknown) as caught:
        launcher.create(ORDER)
    assert caught.value.instance_id == "5"


# --- destroy and label -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"), [(200, {"success": True}), (404, {"error": "no_such_instance"}), (404, {"error": "not_found"})]
)
def test_a_destroy_of_what_is_gone_is_done(
    respx_mock: respx.MockRouter, launcher: Launcher, status: int, body: dict[str, Any]
) -> None:
    route = respx_mock.delete("/instances/7/").respond(status, json=body)
    launcher.destroy("7")
    assert sent(route.calls) == [("DELETE", "/api/v0/instances/7/", {})]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(404, json={"error": "auth_error", "msg": "Invalid user key"}), OrderRefused),
        (httpx.Response(404, content=b"<html>"), OutcomeUnknown),
        (httpx.Response(200, json={}), OutcomeUnknown),
    ],
)
def test_a_destroy_that_is_not_confirmed_is_an_error(
    respx_mock: respx.MockRouter, launcher: Launcher, answer: Any, error: type[OrderError]
) -> None:
    respx_mock.delete("/instances/7/").mock(side_effect=[answer])
    with pytest.raises(error):
        launcher.destroy("7")


def test_a_label_is_the_body_and_nothing_else(respx_mock: respx.MockRouter, http: PooledHttpClient) -> None:
    route = respx_mock.put("/instances/7/").respond(json={"success": True})
    launcher: Any = an_adapter(http, Clock()).launcher
    launcher.label("7", "gpuwatch-abc")
    assert sent(route.calls) == [("PUT", "/api/v0/instances/7/", {"label": "gpuwatch-abc"})]


# --- the list ----------------------------------------------------------------------------------------------------


LIST = f"{URL}/api/v1/instances/"


@pytest.fixture
def listed(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.get(LIST)


def _pages(count: int, total: int | None = None) -> Callable[[httpx.Request], httpx.Response]:
    def page(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("after_token", "0"))
        size = int(request.url.params["limit"])
        rows = [
            {"id": n, "actual_status": "running", "label": "x"} for n in range(start + 1, min(start + size, count) + 1)
        ]
        more = start + size < count
        body = {
            "success": True, "instances": rows, "instances_found": len(rows), "label_counts": {"x": count},
            "total_instances": count if total is None else total, "next_token": str(start + size) if more else None,
        }  # fmt: skip
        return httpx.Response(200, json=body)

    return page


@pytest.mark.parametrize("count", [0, 1, 25, 26, 60])
def test_all_pages_are_followed(listed: respx.Route, launcher: Launcher, count: int) -> None:
    listed.mock(side_effect=_pages(count))
    assert [i.instance_id for i in launcher.list_instances()] == [str(n) for n in range(1, count + 1)]
    after = [f"&after_token={n}" for n in range(25, count, 25)]
    assert [path for _, path, _ in sent(listed.calls)] == [
        f"/api/v1/instances/?limit=25{token}" for token in ("", *after)
    ]


def test_a_list_shorter_than_it_says_is_no_list(listed: respx.Route, launcher: Launcher) -> None:
    listed.mock(side_effect=_pages(10, total=11))
    with pytest.raises(ProviderError, match="incomplete"):
        launcher.list_instances()


def test_pages_that_repeat_end(listed: respx.Route, launcher: Launcher) -> None:
    page = {
        "success": True,
        "instances": [{"id": 1, "actual_status": None}],
        "total_instances": 9,
        "next_token": "same",
    }
    listed.respond(json=page)
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


def test_an_odd_list_is_never_an_empty_one(listed: respx.Route, launcher: Launcher) -> None:
    for answer in (
        httpx.Response(410, json={"error": "deprecated_endpoint"}),
        httpx.Response(200, json={"instances": None}),
        httpx.Response(200, json={"success": True, "instances": []}),
        httpx.Response(200, json={"success": False, "instances": [], "total_instances": 0}),
        httpx.Response(200, json={"success": True, "instances": [{"label": "x"}], "total_instances": 1}),
        httpx.Response(200, json={"success": True, "instances": [{"id": 1}], "total_instances": 1}),
        httpx.Response(301, json={"success": True, "instances": [], "total_instances": 0}),
        httpx.Response(404, json={"error": "auth_error", "msg": "Invalid user key"}),
    ):
        listed.mock(return_value=answer)
        with case(answer.text), pytest.raises(ProviderError):
            launcher.list_instances()


ONE = {"id": 7, "actual_status": "running", "label": "gpuwatch-abc"}


@pytest.fixture
def shown(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.get("/instances/7/")


def test_one_instance_is_asked_for_by_its_id(shown: respx.Route, launcher: Launcher) -> None:
    shown.respond(json={"instances": ONE})
    assert isinstance(launcher, InstanceLookup)
    found = launcher.get("7")
    assert found is not None
    assert (found.instance_id, found.label, found.state) == ("7", "gpuwatch-abc", InstanceState.RUNNING)


def test_an_instance_that_is_gone_is_null(shown: respx.Route, launcher: Launcher) -> None:
    shown.respond(json={"instances": None})
    assert isinstance(launcher, InstanceLookup)
    assert launcher.get("7") is None


def test_an_odd_answer_about_an_instance_never_says_that_it_is_gone(shown: respx.Route, launcher: Launcher) -> None:
    assert isinstance(launcher, InstanceLookup)
    for answer in (
        httpx.Response(200, json={"instances": ONE | {"id": 8}}),
        httpx.Response(200, json={"instances": []}),
        httpx.Response(200, json={"instances": {}}),
        httpx.Response(404, json={"success": False, "error": "not_found"}),
        httpx.Response(401, json={"success": False, "error": "auth_error"}),
    ):
        shown.mock(return_value=answer)
        with case(answer.text), pytest.raises(ProviderError):
            launcher.get("7")


def test_credit_and_account_are_read_and_nothing_else(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    user = respx_mock.get("/users/current/").mock(side_effect=[
        httpx.Response(200, json=json.loads((RECORDED / "users_current_reconstructed.json").read_bytes())),
        httpx.Response(200, json={"credit": 41.87, "id": 123456}),
        httpx.Response(200, json={"balance": 1}),
    ])  # fmt: skip
    assert isinstance(launcher, AccountLookup)
    assert (launcher.credit_usd(), launcher.account_id()) == (41.87, "123456")
    with pytest.raises(PayloadChanged):
        launcher.credit_usd()
    assert user.call_count == 3


@pytest.mark.parametrize("answer", [(403, {"error": "auth_error"}), (404, {}), (200, {"credit": 1.0})])
def test_a_key_that_may_list_but_not_read_its_account_has_no_account(
    respx_mock: respx.MockRouter, listed: respx.Route, launcher: Launcher, answer: tuple[int, dict[str, Any]]
) -> None:
    respx_mock.get("/users/current/").respond(answer[0], json=answer[1])
    listed.mock(side_effect=[_pages(0)(httpx.Request("GET", LIST, params={"limit": 25})), httpx.Response(401)])
    assert isinstance(launcher, AccountLookup)
    assert launcher.account_id() is None
    with pytest.raises(KeyRejected):
        launcher.account_id()
