"""From an adapter's offers to its answer: only matching ones, cheapest first, no duplicate identity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.offer import Identity, Offer, Verification
from gpuwatch.errors import NoRowUnderstood
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.toolkit.post_processing import (
    ParseResult,
    build_answer,
    cheapest_first,
    listed_usd_hour,
    matching,
)
from gpuwatch.testing.suite import case

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def offer(offer_id: str = "1", usd: float = 2.0, **values: Any) -> Offer:
    plain: dict[str, Any] = {
        "provider": "acme", "offer_id": offer_id, "machine_id": None, "gpu": "H100 SXM", "gpu_family": "H100",
        "gpu_wire": "H100", "gpu_known": True, "gpu_count": 1, "gpu_memory_gib": 80.0, "spot": False,
        "quoted_usd_hour": usd, "quoted_disk_gb": 10.0, "disk_usd_gb_month": None, "observed_at": NOW,
    }  # fmt: skip
    return Offer(**(plain | values))


def test_what_was_not_asked_for_is_left_out() -> None:
    cases: list[Any] = [
        Query(spot=True),
        Query(count_min=2),
        Query(count_max=0),
        Query(gpus=("H100 PCIe",)),
        Query(verified=True),
        Query(min_reliability=0.5),
        Query(max_listed_usd_hour=1.99),
    ]
    for query in cases:
        with case(query):
            assert matching([offer()], Query())
            assert not matching([offer()], query)


def test_what_was_asked_for_is_kept() -> None:
    sure = offer(verification=Verification.VERIFIED, reliability=0.9, gpu_count=8)
    query = Query(gpus=("H100 SXM",), count_min=8, count_max=8, verified=True, min_reliability=0.9)
    assert matching([sure], query)
    assert matching([sure], Query(max_listed_usd_hour=2.0))
    assert not matching([offer(rentable=False)], Query())


def test_the_disk_that_is_asked_for_counts_in_the_bound() -> None:
    sold_apart = offer(disk_usd_gb_month=0.72)
    assert listed_usd_hour(sold_apart, Query(disk_gb=1010.0)) == pytest.approx(3.0)
    assert listed_usd_hour(sold_apart, Query()) == 2.0
    assert listed_usd_hour(offer(), Query(disk_gb=1010.0)) == 2.0
    assert not matching([sold_apart], Query(disk_gb=1010.0, max_listed_usd_hour=2.5))
    assert matching([sold_apart], Query(disk_gb=1010.0, max_listed_usd_hour=3.0))


def test_of_one_identity_the_cheapest_is_kept() -> None:
    offers = [
        offer("a", 3.0, machine_id="m"),
        offer("b", 2.0, machine_id="m"),
        offer("c", 2.5, machine_id="m", gpu_count=2),
    ]
    assert [one.offer_id for one in cheapest_first(offers)] == ["b", "c"]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 2), st.sampled_from([0.5, 1.0, 9.0]))))
def test_an_answer_is_in_order_unique_and_forgets_no_machine(rows: list[tuple[str | None, int, float]]) -> None:
    offers = [offer(f"{n}", usd, machine_id=m, gpu_count=count) for n, (m, count, usd) in enumerate(rows)]
    expected: dict[Identity, Offer] = {}
    for one in sorted(offers, key=lambda one: (one.quoted_usd_hour, one.offer_id)):
        expected.setdefault(one.identity, one)
    assert cheapest_first(offers) == list(expected.values())


def test_an_answer_carries_what_was_seen() -> None:
    seen = ParseResult(offers=[offer("b", 3.0), offer("a", 1.0), offer("c", 9.0)], rows=7, searches=2, partial=True)
    seen.skip("no price")
    seen.skip("no price")
    found = build_answer(seen, Query(max_listed_usd_hour=5.0), "acme", observed_at=NOW, elapsed_s=0.5)
    assert [one.offer_id for one in found.offers] == ["a", "b"]
    assert (found.provider, found.rows, found.searches, found.skipped) == ("acme", 7, 2, {"no price": 2})
    assert (found.completeness, found.observed_at, found.elapsed_s) == (Completeness.PARTIAL, NOW, 0.5)
    assert (
        build_answer(ParseResult(), Query(), "acme", observed_at=NOW, elapsed_s=0.0).completeness
        is Completeness.COMPLETE
    )


def test_drift_is_new_fields_and_needed_ones_that_are_gone() -> None:
    seen = ParseResult()
    for _ in range(3):
        seen.check_drift({"a": 1, "x" * 100: 2, "new": 3}, frozenset({"a"}), frozenset({"a", "b"}))
    assert list(seen.drift) == ["new field: new", f"new field: {'x' * 60}", "field gone: b"]


def test_rows_of_which_none_is_understood_are_no_market_without_offers() -> None:
    seen = ParseResult(rows=2)
    for _ in range(2):
        seen.skip("no price")
        seen.check_drift({"price": 1}, frozenset(), frozenset({"price_per_hr", "location"}))
    with pytest.raises(NoRowUnderstood, match=r"acme: none of 2 rows can be used \(2 × no price\)") as caught:
        build_answer(seen, Query(), "acme", observed_at=NOW, elapsed_s=0.0)
    assert caught.value.rows == 2
    assert caught.value.drift == ("new field: price", "field gone: location", "price field gone: price_per_hr")


def test_one_odd_row_among_others_that_do_not_match_is_no_changed_format() -> None:
    seen = ParseResult(rows=40)
    seen.skip("no name of a region")
    assert not build_answer(seen, Query(), "acme", observed_at=NOW, elapsed_s=0.0).offers


def test_the_link_of_sxm_and_nvl_cards_is_known() -> None:
    cases: list[Any] = [("H100 SXM", 8, "NVLink"), ("H100 NVL", 2, "NVLink"), ("H100 SXM", 1, None), ("L40S", 4, None)]
    for gpu, count, link in cases:
        with case((gpu, count, link)):
            result = ParseResult(offers=[offer(gpu=gpu, gpu_count=count)], rows=1)
            (found,) = build_answer(result, Query(), "acme", observed_at=NOW, elapsed_s=0.0).offers
            assert found.terms.interconnect == link
