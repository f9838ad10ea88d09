"""A backtest over 10 million observations in a store, reading included: 2,000 offers of one GPU, 5,000 polls.

    python -m benchmarks.backtest [--observations 10000000] [--keep FILE]

gpuwatch itself records the history. From poll to poll one offer in fifty changes its price and one in a hundred is
replaced, more than in the real market; the watch accepts one price in seven. Goal: 5 s on one core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure, table
from benchmarks.seeded_market import START, Market
from gpuwatch import settings
from gpuwatch.app.forecasts.backtest import BacktestRequest, run_backtest
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Answer, Completeness
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

OBSERVATIONS, OFFERS, EVERY_S, GPU = 10_000_000, 2_000, 300, "RTX 4090"
GOAL_S = 5.0


class OneModel(Market):
    """Return offers of one GPU."""

    def _new(self) -> dict[str, Any]:
        return super()._new() | {"gpu": GPU, "gpu_family": GPU, "gpu_wire": GPU}


def build(path: Path, observations: int = OBSERVATIONS) -> None:
    """Record the history."""
    database = open_database(f"sqlite:///{path}")
    upgrade(database)
    history = SqlHistoryRecorder(database)
    for number, offers in enumerate(OneModel(OFFERS).polls(observations // OFFERS)):
        at = START + timedelta(seconds=number * EVERY_S)
        answer = Answer(
            provider="vastai", observed_at=at, offers=offers, completeness=Completeness.COMPLETE, rows=OFFERS
        )
        history.record(answer, lane="sweep", gpu=GPU)
    database.close()


def watches(found: Settings) -> Sequence[Watch]:
    alerts = msgspec.structs.replace(found.watches[0], name="alerts")
    spec = LaunchSpec(max_active=2, max_total=0, max_runtime_s=6 * 3600.0)
    return [alerts, msgspec.structs.replace(alerts, name="launches", action=Action.LAUNCH, launch=spec)]


def figures(path: Path, observations: int = OBSERVATIONS) -> list[Figure]:
    """Return the time of a backtest of each watch, on the store that `build` made."""
    env = {"GPUWATCH_DATABASE_URL": f"sqlite:///{path}", "HOME": os.environ.get("HOME", "/")}
    settings_found = settings.from_flags([GPU], "0.15", count="1-12", env=env)
    asked = request(START + timedelta(seconds=observations // OFFERS * EVERY_S))
    found = []
    for watch in watches(settings_found):
        began_s = time.perf_counter()
        done = run_backtest(settings_found, [watch], asked, lambda what, done, of: None)
        took_s = time.perf_counter() - began_s
        first = next(result for _, result in done.results if result is not None)
        sample = f"{done.intervals:,} prices, {done.polls:,} polls, {first.fires} fires, {first.launches} launches"
        name = f"backtest of {observations / 1e6:g} M observations, a watch that {watch.name}"
        found.append(Figure(name=name, goal=GOAL_S, measured=took_s, unit=" s", sample=sample))
    return found


def request(until: datetime) -> BacktestRequest:
    """The watches of `watches` over the whole market."""
    options: dict[str, Any] = dict.fromkeys(BacktestRequest.__struct_fields__)
    options |= {"names": (), "gpu": (), "thresholds": (), "since": START, "until": until, "strict": False}
    return BacktestRequest(**options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    parser.add_argument("--keep", type=Path, default=None, help="make the history here, or use the one that is here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "history.db"
        if not path.exists():
            build(path, args.observations)
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        print(table(figures(path, args.observations)))


if __name__ == "__main__":
    main()
