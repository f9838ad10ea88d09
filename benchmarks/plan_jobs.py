"""The planner's estimates for real jobs, against their published times.

    python -m benchmarks.plan_jobs [--sources]

None of them is among the planner's measurements. A ratio above 1: the planner estimates a longer time.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.roofline import BYTES_PER_WEIGHT, Precision, SpeedTask, WorkMethod
from gpuwatch.domain.plan.throughput import estimate_speed

JOBS = Path(__file__).with_name("published_jobs.toml")


class PlannedJob(msgspec.Struct, frozen=True):
    """A published job with the planner's estimate. Hours are of all GPUs together."""

    name: str
    source: str
    gpu: str
    published_h: float
    low_h: float
    middle_h: float
    high_h: float
    usd: float | None = None  # as published

    @property
    def ratio(self) -> float:
        """The planner's middle estimate divided by the published time."""
        return self.middle_h / self.published_h

    @property
    def is_inside(self) -> bool:
        """Whether the planner's range contains it."""
        return self.low_h <= self.published_h <= self.high_h


def planned_jobs() -> list[PlannedJob]:
    """Return all published jobs with estimates."""
    return [_planned(job) for job in tomllib.loads(JOBS.read_text(encoding="utf-8"))["job"]]


def _planned(job: dict[str, Any]) -> PlannedJob:
    model, method = job["model"], WorkMethod(job["method"])
    each = 0.516 if method is WorkMethod.QLORA else BYTES_PER_WEIGHT[Precision(job["precision"])]
    task = SpeedTask(
        method=method,
        params=model["params"],
        active_params=model["params"],
        layers=model["layers"],
        hidden=model["hidden"],
        kv_width=model["hidden"],
        weight_bytes=each,
        batch=job["batch"],
        context=job["context"],
    )
    found = estimate_speed(throughput_table(), task, gpu_specs()[job["gpu"]], job["count"])
    if found is None:
        raise ValueError(f"{job['name']}: no data sheet of {job['gpu']}")
    span = found.tokens_per_s
    hours = [job["tokens"] / speed / 3600 * job["count"] for speed in (span.high, found.middle, span.low)]
    gpu = f"{job['count']:,}× {job['gpu']}"
    return PlannedJob(job["name"], job["source"], gpu, job["gpu_hours"], *hours, usd=job.get("usd"))


def main() -> int:
    """Print the jobs; with --sources, also where each is published."""
    found = planned_jobs()
    print(f"{'job':36}{'on':22}{'published':>13}{'planned GPU-hours':>26}{'ratio':>8}")
    for job in found:
        span = f"{job.low_h:,.0f}–{job.high_h:,.0f}"
        mark = "" if job.is_inside else "  outside"
        print(f"{job.name:36}{job.gpu:22}{job.published_h:13,.0f}{span:>26}{job.ratio:8.2f}{mark}")
        if "--sources" in sys.argv:
            print(f"    {job.source}")
    times = [max(job.ratio, 1 / job.ratio) for job in found]
    inside = sum(job.is_inside for job in found)
    print(f"{len(found)} jobs: median ratio {median(times):.2f}, worst {max(times):.2f}; {inside} within the range")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
