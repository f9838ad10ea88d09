"""The web page beside a daemon that polls, on the store of a month.

    python -m benchmarks.page [--rounds 40] [--offers 2000]

gpuwatch itself records the store: 31 days of a seeded market of 30 GPUs, polled every hour; 3 % of the offers change
from poll to poll. The marketplace and the daemon are processes of their own. Each round reads Now ten times, a tenth of
a second apart, because every open browser rereads it after each event, then every other page once, on one connection.
Times are those of whole requests.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.idle import marketplace
from benchmarks.seeded_market import Market
from benchmarks.year.daemon import running
from gpuwatch.bootstrap import real_now
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.web.page_frame import links

GOAL_P95_MS = 60.0
DAYS, OFFERS = 31, 2000
NOW, READS_OF_NOW, WARM_UP = "/", 10, 2
_GPU_PAGE = "/gpu/RTX%204090"
_SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
rows_per_day = 10000000
[web]
enabled = true
listen = "127.0.0.1:0"
"""
_WATCHES = {"RTX 4090": 0.33, "RTX 3090": 0.15, "H100 SXM": 1.8, "A100 SXM 80GB": 0.7, "L40S": 0.55}


def build(path: Path, offers: int = OFFERS) -> None:
    """Record a month that ends now."""
    database = open_database(f"sqlite:///{path}")
    upgrade(database)
    history = SqlHistoryRecorder(database)
    now = real_now()
    start = now - timedelta(days=DAYS)
    for hour, seen in enumerate(Market(offers).polls(DAYS * 24)):
        at = start + timedelta(hours=hour)
        answer = Answer(provider="vastai", observed_at=at, offers=seen, completeness=Completeness.COMPLETE, rows=offers)
        history.record(answer, lane="sweep")
    history.roll_up(now)
    database.close()


def settings_toml(folder: Path, url: str) -> str:
    """Return the settings of a daemon with the page, the store in this folder, and no limit of the rows of a day."""
    watches = "".join(f'[[watch]]\nname = "{gpu}"\ngpu = "{gpu}"\nmax_price = {usd}\n' for gpu, usd in _WATCHES.items())
    return _SETTINGS.format(folder=folder, url=url) + watches


def read_pages(address: tuple[str, int], rounds: int) -> Mapping[str, list[float]]:
    """Return the milliseconds of each request, by page."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    others = [page.path for page in links() if page.path != NOW] + [_GPU_PAGE]
    took_ms: dict[str, list[float]] = {path: [] for path in (NOW, *others)}
    for number in range(rounds + WARM_UP):
        for path in [NOW] * READS_OF_NOW + others:
            began = time.perf_counter()
            connection.request("GET", path, headers={"Accept": "text/html"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}")
            if number >= WARM_UP:
                took_ms[path].append((time.perf_counter() - began) * 1000)
            time.sleep(0.1)
    connection.close()
    return took_ms


def measure(folder: Path, rounds: int) -> Mapping[str, list[float]]:
    """Read the pages of a daemon on the store in this folder."""
    with marketplace(OFFERS) as url, running(folder, settings_toml(folder, url)) as daemon:
        return read_pages((daemon.host, daemon.port), rounds)


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def figures(folder: Path, rounds: int = 10) -> list[Figure]:
    """Return the p95 of Now, on the store that `build` made in this folder."""
    took_ms = measure(folder, rounds)
    others = {path: statistics.median(mine) for path, mine in took_ms.items() if path != NOW}
    slowest = max(others, key=lambda path: others[path])
    sample = f"n = {len(took_ms[NOW])}, median {statistics.median(took_ms[NOW]):.0f} ms; "
    sample += (
        f"median of the other pages: {statistics.median(others.values()):.0f} ms, `{slowest}` {others[slowest]:.0f} ms"
    )
    return [
        Figure(
            name="page *Now*, a month stored, p95",
            goal=GOAL_P95_MS,
            measured=p95(took_ms[NOW]),
            unit=" ms",
            sample=sample,
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--offers", type=int, default=OFFERS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        build(Path(name) / "gpuwatch.db", args.offers)
        took_ms = measure(Path(name), args.rounds)
    for path, mine in took_ms.items():
        print(f"{path:20} median {statistics.median(mine):6.1f} ms, p95 {p95(mine):6.1f} ms")
    print(f"goal for {NOW}: p95 ≤ {GOAL_P95_MS:.0f} ms")


if __name__ == "__main__":
    main()
