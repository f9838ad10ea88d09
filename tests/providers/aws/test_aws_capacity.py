"""Placement scores and capacity blocks: shown if AWS provides them, never required, never rented automatically."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.domain.market.offer import Offer, OfferKind, marks
from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.aws.market import parse_block
from tests.clocks import Clock
from tests.clouds.aws import Ec2
from tests.clouds.aws_account import Ec2Account
from tests.clouds.aws_market import MARKET, Sold
from tests.providers.aws.aws_bench import asking, launcher_of, order

_SPOT = Query(gpus=("A10G",), spot=True)
_SIZES = tuple(
    Sold(one.region, one.zone, one.zone_id, f"g5.{size}", "1.2120000000", "0.480000", "0.30", 8, "32 GiB")
    for one in MARKET
    if one.type == "g5.xlarge"
    for size in ("2xlarge", "4xlarge")
)


@pytest.fixture
def place() -> Iterator[Ec2]:
    with Ec2(page=3, market=(*MARKET, *_SIZES)) as place:
        place.scores = {"use1-az4": 3, "use1-az6": 9}
        yield place


def _scores(offers: list[Offer]) -> dict[str, int | None]:
    return {offer.machine_id or "": offer.terms.placement_score for offer in offers}


def test_a_zone_has_the_score_of_all_types_with_these_gpus(place: Ec2) -> None:
    with asking(place.url) as adapter:
        found = list(adapter.market.search(_SPOT).offers)
    scores = _scores(found)
    assert len(scores) == 9
    assert {scores[f"use1-az4/g5.{size}"] for size in ("xlarge", "2xlarge", "4xlarge")} == {3}
    assert (scores["use1-az6/g5.xlarge"], scores["usw2-az2/g5.xlarge"]) == (9, 5)
    assert "placement score 9/10" in marks(next(offer for offer in found if offer.machine_id == "use1-az6/g5.xlarge"))


def test_a_group_that_aws_always_scores_low_is_not_asked_about(place: Ec2) -> None:
    with asking(place.url) as adapter:
        found = list(adapter.market.search(Query(gpus=("H100 SXM", "T4"), spot=True)).offers)
    assert found
    assert set(_scores(found).values()) == {None}
    assert place.count("/GetSpotPlacementScores") == 0


def test_on_demand_offers_have_no_score(place: Ec2) -> None:
    with asking(place.url) as adapter:
        found = list(adapter.market.search(Query(gpus=("A10G",))).offers)
    assert found
    assert set(_scores(found).values()) == {None}


def test_scores_are_kept_for_an_hour_and_the_question_stays_the_same(place: Ec2) -> None:
    clock = Clock()
    with asking(place.url, clock=clock) as adapter:
        for _ in range(3):
            adapter.market.search(_SPOT)
        assert place.count("/GetSpotPlacementScores") == 2  # one for each region
        clock.seconds += 3601
        place.scores = {"use1-az4": 8}
        assert _scores(list(adapter.market.search(_SPOT).offers))["use1-az4/g5.xlarge"] == 8
    assert place.count("/GetSpotPlacementScores") == 4


def test_without_the_right_prices_are_whole_and_it_is_not_asked_again_soon() -> None:
    account = Ec2Account(strict=False, rights={"GetSpotPlacementScores"})
    with Ec2(market=(*MARKET, *_SIZES), account=account) as place, asking(place.url) as adapter:
        for _ in range(2):
            answer = adapter.market.search(_SPOT)
            assert len(answer.offers) == 9
            assert answer.completeness is Completeness.COMPLETE
            assert not answer.skipped
        assert place.count("/GetSpotPlacementScores") == 2


# --- capacity blocks --------------------------------------------------------------------------------------------------
_BLOCK: Mapping[str, Any] = {
    "capacityBlockOfferingId": "cb-0123456789abcdef0", "instanceType": "p5.48xlarge", "availabilityZone": "us-east-1a",
    "instanceCount": 1, "startDate": "2026-11-23T11:30:00.000Z", "endDate": "2026-11-24T11:30:00.000Z",
    "capacityBlockDurationHours": 24, "upfrontFee": "755.1360", "currencyCode": "USD", "tenancy": "default",
}  # fmt: skip
_EIGHT = Query(gpus=("H100 SXM",), count_min=8)


def _blocks(place: Ec2, **options: Any) -> list[Offer]:
    with asking(place.url, **options) as adapter:
        return [offer for offer in adapter.market.search(_EIGHT).offers if offer.kind is OfferKind.LISTED]


def test_blocks_are_not_asked_for_unless_wanted(place: Ec2) -> None:
    place.blocks = [dict(_BLOCK)]
    assert _blocks(place) == []
    assert place.count("/DescribeCapacityBlockOfferings") == 0


def test_a_block_is_a_list_price_by_the_hour_and_says_what_binds(place: Ec2) -> None:
    later = _BLOCK | {"capacityBlockOfferingId": "cb-1", "startDate": "2026-11-29T11:30:00.000Z"}
    dearer = _BLOCK | {"capacityBlockOfferingId": "cb-2", "upfrontFee": "999.0"}
    place.blocks = [dearer, later, dict(_BLOCK)]
    [block] = _blocks(place, capacity_block_hours=24)
    assert block.quoted_usd_hour == pytest.approx(755.136 / 24 + 100 * 0.08 / 720)
    assert block.offer_id == "us-east-1/us-east-1a/p5.48xlarge/block/cb-0123456789abcdef0"
    assert (block.terms.prepaid, block.terms.min_billing_s) == (True, 86_400.0)
    assert "$755.14 at once for 24 hours from 2026-11-23 11:30 UTC" in (block.terms.note or "")


def test_a_block_is_never_ordered(place: Ec2) -> None:
    place.blocks = [dict(_BLOCK)]
    [block] = _blocks(place, capacity_block_hours=24)
    with asking(place.url, capacity_block_hours=24) as adapter, pytest.raises(OrderRefused) as refused:
        launcher_of(adapter).create(order(block.offer_id))
    assert refused.value.kind is RefusalKind.BAD_ORDER
    assert place.count("/RunInstances") == 0


def test_without_the_right_for_blocks_the_other_offers_are_there_and_it_is_said() -> None:
    account = Ec2Account(strict=False, rights={"DescribeCapacityBlockOfferings"})
    with Ec2(account=account) as place, asking(place.url, capacity_block_hours=24) as adapter:
        answer = adapter.market.search(_EIGHT)
    assert {offer.kind for offer in answer.offers} == {OfferKind.LIVE}
    assert answer.completeness is Completeness.COMPLETE
    assert any("capacity blocks of us-east-1" in reason for reason in answer.skipped)


@pytest.mark.parametrize(
    "odd",
    [
        {"InstanceCount": 2},
        {"CurrencyCode": "EUR"},
        {"UpfrontFee": "-1"},
        {"UpfrontFee": "free"},
        {"StartDate": "tomorrow"},
        {"CapacityBlockDurationHours": 0},
        {"AvailabilityZone": None},
    ],
)
def test_an_odd_block_is_none(odd: dict[str, Any]) -> None:
    row = {
        "CapacityBlockOfferingId": "cb-1", "InstanceType": "p5.48xlarge", "AvailabilityZone": "us-east-1a",
        "InstanceCount": 1, "StartDate": datetime(2026, 11, 23, tzinfo=UTC), "CapacityBlockDurationHours": 24,
        "UpfrontFee": "755.1360", "CurrencyCode": "USD",
    }  # fmt: skip
    assert parse_block(row) is not None
    assert parse_block(row | odd) is None


@pytest.mark.parametrize(("hours", "is_sold"), [(24, True), (336, True), (504, True), (12, False), (360, False)])
def test_only_lengths_that_aws_sells_are_taken(hours: int, is_sold: bool) -> None:
    [spec] = [option for option in providers.info("aws").options if option.name == "capacity_block_hours"]
    assert spec.check is not None
    if is_sold:
        spec.check(hours)
    else:
        with pytest.raises(ValueError, match="whole weeks"):
            spec.check(hours)
