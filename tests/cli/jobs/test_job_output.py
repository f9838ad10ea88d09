"""`gpuwatch jobs logs` and `gpuwatch jobs results`: fetched files, with a host's control characters removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.cli import Exit
from gpuwatch.domain.jobs.job import JobRun, JobState, JobTransition
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import open_database
from tests.builders import NOON
from tests.cli.conftest import Shell

JOB = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'
FETCHED = ({"path": "out/a.bin", "bytes": 7, "sha256": "ab" * 32},)


@pytest.fixture
def run(shell: Shell) -> Path:
    """A job that was done after its second run; returns the folder of its runs."""
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "train.toml").write_text(JOB)
    shell("job", "submit", "train.toml")
    store = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    repository = SqlJobRepository(store)
    job = repository.open_jobs()[0]
    for state in (JobState.RENTING, JobState.PREPARING, JobState.RUNNING, JobState.FETCHING, JobState.DONE):
        number = 2 if state is not JobState.RENTING else 0
        job = repository.record(job, JobTransition(to_state=state, at=NOON, changes={"run_number": number}))
    repository.save_run(JobRun(job_id=job.job_id, run_number=2, launch_id="k" * 12, results=FETCHED))
    store.close()
    folder = shell.folder / "jobs-data" / job.job_id / "runs"
    for number in (1, 2):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "log").write_text(f"run {number}\nloss 0.5\n\x1b[31mloss 0.4\x07\nend")
    return folder


def test_the_log_of_the_newest_run_is_shown_and_nothing_in_it_reaches_the_terminal(shell: Shell, run: Path) -> None:
    assert shell("job", "logs", "train").out == "run 2\nloss 0.5\n[31mloss 0.4\nend\n"
    assert shell("job", "logs", "train", "--run", "1", "--tail", "1").out == "end\n"
    found = shell("job", "logs", "train", "--run", "1", "--json").json
    assert (found["name"], found["run_number"], found["lines"][0]) == ("train", 1, "run 1")


def test_following_a_job_that_is_over_prints_its_log_and_ends(shell: Shell, run: Path) -> None:
    assert shell("job", "logs", "-f", "train").out == "run 2\nloss 0.5\n[31mloss 0.4\nend\n"
    assert shell("job", "logs", "-f", "train", "--tail", "2").out == "[31mloss 0.4\nend\n"


def test_results_are_listed_with_size_and_hash(shell: Shell, run: Path) -> None:
    assert shell("job", "results", "train", "--json").json == [{"run_number": 2, **FETCHED[0]}]
    text = shell("job", "results", "train").out
    assert "out/a.bin" in text
    assert "abababababab" in text


def test_what_is_wrong_is_one_line(shell: Shell, run: Path) -> None:
    ran = shell("job", "logs", "train", "--run", "3")
    assert (ran.code, ran.err) == (Exit.USAGE, "job 'train' has no run 3; its newest is 2\n")
    assert shell("job", "logs", "nope").code == Exit.USAGE
    assert shell("job", "logs", "-f", "train", "--json").code == Exit.USAGE


def test_a_job_that_waits_has_neither(shell: Shell, run: Path) -> None:
    (shell.folder / "other.toml").write_text(JOB)
    shell("job", "submit", "other.toml")
    ran = shell("job", "logs", "other")
    assert (ran.code, ran.out) == (Exit.DONE, "")
    assert "job other is queued: no log has been fetched yet" in ran.err
    assert shell("job", "results", "other", "--json").json == []
