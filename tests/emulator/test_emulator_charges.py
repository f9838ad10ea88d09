"""Charges by UTC day, compared with the documented example and with the marketplace's own books."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "vastai"
DAY_S = 86_400
NO_DISK = {"storage_cost": 0.0}
EXACT = {"charge_decimals": 9}


def running(one: Any, **fields: Any) -> int:
    """Rent an offer and let it start to run."""
    contract: int = one.rented(one.market.publish(**fields))
    one.clock.advance(60)
    return contract


def asked(one: Any, first: float, last: float, **params: Any) -> Any:
    sent = {"select_filters": json.dumps({"day": {"gte": first, "lte": last}}), **params}
    return one.http.get("/api/v0/charges/", params=sent)


def rows(one: Any, first: float, last: float, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(one, first, last, **params).json()["results"]
    return found


def test_a_row_and_its_items_have_the_documented_keys_and_types(opened: Any) -> None:
    recorded = json.loads((RECORDED / "charges_docs_example.json").read_text())
    one = opened()
    start = one.clock()
    running(one, usd_hour=2.0)
    one.clock.advance(3600)
    answer = asked(one, start, start).json()
    wanted, got = recorded["results"][0], answer["results"][0]
    assert set(answer) == set(recorded)
    assert set(got) == set(wanted)
    assert set(got["items"][0]) == set(wanted["items"][0])
    assert {name: type(value) for name, value in got.items()} == {name: type(value) for name, value in wanted.items()}


def test_the_documented_example_comes_out_of_the_documented_rental(opened: Any) -> None:
    """Four whole days at $0.389 an hour: the amounts, the text and the ends of the example's item."""
    one = opened()
    contract = running(one, usd_hour=0.389, **NO_DISK)
    one.clock.advance(DAY_S - 60)
    first = one.clock()
    one.clock.advance(4 * DAY_S)
    row = rows(one, first, first + 4 * DAY_S - 1)[0]
    item = row["items"][0]
    assert (row["end"] - row["start"], row["description"]) == (3 * DAY_S, f"Instance {contract} Charges - 4 days")
    assert (item["description"], item["amount"]) == ("96.000 hours at $0.389/hour", 37.344)


def test_days_are_utc_and_a_range_takes_whole_days(opened: Any) -> None:
    one = opened()
    start = one.clock()
    running(one, usd_hour=1.0)
    one.clock.advance(2 * DAY_S)
    by_day = [rows(one, start + n * DAY_S, start + n * DAY_S)[0]["amount"] for n in range(3)]
    assert by_day == [pytest.approx(24 - 1 / 60, abs=1e-3), 24.0, pytest.approx(1 / 60, abs=1e-3)]
    noon = DAY_S / 2
    assert rows(one, start + noon, start + DAY_S + noon)[0]["amount"] == pytest.approx(48 - 1 / 60, abs=1e-3)
    assert rows(one, start - 2 * DAY_S, start - DAY_S) == []


def test_gpu_disk_and_traffic_are_items_and_their_sum_is_the_bill(opened: Any) -> None:
    one = opened(**EXACT)
    start = one.clock()
    prices = {"usd_hour": 3.6, "storage_cost": 0.72, "inet_down_cost": 0.01, "inet_up_cost": 0.02}
    contract = running(one, **prices)
    one.clock.advance(3600)
    one.market.transfer(contract, down_gb=5, up_gb=2.5)
    one.market.raise_price(contract, 2.0)
    one.clock.advance(DAY_S)
    one.http.put(f"/api/v0/instances/{contract}/", json={"state": "stopped"})
    one.clock.advance(DAY_S)
    one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    one.clock.advance(DAY_S)
    row = rows(one, start, start + 9 * DAY_S)[0]
    assert [item["type"] for item in row["items"]] == ["gpu", "gpu", "disk", "disk", "bwd", "bwu"]
    amounts = {name: sum(item["amount"] for item in row["items"] if item["type"] == name) for name in ("bwd", "bwu")}
    assert amounts == {"bwd": 0.05, "bwu": 0.05}
    assert round(row["amount"] * 1e6) == one.market.ledger.bill_microusd(contract)
    daily = [rows(one, start + n * DAY_S, start + n * DAY_S) for n in range(4)]
    total = sum(row["amount"] for found in daily for row in found)
    assert round(total * 1e6) == one.market.ledger.bill_microusd(contract)


@pytest.mark.parametrize("factor", [1.2, 0.9])
def test_what_is_charged_can_differ_from_what_is_listed(opened: Any, factor: float) -> None:
    one = opened(charge_factor=factor, credit_usd=50.0)
    start = one.clock()
    contract = running(one, usd_hour=2.0, **NO_DISK)
    one.clock.advance(3600)
    assert one.show(contract)["dph_total"] == 2.0
    assert one.market.ledger.bill_microusd(contract) == round(2_000_000 * factor)
    assert rows(one, start, start)[0]["amount"] == pytest.approx(2.0 * factor)
    assert one.market.credit_usd == pytest.approx(50 - 2.0 * factor)


def test_another_factor_counts_from_the_moment_it_is_set(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=2.0)
    one.clock.advance(3600)
    one.market.change(charge_factor=1.5)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) == 5_000_000


def test_the_books_can_be_behind_or_leave_today_out(opened: Any) -> None:
    one = opened(charges_lag_s=1800.0)
    start = one.clock()
    running(one, usd_hour=2.0)
    one.clock.advance(3600)
    assert rows(one, start, start)[0]["amount"] == 1.0
    one.market.change(charges_lag_s=0.0, charges_today=False)
    assert rows(one, start, start) == []
    one.clock.advance(DAY_S)
    assert rows(one, start, start + DAY_S)[0]["amount"] == pytest.approx(48 - 2 / 60, abs=1e-3)


def test_pages_and_order_and_types(opened: Any) -> None:
    one = opened()
    start = one.clock()
    made = [running(one) for _ in range(5)]
    one.clock.advance(3600)
    seen, token = [], None
    for _ in range(3):
        page = asked(one, start, start, limit=2, latest_first="false", **({"after_token": token} if token else {}))
        seen += [int(row["source"].removeprefix("instance-")) for row in page.json()["results"]]
        token = page.json()["next_token"]
    assert (seen, token, page.json()["total"]) == (made, None, 5)
    latest = [row["source"] for row in rows(one, start, start)]
    assert latest == [f"instance-{contract}" for contract in reversed(made)]
    volumes = json.dumps({"day": {"gte": start, "lte": start}, "type": {"in": ["volume"]}})
    assert one.http.get("/api/v0/charges/", params={"select_filters": volumes}).json()["results"] == []


@pytest.mark.parametrize("day", [None, {}, {"gte": 0}, {"gte": "2026-11-01", "lte": "2026-11-02"}, [0, 1]])
def test_without_both_ends_of_the_day_it_is_refused_as_documented(opened: Any, day: Any) -> None:
    answer = opened().http.get("/api/v0/charges/", params={"select_filters": json.dumps({"day": day})})
    wanted = {"success": False, "msg": "Must provide both 'day' gte and lte filters for instance charges"}
    assert (answer.status_code, answer.json()) == (400, wanted)
