"""Times whole processes in turn (A B C A B C …): computes ratios in each round, and reports their median.

If the machine slows down for a while, it affects a whole round. `answer_s` is the time until the last byte of standard
output; `wall_s` until the process ended.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """One finished process."""

    answer_s: float
    wall_s: float
    code: int


Runs = Mapping[str, Sequence[Run]]


def once(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Run:
    start = time.perf_counter()
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=cwd
    )
    assert child.stdout is not None
    answer_s = 0.0
    while os.read(child.stdout.fileno(), 1 << 20):
        answer_s = time.perf_counter() - start
    child.wait()
    wall_s = time.perf_counter() - start
    child.stdout.close()
    return Run(answer_s or wall_s, wall_s, child.returncode)


def in_turn(
    commands: Mapping[str, Sequence[str]],
    rounds: int,
    env: Mapping[str, str],
    cwd: str,
    before: Callable[[], object] = lambda: None,
) -> Runs:
    """Run every command once per round, after `before`; the first round warms up and is not counted.

    A command may end with 0 or 1 (a check that found nothing); anything else stops the benchmark.
    """
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            before()
            run = once(argv, env, cwd)
            if run.code not in {0, 1}:
                raise SystemExit(f"{name} ended with {run.code}: {' '.join(argv)}")
            if number:
                runs[name].append(run)
    return runs


def median_ms(runs: Sequence[Run], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs) * 1e3


def ratio(runs: Runs, name: str, base: str, what: str) -> float:
    """Median of the ratios of each round."""
    pairs = zip(runs[name], runs[base], strict=True)
    return statistics.median(getattr(one, what) / getattr(other, what) for one, other in pairs)
