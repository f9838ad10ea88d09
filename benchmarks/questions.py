"""Questions on the history, through the public API, against raw SQL on the very same roll-up, in turn, in one run.

    python -m benchmarks.questions [--observations 10000000] [--keep FILE]

The history is made by gpuwatch itself: 60 days of a seeded market of 10,000 offers of 30 models (a minute or two).
`week` is the median of each hour of the week of one GPU; its error is against exact medians out of the intervals.
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

from benchmarks.duck import week_in_duckdb
from benchmarks.seeded_market import START, Market
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.database import Database, open_database
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.history_queries import HistoryFilter, cheapest_per_hour, hour_of_week_median
from gpuwatch.storage.history_recorder import SqlHistoryRecorder, load_open_prices
from gpuwatch.storage.hourly_aggregates import aggregate_from_store
from gpuwatch.storage.hourly_rollup import HOUR_S
from gpuwatch.storage.market_snapshot import market_at
from gpuwatch.storage.migrate import upgrade
from gpuwatch.storage.sqlite_driver import sqlite_driver

DAYS, OFFERS, ONE = 60, 10_000, "RTX 4090"
UNTIL = START + timedelta(days=DAYS)
SINCE = UNTIL - timedelta(days=30)
_SUMS = "SELECT id FROM segment WHERE provider = '' AND spot = 0"
_LOW = f"""SELECT g.gpu, h.hour, h.min_microusd FROM hourly h JOIN segment g ON g.id = h.segment_id
 WHERE h.segment_id IN ({_SUMS}) AND h.hour >= ? AND h.hour < ?"""
_LOW_ONE = f"""SELECT hour, min_microusd FROM hourly
 WHERE segment_id = ({_SUMS} AND gpu = '{ONE}') AND hour >= ? AND hour < ?"""


def build(database: Database, observations: int) -> None:
    """Look at the market, evenly over the days."""
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
    """Median ms of each, and the median of the ratios."""
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


def exact_week(database: Database) -> dict[int, int]:
    """Medians of each hour of the week, weighted by seconds, out of the intervals."""
    by_week: dict[int, dict[int, int]] = {}
    with database.read() as connection:
        executor = CoreExecutor(connection)
        first, after = int(SINCE.timestamp()) // HOUR_S, -(-int(UNTIL.timestamp()) // HOUR_S)
        for hour, made in aggregate_from_store(executor, first, after, load_open_prices(executor)):
            mine = by_week.setdefault((hour + 72) % 168, {})
            for prices in (prices for segment, prices in made.prices.items() if segment[1] == ONE):
                for price, seconds in prices.items():
                    mine[price] = mine.get(price, 0) + seconds
    found = {}
    for week_hour, prices in by_week.items():
        left = sum(prices.values()) / 2
        for price in sorted(prices):
            left -= prices[price]
            if left <= 0:
                found[week_hour] = price
                break
    return found


def report(database: Database, path: Path) -> None:
    hours = (int(SINCE.timestamp()) // HOUR_S, -(-int(UNTIL.timestamp()) // HOUR_S))
    with closing(sqlite_driver().connect(str(path))) as raw:
        for name, gpu, sql, goal in (("all GPUs", None, _LOW, 1.3), (f"one ({ONE})", ONE, _LOW_ONE, 2.0)):
            ours, floor, ratio = in_turn(
                lambda gpu=gpu: cheapest_per_hour(database, SINCE, UNTIL, gpu),
                lambda sql=sql: raw.execute(sql, hours).fetchall(),
            )
            rows = sum(len(found) for found in cheapest_per_hour(database, SINCE, UNTIL, gpu).values())
            print(f"cheapest/GPU/hour, 30 days, {name:14}: {ours:7.2f} ms ({rows} rows), raw SQL {floor:7.2f} ms, "
                  f"ratio {ratio:.2f}; goal ≤ {goal}")  # fmt: skip
    week = lambda: hour_of_week_median(database, HistoryFilter(gpus=(ONE,)), SINCE, UNTIL, UTC)  # noqa: E731
    took, _, _ = in_turn(week, lambda: None)
    exact, ours_week = exact_week(database), week()
    error = max(abs(ours_week[hour] - exact[hour]) / exact[hour] for hour in exact)
    print(f"hour-of-week median of {ONE}: {took:.2f} ms, {len(ours_week)} hours, largest error {error:.2%}; goal ≤ 1 %")
    compare_with_duckdb(week, path)
    moment = SINCE + timedelta(days=11, seconds=1234)
    took, _, _ = in_turn(lambda: market_at(database, moment), lambda: None, rounds=3)
    print(f"the whole market at one moment: {took:.0f} ms, {len(market_at(database, moment).offers)} offers")


def compare_with_duckdb(week: Callable[[], Any], path: Path) -> None:
    """The same question, exact, to DuckDB on a file of its own that holds every observation."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        peer = week_in_duckdb(path, Path(folder), ONE, int(SINCE.timestamp()))
        if peer is None:
            print("  DuckDB is not installed: no comparison (make bench installs it)")
            return
        rows, asked = peer
        ours, theirs, ratio = in_turn(week, asked)
        print(f"  DuckDB on {rows} observations: {theirs:.2f} ms, ours {ours:.2f} ms, ratio {ratio:.2f}; goal ≤ 0.35")


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
