"""The lowest price of each hour, for the rank of a price."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.offer import OfferKind, Verification
from gpuwatch.storage.history.queries.gpu_lows import read_gpu_lows
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import NOON, an_answer, an_offer

if TYPE_CHECKING:
    from gpuwatch.storage.setup.database import Database

HOUR = 3600.0


def test_each_hour_counts_once_with_its_lowest_price_over_all_counts(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer("m1", 3.0), an_offer("m2", 4.0, gpu_count=2)), lane="sweep")
    history.record(an_answer(an_offer("m3", 1.0, spot=True)), lane="sweep", spot=True)
    history.record(an_answer(an_offer("m1", 2.5), after_s=HOUR), lane="sweep")
    history.record(an_answer(an_offer("m1", 2.5), after_s=2 * HOUR), lane="sweep")
    history.roll_up(NOON + timedelta(hours=3))
    now = NOON + timedelta(hours=3)
    found = SqlHourlyLows(database).hourly_lows({"H100 SXM"}, now - timedelta(days=30), now)
    live = found["vastai", OfferKind.LIVE, "H100 SXM", False]
    assert list(live.lows[:2]) == [2_000_000, 2_500_000]
    assert live.days == 1
    spot = found["vastai", OfferKind.LIVE, "H100 SXM", True]
    assert list(spot.lows) == [1_000_000, 1_000_000]
    assert spot.hours[0] < spot.hours[1]  # of one price, the earliest first: every database says the same
    assert SqlHourlyLows(database).hourly_lows({"A100"}, now - timedelta(days=30), now) == {}
    assert SqlHourlyLows(database).hourly_lows(None, now - timedelta(days=30), now) == found


def test_the_hours_of_verified_hosts_are_theirs_alone(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    cheap = an_offer("m1", 1.0, verification=Verification.UNVERIFIED)
    history.record(an_answer(cheap, an_offer("m2", 3.0, verification=Verification.VERIFIED)), lane="sweep")
    history.record(an_answer(cheap, after_s=HOUR), lane="sweep")
    history.record(an_answer(cheap, after_s=2 * HOUR), lane="sweep")
    now = NOON + timedelta(hours=3)
    history.roll_up(now)
    reader = SqlHourlyLows(database)
    span = now - timedelta(days=30), now
    part = "vastai", OfferKind.LIVE, "H100 SXM", False
    assert list(reader.hourly_lows({"H100 SXM"}, *span)[part].lows) == [1_000_000, 1_000_000]
    verified = reader.hourly_lows({"H100 SXM"}, *span, verified=True)
    assert list(verified[part].lows) == [3_000_000]
    assert reader.hourly_lows(None, *span, verified=True) == verified
    assert reader.hourly_lows({"A100"}, *span, verified=True) == {}
    scope = MarketFilter(gpus=("H100 SXM",), verified=True)
    hour = int(NOON.timestamp()) // 3600
    found, _ = read_gpu_lows(database, scope, hour + 3, 48, 48, {"vastai": 1.1})
    assert found["H100 SXM"].lows == {hour: 3_300_000}
    assert hour + 1 not in found["H100 SXM"].unpolled  # polled, and no verified host was on sale
