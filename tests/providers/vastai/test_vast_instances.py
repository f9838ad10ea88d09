"""The list's fields of an instance besides its state, and which of them count; and price increases."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from vast_double import URL

from gpuwatch.errors import OrderRefused, PayloadChanged, RefusalKind
from gpuwatch.ports import Instance, InstanceState, Launcher, Order, PriceIncrease
from gpuwatch.providers.vastai.charges import increase_rows, increases_of
from gpuwatch.providers.vastai.instances import parse_page
from gpuwatch.redaction import register_secret
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clocks import Clock
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=f"{URL}/api/v0")
RECORDED = TESTS / "recorded" / "vastai"
ROW: dict[str, Any] = {
    "id": 1, "actual_status": "running", "gpu_name": "H100 SXM", "num_gpus": 2, "gpu_ram": 81559, "disk_space": 100.0,
    "cuda_max_good": 12.8, "is_bid": True, "dph_base": 3.0, "dph_total": 3.1, "min_bid": 3.2, "storage_total_cost": 0.1,
    "end_date": 1_800_000_000.0, "ssh_host": "ssh5.vast.ai", "ssh_port": 10022, "public_ipaddr": " 203.0.113.9 ",
    "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40022"}]},
}  # fmt: skip


def _instance(**values: Any) -> Instance:
    page = {"success": True, "instances": [ROW | values], "total_instances": 1}
    return parse_page(json.dumps(page).encode())[1][0]


def test_what_was_promised_can_be_checked() -> None:
    found = _instance()
    assert (found.gpu, found.gpu_count, found.disk_gb, found.cuda) == ("H100 SXM", 2, 100.0, 12.8)
    assert found.gpu_memory_gib == pytest.approx(79.65, abs=0.01)
    assert found.ends_at == datetime.fromtimestamp(1_800_000_000, UTC)


def test_an_a100_is_reported_by_its_memory() -> None:
    assert _instance(gpu_name="A100 SXM4", gpu_ram=81920).gpu == "A100 SXM 80GB"
    assert _instance(gpu_name="A100 SXM4", gpu_ram=40960).gpu == "A100 SXM 40GB"


def test_prices_of_a_bid() -> None:
    found = _instance()
    prices = (found.listed_usd_hour, found.stopped_usd_hour, found.bid_usd_hour, found.min_bid_usd_hour)
    assert prices == (3.1, 0.1, 3.0, 3.2)
    assert _instance(is_bid=False).bid_usd_hour is None


def test_the_disks_price_is_not_taken_from_a_running_total() -> None:
    assert _instance(storage_total_cost=None, instance={"diskHour": 0.2, "totalHour": 3.1}).stopped_usd_hour == 0.2
    assert _instance(storage_total_cost=None).stopped_usd_hour is None


def test_ssh_goes_straight_to_the_host_where_it_can() -> None:
    cases: list[Any] = [
        ({}, ("203.0.113.9", 40022)),
        ({"ports": None}, ("ssh5.vast.ai", 10022)),
        ({"ports": [8080]}, ("ssh5.vast.ai", 10022)),
        ({"ports": {"22/tcp": None}}, ("ssh5.vast.ai", 10022)),
        ({"ports": {"22/tcp": [{"HostPort": "99999"}, {"HostPort": "41000"}]}}, ("203.0.113.9", 41000)),
        ({"public_ipaddr": "evil.example; rm"}, ("ssh5.vast.ai", 10022)),
        ({"public_ipaddr": None, "ssh_port": 0}, ("ssh5.vast.ai", None)),
        ({"public_ipaddr": None, "ssh_host": None, "ssh_port": True}, (None, None)),
        ({"public_ipaddr": "2001:db8::7"}, ("2001:db8::7", 40022)),
    ]
    for values, ssh in cases:
        with case((values, ssh)):
            found = _instance(**values)
            assert (found.ssh_host, found.ssh_port) == ssh


def test_who_logs_in_is_root_unless_a_row_names_somebody() -> None:
    cases: list[Any] = [({}, None), ({"ssh_user": "ann"}, "ann"), ({"ssh_user": 7}, None)]
    for said, user in cases:
        with case((said, user)):
            assert _instance(**said).ssh_user == user


def test_states() -> None:
    cases: list[Any] = [
        ({"actual_status": "offline"}, InstanceState.OFFLINE),
        ({"actual_status": "unknown"}, InstanceState.UNKNOWN),
        ({"actual_status": "brand new word"}, InstanceState.UNKNOWN),
        ({"actual_status": "exited"}, InstanceState.EXITED),
        ({"actual_status": "exited", "intended_status": "stopped"}, InstanceState.STOPPED),
        ({"actual_status": "frozen"}, InstanceState.RUNNING),
    ]
    for words, state in cases:
        with case((words, state)):
            assert _instance(**words).state is state


def test_the_secrets_of_an_instance_are_not_kept() -> None:
    assert "t0k3n" not in repr(_instance(jupyter_token="t0k3n", onstart="t0k3n", extra_env=[["A", "t0k3n"]]))


def test_half_a_key_is_shown_of_no_status_wherever_it_is_cut() -> None:
    for before in range(110, 160, 5):
        with case(before):
            key = "Vq7-zW3.mB9_pX5+tR1vN8sD4"
            register_secret(key)
            assert key[:6] not in _instance(status_msg=f"{'y' * before} {key} and more").status


lesser = sorted(set(ROW) - {"id", "actual_status", "is_bid"} | {"instance", "start_date", "gpu_util", "machine_id"})
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["22/tcp", "HostPort", "diskHour"]), inner, max_size=2
    ),
    max_leaves=5,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(lesser), values, max_size=6))
def test_no_lesser_field_hides_an_instance(odd: dict[str, Any]) -> None:
    found = _instance(**odd)
    assert (found.instance_id, found.state) == ("1", InstanceState.RUNNING)
    for price in (found.listed_usd_hour, found.stopped_usd_hour, found.bid_usd_hour, found.min_bid_usd_hour):
        assert price is None or 0 <= price <= 1e6
    assert found.ssh_port is None or 0 < found.ssh_port < 65_536


# --- price increases -------------------------------------------------------------------------------------------------


def _rise(**values: Any) -> dict[str, Any]:
    return {"pending_price_increase_id": 9, "contract_id": 7, "contract_end_date": 1_800_000_000.0} | values


def _reported(row: dict[str, Any], **rented: Any) -> PriceIncrease:
    instance = {"instance_id": "7", "label": None, "state": InstanceState.RUNNING, "status": "running"}
    body = json.dumps({"success": True, "pending_price_increases": [row]}).encode()
    return increases_of(increase_rows(body), [Instance(**(instance | rented))])[0]


FOUR = {"gpu_count": 4, "stopped_usd_hour": 0.1}


def test_a_price_of_one_gpu_is_computed_to_all() -> None:
    row = _rise(old_gpu_costpersec=2.0 / 3600, new_gpu_costpersec=2.5 / 3600)
    reported = _reported(row, listed_usd_hour=8.1, **FOUR)
    assert (reported.new_usd_hour, reported.words) == (10.0, "")
    assert reported.effective_at == datetime.fromtimestamp(1_800_000_000, UTC)


def test_a_price_that_is_of_all_gpus_stays() -> None:
    row = _rise(old_gpu_costpersec=8.0 / 3600, new_gpu_costpersec=10.0 / 3600)
    reported = _reported(row, listed_usd_hour=8.1, **FOUR)
    assert reported.new_usd_hour == 10.0


def test_without_a_price_to_compare_the_higher_is_believed() -> None:
    row = _rise(new_gpu_costpersec=2.5 / 3600)
    assert _reported(row, **FOUR).new_usd_hour == 10.0


def test_of_an_unlisted_instance_the_price_is_reported_in_words() -> None:
    row = _rise(old_gpu_costpersec=2.0 / 3600, new_gpu_costpersec=2.5 / 3600)
    reported = _reported(row, instance_id="8")
    assert (reported.new_usd_hour, reported.words) == (None, "GPU 2 -> 2.5 $/GPU/h")


def test_what_else_rises_is_reported_in_words() -> None:
    row = _rise(
        old_disk_ram_costpersec=0.1 / 2_592_000, new_disk_ram_costpersec=0.2 / 2_592_000, new_bwd_cost=0.02,
        old_bwu_cost=0.01, new_bwu_cost=0.01, old_platform_fee=0.1, new_platform_fee=0.15,
    )  # fmt: skip
    reported = _reported(row, **FOUR)
    assert reported.new_usd_hour is None
    assert reported.words == "disk 0.1 -> 0.2 $/GB/month; download ? -> 0.02 $/GB; platform fee 10 -> 15 %"


def test_an_impossible_price_is_refused() -> None:
    cases: list[Any] = [-1.0, 1e300, 1e6]
    for price in cases:
        with case(price), pytest.raises(PayloadChanged):
            _reported(_rise(new_gpu_costpersec=price))


@given(st.binary(max_size=100) | values.map(lambda value: json.dumps({
    "success": True, "pending_price_increases": [{"pending_price_increase_id": 1, "contract_id": 7,
    "new_gpu_costpersec": value, "old_platform_fee": value, "new_platform_fee": 0.5, "contract_end_date": value}]
}).encode()))  # fmt: skip
def test_no_answer_breaks_it(body: bytes) -> None:
    try:
        rows = increase_rows(body)
    except PayloadChanged:
        return
    for reported in increases_of(rows, []):
        assert reported.new_usd_hour is None


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_bid_names_the_owner_and_the_price(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    bid = respx_mock.put("/instances/bid_price/7/").respond(json={"success": True})
    launcher.change_bid("7", 0.9)
    assert sent(bid.calls) == [("PUT", "/api/v0/instances/bid_price/7/", {"client_id": "me", "price": 0.9})]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": "invalid_args", "msg": "Can't change price of on-demand contract."}, RefusalKind.BAD_ORDER),
        (400, {"error": "invalid_args", "msg": "Please set a bid price >= 0.001."}, RefusalKind.BID_TOO_LOW),
        (404, {"error": "no_such_instance", "msg": "Instance 7 not found."}, RefusalKind.OTHER),
        (404, {"error": "auth_error", "msg": "Invalid user key"}, RefusalKind.KEY),
        (400, {"error": "insufficient_credit"}, RefusalKind.NO_CREDIT),
    ],
)
def test_why_a_bid_was_not_changed(
    respx_mock: respx.MockRouter, launcher: Launcher, status: int, body: dict[str, Any], kind: RefusalKind
) -> None:
    respx_mock.put("/instances/bid_price/7/").respond(status, json=body)
    with pytest.raises(OrderRefused) as refused:
        launcher.change_bid("7", 0.9)
    assert refused.value.kind is kind


@pytest.mark.parametrize(("accept", "word"), [(True, "accept"), (False, "reject")])
def test_an_answer_holds_its_number_and_nothing_else(
    respx_mock: respx.MockRouter, launcher: Launcher, accept: bool, word: str
) -> None:
    """The marketplace rejects any further key."""
    path = f"/instances/{word}-price-increase/"
    route = respx_mock.put(path).respond(json={"success": True, "pending_price_increase_id": 9, "contract_id": 7})
    launcher.answer_increase("9", accept)
    assert sent(route.calls) == [("PUT", f"/api/v0{path}", {"pending_price_increase_id": 9})]


@pytest.mark.parametrize("increase_id", ["", "-1", "1e3", "x", "９"])
def test_what_is_no_number_of_an_increase_is_not_sent(launcher: Launcher, increase_id: str) -> None:
    with pytest.raises(OrderRefused):
        launcher.answer_increase(increase_id, accept=True)


def test_without_increases_no_instances_are_listed(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    respx_mock.get("/instances/pending-price-increases/").respond(
        json={"success": True, "count": 0, "pending_price_increases": []}
    )
    assert list(launcher.price_increases()) == []


CALLS: dict[str, Callable[[Any], object]] = {
    "PUT /api/v0/asks/{id}/": lambda launcher: launcher.create(Order(offer_id="7", label="l", image="i", disk_gb=9.0)),
    "DELETE /api/v0/instances/{id}/": lambda launcher: launcher.destroy("7"),
    "PUT /api/v0/instances/{id}/": lambda launcher: launcher.label("7", "l"),
    "PUT /api/v0/instances/bid_price/{id}/": lambda launcher: launcher.change_bid("7", 0.9),
    "PUT /api/v0/instances/accept-price-increase/": lambda launcher: launcher.answer_increase("9", accept=True),
    "PUT /api/v0/instances/reject-price-increase/": lambda launcher: launcher.answer_increase("9", accept=False),
    "GET /api/v0/instances/pending-price-increases/": lambda launcher: launcher.price_increases(),
    "GET /api/v0/instances/{id}/": lambda launcher: launcher.get("7"),
    "GET /api/v1/instances/": lambda launcher: launcher.list_instances(),
    "GET /api/v0/charges/": lambda launcher: launcher.charges(date(2026, 11, 20), date(2026, 11, 20)),
}


@pytest.mark.respx
@pytest.mark.parametrize("call", CALLS)
def test_the_documented_interval_of_each_call_is_kept(
    respx_mock: respx.MockRouter, launcher: Launcher, clock: Clock, call: str
) -> None:
    documented = json.loads((RECORDED / "rate_limits_2026-08.json").read_bytes())["endpoints"]
    method, path = call.split()
    (interval_s,) = [one["threshold"] for one in documented if (one["method"], one["path"]) == (method, path)]
    empty = {"success": True, "new_contract": 7, "pending_price_increases": [], "total_instances": 0, "results": []}
    answer = empty | {"instances": None if path.endswith("{id}/") else []}
    respx_mock.request(method, URL + path.replace("{id}", "7")).respond(json=answer)
    CALLS[call](launcher)
    began_s = clock.seconds
    CALLS[call](launcher)
    assert clock.seconds - began_s == pytest.approx(interval_s)
