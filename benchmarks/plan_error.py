"""The error of the planner's speeds: each published measurement, estimated from the others.

    python -m benchmarks.plan_error [--rows]

The goal: a median ratio of at most 1.5, and nine of ten within a factor of 3. "other sources" omits every row of the
same address, which better represents a job that nobody has published.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.plan.roofline import WorkMethod
from gpuwatch.domain.plan.throughput import HeldOutRow, ThroughputTable, leave_one_out

MOST_MEDIAN, LEAST_WITHIN_3 = 1.5, 0.9


class EstimateError(msgspec.Struct, frozen=True):
    """The error of the estimates of omitted rows."""

    rows: int
    median: float  # ratio
    within_3: float  # share of the rows estimated within a factor of 3
    worst: float


def error_of(found: Sequence[HeldOutRow]) -> EstimateError:
    """Summarise omitted rows; there is at least one."""
    ratios = sorted(row.ratio for row in found)
    middle = len(ratios) // 2
    median = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
    return EstimateError(len(ratios), median, sum(ratio <= 3 for ratio in ratios) / len(ratios), ratios[-1])


def plan_error(table: ThroughputTable) -> list[tuple[str, str, EstimateError]]:
    """Return the errors by method and overall: what was omitted, the method, the error."""
    found = []
    for left_out, publications in (("the row", False), ("its source", True)):
        rows = leave_one_out(table, publications=publications)
        for method in WorkMethod:
            if some := [row for row in rows if row.row.task.method is method]:
                found.append((left_out, method.value, error_of(some)))
        found.append((left_out, "all", error_of(rows)))
    return found


def main() -> int:
    """Print the error; return 1 if it is above the goal."""
    table = throughput_table()
    print(f"{len(table.rows)} measurements of {len({row.url for row in table.rows})} sources")
    print(f"{'left out':12}{'method':10}{'rows':>5}{'median ratio':>14}{'within 3×':>11}{'worst':>8}{'share':>11}")
    for left_out, method, error in plan_error(table):
        span = "" if method == "all" else "{:.0%}–{:.0%}".format(*table.shares(WorkMethod(method)))
        print(
            f"{left_out:12}{method:10}{error.rows:5}{error.median:14.2f}{error.within_3:11.0%}{error.worst:8.1f}{span:>11}"
        )
    rows = leave_one_out(table)
    if "--rows" in sys.argv:
        _print_rows(rows)
    whole = error_of(rows)
    return 0 if whole.median <= MOST_MEDIAN and whole.within_3 >= LEAST_WITHIN_3 else 1


def _print_rows(rows: list[HeldOutRow]) -> None:
    for row in sorted(rows, key=lambda one: -one.ratio):
        print(f"{row.ratio:6.2f}×  estimated {row.estimate:,.0f}: {row.row.text}; {row.row.url}")


if __name__ == "__main__":
    raise SystemExit(main())
