"""`gpuwatch market` and `gpuwatch history` as processes, on a month of 30 GPUs, against a minimal reader of the rows.

    python -m benchmarks.market_page [--offers 2000] [--rounds 7]

gpuwatch itself records the store: 31 days of a seeded market with offers of 30 models, polled every hour; 3 % of the
offers change from poll to poll. The floor reads the hours and the prices with raw sqlite3, and shows the lowest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from benchmarks.check import environment
from benchmarks.processes import in_turn, median_ms, ratio
from benchmarks.seeded_market import START, Market
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade

DAYS, GOAL_MS = 31, 1000
UNTIL = START + timedelta(days=DAYS)
_FLOOR = str(Path(__file__).parent / "floors" / "market_page.py")


def build(path: Path, offers: int) -> None:
    database = open_database(f"sqlite:///{path}")
    upgrade(database)
    history = SqlHistoryRecorder(database)
    for hour, seen in enumerate(Market(offers).polls(DAYS * 24 + 1)):
        at = START + timedelta(hours=hour)
        answer = Answer(provider="vastai", observed_at=at, offers=seen, completeness=Completeness.COMPLETE, rows=offers)
        history.record(answer, lane="sweep")
        if hour % 50 == 0:
            print(f"  {hour}/{DAYS * 24} looks", end="\r", flush=True)
    history.roll_up(UNTIL + timedelta(hours=1))
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--offers", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        path = Path(folder) / "history.db"
        build(path, args.offers)
        (Path(folder) / "gpuwatch.toml").write_text(f'database_url = "sqlite:///{path}"\n')
        until = ["--until", UNTIL.isoformat(), "--config", str(Path(folder) / "gpuwatch.toml")]
        gpuwatch = [sys.executable, "-m", "gpuwatch"]
        runs = in_turn(
            {
                "gpuwatch market": [*gpuwatch, "market", *until],
                "gpuwatch history 'RTX 4090'": [*gpuwatch, "history", "RTX 4090", "--under", "0.35", *until],
                "floor": [sys.executable, _FLOOR, str(path), str(int(UNTIL.timestamp()))],
            },
            args.rounds,
            environment(Path(folder)) | {"PYTHONPATH": str(Path(__file__).parents[1])},
            folder,
        )
        print(f"{path.stat().st_size / 1e6:.0f} MB, {args.offers} offers of 30 GPUs, {DAYS} days")
    for name in runs:
        goal = f"; goal < {GOAL_MS} ms" if name == "gpuwatch market" else ""
        print(
            f"{name:28} {median_ms(runs[name], 'wall_s'):6.0f} ms, processor {median_ms(runs[name], 'cpu_s'):6.0f} ms, "
            f"against the floor {ratio(runs, name, 'floor', 'cpu_s'):.1f}{goal}"
        )


if __name__ == "__main__":
    main()
