"""Every figure of docs/performance.md in one run: `make bench`, or `python -m benchmarks [--quick] [NAME]...`.

It takes half an hour; `--quick` takes about five minutes, with fewer rounds and a smaller history. Each part is a
process of its own and can be run alone: `python -m benchmarks.NAME --help`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time

from gpuwatch.bootstrap import real_now
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver

# part → (what it measures, arguments, arguments with --quick)
PARTS: dict[str, tuple[str, list[str], list[str]]] = {
    "check": ("gpuwatch check as a process", ["--rounds", "15"], ["--rounds", "5"]),
    "reaction": ("from an offer to the request to rent it", ["--trials", "60"], ["--trials", "20"]),
    "idle": ("a daemon that finds nothing", [], ["--seconds", "40"]),
    "keeper": ("what the keeper costs, and how late it ends an instance", [], []),
    "polling_day": ("a day of polling at vast.ai's spacing and quota", [], ["--hours", "3"]),
    "seen": ("visible to seen for 1 to 100 watches", ["--days", "1"], ["--hours", "6", "--days", "1"]),
    "outage_days": ("two days of alerts while channels fail", [], ["--hours", "6"]),
    "watches": ("all watches against all offers", [], ["--rounds", "3"]),
    "store": ("storing polls", ["--rounds", "3"], ["--rounds", "1"]),
    "questions": ("questions on the history", [], ["--observations", "1000000"]),
    "backtest": ("a watch over ten million observations", [], ["--observations", "1000000", "--rounds", "1"]),
    "bulk": (
        "a million price rows, and the stages of a data set's audit",
        [],
        ["--rows", "200000", "--texts", "50000"],
    ),
    "dataset": ("a data set's audit", [], ["--rows", "20000", "--texts", "100"]),
    "advise": ("wait or buy, out of sample", ["--refit"], []),
    "calendar_accuracy": (
        "how often the calendar is right",
        ["--runs", "50"],
        ["--runs", "20", "--weeks", "4", "--only", "quiet"],
    ),
    "plan_jobs": ("what the planner says of real jobs", [], []),
    "plan_error": ("how wrong the planner's speeds are", [], []),
    "market_page": ("the market on a page, and a history", [], ["--offers", "1000", "--rounds", "3"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"parts to run: {', '.join(PARTS)}; none: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a smaller history")
    args = parser.parse_args()
    if unknown := set(args.names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    print(f"{real_now():%Y-%m-%d %H:%M} UTC; {_machine()}", flush=True)
    failed = []
    for name in args.names or PARTS:
        title, usual, quick = PARTS[name]
        print(f"\n=== {title} (benchmarks.{name}) ===\n", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *(quick if args.quick else usual)]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"({time.monotonic() - began:.0f} s)", flush=True)
    if failed:
        sys.exit(f"these ended early: {', '.join(failed)}")


def _machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} processors, {platform.system()} {platform.release()}, {platform.machine()}; "
        f"Python {platform.python_version()}, SQLite {sqlite_driver().sqlite_version}; load {load:.1f}"
    )


if __name__ == "__main__":
    main()
