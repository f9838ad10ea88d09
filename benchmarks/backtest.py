"""A backtest over 10 million observations in a store, reading included: 2,000 offers of one GPU, 5,000 polls.

    python -m benchmarks.backtest [--observations 10000000] [--keep FILE] [--profile]

gpuwatch itself records the history. From poll to poll one offer in fifty changes its price and one in a hundred is
replaced, more than in the real market; the watch accepts one price in seven. Goal: 5 s on one core.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.seeded_market import START, Market
from gpuwatch import settings
from gpuwatch.app.forecasts.backtest import Backtest, BacktestRequest, run_backtest
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Answer, Completeness
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

OFFERS, EVERY_S, GPU = 2_000, 300, "RTX 4090"


class OneModel(Market):
    """Return offers of one GPU."""

    def _new(self) -> dict[str, Any]:
        return super()._new() | {"gpu": GPU, "gpu_family": GPU, "gpu_wire": GPU}


def build(path: Path, looks: int) -> None:
    database = open_database(f"sqlite:///{path}")
    upgrade(database)
    history = SqlHistoryRecorder(database)
    for number, offers in enumerate(OneModel(OFFERS).polls(looks, EVERY_S)):
        at = START + timedelta(seconds=number * EVERY_S)
        answer = Answer(
            provider="vastai", observed_at=at, offers=offers, completeness=Completeness.COMPLETE, rows=OFFERS
        )
        history.record(answer, lane="sweep", gpu=GPU)
        if number % 100 == 0:
            print(f"  {number}/{looks} looks", end="\r", flush=True)
    database.close()


def watches(found: Settings) -> Sequence[Watch]:
    alerts = msgspec.structs.replace(found.watches[0], name="alerts")
    spec = LaunchSpec(max_active=2, max_total=0, max_runtime_s=6 * 3600.0)
    return [alerts, msgspec.structs.replace(alerts, name="launches", action=Action.LAUNCH, launch=spec)]


def timed(name: str, rounds: int, work: Any) -> Backtest:
    spent = []
    for _ in range(rounds):
        start = time.process_time(), time.perf_counter()
        found = work()
        spent.append((time.perf_counter() - start[1], time.process_time() - start[0]))
    wall, busy = min(spent)
    first = next(result for _, result in found.results if result is not None)
    print(
        f"{name:34} {wall:6.2f} s ({busy:.2f} s of one core); {found.intervals} prices, {found.polls} polls, "
        f"{first.fires} fires, {first.launches} launches"
    )
    return found


def report(path: Path, looks: int, rounds: int) -> None:
    env = {"GPUWATCH_DATABASE_URL": f"sqlite:///{path}", "HOME": os.environ.get("HOME", "/")}
    found = settings.from_flags([GPU], "0.15", count="1-12", env=env)
    until = START + timedelta(seconds=looks * EVERY_S)
    quiet = lambda what, done, of: None  # noqa: E731
    for watch in watches(found):
        timed(f"a watch that {watch.name}", rounds, lambda w=watch: run_backtest(found, [w], request(until), quiet))
    prices = tuple(Decimal(cents) / 100 for cents in range(20, 40))
    one = watches(found)[1]
    timed("a sweep of 20 thresholds", 1, lambda: run_backtest(found, [one], request(until, prices), quiet))


def request(until: datetime, thresholds: tuple[Decimal, ...] = ()) -> BacktestRequest:
    """The watches of `watches` over the whole market, at these thresholds."""
    options: dict[str, Any] = dict.fromkeys(BacktestRequest.__struct_fields__)
    options |= {"names": (), "gpu": (), "thresholds": thresholds, "since": START, "until": until, "strict": False}
    return BacktestRequest(**options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--observations", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None, help="make the history here, or use the one that is here")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    looks = max(2, args.observations // OFFERS)
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        path = args.keep or Path(folder) / "history.db"
        if not path.exists():
            build(path, looks)
        print(f"{path.stat().st_size / 1e6:.0f} MB for {looks * OFFERS} observations")
        if args.profile:
            cProfile.runctx("report(path, looks, 1)", globals(), locals(), sort="tottime")
        else:
            report(path, looks, args.rounds)


if __name__ == "__main__":
    main()
