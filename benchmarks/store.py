"""Storing polls: gpuwatch's history against a hand-written floor with raw sqlite3, in turn, in one run.

    python -m benchmarks.store [--offers 10000] [--polls 20] [--rounds 5]

The floor stores the minimum for a history of changes: facts of an offer once, a row per changed price, and an hourly
minimum, maximum, sum and count by GPU and count, updated at every poll; it also compares the poll with the state in
memory. It uses the same journal and sync settings as gpuwatch. 2 % of the offers are repriced and 1 % replaced from
poll to poll. Bytes are growth per offer and poll, after a checkpoint, over at least one whole hour with its roll-up.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.seeded_market import START, Market
from gpuwatch.domain.market.offer import Offer
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.setup.sqlite_driver import configure_connection, sqlite_driver

Store = Callable[[int, list[Offer]], None]
GOAL_MS, GOAL_BYTES, MOONSHOT_BYTES = 1.25, 1.5, 1.25

_TABLES = """
CREATE TABLE offer (key INTEGER PRIMARY KEY, id TEXT NOT NULL, machine TEXT NOT NULL, gpu TEXT NOT NULL,
 gpus INTEGER NOT NULL, reliability REAL, verification TEXT, region TEXT);
CREATE TABLE price (offer INTEGER NOT NULL, minute INTEGER NOT NULL, total INTEGER, disk INTEGER);
CREATE TABLE hourly (gpu TEXT, gpus INTEGER, hour INTEGER, low INTEGER, high INTEGER, total INTEGER, offers INTEGER,
 PRIMARY KEY (gpu, gpus, hour)) WITHOUT ROWID;
"""
_HOURLY = """INSERT INTO hourly VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET low = min(low, excluded.low),
 high = max(high, excluded.high), total = total + excluded.total, offers = offers + excluded.offers"""


class Floor:
    """The minimal hand-written store of changes and an hourly sum."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite_driver().connect(str(path))
        configure_connection(self._database)
        self._database.executescript(_TABLES)
        self._keys: dict[str, int] = {}
        self._last: dict[str, tuple[int, int]] = {}

    def store(self, minute: int, offers: list[Offer]) -> None:
        keys, last, fresh, rows, seen = self._keys, self._last, [], [], {}
        groups: dict[tuple[str, int], list[float]] = {}
        for o in offers:
            state = (round(o.quoted_usd_hour * 1e6), round((o.disk_usd_gb_month or 0) * 1e6))
            seen[o.offer_id] = state
            groups.setdefault((o.gpu, o.gpu_count), []).append(o.quoted_usd_hour)
            if last.get(o.offer_id) != state:
                key = keys.get(o.offer_id)
                if key is None:
                    key = keys[o.offer_id] = len(keys) + 1
                    fresh.append(
                        (key, o.offer_id, o.machine_id, o.gpu, o.gpu_count, o.reliability, o.verification, o.region)
                    )
                rows.append((key, minute, *state))
        rows.extend((keys[gone], minute, None, None) for gone in last.keys() - seen.keys())
        self._last = seen
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO offer VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fresh)
        database.executemany("INSERT INTO price VALUES (?, ?, ?, ?)", rows)
        hour = minute // 60
        database.executemany(
            _HOURLY,
            [
                (*group, hour, round(min(p) * 1e6), round(max(p) * 1e6), round(sum(p) * 1e6), len(p))
                for group, p in groups.items()
            ],
        )
        database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


class Ours:
    """gpuwatch's history, as the daemon uses it."""

    def __init__(self, path: Path) -> None:
        from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
        from gpuwatch.storage.setup.database import open_database
        from gpuwatch.storage.setup.migrate import upgrade

        self._database = open_database(f"sqlite:///{path}")
        upgrade(self._database)
        self._history = SqlHistoryRecorder(self._database)

    def store(self, minute: int, offers: list[Offer]) -> None:
        self._history.record(an_answer(minute, offers), lane="sweep")

    def close(self) -> None:
        self._database.close()


def an_answer(minute: int, offers: Sequence[Offer]) -> Answer:
    at = START + timedelta(minutes=minute)
    return Answer(
        provider="vastai", observed_at=at, offers=offers, completeness=Completeness.COMPLETE, rows=len(offers)
    )


