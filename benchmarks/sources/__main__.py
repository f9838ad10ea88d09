"""Run the commands that answer the sources' questions, and write the page about them.

It takes a minute; `--cheap` leaves out what takes longest. Exit code 1: a command fails, or prints something else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sources.page import page
from benchmarks.sources.rows import sources
from benchmarks.sources.running import run_row
from gpuwatch.bootstrap import real_now


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows; return 1 if one of them does not print what is expected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sources", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="N[-M],…", type=_numbers, help="only these rows; writes no page")
    parser.add_argument("--cheap", action="store_true", help="leave out the slow rows; writes no page")
    parser.add_argument("--show", action="store_true", help="print what the commands print")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there, if every row is as expected")
    args = parser.parse_args(argv)
    found = sources()
    rows = [row for source in found for row in source.row]
    chosen = [row for row in rows if (not args.only or row.number in args.only) and not (args.cheap and row.is_slow)]
    failed, took_s = 0, 0.0
    for row in chosen:
        ran = run_row(row)
        took_s += ran.took_s
        failed += bool(ran.faults)
        if ran.faults or args.show:
            print(f"{row.number} {row.asks} ({ran.took_s:.2f} s)", *ran.faults, sep="\n    ", flush=True)
        if args.show:
            print(ran.printed)
    print(f"{len(chosen)} rows, {failed} not as expected, {took_s:.0f} s")
    if args.write is not None and not failed and len(chosen) == len(rows):
        args.write.write_text(page(found, f"{real_now():%Y-%m-%d}"), encoding="utf-8")
    return 1 if failed else 0


def _numbers(text: str) -> set[int]:
    """Parse "1,17-20"."""
    spans = [part.partition("-") for part in text.split(",")]
    return {number for first, _, last in spans for number in range(int(first), int(last or first) + 1)}


if __name__ == "__main__":
    sys.exit(main())
