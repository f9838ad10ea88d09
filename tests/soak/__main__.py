"""`make soak`: thousands of simulated launches against a marketplace that lies; exit code 1 if a promise broke."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.soak.chapter import PROMISES, played

A_CHAPTER = 200  # launches on one database


def main() -> int:
    """Play chapters with the seeds seed, seed + 1, …; print what happened."""
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--seed", type=int, default=20261121)
    options.add_argument("--launches", type=int, default=10_000)
    options.add_argument("--processes", type=int, default=2)
    wanted = options.parse_args()
    began = time.monotonic()
    seeds = range(wanted.seed, wanted.seed + max(1, wanted.launches // A_CHAPTER))
    counts: Counter[str] = Counter()
    lies: Counter[str] = Counter()
    broken: list[int] = []
    with ProcessPoolExecutor(wanted.processes) as pool:
        results = pool.map(played, seeds, [min(A_CHAPTER, wanted.launches)] * len(seeds))
        for seed, (found, reported) in zip(seeds, results, strict=True):
            counts.update(found)
            lies.update(reported)
            broken += [seed] if any(found[promise] for promise in PROMISES) else []
    show(counts, lies)
    print(f"seeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - began:.0f} s")
    if broken:
        print(f"BROKEN with seeds {broken}: python -m tests.soak --launches {A_CHAPTER} --seed {broken[0]}")
    return 1 if broken else 0


def show(counts: Counter[str], lies: Counter[str]) -> None:
    """One line a figure: what was promised first."""
    for promise in PROMISES:
        print(f"{promise:<28}{counts[promise]:>9}")
    for title, figures in (("what happened", counts), ("what the marketplace did", lies)):
        print(f"--- {title}")
        for name in sorted(figures):
            if name not in PROMISES:
                print(f"{name:<28}{figures[name]:>9}")


if __name__ == "__main__":
    sys.exit(main())
