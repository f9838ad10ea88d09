"""Renting: every documented answer of a create."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkout import TESTS

RECORDED = json.loads((TESTS / "recorded" / "vastai" / "create_responses.json").read_text())


def recorded(case: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of a recorded case, with its ids replaced by 1."""
    found = next(one for one in RECORDED if one["case"].startswith(case))
    return found["http_status"], found["body"]


def with_id(body: dict[str, Any], offer_id: int) -> dict[str, Any]:
    """Insert an offer's id where the recording has another one."""
    old = str(body["ask_id"]) if "ask_id" in body else "1234567"
    return dict(json.loads(json.dumps(body).replace(old, str(offer_id))))


def test_a_create_answers_the_contract_and_a_masked_key(opened: Any) -> None:
    one = opened()
    answer = one.rent(one.market.publish())
    status, body = recorded("created")
    assert (answer.status_code, set(answer.json())) == (status, set(body))
    assert answer.json()["success"] is True


@pytest.mark.parametrize(
    ("shape", "case"),
    [
        ("400", "offer gone, seen live"),
        ("404", "offer gone, as documented"),
        ("404-spec", "offer gone, as in the generated spec"),
        ("410", "offer could not start"),
    ],
)
def test_a_gone_offer_is_reported_in_each_recorded_shape(opened: Any, shape: str, case: str) -> None:
    one = opened(gone_shape=shape)
    answer, (status, body) = one.rent(777), recorded(case)
    assert (answer.status_code, answer.json()) == (status, with_id(body, 777))


def test_an_offer_can_be_rented_once(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish()
    one.rented(offer_id)
    assert "no_such_ask" in one.rent(offer_id).text
    assert len(one.market.ledger.creates) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"image": None},
        {"image": ""},
        {"client_id": "you"},
        {"disk": 4},
        {"disk": "ten"},
        {"disk": 1e9},
        {"label": "x" * 257},
        {"env": ["A=1"]},
        {"env": {"A": 1}},
        {"onstart": "x" * 4049},
        {"runtype": "telnet"},
        {"cancel_unavail": "yes"},
        {"target_state": "asleep"},
    ],
    ids=str,
)
def test_bad_arguments_are_400_invalid_args_and_nothing_is_made(opened: Any, body: dict[str, Any]) -> None:
    one = opened()
    answer = one.rent(one.market.publish(), **body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_args")
    assert one.market.ledger.creates == ()


def test_an_id_that_is_no_number_is_refused_as_recorded(opened: Any) -> None:
    answer, (status, body) = opened().http.put("/api/v0/asks/abc/", json={}), recorded("bad arguments")
    assert (answer.status_code, answer.json()) == (status, body | {"ask_id": None})


@pytest.mark.parametrize("price", [0, 0.0005, 128.5, "1", True])
def test_a_bid_out_of_range_is_invalid_price(opened: Any, price: Any) -> None:
    one = opened()
    offer_id = one.market.publish()
    answer, (status, body) = one.rent(offer_id, price=price), recorded("bid out of range")
    assert (answer.status_code, answer.json()) == (status, with_id(body, offer_id))


def test_a_price_makes_a_bid_at_that_price_and_no_price_an_on_demand_rental(opened: Any) -> None:
    one = opened()
    bid = one.rented(one.market.publish(usd_hour=2.0, min_bid=1.0), price=1.25)
    rental = one.rented(one.market.publish(usd_hour=2.0, min_bid=1.0), price=None)
    shown = [(row["is_bid"], row["dph_base"]) for row in (one.show(bid), one.show(rental))]
    assert shown == [(True, 1.25), (False, 2.0)]


def test_a_bid_below_the_lowest_makes_a_stopped_contract_whose_disk_is_billed(opened: Any) -> None:
    """`success` is false, but an instance exists."""
    one = opened()
    answer = one.rent(one.market.publish(usd_hour=2.0, min_bid=1.0, storage_cost=0.72), price=0.5, disk=100)
    status, body = recorded("bid lost at once")
    assert (answer.status_code, set(answer.json()), answer.json()["success"]) == (status, set(body), False)
    contract = answer.json()["new_contract"]
    states = ("actual_status", "intended_status", "cur_state", "next_state")
    assert [one.show(contract)[name] for name in states] == ["loading", "stopped", "stopped", "stopped"]
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) == 100_000


def test_a_lost_bid_with_cancel_unavail_is_410_and_nothing_is_made(opened: Any) -> None:
    one = opened()
    answer = one.rent(one.market.publish(min_bid=1.0), price=0.5, cancel_unavail=True)
    assert (answer.status_code, answer.json()["error"]) == (410, "no_such_ask")
    assert one.market.ledger.creates == ()


def test_no_credit_is_reported_as_recorded(opened: Any) -> None:
    one = opened(credit_usd=0.0)
    offer_id = one.market.publish()
    answer, (status, body) = one.rent(offer_id), recorded("no credit")
    assert (answer.status_code, answer.json()) == (status, with_id(body, offer_id))


def test_a_vm_needs_an_ssh_key_on_the_account(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish()
    answer, (status, body) = one.rent(offer_id, vm=True), recorded("VM image")
    assert (answer.status_code, answer.json()) == (status, with_id(body, offer_id))
    one.http.post("/api/v0/ssh/", json={"ssh_key": "ssh-ed25519 AAAA me"})
    assert one.rent(offer_id, vm=True).json()["success"] is True


def test_a_dead_host_is_offered_and_rented_again_after_the_destroy(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish(usd_hour=0.5, defect="dead_pull", machine_id=42)
    for _ in range(2):
        contract = one.rented(offer_id)
        one.clock.advance(900)
        assert one.show(contract)["actual_status"] == "loading"
        assert "error pulling image" in one.show(contract)["status_msg"]
        one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
        assert [row["machine_id"] for row in one.search()] == [42]


def test_bulk_create_tells_what_was_made_and_what_was_not(opened: Any) -> None:
    one = opened()
    body = {"ids": [one.market.publish(), 5], "image": "a", "disk": 10}
    answer = one.http.post("/api/v0/asks/bulk/", json=body).json()
    assert (answer["created"], answer["failed"]) == (1, 1)
