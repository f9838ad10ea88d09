"""`max_price = "auto"` from a store and over a history: a wait's memory, and the data of the limit."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from sqlalchemy import insert

from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_series
from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.watch import AutoPrice, SpotPolicy
from gpuwatch.engine.forecasts.auto_limits import AutoPrices, BacktestWaits
from gpuwatch.ports import Completeness
from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import launch
from tests.builders import an_offer
from tests.engine.forecasts.test_auto_prices import WATCH, H
from tests.engine.uow_fakes import NOON, an_answer


def record(database: Database, hours: int, price_of: object, **facts: object) -> None:
    history = SqlHistoryRecorder(database)
    for hour in range(hours):
        at = NOON - (hours - hour) * H
        offer = an_offer(quoted_usd_hour=price_of(at), observed_at=at, disk_usd_gb_month=None, **facts)  # type: ignore[operator]
        history.record(an_answer(offer, at=at, completeness=Completeness.COMPLETE), lane="sweep", gpu="", spot=False)


def stored(database: Database, keep: bool = True) -> SqlAutoPriceWaits:
    return SqlAutoPriceWaits(database, {"vastai": Commission("0.20")}, may_write=keep)


def test_a_wait_outlives_the_process_and_ends_with_its_watch(database: Database) -> None:
    waits = stored(database)
    assert waits.begin_wait(WATCH, NOON) == NOON
    waits.save_limit(WATCH, Decimal("2.10"), NOON)
    assert stored(database).begin_wait(WATCH, NOON + 5 * H) == NOON
    assert stored(database).begin_wait(WATCH, NOON - 5 * H) == NOON - 5 * H  # the clock was put back
    waits.delete_except(["another"])
    assert stored(database).begin_wait(WATCH, NOON + 9 * H) == NOON + 9 * H


def test_a_check_that_keeps_nothing_writes_nothing(sqlite_database: Database) -> None:
    assert stored(sqlite_database, keep=False).begin_wait(WATCH, NOON) == NOON
    assert stored(sqlite_database).wait_started_at(WATCH, NOON) is None
    assert stored(sqlite_database).begin_wait(WATCH, NOON + H) == NOON + H


def test_after_a_launch_that_ran_the_wait_begins_anew(sqlite_database: Database) -> None:
    waits = stored(sqlite_database)
    waits.begin_wait(WATCH, NOON)
    of_watch = {
        "watch": "h100", "slot": 0, "provider": "vastai", "offer_id": "1", "gpu": "H100 SXM", "gpu_count": 1, "spot": 0,
        "state": "ended", "label": "x", "listed_microusd_hour": 1, "price_microusd_hour": 1, "intended_at_ms": 0,
    }  # fmt: skip
    ended_ms = round((NOON + 3 * H).timestamp() * 1000)
    with sqlite_database.write() as connection:
        dry = {"launch_id": "dry", "dry_run": True, "running_at_ms": 1, "ended_at_ms": ended_ms + 1}
        failed = {"launch_id": "failed", "dry_run": False, "running_at_ms": None, "ended_at_ms": ended_ms + 2}
        connection.execute(insert(launch), [of_watch | dry, of_watch | failed])
    assert waits.begin_wait(WATCH, NOON + 4 * H) == NOON
    with sqlite_database.write() as connection:
        ran = {"launch_id": "ran", "dry_run": False, "running_at_ms": 1, "ended_at_ms": ended_ms}
        connection.execute(insert(launch), of_watch | ran)
    assert waits.begin_wait(WATCH, NOON + 4 * H) == NOON + 3 * H


def test_the_history_is_what_fits_the_watch_with_its_commission(sqlite_database: Database) -> None:
    record(sqlite_database, 5, lambda at: 2.0, reliability=0.99, region="Utah", country="US")
    waits, wide = stored(sqlite_database), WATCH
    assert set(waits.series(wide, NOON).lows) == {2_400_000}
    for changes in (
        {"min_reliability": 0.999},
        {"regions": ("DE",)},
        {"gpu_names": ("A100 PCIe",)},
        {"gpu_count_min": 2, "gpu_count_max": 8},
        {"spot": SpotPolicy.ONLY},
    ):
        narrow = msgspec.structs.replace(wide, **changes)
        assert set(waits.series(narrow, NOON).lows) <= {None}, changes
    unknown = msgspec.structs.replace(wide, min_cuda=12.4, nvlink=True)  # the history does not say
    assert set(waits.series(unknown, NOON).lows) == {2_400_000}


def test_out_of_a_store_it_holds_out_for_what_the_store_has_seen(sqlite_database: Database) -> None:
    """Live prices, recorded by the daemon's code: cheap in six hours of each day."""
    record(sqlite_database, 24 * 12, lambda at: 2.0 if at.hour < 6 else 2.5)
    prices = AutoPrices(stored(sqlite_database))
    assert Decimal("2.4") <= prices.with_current_limit(WATCH, NOON).max_price_usd_gpu_hour < Decimal(3)
    assert prices.standing(WATCH, NOON).deadline == NOON + timedelta(days=2)


