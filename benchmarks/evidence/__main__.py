"""Check the claims of the documents on data that was not used for tuning, and print them as a page.

    python -m benchmarks.evidence [--quick] [--only NAME] [--write FILE]

It takes some minutes; `--quick` takes half a minute, with small samples. Exit code 1: a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.evidence.claims import Claim, Holds, Section, bullet, judged, markdown
from benchmarks.evidence.clock import calendar_section
from benchmarks.evidence.speed import ROWS, speed_section
from benchmarks.evidence.trend import trend_section
from benchmarks.evidence.waiting import waiting_sections
from benchmarks.plan_error import LEAST_WITHIN_3, MOST_MEDIAN, plan_error
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.bootstrap import real_now

_HEAD = """# Evidence: which claims of the documents hold

Here you can see which claims of the documents hold. `make evidence` checks the claims of these pages on prices and
measurements that were not used for tuning, and writes this page. If a claim does not hold here, it is removed from its
page. "Too few to tell" means that the figure falls short of the claim by less than chance explains.
"""


def planner_section() -> Section:
    """Each published speed, estimated from the others."""
    table = throughput_table()
    claims = []
    for left_out, method, error in plan_error(table):
        if method != "all":
            continue
        is_claimed = left_out == "the row"
        for text, found, needed, holds in (
            ("median ratio", f"{error.median:.2f}", f"≤ {MOST_MEDIAN}", judged(error.median <= MOST_MEDIAN)),
            ("within a factor of 3", f"{error.within_3:.0%}", f"≥ {LEAST_WITHIN_3:.0%}",
             judged(error.within_3 >= LEAST_WITHIN_3)),
            ("worst ratio", f"{error.worst:.1f}", "", Holds.NOT_CLAIMED),
        ):  # fmt: skip
            claims.append(
                Claim(f"{left_out} left out: {text}", found, needed if is_claimed else "", f"{error.rows} rows",
                      holds if is_claimed else Holds.NOT_CLAIMED)
            )  # fmt: skip
    notes = [
        f"{len(table.rows)} measurements of {len({row.url for row in table.rows})} sources; rows of GPUs with unknown "
        "figures are left out; `python -m benchmarks.plan_error --rows` shows each"
    ]
    return Section("Planner", "plan.md", claims, notes)


def sections(*, quick: bool) -> dict[str, Callable[[], Sequence[Section]]]:
    """Return all subjects by name."""
    runs, seeds, every_h, rows = (4, 1, 24, 20_000) if quick else (30, 4, 12, ROWS)
    return {
        "calendar": lambda: [calendar_section(runs)],
        "waiting": lambda: waiting_sections(seeds, every_h),
        "planner": lambda: [planner_section()],
        "trend": lambda: [trend_section()],
        "speed": lambda: [speed_section(rows)],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small samples: shows that it runs, proves little")
    parser.add_argument("--only", action="append", choices=list(sections(quick=True)), help="only these subjects")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there as well")
    args = parser.parse_args(argv)
    wanted = sections(quick=args.quick)
    command = "`python -m benchmarks.evidence" + (" --quick`" if args.quick else "`")
    lines = [_HEAD, f"{command}, {real_now():%Y-%m-%d}.\n"]
    print("\n".join(lines), flush=True)
    found: list[tuple[str, Holds]] = []
    for name in args.only or wanted:
        for section in wanted[name]():
            shown = [*markdown(section), ""]
            lines += shown
            print("\n".join(shown), flush=True)
            found += [(f"{section.title}: {claim.text}", claim.holds) for claim in section.claims]
    last = _summary(found)
    print(last)
    if args.write is not None:
        args.write.write_text("\n".join([*lines, last, ""]), encoding="utf-8")
    return 1 if any(holds is Holds.NO for _, holds in found) else 0


def _summary(found: Sequence[tuple[str, Holds]]) -> str:
    counts = {holds: sum(one is holds for _, one in found) for holds in Holds}
    claimed = len(found) - counts[Holds.NOT_CLAIMED]
    text = (
        f"Of {claimed} claims {counts[Holds.YES]} hold, {counts[Holds.NO]} do not, and for {counts[Holds.TOO_FEW]} "
        "there is too little to tell"
    )
    named = [bullet(text) for text, holds in found if holds in {Holds.NO, Holds.TOO_FEW}]
    return "\n".join([f"{text}:\n", *named] if named else [f"{text}."])


if __name__ == "__main__":
    sys.exit(main())
