"""All threads of a daemon share two arenas of malloc."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_THREADS = """
import sys, threading
from pathlib import Path
from gpuwatch.engine.setup.malloc_arenas import share_malloc_arenas

if sys.argv[1] == "shared":
    assert share_malloc_arenas()
gate, kept = threading.Barrier(13), []

def hold():
    kept.append([bytes(2000 + size) for size in range(400)])
    gate.wait()
    gate.wait()

threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads:
    thread.start()
gate.wait()
starts = [line.split("-")[0] for line in Path("/proc/self/maps").read_text().splitlines() if " rw-p " in line]
print(sum(int(start, 16) % 2**26 == 0 for start in starts))  # glibc aligns each further arena to 64 MiB
gate.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc")
def test_threads_share_two_arenas() -> None:
    def arenas(how: str) -> int:
        env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        run = subprocess.run([sys.executable, "-c", _THREADS, how], capture_output=True, text=True, check=True, env=env)
        return int(run.stdout)

    assert arenas("shared") <= 2  # and the heap; another mapping may begin at such an address by chance
    assert arenas("by default") > 4