def used_bytes(path: Path) -> int:
    """Return the pages in use, including the log."""
    with closing(sqlite_driver().connect(str(path))) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page, pages, free = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
    return int((pages - free) * page)


def one_round(folder: Path, offers: int, polls: int) -> dict[str, Any]:
    """Give each poll to both stores in turn: other load on the machine affects both."""
    stores: dict[str, Any] = {"floor": Floor(folder / "floor.db"), "ours": Ours(folder / "ours.db")}
    times: dict[str, list[float]] = {"floor": [], "ours": []}
    first: dict[str, int] = {}
    for number, seen in enumerate(Market(offers).polls(polls)):
        for name in ("floor", "ours") if number % 2 else ("ours", "floor"):
            gc.collect()
            start = time.perf_counter()
            stores[name].store(number, seen)
            times[name].append((time.perf_counter() - start) * 1e3)
            if not number:
                first[name] = used_bytes(folder / f"{name}.db")
    result: dict[str, Any] = {}
    for name, store in stores.items():
        store.close()
        grown = used_bytes(folder / f"{name}.db") - first[name]
        result[name] = {
            "ms": statistics.median(times[name][1:]),
            "mean_ms": statistics.mean(times[name][1:]),
            "bytes": grown / offers / (polls - 1),
        }
    return result


def check_adds_ms(folder: Path, offers: int, rounds: int = 7) -> float:
    """Measure what storing adds to a `check`, after its answer was printed: its own imports, and the recording."""
    path = folder / "ours.db"
    code = (
        "import sys, time\n"
        "from benchmarks.seeded_market import Market\n"
        "from benchmarks.store import an_answer\n"
        f"seen = list(Market({offers}).polls(2))[-1]\n"
        "answer = an_answer(100_000 + int(sys.argv[1]), seen)\n"
        "import gpuwatch.storage.market.provider_holds\n"  # a check reads the holds before it searches
        "start = time.perf_counter()\n"
        "from gpuwatch.storage.setup.database import open_database\n"
        "from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder\n"
        "from gpuwatch.storage.setup.migrate import create_or_require_head\n"
        f"database = open_database('sqlite:///{path}')\n"
        "create_or_require_head(database)\n"
        "SqlHistoryRecorder(database).record(answer, lane='check')\n"
        "database.close()\n"
        "print((time.perf_counter() - start) * 1e3)\n"
    )
    found = []
    for number in range(rounds):
        done = subprocess.run([sys.executable, "-c", code, str(number)], capture_output=True, text=True, check=True)
        found.append(float(done.stdout))
    return statistics.median(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=75)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    results = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
            results.append(one_round(Path(folder), args.offers, args.polls))
    middle = lambda name, key: statistics.median(r[name][key] for r in results)  # noqa: E731
    ratio = statistics.median(r["ours"]["ms"] / r["floor"]["ms"] for r in results)
    mean = statistics.median(r["ours"]["mean_ms"] / r["floor"]["mean_ms"] for r in results)
    print(f"SQLite {sqlite_driver().sqlite_version}; {args.offers} offers, {args.polls} polls, {args.rounds} rounds")
    print(f"storing a poll      floor {middle('floor', 'ms'):6.1f} ms   gpuwatch {middle('ours', 'ms'):6.1f} ms")
    print(f"  ratio             {ratio:.2f} (mean, hourly sums included: {mean:.2f}); goal ≤ {GOAL_MS}")
    print(f"bytes/offer/poll    floor {middle('floor', 'bytes'):6.2f}      gpuwatch {middle('ours', 'bytes'):6.2f}")
    print(f"                    goal ≤ {GOAL_BYTES}, moonshot {MOONSHOT_BYTES}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        store = Ours(Path(folder) / "ours.db")
        for number, seen in enumerate(Market(args.offers).polls(2)):
            store.store(number, seen)
        store.close()
        for offers in (64, args.offers):
            print(f"a check of {offers:6d} adds {check_adds_ms(Path(folder), offers):6.1f} ms, after its answer")


if __name__ == "__main__":
    main()
