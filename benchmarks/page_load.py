"""Fifty browsers that keep a page open, beside a daemon that polls, on the store of a year.

    python -m benchmarks.page_load --store year.db [--clients 50] [--seconds 60]

The store is copied and upgraded first. Each client does what the script of a page does: it follows the events, and
reads its page again every 15 s and at most a second after an event. Four of five keep Now open, the others one of the
other pages each. Times are those of whole requests, without the first of each page, which compiles its template.

Before, the daemon polls alone for as long. One search is due each `search_interval`; how late it is says the store, in
whole seconds after the search before it. A sweep of several pages is stored as one, late by a turn for each further
page, with and without clients. CPU-s are those of the daemon.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.idle import marketplace
from benchmarks.page import GOAL_P95_MS, NOW, OFFERS, p95, settings_toml
from benchmarks.year.daemon import Daemon, running
from gpuwatch import providers
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

_EVERY_S = 15.0
_OTHERS = ("/market", "/watches", "/launches", "/jobs", "/costs", "/alerts", "/approvals")
_ON_NOW = 5  # one client in five has another page open
_FEW = 2  # values, of which nobody can say how they are spread


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
        due_s = time.monotonic() + self._random.uniform(0, _EVERY_S)
        while due_s < self._ends_s:
            if self._has_news.wait(max(0.0, due_s - time.monotonic())):
                time.sleep(self._random.uniform(0.2, 1.0))  # as the script does
                self._has_news.clear()
            else:
                due_s += _EVERY_S
            self.took_ms.append(self._read_ms())

    def _read_ms(self) -> float:
        """Read on a new connection: the server closes idle ones sooner than a page is read again."""
        with closing(http.client.HTTPConnection(*self._address, timeout=60)) as connection:
            began = time.perf_counter()
            connection.request("GET", self.path, headers={"Accept": "text/html"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                raise SystemExit(f"{self.path}: {answer.status}")
            return (time.perf_counter() - began) * 1000

    def _follow(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        with suppress(http.client.HTTPException, OSError):  # the daemon ends first
            connection.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
            answer = connection.getresponse()
            while time.monotonic() < self._ends_s and (line := answer.readline()):
                if line.startswith(b"event:"):
                    self._has_news.set()


class Polls(NamedTuple):
    """What the daemon polled in a span: how often, of how many that were due, and by how many seconds each was late."""

    count: int
    due: int
    late_s: list[float]

    @property
    def text(self) -> str:
        """For the table."""
        done = f"{self.count} of {self.due} polls"
        if len(self.late_s) < _FEW:
            return done
        median, longest = statistics.median(self.late_s), max(self.late_s)
        return f"{done}, late by {median:.0f} s (median), {p95(self.late_s):.0f} s (p95), {longest:.0f} s (longest)"


class Span(NamedTuple):
    """What the daemon did in a span of time."""

    polls: Polls
    cpu_s: float

    @property
    def text(self) -> str:
        """For a person."""
        return f"{self.polls.text}; {self.cpu_s:.1f} CPU-s"


class Load(NamedTuple):
    """What was measured: milliseconds of each request by page, and the daemon without and with clients."""

    took_ms: Mapping[str, list[float]]
    alone: Span
    loaded: Span


def measure(folder: Path, clients: int, seconds: float) -> Load:
    """Measure one daemon."""
    with marketplace(OFFERS) as url, running(folder, settings_toml(folder, url)) as daemon:
        for path in (NOW, *_OTHERS):
            daemon.cpu_s_of(path)
        with _span(folder, daemon) as alone:
            time.sleep(seconds)
        ends_s = time.monotonic() + seconds
        opened = [
            LiveClient(
                (daemon.host, daemon.port),
                NOW if number % _ON_NOW else _OTHERS[number // _ON_NOW % len(_OTHERS)],
                ends_s,
                number,
            )
            for number in range(clients)
        ]
        with _span(folder, daemon) as loaded:
            for one in opened:
                one.start()
            for one in opened:
                one.join()
    took_ms: defaultdict[str, list[float]] = defaultdict(list)
    for one in opened:
        took_ms[one.path] += one.took_ms
    return Load(took_ms, alone[0], loaded[0])


@contextmanager
def _span(folder: Path, daemon: Daemon) -> Iterator[list[Span]]:
    """Yield a list that has the span once it is over."""
    began_s, before_cpu_s, found = time.time(), daemon.cpu_s, list[Span]()
    yield found
    found.append(Span(_polls(folder, began_s, time.time()), daemon.cpu_s - before_cpu_s))


def _polls(folder: Path, since_s: float, until_s: float) -> Polls:
    query = "SELECT at_s FROM poll WHERE provider = 'vastai' AND at_s BETWEEN ? AND ? ORDER BY at_s"
    with closing(sqlite3.connect(folder / "gpuwatch.db")) as store:
        times = [at_s for (at_s,) in store.execute(query, (since_s, until_s))]
    every_s = providers.info("vastai").search_interval_s
    late_s = [max(0.0, later - at - every_s) for at, later in pairwise(times)]
    return Polls(len(times), int((until_s - since_s) / every_s), late_s)


def _line(name: str, took_ms: list[float]) -> str:
    if len(took_ms) < _FEW:
        return f"{name:12} n = {len(took_ms):5}"
    ranks = statistics.quantiles(took_ms, n=100, method="inclusive")
    shown = ", ".join(f"{what} {ranks[at - 1]:6.1f} ms" for what, at in (("p50", 50), ("p95", 95), ("p99", 99)))
    return f"{name:12} n = {len(took_ms):5}, {shown}"


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
        found = measure(Path(name), args.clients, args.seconds)
    for path, mine in sorted(found.took_ms.items()):
        print(_line(path, mine))
    print(_line("all", [one for mine in found.took_ms.values() for one in mine]), f"(goal: p95 ≤ {GOAL_P95_MS:.0f} ms)")
    print(f"load average of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    print(f"daemon alone: {found.alone.text}")
    print(f"with {args.clients} clients: {found.loaded.text}")


if __name__ == "__main__":
    main()
