"""Renting: the requests, and what is known afterwards. Nothing that changes something is ever sent twice."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from vast_double import an_adapter, replies

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
from gpuwatch.ports import Created, InstanceLookup, InstanceState, Launcher, Order
from tests.clocks import Clock

ORDER = Order(offer_id="123", label="gpuwatch-abc", image="pytorch/pytorch", disk_gb=100.0)


def _launcher(handler: Any, **settings: Any) -> Launcher:
    launcher = an_adapter(handler, Clock(), **settings).launcher
    assert launcher is not None
    return launcher


def _lookup(handler: Any) -> InstanceLookup:
    launcher = _launcher(handler)
    assert isinstance(launcher, InstanceLookup)
    return launcher


def _sent(handler: Any) -> Any:
    assert len(handler.requests) == 1
    return json.loads(handler.requests[0].content)


MADE = httpx.Response(200, json={"success": True, "new_contract": 7, "instance_api_key": "s" * 64})


def test_a_rent_on_demand_names_no_price() -> None:
    handler = replies(MADE)
    assert _launcher(handler).create(ORDER) == Created(instance_id="7")
    assert str(handler.requests[0].url) == "https://console.vast.ai/api/v0/asks/123/"  # type: ignore[attr-defined]
    assert _sent(handler) == {
        "client_id": "me", "image": "pytorch/pytorch", "disk": 100.0, "label": "gpuwatch-abc", "env": {},
        "runtype": "ssh_direc ssh_proxy", "cancel_unavail": True, "force": False,
    }  # fmt: skip


@pytest.mark.parametrize("status", [400, 404, 409, 410, 429, 500, 202])
def test_a_refusal_that_names_a_contract_is_none(status: int) -> None:
    """The named instance may run and be billed: nothing else is rented because of such an answer."""
    handler = replies(httpx.Response(status, json={"success": False, "error": "no_such_ask", "new_contract": 7}))
    with pytest.raises(OutcomeUnknown) as unknown:
        _launcher(handler).create(ORDER)
    assert unknown.value.instance_id == "7"


def test_a_bid_always_names_its_price() -> None:
    """Without it the marketplace rents at the full price, without saying so."""
    handler = replies(MADE)
    order = Order(offer_id="1", label="l", image="i", disk_gb=10.0, bid_usd_hour=0.45, onstart="run", env={"A": "b"})
    _launcher(handler).create(order)
    sent = _sent(handler)
    assert (sent["price"], sent["onstart"], sent["env"], sent["cancel_unavail"]) == (0.45, "run", {"A": "b"}, True)


@pytest.mark.parametrize("bid", [0.0, -1.0, 129.0, float("nan")])
def test_an_impossible_bid_is_not_sent(bid: float) -> None:
    handler = replies(MADE)
    with pytest.raises(OrderRefused):
        _launcher(handler).create(Order(offer_id="1", label="l", image="i", disk_gb=10.0, bid_usd_hour=bid))
    assert handler.requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("offer_id", ["", "1/../2", "1?x=1", "a b", "../users/current"])
def test_an_id_that_is_none_is_not_sent(offer_id: str) -> None:
    handler = replies(MADE)
    with pytest.raises(OrderRefused):
        _launcher(handler).create(Order(offer_id=offer_id, label="l", image="i", disk_gb=10.0))
    assert handler.requests == []  # type: ignore[attr-defined]


def test_without_a_key_nothing_is_sent() -> None:
    handler = replies(MADE)
    launcher = _launcher(handler, api_key=None)
    with pytest.raises(OrderRefused) as refused:
        launcher.create(ORDER)
    assert refused.value.kind is RefusalKind.KEY
    with pytest.raises(KeyRejected):
        launcher.list_instances()
    assert handler.requests == []  # type: ignore[attr-defined]


def test_success_false_with_a_contract_is_an_instance_that_exists() -> None:
    answer = httpx.Response(200, json={"success": False, "new_contract": 44743274})
    assert _launcher(replies(answer)).create(ORDER) == Created(instance_id="44743274", starting=False)


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
    status: int, body: dict[str, Any], kind: RefusalKind | None
) -> None:
    handler = replies(httpx.Response(status, json=body))
    with pytest.raises(OrderError) as caught:
        _launcher(handler).create(ORDER)
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
def test_too_many_orders_say_when_to_come_again(body: bytes) -> None:
    with pytest.raises(OrderRateLimited) as caught:
        _launcher(replies(httpx.Response(429, content=body))).create(ORDER)
    assert caught.value.retry_after_s == 4.5


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b""),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, content=b'{"success": true, "new_con'),
        httpx.Response(200, json={}),
        httpx.Response(200, json={"success": True}),
        httpx.Response(200, json={"success": True, "new_contract": None}),
        httpx.Response(200, json={"success": True, "new_contract": True}),
        httpx.Response(200, json={"success": False}),
        httpx.Response(200, json={"success": False, "error": "resources_unavailable"}),
        httpx.Response(200, json={"new_contract": 5}),
        httpx.Response(202, json={}),
        httpx.Response(303),
        httpx.Response(408),
        httpx.Response(500, json={"success": False, "error": "no_such_ask"}),
        httpx.Response(502, content=b"<html>"),
        httpx.Response(504),
        httpx.ReadTimeout(""),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("cut"),
        httpx.WriteError("reset"),
    ],
)
def test_anything_else_is_unknown_and_sent_once(answer: httpx.Response | Exception) -> None:
    handler = replies(answer)
    with pytest.raises(OutcomeUnknown):
        _launcher(handler).create(ORDER)
    assert len(handler.requests) == 1  # type: ignore[attr-defined]


def test_an_unknown_outcome_keeps_what_the_answer_named() -> None:
    with pytest.raises(OutcomeUnknown) as caught:
        _launcher(replies(httpx.Response(200, json={"new_contract": 5}))).create(ORDER)
    assert caught.value.instance_id == "5"


def test_what_was_never_sent_is_refused() -> None:
    with pytest.raises(OrderRefused) as caught:
        _launcher(replies(httpx.ConnectError("refused"))).create(ORDER)
    assert caught.value.kind is RefusalKind.NOT_SENT


# --- destroy and label -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [(200, {"success": True}), (404, {"error": "no_such_instance"}), (404, {"error": "not_found"})]
)
def test_a_destroy_of_what_is_gone_is_done(answer: tuple[int, dict[str, Any]]) -> None:
    handler = replies(httpx.Response(answer[0], json=answer[1]))
    _launcher(handler).destroy("7")
    assert handler.requests[0].method == "DELETE"  # type: ignore[attr-defined]
    assert _sent(handler) == {}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(404, json={"error": "auth_error", "msg": "Invalid user key"}), OrderRefused),
        (httpx.Response(404, content=b"<html>"), OutcomeUnknown),
        (httpx.Response(401, json={}), OrderRefused),
        (httpx.Response(429, content=b"too frequent"), OrderRateLimited),
        (httpx.Response(500), OutcomeUnknown),
        (httpx.Response(200, json={}), OutcomeUnknown),
        (httpx.ReadTimeout(""), OutcomeUnknown),
        (httpx.ConnectError(""), OrderRefused),
    ],
)
def test_a_destroy_that_is_not_confirmed_is_an_error(answer: Any, error: type[OrderError]) -> None:
    handler = replies(answer)
    with pytest.raises(error):
        _launcher(handler).destroy("7")
    assert len(handler.requests) == 1  # type: ignore[attr-defined]


# --- the list ----------------------------------------------------------------------------------------------------


def _instances(count: int, page: int = 25, total: int | None = None) -> Any:
    def handler(request: httpx.Request) -> httpx.Response:
        handler.requests.append(request)  # type: ignore[attr-defined]
        start = int(request.url.params.get("after_token", "0"))
        size = min(int(request.url.params["limit"]), page)
        rows = [
            {"id": n, "actual_status": "running", "label": "x"} for n in range(start + 1, min(start + size, count) + 1)
        ]
        more = start + size < count
        body = {
            "success": True, "instances": rows, "instances_found": len(rows), "label_counts": {"x": count},
            "total_instances": count if total is None else total, "next_token": str(start + size) if more else None,
        }  # fmt: skip
        return httpx.Response(200, json=body)

    handler.requests = []  # type: ignore[attr-defined]
    return handler


@pytest.mark.parametrize("count", [0, 1, 25, 26, 60])
def test_all_pages_are_followed(count: int) -> None:
    handler = _instances(count)
    assert [i.instance_id for i in _launcher(handler).list_instances()] == [str(n) for n in range(1, count + 1)]
    assert handler.requests[0].url.path == "/api/v1/instances/"


def test_a_list_shorter_than_it_says_is_no_list() -> None:
    with pytest.raises(ProviderError, match="incomplete"):
        _launcher(_instances(10, total=11)).list_instances()


def test_pages_that_repeat_end() -> None:
    page = {
        "success": True,
        "instances": [{"id": 1, "actual_status": None}],
        "total_instances": 9,
        "next_token": "same",
    }
    with pytest.raises(PayloadChanged):
        _launcher(replies(httpx.Response(200, json=page))).list_instances()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(410, json={"error": "deprecated_endpoint"}),
        httpx.Response(200, content=b""),
        httpx.Response(200, content=b"{}"),
        httpx.Response(200, content=b"[]"),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"instances": None}),
        httpx.Response(200, json={"success": True, "instances": []}),
        httpx.Response(200, json={"success": False, "instances": [], "total_instances": 0}),
        httpx.Response(200, json={"success": True, "instances": [{"label": "x"}], "total_instances": 1}),
        httpx.Response(200, json={"success": True, "instances": [{"id": 1}], "total_instances": 1}),
        httpx.Response(301, json={"success": True, "instances": [], "total_instances": 0}),
        httpx.Response(404, json={"error": "auth_error", "msg": "Invalid user key"}),
    ],
)
def test_an_odd_list_is_never_an_empty_one(answer: httpx.Response) -> None:
    with pytest.raises(ProviderError):
        _launcher(replies(answer)).list_instances()


ONE = {"id": 7, "actual_status": "running", "label": "gpuwatch-abc"}


def test_one_instance_is_asked_for_by_its_id() -> None:
    handler = replies(httpx.Response(200, json={"instances": ONE}))
    found = _lookup(handler).get("7")
    assert found is not None
    assert (found.instance_id, found.label, found.state) == ("7", "gpuwatch-abc", InstanceState.RUNNING)
    assert str(handler.requests[0].url) == "https://console.vast.ai/api/v0/instances/7/"  # type: ignore[attr-defined]


def test_an_instance_that_is_gone_is_null() -> None:
    assert _lookup(replies(httpx.Response(200, json={"instances": None}))).get("7") is None


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, json={"instances": ONE | {"id": 8}}),
        httpx.Response(200, json={"instances": []}),
        httpx.Response(200, json={"instances": {}}),
        httpx.Response(200, json={}),
        httpx.Response(200, content=b""),
        httpx.Response(404, json={"success": False, "error": "not_found"}),
        httpx.Response(401, json={"success": False, "error": "auth_error"}),
        httpx.Response(502),
    ],
)
def test_an_odd_answer_about_an_instance_never_says_that_it_is_gone(answer: httpx.Response) -> None:
    with pytest.raises(ProviderError):
        _lookup(replies(*[answer] * 5)).get("7")


def test_an_odd_port_does_not_hide_an_instance() -> None:
    row = {
        "id": 1,
        "actual_status": "running",
        "label": "gpuwatch-abc",
        "ssh_port": "none",
        "gpu_util": [],
        "dph_total": -1,
    }
    page = {"success": True, "instances": [row], "total_instances": 1, "next_token": None}
    found = _launcher(replies(httpx.Response(200, json=page))).list_instances()[0]
    assert (found.instance_id, found.label, found.ssh_port, found.listed_usd_hour) == ("1", "gpuwatch-abc", None, None)


def test_the_secrets_of_an_instance_are_not_kept() -> None:
    row = {
        "id": 1,
        "actual_status": "running",
        "jupyter_token": "t0k3n",
        "onstart": "t0k3n",
        "extra_env": [["A", "t0k3n"]],
    }
    page = {"success": True, "instances": [row], "total_instances": 1}
    assert "t0k3n" not in repr(_launcher(replies(httpx.Response(200, json=page))).list_instances())


def test_credit_is_read_and_nothing_else() -> None:
    assert _launcher(replies(httpx.Response(200, json={"credit": 41.87, "api_key": "x"}))).credit_usd() == 41.87
    with pytest.raises(PayloadChanged):
        _launcher(replies(httpx.Response(200, json={"balance": 1}))).credit_usd()
