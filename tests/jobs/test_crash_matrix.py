"""A sample of the crash matrix of jobs; `make soak` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.crash_matrix import FAULTS, outcomes, play


@pytest.mark.slow
@pytest.mark.parametrize(("number", "fault"), list(enumerate(FAULTS)))
def test_a_job_runs_once_and_ends_whole_whenever_gpuwatch_dies(
    tmp_path: Path, number: int, fault: str, whole: bool
) -> None:
    """0 double runs, 0 lost results, 0 instances after the end."""
    if whole:
        assert [outcome for outcome in outcomes([fault]) if outcome.wrong] == []
    for point, after in ((3 + 2 * number, True), (12 + number, False)):
        folder = tmp_path / f"{point}-{after}"
        folder.mkdir()
        outcome = play(folder, point, after, fault)
        assert outcome.died_at
        assert outcome.wrong == (), outcome


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_job_moves_once_although_gpuwatch_dies_while_its_old_instance_ends(tmp_path: Path, after: bool) -> None:
    outcome = play(tmp_path, 1, after, "moves", only="transition")
    assert (outcome.died_at, outcome.wrong) == ("transition", ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "point", "after"), [("save_run", 4, True), ("transition", 1, False), ("record", 5, True)]
)
def test_a_job_goes_on_on_a_cheaper_machine_once_although_gpuwatch_dies(
    tmp_path: Path, call: str, point: int, after: bool
) -> None:
    outcome = play(tmp_path, point, after, "relocates", only=call)
    assert (outcome.died_at, outcome.wrong) == (call, ())


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_two_jobs_share_an_instance_although_gpuwatch_dies_while_it_changes_hands(tmp_path: Path, after: bool) -> None:
    outcome = play(tmp_path, 1, after, "shares", only="take_over")
    assert (outcome.died_at, outcome.wrong) == ("take_over", ())
