"""The figures of docs/performance.md against their goals, as its table: `make bench`.

    python -m benchmarks [NAME]...

On two quiet processors it takes under five minutes. What a busy machine does not change (virtual time, and writing the
stores) runs first, on all processors; then each measurement alone, in a process of its own. Exit code 1: a goal is
missed. `python -m benchmarks.NAME --help` has more of one part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import backtest, check, idle, page, reaction, seen
from benchmarks.evidence import speed
from benchmarks.figures import Figure, table
from gpuwatch.bootstrap import real_now
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver

_ORDER = ("check", "reaction", "idle", "seen", "import", "backtest", "page")


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_ORDER)}; none: all")
    names = parser.parse_args().names or _ORDER
    if unknown := set(names) - set(_ORDER):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    print(f"{real_now():%Y-%m-%d %H:%M} UTC; {_machine()}", flush=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = _measured(names, Path(folder))
    print(f"{time.monotonic() - began_s:.0f} s\n")
    print(table(found))
    return 0 if all(one.holds for one in found) else 1


def _measured(names: Sequence[str], folder: Path) -> list[Figure]:
    """Return the figures of these parts, in the order of the page."""
    stores = {"backtest": folder / "backtest.db", "page": folder / "gpuwatch.db"}
    virtual: list[Callable[[], list[Figure]]] = [partial(seen.figures, count) for count in reversed(seen.DAYS)]
    alone: dict[str, Callable[[], list[Figure]]] = {
        "check": check.figures,
        "reaction": reaction.figures,
        "idle": idle.figures,
        "import": speed.figures,
        "backtest": partial(backtest.figures, stores["backtest"]),
        "page": partial(page.figures, folder),
    }
    with _processes(os.cpu_count()) as pool:
        days = [pool.submit(work) for work in virtual if "seen" in names]
        written = [
            pool.submit(build, stores[name])
            for name, build in (("backtest", backtest.build), ("page", page.build))
            if name in names
        ]
        found = {"seen": [one for day in reversed(days) for one in day.result()]}
        for store in written:
            store.result()
    with _processes(1) as pool:
        for name in names:
            if name in alone:
                found[name] = pool.submit(alone[name]).result()
    return [one for name in _ORDER for one in found.get(name, ())]


def _processes(count: int | None) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)


def _machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} processors, {platform.system()} {platform.release()}, {platform.machine()}; "
        f"Python {platform.python_version()}, SQLite {sqlite_driver().sqlite_version}; load {load:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
