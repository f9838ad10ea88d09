"""Ranks are read from the history once an hour, never for an alert."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import pytest

from gpuwatch.domain.history.past_lows import HourlyLows
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.engine.market.known_prices import PriceRanks
from gpuwatch.errors import StoreError
from tests.builders import NOON, an_offer

LOWS = HourlyLows(lows=tuple(range(2_900_000, 3_100_000, 2_000)), days=5, hours=range(100))  # around 3 $


class Reader:
    def __init__(self) -> None:
        self.asked: list[tuple[Collection[str] | None, datetime, datetime]] = []
        self.broken = False
        self.lows = LOWS
        self.elsewhere: HourlyLows | None = None

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime, *, verified: bool = False
    ) -> Mapping[tuple[str, OfferKind, str, bool], HourlyLows]:
        if self.broken:
            raise StoreError("no disk")
        self.asked.append((gpus, since, until))
        found = {("vastai", OfferKind.LIVE, "H100 SXM", False): self.lows}
        if self.elsewhere is not None:
            found["runpod", OfferKind.LIVE, "H100 SXM", False] = self.elsewhere
        return found


def test_the_history_is_read_once_an_hour() -> None:
    reader = Reader()
    ranks = PriceRanks(reader, {"H100 SXM"}, 8.0, {})
    assert [ranks.refresh_if_due(NOON + timedelta(minutes=minutes)) for minutes in (0, 1, 59, 60, 61)] == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert reader.asked[0] == ({"H100 SXM"}, NOON - timedelta(days=30), NOON)
    for _ in range(10):
        assert ranks.rank_of(an_offer(), False) is not None
    assert len(reader.asked) == 2


def test_a_rank_is_among_the_same_gpu_and_rental_type() -> None:
    ranks = PriceRanks(Reader(), None, 8.0, {})
    assert ranks.rank_of(an_offer(), False) is None  # nothing has been read yet
    ranks.refresh_if_due(NOON)
    for other in ({"gpu": "H100 PCIe"}, {"spot": True}, {"kind": OfferKind.LISTED}):
        assert ranks.rank_of(an_offer(**other), False) is None
    rank = ranks.rank_of(an_offer(gpu_count=2, quoted_usd_hour=5.85), False)  # 2.925 $ a GPU
    assert rank is not None
    assert rank.text == "cheapest 13 % of 5 days (n = 100 hours)"


def test_a_rank_is_among_all_providers_with_the_commission_of_each() -> None:
    """RunPod was cheaper in every hour: what is the lowest at vast.ai has never been cheap."""
    reader = Reader()
    reader.elsewhere = HourlyLows(lows=(2_000_000,) * 100, days=5, hours=range(100))
    ranks = PriceRanks(reader, None, 8.0, {"vastai": Commission("0.20")})
    ranks.refresh_if_due(NOON)
    here, there = (
        ranks.rank_of(an_offer(quoted_usd_hour=1.9), False),
        ranks.rank_of(an_offer(provider="runpod", quoted_usd_hour=1.9), False),
    )
    assert (here and here.share, there and there.share) == (1.0, 0.0)  # 2.28 $ and 1.90 $
    assert here is not None
    assert here.hours == 100, "an hour counts once"


def test_a_price_that_stays_is_not_the_lowest_although_hours_are_rounded() -> None:
    reader = Reader()
    reader.lows = HourlyLows(lows=(1_666_667,) * 100, days=5, hours=range(100))
    ranks = PriceRanks(reader, None, 8.0, {})
    ranks.refresh_if_due(NOON)
    rank = ranks.rank_of(an_offer(gpu_count=3, quoted_usd_hour=5.0), False)
    assert rank is not None
    assert rank.share == 0.5


def test_a_larger_disk_does_not_make_an_offer_dear() -> None:
    """The history has prices with the default disk: the quote is compared without the watch's disk."""
    ranks = PriceRanks(Reader(), None, 8.0, {})
    ranks.refresh_if_due(NOON)
    small, large = an_offer(), an_offer(quoted_usd_hour=3.0 + 0.2 * 992 / 720, quoted_disk_gb=1000.0)
    rank, same = ranks.rank_of(small, False), ranks.rank_of(large, False)
    assert rank is not None
    assert same is not None
    assert same.share == pytest.approx(rank.share, abs=0.01)


def test_a_store_that_fails_leaves_the_old_ranks() -> None:
    reader = Reader()
    ranks = PriceRanks(reader, None, 8.0, {})
    ranks.refresh_if_due(NOON)
    reader.broken = True
    with pytest.raises(StoreError):
        ranks.refresh_if_due(NOON + timedelta(hours=1))
    assert ranks.rank_of(an_offer(), False) is not None
    reader.broken = False
    assert ranks.refresh_if_due(NOON + timedelta(hours=1))


class VerifiedReader(Reader):
    """Verified hosts cost a dollar more; their hours are computed anew for each reading."""

    def __init__(self, hours: range) -> None:
        super().__init__()
        self.hours = hours
        self.asked_verified: list[tuple[Collection[str] | None, datetime]] = []

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime, *, verified: bool = False
    ) -> Mapping[tuple[str, OfferKind, str, bool], HourlyLows]:
        if not verified:
            return super().hourly_lows(gpus, since, until)
        self.asked_verified.append((gpus, since))
        first = int(since.timestamp()) // 3600
        hours = [hour for hour in self.hours if hour >= first]
        lows = HourlyLows(lows=(4_000_000,) * len(hours), days=9, hours=hours)
        return {("vastai", OfferKind.LIVE, "H100 SXM", False): lows} if hours else {}


def test_the_rank_among_verified_hosts_reads_each_hour_once() -> None:
    now_hour = int(NOON.timestamp()) // 3600
    reader = VerifiedReader(range(now_hour - 100, now_hour))
    ranks = PriceRanks(reader, None, 8.0, {}, verified_gpus={"H100 SXM"})
    ranks.refresh_if_due(NOON)
    offer = an_offer(quoted_usd_hour=3.5)
    among_all, among_verified = ranks.rank_of(offer, False), ranks.rank_of(offer, True)
    assert (among_all and among_all.share, among_verified and among_verified.share) == (1.0, 0.0)
    reader.hours = range(now_hour - 100, now_hour + 1)
    ranks.refresh_if_due(NOON + timedelta(hours=1))
    rank = ranks.rank_of(offer, True)
    assert rank is not None
    assert rank.hours == 101
    wanted = {"H100 SXM"}
    assert reader.asked_verified == [(wanted, NOON - timedelta(days=30)), (wanted, NOON - timedelta(hours=4))]
    ranks.refresh_if_due(NOON + timedelta(days=27))  # what is older than 30 days is forgotten
    rank = ranks.rank_of(offer, True)
    assert rank is not None
    assert rank.hours == 73


def test_without_such_a_watch_no_price_of_verified_hosts_is_read() -> None:
    reader = VerifiedReader(range(10))
    ranks = PriceRanks(reader, None, 8.0, {})
    ranks.refresh_if_due(NOON)
    assert not reader.asked_verified
    assert ranks.rank_of(an_offer(), True) is None
