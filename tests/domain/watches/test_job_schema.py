"""`[watch.job]`: durations as one value or two, and a model that only sets the memory."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_hours import JobSpec
from gpuwatch.domain.watches.watch_job_schema import JobTable


def job_from(keys: dict[str, Any]) -> JobSpec:
    return JobTable(**keys).value()


def test_setup_and_load_take_one_duration_or_two() -> None:
    job = job_from({"hours": 1, "setup": "5m", "load": "5m-7m"})
    assert (job.setup_s, job.load_s) == (FigureRange(300.0, 300.0), FigureRange(300.0, 420.0))


def test_a_model_beside_hours_sets_the_memory_and_no_arithmetic() -> None:
    job = job_from({"hours": 1, "model": "7B", "method": "inference"})
    assert job.flop is None
    assert job.memory_gb > 0


def test_a_utilisation_is_kept() -> None:
    job = job_from({"tokens": "1B", "model": "7B", "utilisation": "0.35-0.45"})
    assert job.utilisation == FigureRange(0.35, 0.45)


def test_a_utilisation_is_at_most_the_whole() -> None:
    assert job_from({"tokens": "1B", "model": "7B", "utilisation": 1}).utilisation == FigureRange(1.0, 1.0)
    with pytest.raises(ValidationError, match="expected a share of at most 1"):
        job_from({"tokens": "1B", "model": "7B", "utilisation": 1.01})
