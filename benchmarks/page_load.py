"""Fifty browsers that keep a page open, beside a daemon that polls, on the store of a year.

    python -m benchmarks.page_load --store year.db [--clients 50] [--seconds 60]

The store is copied and upgraded first. Each client does what the script of a page does: it follows the events, and
reads its page again after an event and every 15 s. Four of five keep Now open, the others one of the other pages each.
Times are those of whole requests; `polls` are those of the daemon meanwhile.
"""

from __future__ import annotations

import argparse
import http.client
import random
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from benchmarks.idle import marketplace
from benchmarks.page import GOAL_P95_MS, NOW, OFFERS, daemon, p95
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

_EVERY_S = 15.0
_OTHERS = ("/market", "/watches", "/launches", "/jobs", "/costs", "/alerts", "/approvals")
_ON_NOW = 5  # one client in five has another page open


class LiveClient(threading.Thread):
    """One open page."""

    def __init__(self, address: tuple[str, int], path: str, ends_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.took_ms: list[float] = []
        self._address, self._ends_s = address, ends_s
        self._random = random.Random(seed)
        self._has_news = threading.Event()

    def run(self) -> None:
        """Read the page until the end."""
        threading.Thread(target=self._follow, daemon=True).start()
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        time.sleep(self._random.uniform(0, _EVERY_S))
        while time.monotonic() < self._ends_s:
            began = time.perf_counter()
            connection.request("GET", self.path, headers={"Accept": "text/html"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                raise SystemExit(f"{self.path}: {answer.status}")
            self.took_ms.append((time.perf_counter() - began) * 1000)
            if self._has_news.wait(_EVERY_S):
                self._has_news.clear()
                time.sleep(0.2)  # as the script does

    def _follow(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        connection.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        while time.monotonic() < self._ends_s and (line := answer.readline()):
            if line.startswith(b"event:"):
                self._has_news.set()


def measure(folder: Path, clients: int, seconds: float) -> tuple[Mapping[str, list[float]], int]:
    """Return the milliseconds of each request by page, and how often the daemon polled meanwhile."""
    with marketplace(OFFERS) as url, daemon(folder, url) as address:
        time.sleep(5)  # its first poll
        polls = _polls(folder)
        ends_s = time.monotonic() + seconds
        opened = [
            LiveClient(address, NOW if number % _ON_NOW else _OTHERS[number // _ON_NOW % len(_OTHERS)], ends_s, number)
            for number in range(clients)
        ]
        for one in opened:
            one.start()
        for one in opened:
            one.join()
        polls = _polls(folder) - polls
    took_ms: defaultdict[str, list[float]] = defaultdict(list)
    for one in opened:
        took_ms[one.path] += one.took_ms
    return took_ms, polls


def _polls(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "gpuwatch.db")) as store:
        return int(store.execute("SELECT count(*) FROM poll").fetchone()[0])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(args.store, Path(name) / "gpuwatch.db")
        store = open_database(f"sqlite:///{name}/gpuwatch.db")
        upgrade(store)
        store.close()
        took_ms, polls = measure(Path(name), args.clients, args.seconds)
    everything = [one for mine in took_ms.values() for one in mine]
    for path, mine in sorted(took_ms.items()):
        print(f"{path:12} n = {len(mine):5}, median {statistics.median(mine):6.1f} ms, p95 {p95(mine):6.1f} ms")
    print(f"all          n = {len(everything):5}, median {statistics.median(everything):6.1f} ms,"
          f" p95 {p95(everything):6.1f} ms, goal ≤ {GOAL_P95_MS:.0f} ms; polls meanwhile: {polls}")  # fmt: skip


if __name__ == "__main__":
    main()
