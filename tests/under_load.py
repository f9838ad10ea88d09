"""The whole suite while other work keeps every core busy: `make loaded`, or `python -m tests.under_load [--times 3]`.

A test that passes only on an idle machine is a defect. Busy processes, one per core, run during the whole suite, which
must pass every time in a row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MAX_BUSY_S = 6 * 3600.0  # a busy process ends by itself, even without its parent


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep this many cores busy until the end of the block."""
    processes = [multiprocessing.Process(target=_work, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _work(parent: int) -> None:
    until = time.monotonic() + MAX_BUSY_S
    while time.monotonic() < until and os.getppid() == parent:
        sum(number * number for number in range(100_000))


def run_suite(times: int, pytest_args: Sequence[str]) -> int:
    """Run it this often in a row; return the exit code of the first failing run, or 0."""
    for number in range(1, times + 1):
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", "pytest", *pytest_args], check=False).returncode
        print(f"run {number} of {times} under load: exit {code}, {time.monotonic() - began:.0f} s", flush=True)
        if code:
            return code
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count() or 1, help="busy processes; default: one for each core"
    )
    args, pytest_args = parser.parse_known_args()
    with busy_cores(args.busy):
        return run_suite(args.times, pytest_args or ["-n", "auto", "--dist", "worksteal"])


if __name__ == "__main__":
    sys.exit(main())
