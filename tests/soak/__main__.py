"""`make soak`: thousands of launches of a whole gpuwatch at a cloud that lies; exit code 1 if a promise broke.

    python -m tests.soak [--launches 10000] [--seed N] [--beside COMMIT]

`--beside` runs the same seeds with the package of another commit, and prints its figures in a second column.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from tests.memory_folder import use_memory
from tests.soak.chapter import played
from tests.soak.judge import PROMISES

A_CHAPTER = 200  # launches on one cloud
ROOT = Path(__file__).parents[2]


class Figures(msgspec.Struct):
    """The results of all chapters."""

    counts: dict[str, int]
    lies: dict[str, int]
    broken: dict[int, list[str]]  # by seed


def main() -> int:
    """Run chapters with the seeds seed, seed + 1, …; print what happened."""
    use_memory()
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=20261122)
    options.add_argument("--launches", type=int, default=10_000)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--beside", metavar="COMMIT", help="play the same seeds with the package of this commit, too")
    options.add_argument("--json", action="store_true", help="print the figures for a program")
    wanted = options.parse_args()
    began = time.monotonic()
    seeds = range(wanted.seed, wanted.seed + max(1, wanted.launches // A_CHAPTER))
    found = play(seeds, min(A_CHAPTER, wanted.launches), wanted.processes)
    if wanted.json:
        print(msgspec.json.encode(found).decode())
        return 0
    other = _beside(wanted.beside, sys.argv[1:]) if wanted.beside else None
    show(found, other)
    print(f"seeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - began:.0f} s")
    for seed, texts in found.broken.items():
        print(f"BROKEN: python -m tests.soak --launches {A_CHAPTER} --seed {seed}", *texts[:5], sep="\n  ")
    return 1 if found.broken else 0


def play(seeds: Sequence[int], launches: int, processes: int) -> Figures:
    """Run all chapters in parallel."""
    counts: Counter[str] = Counter()
    lies: Counter[str] = Counter()
    broken: dict[int, list[str]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for seed, (found, reported, texts) in zip(seeds, pool.map(played, seeds, [launches] * len(seeds)), strict=True):
            counts.update(found)
            lies.update(reported)
            if any(found[promise] for promise in PROMISES):
                broken[seed] = texts
    return Figures(dict(counts), dict(lies), broken)


def _beside(commit: str, options: Sequence[str]) -> Figures:
    """Run the same seeds with these tests and the package of another commit."""
    packed = subprocess.run(
        ["git", "archive", commit, "gpuwatch", "migrations"], cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        rest = [option for option in options if not option.startswith("--beside") and option != commit]
        argv = [sys.executable, "-P", "-m", "tests.soak", *rest, "--json"]
        printed = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout
    return msgspec.convert(json.loads(printed.splitlines()[-1]), Figures, strict=False)


def show(found: Figures, other: Figures | None) -> None:
    """Return one line per figure, promises first."""
    sections = (
        ("promised: 0", [(name, *_both(name, found.counts, other and other.counts)) for name in PROMISES]),
        ("what happened", _rest(found.counts, other and other.counts)),
        ("what the cloud did", _rest(found.lies, other and other.lies)),
    )
    for title, lines in sections:
        print(f"--- {title}")
        for name, here, there in lines:
            print(f"{name:<62}{here:>9}{'' if other is None else f'{there:>9}'}")


def _rest(here: dict[str, int], there: dict[str, int] | None) -> list[tuple[str, int, int]]:
    return [(name, *_both(name, here, there)) for name in sorted({*here, *(there or {})} - {*PROMISES})]


def _both(name: str, here: dict[str, int], there: dict[str, int] | None) -> tuple[int, int]:
    return here.get(name, 0), (there or {}).get(name, 0)


if __name__ == "__main__":
    sys.exit(main())
