"""The planner's memory for real runs, against their published peaks.

    python -m benchmarks.plan_memory [--sources]

A ratio above 1: the planner counts more than was measured. The overhead of a card is not part of a published peak, so
it is left out.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from gpuwatch.app.plan.plan_request import request_of
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.domain.plan.plan_schema import SizeRequest

RUNS = Path(__file__).with_name("published_memory.toml")
_FOUR_BITS = ("qlora", "int4")


class PlannedMemory(msgspec.Struct, frozen=True):
    """A published run, with the planner's memory."""

    model: str
    work: str  # method or precision
    batch: int
    context: int
    published_gb: float
    planned_gb: float
    source: str

    @property
    def ratio(self) -> float:
        """The planner's memory divided by the published peak."""
        return self.planned_gb / self.published_gb

    @property
    def has_four_bits(self) -> bool:
        """Whether the weights are quantised."""
        return self.work in _FOUR_BITS


def planned_memory() -> list[PlannedMemory]:
    """Return all published runs with the planner's memory."""
    publications = tomllib.loads(RUNS.read_text(encoding="utf-8"))["publication"]
    return [_planned(one["keys"] | run, one["source"]) for one in publications for run in one["runs"]]


def _planned(run: dict[str, Any], source: str) -> PlannedMemory:
    keys = {key: value for key, value in run.items() if key != "gb"}
    work = request_of(SizeRequest, keys).workload()
    if work is None:
        raise ValueError(f"{run}: no model")
    label = run["precision"] if run["method"] == "inference" else run["method"]
    return PlannedMemory(run["model"], label, run["batch"], run["context"], run["gb"], memory_needed(work).gb, source)


def errors(runs: Sequence[PlannedMemory]) -> tuple[float, float]:
    """Return the median and the largest error, as factors of 1 or more."""
    times = [max(run.ratio, 1 / run.ratio) for run in runs]
    return median(times), max(times)


def main() -> int:
    """Print the runs; with --sources, also where each is published."""
    found = planned_memory()
    print(f"{'run':44}{'published':>12}{'planned':>12}{'ratio':>8}")
    for run in found:
        name = f"{run.model} {run.work}, {run.batch} × {run.context:,}"
        print(f"{name:44}{run.published_gb:9.2f} GB{run.planned_gb:9.2f} GB{run.ratio:8.2f}")
        if "--sources" in sys.argv:
            print(f"    {run.source}")
    for label, group in (
        ("16 bits", [run for run in found if not run.has_four_bits]),
        ("4 bits", [run for run in found if run.has_four_bits]),
        ("all", found),
    ):
        middle, worst = errors(group)
        print(f"{label}: {len(group)} runs, median ratio {middle:.2f}, worst {worst:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
