"""The planner's memory for real runs, compared with published peaks."""

from __future__ import annotations

from benchmarks.plan_memory import errors, planned_memory


def test_ten_real_runs_need_about_what_was_published() -> None:
    found = [run for run in planned_memory() if "litgpt" in run.source]
    assert len(found) >= 10
    middle, worst = errors([run for run in found if not run.has_four_bits])
    assert (middle <= 1.08, worst <= 1.15) == (True, True)
    middle, worst = errors([run for run in found if run.has_four_bits])
    assert (middle <= 1.08, worst <= 1.25) == (True, True)


def test_another_program_whose_loss_is_taken_in_pieces_needs_less_than_planned() -> None:
    found = [run.ratio for run in planned_memory() if "torchtune" in run.source]
    assert len(found) == 2
    assert all(1 <= ratio <= 1.6 for ratio in found)
