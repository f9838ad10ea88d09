"""The planner's memory for real runs, compared with published peaks."""

from __future__ import annotations

from benchmarks.plan_memory import errors, planned_memory


def test_ten_real_runs_need_about_what_was_published() -> None:
    found = planned_memory()
    assert len(found) >= 10
    middle, worst = errors([run for run in found if not run.has_four_bits])
    assert (middle <= 1.08, worst <= 1.15) == (True, True)
    middle, worst = errors([run for run in found if run.has_four_bits])
    assert (middle <= 1.08, worst <= 1.25) == (True, True)
