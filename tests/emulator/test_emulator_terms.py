"""How a contract's price and end change: announced rises, silent ones, the end, rivals on the spot market."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "vastai"
PENDING = "/api/v0/instances/pending-price-increases/"
STATES = ("actual_status", "intended_status", "cur_state", "next_state")
DAY_S = 86_400


def running(one: Any, body: dict[str, Any] | None = None, **fields: Any) -> int:
    contract: int = one.rented(one.market.publish(**fields), **(body or {}))
    one.clock.advance(75)
    return contract


def answered(one: Any, verb: str, **body: Any) -> Any:
    return one.http.put(f"/api/v0/instances/{verb}-price-increase/", json=body)


def pending(one: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one.http.get(PENDING).json()["pending_price_increases"]
    return found


def states(one: Any, contract: int) -> list[Any]:
    row = one.show(contract)
    return [row[name] for name in STATES]


# --- announced rises ---------------------------------------------------------------------------------------------


def test_an_announcement_has_the_recorded_keys_and_rates_per_second(opened: Any) -> None:
    recorded = json.loads((RECORDED / "pending_price_increases_cli_test.json").read_text())
    one = opened()
    contract = running(one, usd_hour=0.72, count=2, host_id=7)
    terms = {"gpu_usd_hour": 1.44, "effective_after_s": 500.0, "fees": (0.1, 0.15)}
    number = one.market.propose_increase(contract, **terms)
    answer = one.http.get(PENDING).json()
    assert set(answer) == set(recorded)
    assert (answer["count"], answer["truncated"]) == (1, False)
    row = answer["pending_price_increases"][0]
    assert set(row) == set(recorded["pending_price_increases"][0])
    assert (row["pending_price_increase_id"], row["contract_id"], row["host_id"]) == (number, contract, 7)
    assert (row["old_gpu_costpersec"], row["new_gpu_costpersec"]) == (pytest.approx(1e-4), pytest.approx(2e-4))
    assert (row["new_disk_ram_costpersec"], row["old_disk_ram_costpersec"]) == (None, None)
    assert (row["old_platform_fee"], row["new_platform_fee"]) == (0.1, 0.15)
    assert row["contract_end_date"] == one.clock() + 500 == one.show(contract)["end_date"]
    assert row["ask_end_date"] > row["contract_end_date"]


def test_an_accepted_rise_begins_at_the_contracts_old_end_and_extends_it(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=1.0)
    number = one.market.propose_increase(contract, gpu_usd_hour=3.0, effective_after_s=3600.0)
    answer = answered(one, "accept", pending_price_increase_id=number)
    assert answer.json() == {"success": True, "pending_price_increase_id": number, "contract_id": contract}
    assert pending(one) == []
    one.clock.advance(3599)
    assert one.show(contract)["dph_base"] == 1.0
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(1 + 3600)
    row = one.show(contract)
    assert (row["dph_base"], row["actual_status"]) == (3.0, "running")
    assert row["duration"] > 28 * DAY_S
    assert one.market.ledger.bill_microusd(contract) - before == pytest.approx(3_000_278, abs=1)
    assert one.market.increase_answers() == {number: "accepted"}


@pytest.mark.parametrize("answer", ["reject", None])
def test_a_rise_that_is_refused_or_ignored_leaves_the_price_and_the_contract_ends(
    opened: Any, answer: str | None
) -> None:
    one = opened()
    contract = running(one, usd_hour=1.0)
    number = one.market.propose_increase(contract, gpu_usd_hour=3.0, effective_after_s=3600.0)
    if answer:
        assert answered(one, answer, pending_price_increase_id=number).json()["contract_id"] == contract
        assert pending(one) == []
    one.clock.advance(3599)
    assert states(one, contract) == ["running"] * 4
    one.clock.advance(2)
    assert states(one, contract) == ["exited", "stopped", "stopped", "stopped"]
    assert one.show(contract)["dph_base"] == 1.0
    assert pending(one) == []
    assert one.market.increase_answers() == {number: "rejected" if answer else "lapsed"}


@pytest.mark.parametrize("verb", ["accept", "reject"])
def test_an_answer_holds_the_number_alone_and_only_for_what_is_pending(opened: Any, verb: str) -> None:
    one = opened()
    number = one.market.propose_increase(running(one), gpu_usd_hour=3.0)
    for body in ({}, {"pending_price_increase_id": str(number)}, {"pending_price_increase_id": number, "host_id": 7}):
        assert answered(one, verb, **body).status_code == 400
    assert len(pending(one)) == 1
    assert answered(one, verb, pending_price_increase_id=number).status_code == 200
    again = answered(one, verb, pending_price_increase_id=number)
    assert (again.status_code, again.json()["error"]) == (404, "no_pending_price_increase")


def test_a_second_announcement_takes_the_place_of_the_first_and_a_destroy_ends_both(opened: Any) -> None:
    one = opened()
    contract = running(one)
    first = one.market.propose_increase(contract, gpu_usd_hour=3.0)
    second = one.market.propose_increase(contract, gpu_usd_hour=4.0, storage_cost=0.36)
    row = pending(one)[0]
    assert row["pending_price_increase_id"] == second
    assert row["new_disk_ram_costpersec"] == pytest.approx(0.36 / (720 * 3600))
    one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    assert pending(one) == []
    assert one.market.increase_answers() == {first: "withdrawn", second: "lapsed"}


def test_a_price_can_rise_without_a_word(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=2.0, storage_cost=0.72)
    one.market.raise_price(contract, 1.5)
    row = one.show(contract)
    assert (row["dph_base"], row["storage_cost"]) == (3.0, pytest.approx(1.08))
    assert row["dph_total"] == pytest.approx(3.015)
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) - before == pytest.approx(3_015_000, abs=1)
    assert [entry.kind for entry in one.market.ledger.entries] == ["create", "rate"]


# --- the end -----------------------------------------------------------------------------------------------------


def test_a_contract_that_ends_is_stopped_billed_for_its_disk_and_deleted_two_days_later(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=2.0, storage_cost=0.72)
    one.market.ends(contract, after_s=3600)
    assert one.show(contract)["duration"] == 3600
    one.clock.advance(3601)
    assert states(one, contract) == ["exited", "stopped", "stopped", "stopped"]
    start = one.http.put(f"/api/v0/instances/{contract}/", json={"state": "running"})
    assert (start.status_code, start.json()["success"]) == (400, False)
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) - before == 10_000
    one.clock.advance(47 * 3600)
    assert one.http.get(f"/api/v0/instances/{contract}/").json() == {"instances": None}
    assert one.market.ledger.alive() == ()
    assert one.market.ledger.destroys == ()


def test_an_extended_contract_can_be_started_again(opened: Any) -> None:
    one = opened()
    contract = running(one)
    one.market.ends(contract, after_s=10)
    one.clock.advance(20)
    one.market.ends(contract, after_s=DAY_S)
    one.http.put(f"/api/v0/instances/{contract}/", json={"state": "running"})
    one.clock.advance(30)
    assert states(one, contract) == ["running"] * 4


# --- the rival ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("as_stop", "expected"),
    [(False, ["stopped", "running", "stopped", "running"]), (True, ["exited", "stopped", "stopped", "stopped"])],
)
def test_an_outbid_instance_shows_the_new_lowest_bid_and_resumes_at_it(
    opened: Any, as_stop: bool, expected: list[str]
) -> None:
    one = opened()
    contract = running(one, {"price": 1.0}, min_bid=0.9)
    assert one.show(contract)["min_bid"] == 0.9
    one.market.outbid(contract, min_bid=1.5, as_stop=as_stop)
    assert states(one, contract) == expected
    assert one.show(contract)["min_bid"] == 1.5
    for price, status in ((1.49, expected[0]), (1.5, "running")):
        one.http.put(f"/api/v0/instances/bid_price/{contract}/", json={"client_id": "me", "price": price})
        one.clock.advance(30)
        assert one.show(contract)["actual_status"] == status
    assert one.show(contract)["dph_base"] == 1.5


def test_an_outbid_instance_is_not_billed_for_gpus_and_cannot_be_started_below_the_rival(opened: Any) -> None:
    one = opened()
    contract = running(one, {"price": 1.0}, min_bid=0.9, storage_cost=0.72)
    one.market.outbid(contract, min_bid=1.5)
    before = one.market.ledger.bill_microusd(contract)
    start = one.http.put(f"/api/v0/instances/{contract}/", json={"state": "running"})
    assert start.json()["error"] == "resources_unavailable"
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) - before == 10_000
    one.market.befall(contract, "resume")
    one.clock.advance(30)
    assert (one.show(contract)["actual_status"], one.show(contract)["min_bid"]) == ("running", 0.9)


def test_only_a_lower_bid_can_be_outbid(opened: Any) -> None:
    one = opened()
    rental, bid = running(one), running(one, {"price": 1.0}, min_bid=0.9)
    for contract in (rental, bid):
        with pytest.raises(ValueError, match="outbids no instance"):
            one.market.outbid(contract, min_bid=1.0)


# --- who stopped it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "restarts"), [("stopped_by_owner", True), ("stopped_by_host", False)])
def test_a_stop_looks_the_same_whoever_did_it_and_keeps_the_disk_billed(opened: Any, what: str, restarts: bool) -> None:
    one = opened()
    contract = running(one, storage_cost=0.72)
    one.market.befall(contract, what)
    assert states(one, contract) == ["exited", "stopped", "stopped", "stopped"]
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) - before == 10_000
    answer = one.http.put(f"/api/v0/instances/{contract}/", json={"state": "running"})
    assert answer.json()["success"] is restarts


def test_a_host_that_was_away_comes_back(opened: Any) -> None:
    one = opened()
    contract = running(one)
    one.market.befall(contract, "offline")
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) == before
    one.market.befall(contract, "recovers")
    assert (states(one, contract), one.show(contract)["gpu_util"]) == (["running"] * 4, None)
    one.clock.advance(10)
    assert one.show(contract)["gpu_util"] == 97.0


def test_a_start_can_get_stuck_half_way(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    one.clock.advance(4)
    one.market.befall(contract, "stuck")
    one.clock.advance(DAY_S)
    assert one.show(contract)["actual_status"] == "created"


def test_credit_can_be_set_and_runs_out(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=2.0)
    one.market.credit_usd = 0.4
    assert one.http.get("/api/v0/users/current/").json()["credit"] == pytest.approx(0.4)
    one.clock.advance(719)
    assert one.show(contract)["actual_status"] == "running"
    one.clock.advance(2)
    assert states(one, contract) == ["exited", "stopped", "stopped", "stopped"]
    assert one.rent(one.market.publish()).json()["error"] == "insufficient_credit"
    one.market.credit_usd = 5.0
    assert one.rent(one.market.publish()).status_code == 200