# --- over a history ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_over_a_history_a_limit_knows_nothing_of_what_comes_later(sqlite_database: Database) -> None:
    """The same limits at the same moments, whether the history continues after them or not."""
    record(sqlite_database, 24 * 10, lambda at: 2.0 if at.hour < 6 else 2.5)
    scope = MarketFilter(gpus=("H100 SXM",))
    market_history = read_market_history(sqlite_database, scope, NOON - timedelta(days=20), NOON)
    assert len({limit for at, limit in limits_over(market_history, NOON)}) > 1
    for cut in (NOON - timedelta(days=6, minutes=7), NOON - timedelta(days=3)):
        assert limits_over(market_history.before(round(cut.timestamp())), cut) == limits_over(market_history, cut)


@pytest.mark.slow
def test_until_it_says_so_the_limit_of_a_backtest_stays(sqlite_database: Database) -> None:
    record(sqlite_database, 24 * 10, lambda at: 2.0 if at.hour < 6 else 2.5)
    scope = MarketFilter(gpus=("H100 SXM",))
    market_history = read_market_history(sqlite_database, scope, NOON - timedelta(days=20), NOON)
    watch = msgspec.structs.replace(WATCH, auto=AutoPrice(cap_usd_gpu_hour=Decimal("3.50"), deadline_s=5.3 * 86_400.0))
    series = fitting_series(watch, market_history, {"vastai": Commission("0.20")}, 8.0)
    every_time, seldom = (AutoPrices(BacktestWaits({watch.name: series}), timedelta(hours=6)) for _ in range(2))
    at, until_s, asked, limits = NOON - timedelta(days=10), 0.0, 0, set()
    while at < NOON - timedelta(days=3):
        if at.timestamp() >= until_s:
            limited, until_s = seldom.renew_until(watch, at)
            asked += 1
        assert limited == every_time.renew(watch, at)
        limits.add(limited.max_price_usd_gpu_hour)
        at += timedelta(minutes=13)
    assert len(limits) > 1
    assert asked < 24 * 6 + 24, "once an hour, and at each renewal until the deadline"


def limits_over(market_history: MarketHistory, until: datetime) -> list[tuple[datetime, Decimal]]:
    auto = AutoPrice(cap_usd_gpu_hour=Decimal("3.50"), deadline_s=9.5 * 86_400.0)
    watch = msgspec.structs.replace(WATCH, auto=auto)
    series = fitting_series(watch, market_history, {"vastai": Commission("0.20")}, 8.0)
    prices = AutoPrices(BacktestWaits({watch.name: series}), every=timedelta(hours=6))
    found, at = [], NOON - timedelta(days=10)
    while at < until:
        prices.update([watch], at)
        found.append((at, prices.with_current_limit(watch, at).max_price_usd_gpu_hour))
        at += timedelta(minutes=50)
    return found
