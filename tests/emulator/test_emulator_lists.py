"""Wrong lists: late, short, repeated, out of order; and creates and destroys without the reported effect."""

from __future__ import annotations

from typing import Any

import pytest


def running(one: Any, count: int = 1, **fields: Any) -> list[int]:
    made = [one.rented(one.market.publish(**fields)) for _ in range(count)]
    one.clock.advance(75)
    return made


def ids(page: dict[str, Any]) -> list[int]:
    return [row["id"] for row in page["instances"]]


def walked(one: Any) -> list[list[int]]:
    """Read all pages like a client, ten rows each."""
    pages, token = [], None
    while True:
        page = one.list(limit="10", **({"after_token": token} if token else {}))
        pages.append(ids(page))
        token = page["next_token"]
        if token is None or len(pages) > 20:
            return pages


# --- late and short ----------------------------------------------------------------------------------------------


def test_a_list_that_lags_shows_states_labels_and_destroyed_instances_of_the_past(opened: Any) -> None:
    one = opened(list_lag_s=20.0)
    contract = running(one)[0]
    one.clock.advance(15)
    one.http.put(f"/api/v0/instances/{contract}/", json={"state": "stopped", "label": "new"})
    listed, shown = one.list()["instances"][0], one.show(contract)
    assert (listed["actual_status"], listed["label"]) == ("running", "gpuwatch-1")
    assert (shown["actual_status"], shown["label"]) == ("exited", "new")
    one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    one.clock.advance(19)
    assert ids(one.list()) == [contract]
    one.clock.advance(2)
    assert ids(one.list()) == []


@pytest.mark.parametrize("single", [False, True])
def test_a_new_instance_can_be_left_out_of_the_list_for_a_while(opened: Any, single: bool) -> None:
    one = opened(list_omits_s=30.0, omits_single=single)
    contract = one.rented(one.market.publish())
    one.clock.advance(29)
    page = one.list()
    assert (page["instances"], page["total_instances"], page["label_counts"]) == ([], 0, {})
    assert (one.show(contract) is None) is single
    one.clock.advance(1)
    assert ids(one.list()) == [contract]
    assert one.show(contract)["id"] == contract


@pytest.mark.parametrize(("counts", "total"), [("shown", 0), ("true", 1)])
def test_one_list_can_omit_what_the_next_shows_with_true_counts_or_without(
    opened: Any, counts: str, total: int
) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    one.market.faults.add("list", "list_omits", seconds=3600, counts=counts)
    page = one.list()
    assert (ids(page), page["instances_found"], page["total_instances"]) == ([], 0, total)
    assert page["label_counts"] == ({"gpuwatch-1": 1} if total else {})
    assert ids(one.list()) == [contract]


# --- repeated and out of order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "total"), [("shown", 6), ("true", 3)])
def test_rows_can_come_twice_within_a_page(opened: Any, counts: str, total: int) -> None:
    one = opened()
    made = running(one, 3)
    one.market.faults.add("list", "rows_twice", counts=counts)
    page = one.list()
    assert ids(page) == [made[0], made[0], made[1], made[1], made[2], made[2]]
    assert (page["total_instances"], page["label_counts"]) == (total, {"gpuwatch-1": total})


def test_rows_can_come_twice_between_pages(opened: Any) -> None:
    one = opened()
    made = running(one, 25)
    one.market.faults.add("list", "page_overlap", times=None, rows=2)
    assert walked(one) == [made[:10], made[8:20], made[18:]]


def test_the_same_page_can_come_twice(opened: Any) -> None:
    one = opened()
    made = running(one, 25)
    one.market.faults.add("list", "page_twice", skip=1)
    assert walked(one) == [made[:10], made[:10], made[10:20], made[20:]]


def test_rows_can_come_out_of_order_and_none_is_lost(opened: Any) -> None:
    one = opened()
    made = running(one, 12)
    one.market.faults.add("list", "rows_shuffled", times=None)
    pages = walked(one)
    assert pages[0] != made[:10]
    assert [sorted(page) for page in pages] == [made[:10], made[10:]]


# --- creates and destroys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tells", "index"), [("first", 0), ("second", 1)])
def test_a_create_can_take_effect_twice_and_tell_of_one(opened: Any, tells: str, index: int) -> None:
    one = opened()
    offer_id = one.market.publish(usd_hour=2.0)
    one.market.faults.add("create", "duplicate_effect", tells=tells)
    reported = one.rented(offer_id)
    made = [entry.instance_id for entry in one.market.ledger.creates]
    assert (len(made), made[index]) == (2, reported)
    assert one.market.ledger.creates_by_label() == {"gpuwatch-1": 2}
    one.clock.advance(60 + 3600)
    assert one.market.ledger.bill_microusd() == 4_000_000
    assert one.search() == []
    one.http.request("DELETE", f"/api/v0/instances/{made[0]}/", json={})
    assert len(one.search()) == 1
    assert one.market.ledger.alive() == (made[1],)


def test_a_create_can_be_answered_with_the_number_of_the_one_before(opened: Any) -> None:
    one = opened()
    first = one.rented(one.market.publish(), label="a")
    one.market.faults.add("create", "stale_answer")
    assert one.rented(one.market.publish(), label="b") == first
    assert one.market.ledger.creates_by_label() == {"a": 1, "b": 1}


def test_a_destroy_can_be_confirmed_and_never_happen(opened: Any) -> None:
    one = opened()
    contract = running(one)[0]
    one.market.faults.add("destroy", "undead")
    answer = one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    assert answer.json() == {"success": True}
    one.clock.advance(3600)
    assert one.show(contract)["actual_status"] == "running"
    assert one.market.ledger.alive() == (contract,)


def test_a_destroy_can_take_its_time(opened: Any) -> None:
    one = opened()
    contract = running(one)[0]
    one.market.faults.add("destroy", "undead", after_s=120)
    one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    one.clock.advance(119)
    assert ids(one.list()) == [contract]
    one.clock.advance(2)
    assert ids(one.list()) == []
    assert one.market.ledger.alive() == ()
