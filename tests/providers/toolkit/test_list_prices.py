"""Placeholders among list prices, and answers with far fewer rows than usual."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.providers.toolkit.list_prices import RowCountGuard, is_plausible, without_placeholders
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.suite import case

ONE = Offer(
    provider="x", offer_id="1", machine_id=None, gpu="H100 SXM", gpu_family="H100", gpu_wire="H100", gpu_known=True,
    gpu_count=1, gpu_memory_gib=80.0, spot=False, quoted_usd_hour=3.0, quoted_disk_gb=0.0, disk_usd_gb_month=None,
    observed_at=datetime(2026, 11, 21, tzinfo=UTC), kind=OfferKind.LISTED, terms=OfferTerms(instance_type="a"),
)  # fmt: skip


def at(price: float, kind: str = "a", spot: bool = False) -> Offer:
    return msgspec.structs.replace(ONE, quoted_usd_hour=price, spot=spot, terms=OfferTerms(instance_type=kind))


def test_nobody_would_ask_such_a_price() -> None:
    cases: list[Any] = [
        (0.00001, 1, False),
        (999.0, 1, False),
        (999.0, 8, True),
        (0.02, 1, True),
        (0.01, 8, False),
        (0.05, 0.05, True),
    ]
    for price, gpus, plausible in cases:
        with case((price, gpus, plausible)):
            assert is_plausible(price, gpus) is plausible


def test_far_under_the_median_of_its_own_type_is_a_placeholder() -> None:
    seen = ParseResult()
    kept = without_placeholders([at(3.0), at(3.2), at(0.5), at(0.61), at(0.5, "b"), at(0.5, spot=True)], seen)
    assert [(offer.quoted_usd_hour, offer.terms.instance_type, offer.spot) for offer in kept] == [
        (3.0, "a", False),
        (3.2, "a", False),
        (0.5, "a", False),
        (0.61, "a", False),
        (0.5, "b", False),
        (0.5, "a", True),
    ]
    kept = without_placeholders([at(3.0), at(3.2), at(3.1), at(0.5)], seen)
    assert [offer.quoted_usd_hour for offer in kept] == [3.0, 3.2, 3.1]
    assert seen.skipped == {"a placeholder: far under the median of its type over the regions": 1}


def test_two_prices_have_no_median_to_judge_by() -> None:
    assert len(without_placeholders([at(3.0), at(0.1)], ParseResult())) == 2


def test_a_third_of_the_usual_rows_is_too_few_and_believed_the_third_time() -> None:
    usual = RowCountGuard()
    assert not usual.is_too_few("a", 90)
    assert not usual.is_too_few("a", 30)
    assert usual.is_too_few("a", 29)
    assert not usual.is_too_few("b", 29)
    assert not usual.is_too_few("a", 90)
    assert [usual.is_too_few("a", 5) for _ in range(4)] == [True, True, False, False]
