"""The planner's estimates for real jobs, compared with published values."""

from __future__ import annotations

from statistics import median

from benchmarks.plan_jobs import planned_jobs
from gpuwatch.app.plan.speed_table import throughput_table


def test_ten_real_jobs_are_planned_near_what_was_published() -> None:
    found = planned_jobs()
    assert len(found) >= 10
    times = [max(one.ratio, 1 / one.ratio) for one in found]
    assert median(times) <= 1.5
    assert max(times) <= 3


def test_no_job_is_among_the_measurements() -> None:
    known = {row.url.removeprefix("https://").split("/blob/")[0] for row in throughput_table().rows}
    assert [job.name for job in planned_jobs() if any(job.source.startswith(url) for url in known)] == []
