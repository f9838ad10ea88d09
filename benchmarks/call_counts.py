"""How many calls two fixed workloads make: a gate against slower code that needs no clock (part of `make check`).

    python -m benchmarks.call_counts [--write] [NAME]...

Each workload runs in a process of its own with `sys.setprofile` in all its threads. Calls of Python and of C functions
count; those of the import system do not, because they depend on where packages are. A count that is more than 5 %
above its budget in `call_budgets.toml` fails. Raising a budget is a line to review: write the reason next to it.
Budgets are kept per Python version; on a version without budgets the gate reports that and passes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

BUDGETS = Path(__file__).with_name("call_budgets.toml")
TOLERANCE = 1.05
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class CallCounter:
    """Counts calls in this thread, and in every thread that starts after the counter, while it is active."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._active = False
        threading.setprofile(self._on_event)  # threads of a pool are long-lived: they must be profiled from their start

    @property
    def total(self) -> int:
        """Return the calls of all threads."""
        return sum(self._counts.values())

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count until the end of the block."""
        self._active = True
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._active = False

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        if (
            self._active
            and event in {"call", "c_call"}
            and not frame.f_code.co_filename.startswith("<frozen importlib")
        ):
            thread = threading.get_ident()
            self._counts[thread] = self._counts.get(thread, 0) + 1


# --- the workloads ----------------------------------------------------------------------------------------------------


def check_64(counter: CallCounter) -> None:
    """`gpuwatch check` with ten watches and an answer of 64 offers, stored."""
    from benchmarks.check import settings_toml
    from benchmarks.server import running
    from gpuwatch.cli import run

    with tempfile.TemporaryDirectory() as folder, running([64]) as control:
        os.environ["HOME"] = folder
        path = Path(folder, "gpuwatch.toml")
        path.write_text(settings_toml(control.url(64), Path(folder)))
        command = ["check", "--config", str(path), "--json"]
        with contextlib.redirect_stdout(io.StringIO()):
            run(command)  # creates the store, loads every module
            control("evolve", 64)
            with counter.active():
                run(command)


def hunt_to_create(counter: CallCounter) -> None:
    """One poll of 64 offers that fires and rents: from the query to the record of the order."""
    from benchmarks.reaction import Engine
    from benchmarks.server import running

    logging.disable()
    with tempfile.TemporaryDirectory() as folder, running([64]) as control, ExitStack() as opened:
        engine = Engine(control.url(64), Path(folder), opened)
        for number in range(2):
            engine.look()
            control("publish", 64, number)
            if number:
                with counter.active():
                    engine.look()
                    engine.wait_until_ordered()
            else:
                engine.look()
            control("withdraw", 64)
            engine.forget()


WORKLOADS: dict[str, Callable[[CallCounter], None]] = {
    "check_64": check_64,
    "hunt_to_create": hunt_to_create,
}


# --- the gate ---------------------------------------------------------------------------------------------------------


def count(name: str) -> int:
    """Return the calls of one workload, in a fresh process."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "benchmarks.call_counts", "--run", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: the workload failed\n{done.stderr}")
    return int(done.stdout.split()[-1])


def verdict(name: str, calls: int, budget: int | None) -> tuple[str, bool]:
    """Return a line for a person, and whether the count is within its budget."""
    if budget is None:
        return f"{name:18} {calls:9,} calls; no budget for Python {VERSION}", True
    line = f"{name:18} {calls:9,} calls, budget {budget:9,} ({calls / budget - 1:+.1%})"
    within = calls <= budget * TOLERANCE
    return line if within else f"{line}: more than 5 % over; make it cheaper, or raise the budget with a reason", within


def main() -> int:
    """Count, compare with the budgets, and exit 1 if one is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--write", action="store_true", help="print the counts as budgets instead of comparing")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        counter = CallCounter()
        WORKLOADS[args.run](counter)
        print(counter.total)
        return 0
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8")).get(VERSION, {})
    if not budgets and not args.write:
        print(f"call counts: no budgets for Python {VERSION}; skipped")
        return 0
    failed = False
    for name in args.names or WORKLOADS:
        calls = count(name)
        line, within = (f"{name} = {calls}", True) if args.write else verdict(name, calls, budgets.get(name))
        print(line, flush=True)
        failed |= not within
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
