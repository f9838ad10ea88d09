"""A sample of a run as text."""

from __future__ import annotations

from datetime import UTC, datetime

from gpuwatch.domain.jobs.run_sample import RunSample, sample_facts

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def test_a_cost_of_less_than_a_cent_does_not_look_free() -> None:
    sample = RunSample(at=NOW, run_number=1, usd=(0.001, 1234.5))
    assert dict(sample_facts(sample, str))["costs"] == "<$0.01 to $1,234.50 at its end"
