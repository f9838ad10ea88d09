"""The market: slices, ticks, ids, and rows that resemble the recorded ones."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "vastai"


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RECORDED / name).read_text())["offers"]
    return rows


def test_offers_have_the_recorded_keys_and_json_types(opened: Any) -> None:
    """The same keys as in August 2026, and no unseen type in any field."""
    newest = rows_of("bundles_real_2026-08-22.json")
    types: dict[str, set[type]] = defaultdict(set)
    for row in newest + rows_of("bundles_real_2026-03_odd_rows.json"):
        for name, value in row.items():
            types[name].add(type(value))
    for row in opened(size=400).search(limit=400):
        assert set(row) == set(newest[0])
        assert {name for name, value in row.items() if type(value) not in types[name]} == set()


@pytest.mark.parametrize("kind", ["on-demand", "bid"])
@pytest.mark.parametrize("disk", [None, 5, 100])
def test_the_recorded_equations_hold_in_every_row(opened: Any, kind: str, disk: float | None) -> None:
    asked = {} if disk is None else {"allocated_storage": disk}
    for row in opened(size=400).search(limit=400, type=kind, **asked):
        total, gpus = row["dph_total"], row["num_gpus"]
        assert row["id"] == row["ask_contract_id"]
        assert row["reliability"] == row["reliability2"]
        assert row["storage_total_cost"] == pytest.approx(row["storage_cost"] * (disk or 8) / 720)
        assert total == row["search"]["totalHour"] == pytest.approx(row["dph_base"] + row["storage_total_cost"])
        assert row["instance"]["totalHour"] == row["storage_total_cost"]
        assert row["dph_total_adj"] == pytest.approx(total + 2 * row["inet_down_cost"])
        assert row["gpu_total_ram"] == row["gpu_ram"] * gpus
        assert len(row["gpu_ids"]) == gpus
        assert kind == "on-demand" or row["dph_base"] == row["min_bid"]


def test_every_odd_recorded_row_is_on_the_market_as_it_was(opened: Any) -> None:
    """Return a row without ids, dates, and values that depend on them."""
    volatile = {"id", "ask_contract_id", "duration", "end_date", "start_date", "search", "instance", "vram_costperhour"}
    ours = {(row["machine_id"], tuple(row["gpu_ids"])): row for row in opened(size=400).search(limit=400)}
    for odd in rows_of("bundles_real_2026-03_odd_rows.json"):
        row = ours[odd["machine_id"], tuple(odd["gpu_ids"])]
        for name in odd.keys() - volatile:
            wanted = pytest.approx(odd[name]) if isinstance(odd[name], float) else odd[name]
            assert row[name] == wanted, name
        assert row["duration"] == pytest.approx(odd["duration"])


def test_the_same_seed_gives_the_same_market(opened: Any) -> None:
    one, two, three = opened(size=100), opened(size=100), opened(size=100, seed=8)
    assert one.search(limit=100) == two.search(limit=100) != three.search(limit=100)


def test_overlapping_slices_vanish_together_and_come_back_when_the_instance_is_destroyed(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish(count=1, usd_hour=2.0, machine_gpus=8, slices=(1, 2, 4, 8))
    assert sorted(row["num_gpus"] for row in one.search()) == [1, 2, 4, 8]
    contract = one.rented(offer_id)
    assert one.search() == []
    one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})
    assert sorted(row["num_gpus"] for row in one.search()) == [1, 2, 4, 8]


def test_the_rest_of_a_rented_machine_is_cut_anew_at_the_next_ticks(opened: Any) -> None:
    one = opened()
    one.rented(one.market.publish(count=1, usd_hour=2.0, machine_gpus=8, slices=(1, 2, 4, 8), pinned=False))
    for _ in range(3):
        one.market.tick()
    assert all(row["num_gpus"] < 8 for row in one.search())


def test_ticks_keep_most_offers_renumber_some_and_reprice_few(opened: Any) -> None:
    one = opened(size=500)
    before = {row["id"]: row for row in one.market.offers()}
    for _ in range(5):
        one.market.tick()
    after = {row["id"]: row for row in one.market.offers()}
    kept = before.keys() & after.keys()
    machines = {row["machine_id"] for row in before.values()} & {row["machine_id"] for row in after.values()}
    moved = {row["machine_id"] for i, row in before.items() if i not in after} & machines
    repriced = [i for i in kept if before[i]["dph_base"] != after[i]["dph_base"]]
    assert 0.4 < len(kept) / len(before) < 0.95
    assert moved
    assert len(repriced) <= 0.02 * len(before)
    assert len(after) >= 500


def test_a_published_offer_keeps_its_id_over_ticks_unless_asked_otherwise(opened: Any) -> None:
    one = opened()
    pinned = one.market.publish(machine_id=1)
    one.market.publish(machine_id=2, pinned=False)
    for _ in range(200):
        one.market.tick()
    assert [row["id"] for row in one.search(machine_id={"eq": 1})] == [pinned]


def test_rented_out_machines_are_shown_unless_rentable_is_asked_for(opened: Any) -> None:
    one = opened(size=600)
    all_rows, rentable = one.search(limit=1000), one.search(limit=1000, rentable={"eq": True})
    assert 0 < len(all_rows) - len(rentable) < 60


def test_an_unknown_field_cannot_be_published(opened: Any) -> None:
    with pytest.raises(TypeError, match="dph_totl"):
        opened().market.publish(dph_totl=3.0)


def test_background_ticks_move_the_market(opened: Any) -> None:
    one = opened(size=300, tick_every_s=0.01)
    before = [row["id"] for row in one.market.offers()]
    assert any([row["id"] for row in one.market.offers()] != before for _ in iter(range(2000)))
