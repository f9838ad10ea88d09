"""A recurring job's name where a job's is expected: its log, its results, a retry; and pauses of jobs by their name."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path

import pytest

from gpuwatch.app.watches.pauses import pauses
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_series import due_step, run_of
from gpuwatch.domain.launches.life.owner_decisions import pause_refusal
from gpuwatch.settings import Settings
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell
from tests.stored_jobs import RUNNING, moved, with_run

JOB = """
command = "python train.py"
resources = { gpu = "H100" }
limit = { max_usd = 10 }
"""
RECURRING = JOB + 'schedule = "0 2 * * *"\nwithin = "6h"\n'


@pytest.fixture
def settings(shell: Shell) -> Settings:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "nightly.toml").write_text(RECURRING)
    (shell.folder / "train.toml").write_text(JOB)
    shell.new_store()
    assert shell("jobs", "submit", "nightly.toml", "train.toml").code == Exit.DONE
    return load_settings(str(shell.folder / "gpuwatch.toml"))


def a_run(settings: Settings, number: int) -> Job:
    """Start the next run as the daemon does."""
    store = open_database(settings.database_url)
    repository = SqlSeriesRepository(store)
    (series,) = repository.every()
    step = due_step(series, series.next_at, UTC, is_open=False)
    assert step is not None
    run = run_of(series, step, f"jobaaaa{number}", real_now() + timedelta(seconds=number), UTC)
    assert run is not None
    repository.record(step.after, run, None)
    store.close()
    return run


def ran(settings: Settings, folder: Path, job: Job) -> None:
    """Let it have run and failed, with a log and a result."""
    job = moved(settings, job, RUNNING, real_now(), run_number=1, launch_id="k" * 12)
    results = ({"path": "out/a", "bytes": 1, "sha256": "ab"},)
    with_run(settings, JobRun(job_id=job.job_id, run_number=1, launch_id="k" * 12, results=results))
    path = folder / "jobs-data" / job.job_id / "runs" / "1" / "log"
    path.parent.mkdir(parents=True)
    path.write_text(f"log of {job.name}\n")
    moved(settings, job, (JobState.FAILED,), real_now())


def test_a_recurring_job_stands_for_its_newest_run(shell: Shell, settings: Settings) -> None:
    none = shell("jobs", "logs", "nightly")
    assert (none.code, "nightly' had no run yet" in none.err) == (Exit.USAGE, True)
    first = a_run(settings, 2)
    assert f"job {first.name} is queued: no log" in shell("jobs", "logs", "nightly").err
    ran(settings, shell.folder, first)
    second = a_run(settings, 3)
    found = shell("jobs", "logs", "nightly")
    assert (found.out, found.err) == (f"log of {first.name}\n", f"the newest run is {first.name}\n"), "one is queued"
    assert shell("jobs", "logs", "nightly", "--json").json["name"] == first.name
    assert [one["path"] for one in shell("jobs", "results", "nightly", "--json").json] == ["out/a"]
    ran(settings, shell.folder, second)
    assert shell("jobs", "logs", "-f", "nightly").out == f"log of {second.name}\n"
    assert shell("jobs", "retry", "nightly", "--json").json["name"] == second.name
    assert shell("jobs", "cancel", "nightly").code == Exit.DONE
    assert shell("jobs", "logs", "nightly").out == f"log of {second.name}\n", "also once it is ended"


def test_a_job_is_paused_as_a_watch_and_a_recurring_one_with_all_its_runs(shell: Shell, settings: Settings) -> None:
    run = a_run(settings, 2)
    wrong = shell("watches", "pause", "train")
    assert wrong.err == "there is no watch 'train'; the job of that name is job:train\n"
    assert "no open job 'trian'" in shell("watches", "pause", "job:trian").err
    for name in ("job:train", "job:nightly"):
        assert shell("watches", "pause", name).code == Exit.DONE
    by_hand = pauses(settings).by_hand
    refused = [name for name in ("job:train", run.watch_name, "job:night", "job:nightly2", "nightly")
               if pause_refusal(by_hand, name, real_now())]  # fmt: skip
    assert refused == ["job:train", run.watch_name], "every reservation asks this"
    paused = {job["name"]: job["when"] for job in shell("jobs", "plan", "--json").json["jobs"]}
    assert paused.keys() == {"train", run.name}
    assert not [when for when in paused.values() if "paused" not in when]
    shell("watches", "resume", "job:nightly")
    assert shell("watches", "resume", "job:train").out.startswith("job 'train' resumed")
    assert not [one for one in shell("jobs", "plan", "--json").json["jobs"] if "paused" in one["when"]]


def test_a_job_has_nothing_to_silence(shell: Shell, settings: Settings) -> None:
    said = shell("alerts", "silence", "job:train", "--for", "1h")
    assert (said.code, said.err.count("\n")) == (Exit.USAGE, 1)
    assert "gpuwatch watches pause job:train" in said.err
