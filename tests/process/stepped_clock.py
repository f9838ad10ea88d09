"""`gpuwatch run` in a process whose wall clock steps when a file says so: `python stepped_clock.py FILE run`.

The step affects the whole process: `datetime.now` and `time.time`, for gpuwatch and for its scheduler. The monotonic
clock continues, like a kernel's.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import time_machine


def _watch(travel: time_machine.Traveller, file: Path) -> None:
    while not (text := file.read_text() if file.exists() else ""):  # it may be there before its words are
        time.sleep(0.05)
    travel.shift(float(text))


def main() -> int:
    file = Path(sys.argv[1])
    with time_machine.travel(time.time(), tick=True) as travel:
        threading.Thread(target=_watch, args=(travel, file), daemon=True).start()
        sys.argv = ["gpuwatch", *sys.argv[2:]]
        from gpuwatch.__main__ import main as gpuwatch

        return int(gpuwatch() or 0)


if __name__ == "__main__":
    sys.exit(main())
