"""The commands' queries on the history, against raw SQL on the same roll-up, in turn, in one run.

    python -m benchmarks.questions [--observations 10000000] [--keep FILE]

gpuwatch itself records the history: 60 days of a seeded market of 10,000 offers of 30 models (a minute or two).
`history` is what `gpuwatch history` reads: the price of each of 30 days; the error of its medians is relative to exact
medians from the intervals.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from benchmarks.seeded_market import START, Market
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength, PricePeriod
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.history.queries.history_queries import read_price_periods
from gpuwatch.storage.history.queries.market_snapshot import market_at
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.hourly_aggregates import matching_segments, rollups
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver

DAYS, OFFERS, ONE = 60, 10_000, "RTX 4090"
UNTIL = START + timedelta(days=DAYS)
SINCE = UNTIL - timedelta(days=30)
_DAY_H = 24
_SELECTED = "SELECT id FROM segment WHERE gpu_count > 0 AND spot = 0"
_LOW = f"""SELECT hour / 24, min(min_microusd) FROM hourly WHERE segment_id IN ({_SELECTED}) AND hour >= ? AND hour < ?
 GROUP BY hour / 24"""
_LOW_ONE = f"""SELECT hour / 24, min(min_microusd) FROM hourly WHERE segment_id IN ({_SELECTED} AND gpu = '{ONE}')
 AND hour >= ? AND hour < ? GROUP BY hour / 24"""


def build(database: Database, observations: int) -> None:
    """Record polls of the market, evenly over the days."""
    polls = max(2, observations // OFFERS)
    every_s = DAYS * 86_400 // polls
    history = SqlHistoryRecorder(database)
    for number, offers in enumerate(Market(OFFERS).polls(polls + 1, every_s)):
        observed_at = START + timedelta(seconds=number * every_s)
        answer = Answer(
            provider="vastai", observed_at=observed_at, offers=offers, completeness=Completeness.COMPLETE, rows=OFFERS
        )
        history.record(answer, lane="sweep")
        if number % 100 == 0:
            print(f"  {number}/{polls} polls", end="\r", flush=True)
    history.roll_up(UNTIL + timedelta(hours=2))


def in_turn(ours: Callable[[], Any], floor: Callable[[], Any], rounds: int = 15) -> tuple[float, float, float]:
    """Return the median ms of each, and the median of the ratios."""
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        spent = []
        for work in (ours, floor):
            start = time.perf_counter()
            work()
            spent.append((time.perf_counter() - start) * 1e3)
        times.append((spent[0], spent[1]))
    return (
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(a / b for a, b in times),
    )


def daily(database: Database, gpu: str | None) -> list[PricePeriod]:
    """Read what `gpuwatch history` reads: a line for each day."""
    scope = MarketFilter(gpus=None if gpu is None else (gpu,), spot=False)
    return read_price_periods(database, scope, (SINCE, UNTIL), spans=(PeriodLength.DAY, UTC), rates={}).points


def exact_medians(database: Database) -> dict[int, int]:
    """Return day since 1970 → the median of one GPU, weighted by seconds, from the intervals."""
    by_day: dict[int, dict[int, int]] = {}
    with database.read() as connection:
        segments = matching_segments(connection, MarketFilter(spot=False))
        first, after = int(SINCE.timestamp()) // HOUR_S, -(-int(UNTIL.timestamp()) // HOUR_S)
        for start in range(first, after, _DAY_H):
            hours = range(start, min(start + _DAY_H, after))
            for hour, made in rollups(connection, hours, segments, (hours[-1] + 1) * HOUR_S):
                mine = by_day.setdefault(hour // _DAY_H, {})
                for segment, prices in made.prices.items():
                    if segment[1] == ONE:
                        for price, seconds in prices.items():
                            mine[price] = mine.get(price, 0) + seconds
    return {day: _median(prices) for day, prices in by_day.items()}


def _median(weights: dict[int, int]) -> int:
    left = sum(weights.values()) / 2
    for price in sorted(weights):
        left -= weights[price]
        if left <= 0:
            return price
    return max(weights)


def report(database: Database, path: Path) -> None:
    hours = (int(SINCE.timestamp()) // HOUR_S, -(-int(UNTIL.timestamp()) // HOUR_S))
    with closing(sqlite_driver().connect(str(path))) as raw:
        for name, gpu, sql in (("all GPUs", None, _LOW), (f"one ({ONE})", ONE, _LOW_ONE)):
            ours, floor, ratio = in_turn(
                lambda gpu=gpu: daily(database, gpu),
                lambda sql=sql: raw.execute(sql, hours).fetchall(),
                rounds=7,
            )
            print(f"history, 30 days by the day, {name:14}: {ours:7.1f} ms, raw SQL on the lowest prices alone "
                  f"{floor:7.2f} ms, ratio {ratio:.1f}")  # fmt: skip
    exact = exact_medians(database)
    errors = [
        abs(point.median_microusd - exact[day]) / exact[day]
        for point in daily(database, ONE)
        if (day := int(point.starts_at.timestamp()) // 86_400) in exact
        and point.hours == _DAY_H
        and point.median_microusd
    ]
    print(f"  median of a day of {ONE}: largest error of {len(errors)} days {max(errors, default=0.0):.2%}; goal ≤ 1 %")
    moment = SINCE + timedelta(days=11, seconds=1234)
    took, _, _ = in_turn(lambda: market_at(database, moment), lambda: None, rounds=3)
    print(f"the whole market at one moment: {took:.0f} ms, {len(market_at(database, moment))} offers")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--observations", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, default=None, help="make the history here, or use the one that is here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        path = args.keep or Path(folder) / "history.db"
        made = path.exists()
        database = open_database(f"sqlite:///{path}")
        upgrade(database)
        if not made:
            build(database, args.observations)
        print(f"{path.stat().st_size / 1e6:.0f} MB for {args.observations} observations")
        report(database, path)
        database.close()


if __name__ == "__main__":
    main()
