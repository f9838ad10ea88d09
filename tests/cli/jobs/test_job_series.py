"""`gpuwatch jobs` with recurring jobs: submit, list, show, series, cancel; and their metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.app.jobs.job_series import listed_series, series_details
from gpuwatch.app.jobs.jobs import submit_jobs
from gpuwatch.app.setup.metrics import MetricsReader
from gpuwatch.app.setup.sharing.calendar_file import calendar_entries
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.domain.jobs.job_series import due_step, run_of
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell

JOB = """
command = "python train.py"
resources = { gpu = "H100" }
limit = { max_usd = 10 }
schedule = "0 2 * * 6"
within = "6h"
"""


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(f'timezone = "Europe/Berlin"\ndatabase_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "nightly.toml").write_text(JOB)
    shell.new_store()


def a_run(folder: Path) -> str:
    """Start the first run as the daemon does; return its name."""
    store = open_database(f"sqlite:///{folder}/gpuwatch.db")
    repository = SqlSeriesRepository(store)
    (series,) = repository.every()
    step = due_step(series, series.next_at, UTC, is_open=False)
    assert step is not None
    run = run_of(series, step, "jobaaaa2", series.next_at, UTC)
    assert run is not None
    repository.record(step.after, run, None)
    store.close()
    return run.name


def test_a_recurring_job_is_submitted_listed_shown_and_ended(shell: Shell) -> None:
    ran = shell("jobs", "submit", "nightly.toml")
    assert ran.code == Exit.DONE
    assert ran.out.startswith("recurring job nightly: next run ")
    assert "02:00" in ran.out
    (one,) = shell("jobs", "series", "--json").json
    assert (one["name"], one["schedule"], one["within_s"], one["missed"]) == ("nightly", "0 2 * * 6", 21_600.0, 0)
    following = datetime.fromisoformat(one["next_at"])
    assert real_now() < following < real_now() + timedelta(days=8)
    assert shell("jobs", "list", "--json").json == []
    assert "Recurring jobs:" in shell("jobs", "list").out
    name = a_run(shell.folder)
    shown = shell("jobs", "show", "nightly", "--json").json
    assert [(run["name"], run["series"], run["state"]) for run in shown["runs"]] == [(name, "nightly", "queued")]
    assert "0 2 * * 6 (Europe/Berlin)" in shell("jobs", "show", "nightly").out
    assert shell("jobs", "show", name, "--json").json["planned_at"] == one["next_at"]
    ended = shell("jobs", "cancel", "nightly")
    assert ended.code == Exit.DONE
    assert ended.out == f"recurring job nightly is ended\njob jobaaaa2 ({name}) is cancelled\n"
    assert shell("jobs", "series", "--json").json == []
    assert shell("jobs", "cancel", "nightly").code == Exit.USAGE


def test_a_run_is_cancelled_alone(shell: Shell) -> None:
    shell("jobs", "submit", "nightly.toml")
    name = a_run(shell.folder)
    assert shell("jobs", "cancel", name).code == Exit.DONE
    assert [one["name"] for one in shell("jobs", "series", "--json").json] == ["nightly"]


def test_a_changed_file_is_submitted_again(shell: Shell) -> None:
    shell("jobs", "submit", "nightly.toml")
    (shell.folder / "nightly.toml").write_text(JOB.replace("0 2 * * 6", "@daily"))
    assert shell("jobs", "submit", "nightly.toml").code == Exit.DONE
    assert [one["schedule"] for one in shell("jobs", "series", "--json").json] == ["@daily"]


def test_what_cannot_recur_is_refused_in_one_line(shell: Shell) -> None:
    ran = shell("jobs", "submit", "nightly.toml", "--sweep", "lr=1,2")
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "a recurring job has one run at a time" in ran.err
    (shell.folder / "nightly.toml").write_text(JOB.replace("0 2 * * 6", "0 0 30 2 *"))
    ran = shell("jobs", "submit", "nightly.toml")
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "never comes: no day 30" in ran.err


def test_metrics_and_calendar_say_when_it_runs_next(shell: Shell) -> None:
    settings = load_settings(str(shell.folder / "gpuwatch.toml"))
    (series,) = submit_jobs(settings, [shell.folder / "nightly.toml"]).series
    found = MetricsReader().read(settings, real_now()).values
    assert found["gpuwatch_job_series_next_timestamp_seconds"] == {("nightly",): series.next_at.timestamp()}
    assert found["gpuwatch_job_series_missed"] == found["gpuwatch_job_series_skipped"] == {("nightly",): 0.0}
    assert [one.name for one in listed_series(settings)] == ["nightly"]
    assert series_details(settings, "other") is None
    (entry,) = calendar_entries(settings, real_now())
    assert (entry.summary, entry.starts_at) == ("Job nightly runs", series.next_at)
