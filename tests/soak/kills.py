"""Real daemons, killed by SIGKILL at every named point in turn; exit code 1 if a promise broke or a point was missed.

    python -m tests.soak.kills [--kills 500] [--seed N]

Each daemon writes the name of its point before it dies there; the table counts these deaths.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.process.kills import ELSEWHERE, POINTS, Kills, kill_everywhere


def main() -> int:
    """Kill, print the table point × kills, and judge."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.kills", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--kills", type=int, default=500)
    options.add_argument("--seed", type=int, default=20261122)
    options.add_argument("--side-by-side", type=int, default=5)
    wanted = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_everywhere(Path(folder), wanted.seed, wanted.kills, wanted.side_by_side)
    show(found)
    print(f"seed {wanted.seed}, {time.monotonic() - began:.0f} s")
    return 1 if found.faults or found.missed else 0


def show(found: Kills) -> None:
    """Return one line per point, and what is wrong."""
    for point in sorted(POINTS):
        print(f"{point:<32}{found.at[point]:>5}{'' if found.at[point] else '   NEVER HIT'}")
    print(f"{'killed at a named point':<32}{sum(found.at[point] for point in POINTS):>5}")
    print(f"{'killed elsewhere':<32}{found.at[ELSEWHERE]:>5}")
    print(f"{'promises broken':<32}{len(found.faults):>5}")
    for text in found.faults:
        print(f"BROKEN: {text}")


if __name__ == "__main__":
    sys.exit(main())
