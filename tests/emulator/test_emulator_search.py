"""The answers of a search: operators, special keys, caps, prices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import loopback_client


@pytest.fixture
def four(opened: Any) -> Any:
    """Four machines: 1 and 2 H100 SXM, an RTX 4090, and an unverified H100 NVL far away."""
    one = opened()
    one.market.publish(gpu="H100 SXM", count=1, usd_hour=2.0, machine_id=1, min_bid=1.0)
    one.market.publish(gpu="H100 SXM", count=2, usd_hour=3.8, machine_id=2, cuda_max_good=None)
    one.market.publish(gpu="RTX 4090", count=1, usd_hour=0.4, machine_id=3, hosting_type=0)
    one.market.publish(gpu="H100 NVL", count=1, usd_hour=1.8, machine_id=4, verified=False, country="IS")
    return one


@pytest.mark.parametrize(
    ("query", "machines"),
    [
        ({"gpu_name": {"eq": "H100 SXM"}}, {1, 2}),
        ({"gpu_name": {"eq": "H100_SXM"}}, set()),
        ({"gpu_name": {"in": ["H100 SXM", "RTX 4090"]}}, {1, 2, 3}),
        ({"gpu_name": {"notin": ["H100 SXM"]}}, {3, 4}),
        ({"num_gpus": {"eq": "2"}}, {2}),
        ({"num_gpus": {"neq": 2}}, {1, 3, 4}),
        ({"dph_total": {"lte": 2.0}}, {1, 3, 4}),
        ({"dph_total": {"lt": 2.0, "gt": 0.4}}, {4}),
        ({"dphtotal": {"gte": 2.0}}, {1, 2}),
        ({"verified": {"eq": True}}, {1, 2, 3}),
        ({"verified": {"eq": "false"}}, {4}),
        ({"verification": {"eq": "verified"}}, {1, 2, 3}),
        ({"datacenter": {"eq": True}}, {1, 2, 4}),
        ({"geolocation": {"in": ["IS", "DE"]}}, {4}),
        ({"external": {"eq": False}, "rented": {"eq": False}}, {1, 2, 3, 4}),
        ({"duration": {"gte": 86400}}, {1, 2, 3, 4}),
        ({"duration": {"gte": 86400 * 1000}}, set()),
        ({"cuda_max_good": {"gte": 12}}, {1, 3, 4}),
        ({"driver_version": {"gte": "535.86.05"}}, {1, 2, 3, 4}),
        ({"driver_version": {"lt": "535.86.05"}}, set()),
        ({"machine_id": {"eq": 3}}, {3}),
    ],
    ids=str,
)
def test_conditions_are_anded_over_columns_and_aliases(four: Any, query: Any, machines: set[int]) -> None:
    assert {row["machine_id"] for row in four.search(**query)} == machines


def test_a_filter_on_id_matches_nothing_and_ask_contract_id_matches(four: Any) -> None:
    offer_id = four.search()[0]["id"]
    assert four.search(id={"eq": offer_id}) == []
    assert [row["id"] for row in four.search(ask_contract_id={"eq": offer_id})] == [offer_id]


@pytest.mark.parametrize(
    "query",
    [
        {"verified": True},
        {"num_gpus": 1},
        {"num_gpus": {"around": 1}},
        {"num_gpus": {"eq": "many"}},
        {"gpu_name": {"in": "H100 SXM"}},
        {"no_such_column": {"eq": 1}},
        {"limit": 0},
        {"order": "dph_total"},
        {"order": [["dph_total", "up"]]},
        {"type": "free"},
        [],
    ],
    ids=str,
)
def test_what_is_not_a_query_is_400_invalid_request(four: Any, query: Any) -> None:
    answer = four.http.post("/api/v0/bundles/", json=query)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_get_takes_the_query_in_q_and_ignores_what_stands_beside_it(four: Any) -> None:
    query = json.dumps({"order": [["dph_total", "asc"]]})
    answer = four.http.get("/api/v0/bundles/", params={"q": query, "order": '[["dph_total","desc"]]', "limit": "1"})
    assert [row["dph_total"] for row in answer.json()["offers"]] == [0.4, 1.8, 2.0, 3.8]


def test_post_of_a_query_wrapped_in_q_finds_nothing_without_a_word(four: Any) -> None:
    answer = four.http.post("/api/v0/bundles/", json={"q": {"num_gpus": {"eq": 1}}})
    assert (answer.status_code, answer.json()) == (200, {"offers": []})


def test_the_second_door_takes_put(four: Any) -> None:
    body = {"select_cols": ["*"], "q": {"gpu_name": {"eq": "RTX 4090"}}}
    assert len(four.http.put("/api/v0/search/asks/", json=body).json()["offers"]) == 1


def test_rows_come_by_score_descending_by_default(opened: Any) -> None:
    scores = [row["score"] for row in opened(size=100).search()]
    assert scores == sorted(scores, reverse=True)


def test_no_limit_gives_64_rows_and_a_limit_gives_more_only_with_a_key(opened: Any) -> None:
    one = opened(size=200)
    without = loopback_client.request("POST", f"{one.market.url}/api/v0/bundles/", json={"limit": 150}).json()
    assert (len(one.search()), len(one.search(limit=150)), len(without["offers"])) == (64, 150, 64)


def test_eight_gigabytes_of_disk_are_priced_in_unless_the_query_names_another_size(opened: Any) -> None:
    one = opened()
    one.market.publish(usd_hour=2.0, storage_cost=0.36)
    by_default, with_disk = one.search()[0], one.search(allocated_storage=100)[0]
    assert by_default["dph_total"] == 2.0 + 0.36 * 8 / 720
    assert with_disk["dph_total"] == 2.0 + 0.36 * 100 / 720
    assert by_default["dph_base"] == with_disk["dph_base"] == 2.0


def test_a_bid_search_shows_the_same_ids_at_the_lowest_bid_and_is_bid_stays_false(four: Any) -> None:
    rented, bid = (four.search(type=kind, machine_id={"eq": 1})[0] for kind in ("on-demand", "bid"))
    assert rented["id"] == bid["id"]
    assert (rented["dph_base"], bid["dph_base"], bid["min_bid"]) == (2.0, 1.0, 1.0)
    assert (rented["is_bid"], bid["is_bid"]) == (False, False)


def test_a_large_answer_is_encoded_once_and_follows_every_change(opened: Any) -> None:
    one = opened(size=300)
    assert len(one.search(limit=1000)) == 300
    offer_id = one.market.publish(gpu="H100 SXM", usd_hour=0.01)
    assert offer_id in {row["id"] for row in one.search(limit=1000)}
    one.market.reprice(offer_id, 0.02)
    assert next(row["dph_base"] for row in one.search(limit=1000) if row["id"] == offer_id) == 0.02
    one.market.withdraw(offer_id)
    assert offer_id not in {row["id"] for row in one.search(limit=1000)}


def test_gpu_names_are_the_wire_spellings(opened: Any) -> None:
    names = opened(size=50).http.get("/api/v0/gpu_names/unique/").json()["gpu_names"]
    assert {"H100 SXM", "RTX 4090", "A100 PCIE"} <= set(names)
