"""The index finds for each watch exactly what `matches` finds, whatever changes between updates."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.watches import watch_index as index_module
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.domain.watches.watch_index import WatchIndex
from tests.builders import NOON, a_watch, an_offer, changed
from tests.drawn import examples

COMMISSIONS = {
    "vastai": Commission("0.20"),
    "runpod": Commission("0.10", CommissionMode.INCLUDED),
    "tensordock": Commission("0.05", CommissionMode.FROM_OFFER),
}
GPUS = ["H100 SXM", "H100 NVL", "RTX 4090", "Tesla K20c"]
WATCHES = st.builds(
    lambda gpus, low, more, **rest: a_watch(
        gpu=tuple(gpus), gpu_names=tuple(gpus), gpu_count_min=low, gpu_count_max=low + more, **rest
    ),
    st.lists(st.sampled_from(GPUS), min_size=1, max_size=3),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 3]),
    max_price_usd_gpu_hour=st.sampled_from(["0.5", "1", "2.40", "3.60"]).map(Decimal),
    providers=st.sampled_from([None, ("vastai",), ("runpod", "tensordock")]),
    spot=st.sampled_from(SpotPolicy),
    disk_gb=st.sampled_from([None, 1.0, 8.0, 900.0]),
    min_reliability=st.sampled_from([None, 0.9]),
    regions=st.sampled_from([(), ("US",)]),
    available_for_s=st.sampled_from([None, 3_600.0]),
)
OFFERS = st.builds(
    an_offer,
    provider=st.sampled_from(["vastai", "runpod", "tensordock", "lambda"]),
    offer_id=st.sampled_from("12345"),  # few, so that they occur again with changes
    machine_id=st.sampled_from(["7", "8", None]),
    gpu=st.sampled_from(GPUS),
    gpu_count=st.sampled_from([1, 2, 4]),
    spot=st.booleans(),
    quoted_usd_hour=st.sampled_from([0.4, 0.5, 1.0, 2.0, 3.0, 3.6, 7.2, 14.4]) | st.floats(0.01, 20),
    quoted_disk_gb=st.sampled_from([8.0, 2_000.0]),
    disk_usd_gb_month=st.sampled_from([None, 0.2, 5.0]),
    fee_rate=st.sampled_from([None, 0.0, 0.3]),
    reliability=st.sampled_from([None, 0.8, 0.95, 0.99]),
    country=st.sampled_from([None, "US", "DE"]),
    rentable=st.booleans(),
    available_until=st.sampled_from([None, NOON + timedelta(hours=1), NOON + timedelta(hours=2)]),
)
POLLS = st.lists(
    st.tuples(st.lists(OFFERS, max_size=8), st.sampled_from([0, 30, 3_600])),  # offers, seconds since the last poll
    min_size=1,
    max_size=4,
)


def update_and_compare(index: WatchIndex, watches: list[Watch], offers: list[Offer], now: Any) -> None:
    found = index.update(offers, now)
    assert found == {watch.name: matches(watch, offers, COMMISSIONS, now) for watch in watches}


@settings(max_examples=examples(300))
@given(watches=st.lists(WATCHES, max_size=4), polls=POLLS)
def test_the_index_finds_what_matches_finds(watches: list[Watch], polls: list[tuple[list[Offer], int]]) -> None:
    named = [changed(watch, name=f"watch {number}") for number, watch in enumerate(watches)]
    index, now = WatchIndex(named, COMMISSIONS), NOON
    for offers, seconds in polls:
        now += timedelta(seconds=seconds)
        update_and_compare(index, named, [changed(offer, observed_at=now) for offer in offers], now)


CHANGES: list[dict[str, Any]] = [
    {"quoted_usd_hour": 3.01},
    {"rentable": False},
    {"reliability": 0.5},
    {"spot": True},
    {"gpu": "RTX 4090"},
    {"gpu_count": 2},
    {"provider": "lambda"},
    {"gpu_memory_gib": 40.0},
    {"machine_id": "78"},
    {"country": "DE"},
    {"cuda_max": 11.0},
    {"fee_rate": 0.5},
    {"quoted_disk_gb": 0.0},
    {"available_until": NOON},
    {"kind": OfferKind.HISTORY},
    {"terms": OfferTerms(gpu_fraction=0.5)},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_any_field_that_changes_is_noticed(change: dict[str, Any]) -> None:
    watches = [a_watch(disk_gb=8.0, min_reliability=0.9, min_vram_gib=79.0, regions=("US",), min_cuda=12.0)]
    offer = an_offer(cuda_max=12.4, disk_free_gb=100.0)
    index = WatchIndex(watches, COMMISSIONS)
    for seen in (offer, changed(offer, **change), offer):
        update_and_compare(index, watches, [seen], NOON)


def test_a_match_carries_the_offer_as_it_is_now() -> None:
    """An unchanged price seen a minute later is a fresh quote."""
    index = WatchIndex([a_watch()], COMMISSIONS)
    index.update([an_offer()], NOON)
    later = NOON + timedelta(minutes=1)
    assert index.update([an_offer(observed_at=later)], later)["h100"][0].offer.observed_at == later


def test_what_was_handed_out_before_is_not_changed_by_an_update() -> None:
    index, offer = WatchIndex([a_watch()], COMMISSIONS), an_offer()
    index.update([offer], NOON)
    index.update([an_offer(observed_at=NOON + timedelta(minutes=1))], NOON + timedelta(minutes=1))
    assert offer.observed_at == NOON


def test_time_alone_ends_a_match_of_a_host_that_leaves() -> None:
    watches = [a_watch(available_for_s=3_600.0)]
    offer = an_offer(available_until=NOON + timedelta(hours=1))
    index = WatchIndex(watches, COMMISSIONS)
    assert len(index.update([offer], NOON)["h100"]) == 1
    assert index.update([offer], NOON + timedelta(seconds=1))["h100"] == ()
    assert len(index.update([offer], NOON)["h100"]) == 1


def test_what_is_gone_is_gone_and_may_come_back() -> None:
    index = WatchIndex([a_watch()], COMMISSIONS)
    assert [len(index.update(offers, NOON)["h100"]) for offers in ([an_offer()], [], [an_offer()])] == [1, 0, 1]


def test_two_offers_of_one_id_are_both_seen() -> None:
    """An offer sold both on demand and by bid has one id."""
    watches = [a_watch(spot=SpotPolicy.ANY)]
    both = [an_offer(), an_offer(spot=True, quoted_usd_hour=1.0)]
    index = WatchIndex(watches, COMMISSIONS)
    for _ in range(2):
        update_and_compare(index, watches, both, NOON)


def test_made_up_gpus_and_counts_do_not_fill_the_memory() -> None:
    index = WatchIndex([a_watch()], COMMISSIONS)
    index.update([an_offer(gpu=f"GPU {number}") for number in range(5_000)], NOON)
    index.update([an_offer(gpu_count=number) for number in range(1, 5_000)], NOON)
    tables = index._by_provider["vastai"]
    assert len(tables) <= index_module._MAX_ENTRIES
    assert max(map(len, tables.values())) <= index_module._MAX_ENTRIES


def test_an_offer_is_found_whose_price_is_low_enough_with_a_smaller_disk() -> None:
    """Quoted with 2,000 GB of disk it is over the ceiling; with the watch's 10 GB it is at half of it."""
    small = a_watch(disk_gb=10.0, max_price_usd_gpu_hour=Decimal("3.60"))
    offer = an_offer(quoted_usd_hour=4.3, quoted_disk_gb=2_000.0, disk_usd_gb_month=1.0)
    assert len(WatchIndex([small], COMMISSIONS).update([offer], NOON)[small.name]) == 1
    beyond = changed(offer, quoted_usd_hour=6.0)
    assert len(WatchIndex([small], COMMISSIONS).update([beyond], NOON)[small.name]) == 0
