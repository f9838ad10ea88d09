"""A sample of the crash matrix: the daemon dies at every named point, under every fault. `make soak` runs all of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpuwatch.engine.setup import failpoint
from tests.checkout import ROOT
from tests.process.crash_matrix import ENDING, RENTING, SENT, all_cases, play, sample
from tests.process.test_kept_disk import STARTING, STOPPING

SEED = 20261128
PARTS = 3  # tests: several workers share the sample


@pytest.fixture(name="template")
def _template(_sqlite_template: Path) -> Path:
    return _sqlite_template


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_any_point_nothing_is_doubled_orphaned_or_lost(
    part: int, whole: bool, tmp_path: Path, template: Path
) -> None:
    cases = all_cases() if whole else sample(SEED)
    assert play(cases[part::PARTS], tmp_path, template) == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_dies_at_every_point_and_meets_every_fault(seed: int) -> None:
    met = set().union(*(case.covers for case in sample(seed)))
    faults = {f"renting, {name}" for name in RENTING} | {f"ending, {name}" for name in ENDING} | {"held", "renting now"}
    of_jobs = ("series.", "move.", "prepare.")  # test_recurring_jobs, test_job_moves, test_prepared_jobs
    of_launches = {point for point in failpoint.POINTS if not point.startswith(of_jobs)}
    assert met | {*STOPPING, *STARTING} == {SENT, *of_launches, *faults}
    assert len(sample(seed)) < len(all_cases()) / 4


def test_every_point_that_is_named_is_in_the_code_and_the_other_way_round() -> None:
    """The points of a launch's transitions are one line for all states: `{state}.before_record`."""
    plain, steps = set(), set()
    for path in (ROOT / "gpuwatch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                (name,) = node.args
                (plain if isinstance(name, ast.Constant) else steps).add(ast.unparse(name))
    states = {"starting", "running", "stopping", "ended", "failed", "unknown", "held"}
    of_steps = {f"{state}.{moment}_record" for state in states for moment in ("before", "after")}
    assert {ast.literal_eval(name) for name in plain} == set(failpoint.POINTS) - of_steps
    assert {name.rpartition("}")[2] for name in steps} == {".before_record'", ".after_record'"}
