"""Files of a job below `~` are in the home folder, not in a folder named `~` beside the job's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.engine.jobs.job_parts import local_path
from tests.builders_jobs import a_job


def test_a_home_is_expanded_and_the_rest_is_beside_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    job = a_job()
    folder = Path(job.definition.folder)
    assert local_path(job.definition, "~/data") == Path("/home/x/data")
    assert local_path(job.definition, "data/a") == folder / "data/a"
    assert local_path(job.definition, "/data") == Path("/data")
