"""Where prices stand among those of 30 days, for all GPUs at once, judged against plain Python and the overview."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from math import isinf
from pathlib import Path

import pytest

from gpuwatch.app.history.past_prices import commission_rates
from gpuwatch.app.history.spark_text import week_label
from gpuwatch.app.history.svg_small import NOTHING_ON_SALE
from gpuwatch.app.launches.approval_details import quote_rank
from gpuwatch.app.market.market_ranks import RANK_DAYS, WEEK_HOURS, GpuRank, RecentRanks, market_ranks
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import cut_series
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, price_of
from gpuwatch.domain.market.offer import Verification
from gpuwatch.domain.market.price_rank import Standing, price_range_of
from gpuwatch.domain.watches.decide import Match
from gpuwatch.engine.market.known_prices import PriceRanks
from gpuwatch.settings import Settings
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows
from gpuwatch.storage.history.queries.market_overview import read_gpu_price_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.hourly_aggregates import matching_segments, rollups
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer
from tests.web.served import settings_in

GPUS = ("H100 SXM", "RTX 4090", "L40S")
_HOUR = timedelta(hours=1)


def random_market(database: Database, seed: int, hours: int = 24 * 12, verified: str = "") -> datetime:
    """Polls at irregular times with gaps, offers that come and go, some of verified hosts; the time after the last."""
    rng, after_s = random.Random(seed), 0
    history = SqlHistoryRecorder(database)
    prices: dict[tuple[str, str], float] = {}
    while after_s < hours * 3600:
        after_s += rng.choice([900, 3600, 3600, 3600, 9 * 3600])
        for gpu in GPUS:
            for machine in "abc":
                if rng.random() < 0.3:
                    prices[gpu, machine] = round(rng.uniform(0.2, 3.0), 3)
                elif rng.random() < (0.5 if gpu == "L40S" else 0.1):
                    prices.pop((gpu, machine), None)
        offers = [
            an_offer(
                f"{gpu}-{machine}",
                usd,
                gpu=gpu,
                gpu_family=gpu,
                disk_usd_gb_month=None,
                verification=Verification.VERIFIED if machine in verified else Verification.UNVERIFIED,
            )
            for (gpu, machine), usd in prices.items()
        ]
        history.record(an_answer(*offers, after_s=after_s), lane="sweep")
    now = NOON + timedelta(seconds=after_s + 600)
    history.roll_up(now)
    return now


def settings_of(folder: Path, database_url: str, more: str = "") -> Settings:
    text = f'[providers.vastai]\napi_key = "a-secret-key-0123456789"\n{more}'
    return settings_in(folder, text, has_store=False, database_url=database_url)


@pytest.mark.parametrize("commission", ["", "commission = 0.25"])
def test_ranks_are_those_of_the_overview(
    tmp_path: Path, database: Database, database_url: str, commission: str
) -> None:
    now = random_market(database, seed=len(commission))
    settings = settings_of(tmp_path, database_url, commission)
    rates = {name: 1 + rate for name, rate in commission_rates(settings).items()}
    scope = MarketFilter(spot=False)
    ranks = market_ranks(settings, scope, now)
    until = now.replace(minute=0, second=0)
    since = until - timedelta(days=RANK_DAYS)
    pasts = {one.gpu: one for one in read_gpu_price_history(database, scope, since, until, rates)}
    assert set(ranks) == set(pasts) == set(GPUS)
    for gpu, rank in ranks.items():
        past = cut_series(pasts[gpu].series, pasts[gpu].series.first_hour)
        hours = {past.first_hour + at: low for at, low in enumerate(past.lows)}
        lows = sorted(low for low in hours.values() if low is not None)
        assert list(rank.lows) == lows
        assert rank.spread == price_range_of(lows)
        polled = {past.first_hour + at for at, is_polled in enumerate(past.polled) if is_polled}
        assert rank.ends_hour == int(until.timestamp()) // 3600
        for hour, shown in zip(range(rank.ends_hour - WEEK_HOURS, rank.ends_hour), rank.week, strict=True):
            if hours.get(hour) is not None:
                assert shown == hours[hour]
            else:
                assert (shown == NOTHING_ON_SALE) == (hour in polled)
                assert (shown is None) == (hour not in polled)
    assert any(value is None for rank in ranks.values() for value in rank.week)
    assert any(value is not None and isinf(value) for value in ranks["L40S"].week)


def test_ranks_of_verified_hosts_are_those_of_a_market_of_them_alone(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    now = random_market(database, seed=4, verified="ab")
    settings = settings_of(tmp_path, database_url, "commission = 0")
    ranks = market_ranks(settings, MarketFilter(spot=False, verified=True), now)
    every = market_ranks(settings, MarketFilter(spot=False), now)
    with database.read() as connection:
        segments = matching_segments(connection, MarketFilter(spot=False))
        end = ranks[GPUS[0]].ends_hour
        hours = range(end - RANK_DAYS * 24, end)
        lows: dict[str, list[int]] = {gpu: [] for gpu in GPUS}
        for _, rollup in rollups(connection, hours, segments, end * 3600, verified=True):
            for (_, gpu, _, _), prices in rollup.prices.items():
                lows[gpu].append(min(prices))
    assert {gpu: sorted(found) for gpu, found in lows.items()} == {gpu: list(one.lows) for gpu, one in ranks.items()}
    assert any(ranks[gpu].lows != every[gpu].lows for gpu in GPUS)


def test_a_rank_says_where_a_price_stands() -> None:
    lows = tuple(range(100, 200))
    rank = GpuRank(lows=lows, spread=price_range_of(lows))
    for now in (90, 100, 104, 124, 150, 175, 199, 300):
        share = rank.share_below(now)
        assert share is not None
        assert share == pytest.approx(sum((low < now) + (low <= now) for low in lows) / 2 / len(lows))
    assert [rank.text(now) for now in (90, 104, 150, 181, 300)] == [
        "Cheapest 1 %", "Cheapest 5 %", "Usual", "Dearer than 81 %", "Dearer than 99 %"
    ]  # fmt: skip
    assert rank.standing(104) is Standing.CHEAP
    assert GpuRank().text(100) == "Too little history"
    assert GpuRank(lows=(5,) * 100, spread=price_range_of((5,) * 100)).text(5) == "Usual"


def test_a_minute_of_history_is_too_little(tmp_path: Path, database: Database, database_url: str) -> None:
    now = random_market(database, seed=1, hours=20)
    ranks = market_ranks(settings_of(tmp_path, database_url), MarketFilter(spot=False), now)
    assert all(rank.spread is None for rank in ranks.values())
    assert market_ranks(settings_of(tmp_path, database_url), MarketFilter(spot=True), now) == {}


def test_ranks_are_read_again_after_ten_minutes(tmp_path: Path, database: Database, database_url: str) -> None:
    now = random_market(database, seed=2, hours=90)
    settings, recent = settings_of(tmp_path, database_url), RecentRanks()
    first = recent.ranks(settings, MarketFilter(spot=False), now)
    assert recent.ranks(settings, MarketFilter(spot=False), now + timedelta(minutes=4)) is first
    assert recent.ranks(settings, MarketFilter(spot=None), now) is not first
    assert recent.ranks(settings, MarketFilter(spot=False), now + timedelta(minutes=10)) is not first
    dearer = settings_of(tmp_path, database_url, "commission = 0.5")
    assert recent.ranks(dearer, MarketFilter(spot=False), now + timedelta(minutes=6)) != first


def test_a_line_is_said_in_words() -> None:
    week = [2e6, None, NOTHING_ON_SALE, 1.5e6, 1.8e6]
    assert week_label(week, 1.6e6) == (
        "Lowest price of 5 hours: from $2.00 to $1.80, at least $1.50; at or under the limit of $1.60 in 1 hour;"
        " not polled in 1 hour"
    )
    assert week_label([None, None], 1.0) == "No price in 2 hours; not polled in 2 hours"


def test_an_alert_an_approval_and_the_market_state_one_rank(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    """Two providers, each with its own commission: whoever asks compares with the lowest price of each hour of both."""
    now = random_market(database, seed=3)
    history = SqlHistoryRecorder(database)
    for hour in range(60):
        cheap = an_offer("r1", 0.9, provider="runpod", gpu="H100 SXM", disk_usd_gb_month=None)
        at = now - timedelta(hours=hour + 1)
        history.record(an_answer(cheap, provider="runpod", observed_at=at), lane="sweep")
    history.roll_up(now)
    settings = settings_of(tmp_path, database_url, "commission = 0.25\n[providers.runpod]\n")
    commissions = all_commissions(settings)
    ranks = PriceRanks(SqlHourlyLows(database), None, REFERENCE_DISK_GB, commissions)
    ranks.refresh_if_due(now)
    past = market_ranks(settings, MarketFilter(spot=False), now)["H100 SXM"]
    for provider, usd in (("vastai", 0.9), ("vastai", 2.0), ("runpod", 0.9), ("runpod", 1.3)):
        offer = an_offer("new", usd, provider=provider, gpu="H100 SXM", disk_usd_gb_month=None)
        of_alert = ranks.rank_of(offer, False)
        price = price_of(offer, REFERENCE_DISK_GB, commissions[provider])
        of_market = past.share_below(price.price_microusd_hour)
        quote = Match(offer, price)
        of_approval = quote_rank(settings, quote, now)
        assert of_alert is not None
        assert of_approval is not None
        assert of_alert.share == pytest.approx(of_market)
        assert of_approval.past.share_below(of_approval.now) == pytest.approx(of_market)
