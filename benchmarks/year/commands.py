"""Every command that reads the history, on the store of a year: processor time and memory of whole processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure
from benchmarks.year.daemon import tree_cpu_s

READ_S, READ_MB, BACKTEST_S = 3.0, 200.0, 20.0
_LIMIT_S = 120.0  # then a command is ended: it has missed its goal
_GPU, _YEAR = "H100 SXM", ("--since", "364d")
READING = (
    ("forecasts", "calendar", _GPU),
    ("forecasts", "calendar", _GPU, *_YEAR),
    ("forecasts", "advise", _GPU),
    ("forecasts", "advise", _GPU, *_YEAR),
    ("history", _GPU, *_YEAR),
    ("history", _GPU, *_YEAR, "--under", "1.9"),
    ("market",),
    ("market", *_YEAR),
    ("forecasts", "scores"),
    ("providers",),
    ("store", "stats"),
    ("forecasts", "backtest"),
)
_BACKTEST_YEAR = ("forecasts", "backtest", *_YEAR)


class Cost(NamedTuple):
    """What a process took."""

    cpu_s: float  # with the database server's
    peak_mb: float
    code: int


def cost_of(arguments: tuple[str, ...], folder: Path, database_url: str, server_pid: int | None = None) -> Cost:
    """Run a command with the settings in this folder."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    env |= {"GPUWATCH_CONFIG": str(folder / "gpuwatch.toml"), "GPUWATCH_DATABASE_URL": database_url}
    before_s = 0.0 if server_pid is None else tree_cpu_s(server_pid)
    output = folder / "output.txt"
    with output.open("wb") as file:
        command = [sys.executable, "-m", "gpuwatch", *arguments]
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    ends = threading.Timer(_LIMIT_S, child.kill)
    ends.start()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)  # it is reaped
    ends.cancel()
    server_s = 0.0 if server_pid is None else tree_cpu_s(server_pid) - before_s
    if child.returncode not in {0, -9}:
        raise SystemExit(f"{' '.join(arguments)} ended with {child.returncode}: {output.read_text()[-500:]}")
    return Cost(usage.ru_utime + usage.ru_stime + server_s, usage.ru_maxrss / 1024, child.returncode)


def figures(engine: str, folder: Path, database_url: str, server_pid: int | None) -> Iterator[Figure]:
    """Measure each command once."""
    for arguments in (*READING, _BACKTEST_YEAR):
        cost = cost_of(arguments, folder, database_url, server_pid)
        text = " ".join(f'"{one}"' if " " in one else one for one in arguments)
        sample = f"{engine}; ended after {_LIMIT_S:.0f} s" if cost.code else engine
        goal_s = BACKTEST_S if arguments == _BACKTEST_YEAR else READ_S
        yield Figure(name=f"`gpuwatch {text}`", goal=goal_s, measured=cost.cpu_s, unit=" CPU-s", sample=sample)
        yield Figure(name=f"`gpuwatch {text}`", goal=READ_MB, measured=cost.peak_mb, unit=" MB", sample=sample)
