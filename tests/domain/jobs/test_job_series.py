"""Recurring jobs: which times become runs, which are missed, which are skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gpuwatch.domain.jobs.job_series import (
    TIMES_MAX,
    JobSeries,
    due_step,
    new_series,
    replayed_steps,
    run_of,
    series_view,
)
from gpuwatch.domain.jobs.job_values import JobFiles
from gpuwatch.errors import SettingsError
from gpuwatch.settings.validate import read_job_file
from gpuwatch.testing.suite import case
from tests.builders_jobs import a_definition

BERLIN = ZoneInfo("Europe/Berlin")
SUBMITTED = datetime(2026, 11, 29, 12, tzinfo=UTC)
FIRST = datetime(2026, 12, 5, 1, tzinfo=UTC)  # Saturday, 02:00 in Berlin
WEEK = timedelta(days=7)


def a_series(**changes: object) -> JobSeries:
    spec = {"name": "nightly", "schedule": "0 2 * * 6", "deadline_s": 21_600.0} | changes
    return new_series(a_definition(**spec), SUBMITTED, BERLIN)


def test_the_first_run_is_at_the_first_time_after_the_submission() -> None:
    series = a_series()
    assert series.next_at == FIRST
    assert due_step(series, FIRST - timedelta(seconds=1), BERLIN, is_open=False) is None


def test_a_time_becomes_a_job_whose_deadline_is_that_time_plus_within() -> None:
    series = a_series(results=(JobFiles(source="out/*", target="results/nightly"),), priority=3, retries=5)
    now = FIRST + timedelta(seconds=5)
    step = due_step(series, now, BERLIN, is_open=False)
    assert step is not None
    run = run_of(series, step, "jobaaaa2", now, BERLIN)
    assert run is not None
    assert (run.name, run.watch_name) == ("nightly@2026-12-05-0200", "job:nightly@2026-12-05-0200")
    assert (run.deadline, run.submitted_at, run.planned_at) == (FIRST + timedelta(hours=6), now, FIRST)
    assert (run.series, run.priority, run.retries_left) == ("nightly", 3, 5)
    assert (run.definition.schedule, run.definition.resources.name) == (None, run.watch_name)
    assert [one.target for one in run.definition.results] == ["results/nightly/2026-12-05-0200"]
    assert (step.after.next_at, step.missed, step.skipped) == (FIRST + WEEK, None, 0)


def test_a_time_is_skipped_while_the_previous_run_is_open() -> None:
    step = due_step(a_series(), FIRST + timedelta(seconds=5), BERLIN, is_open=True)
    assert step is not None
    assert (step.planned_at, step.missed, step.skipped) == (None, None, 1)
    assert (step.after.skipped, step.after.missed, step.after.next_at) == (1, 0, FIRST + WEEK)


def test_a_late_start_within_its_time_runs_and_keeps_its_deadline() -> None:
    series, now = a_series(), FIRST + timedelta(hours=5)
    step = due_step(series, now, BERLIN, is_open=False)
    assert step is not None
    run = run_of(series, step, "jobaaaa2", now, BERLIN)
    assert run is not None
    assert (run.deadline, step.missed) == (FIRST + timedelta(hours=6), None)


def test_times_of_the_past_are_replayed_as_the_daemon_would_have_met_them() -> None:
    """It was off from before the second time until five hours after it, and from the fourth one for ten days."""
    off = ((FIRST + WEEK, FIRST + WEEK + timedelta(hours=5)), (FIRST + 3 * WEEK, FIRST + 3 * WEEK + timedelta(days=10)))

    def replayed(**changes: object) -> list[tuple[datetime, datetime | None, int]]:
        def resumes(at: datetime) -> datetime | None:
            return next((until for since, until in off if since <= at < until), at)

        steps = replayed_steps(a_series(**changes), FIRST + 5 * WEEK, BERLIN, resumes)
        return [(now, step.planned_at, step.missed[2] if step.missed else 0) for now, step in steps]

    late = off[1][1]
    first = [(FIRST, FIRST, 0), (off[0][1], FIRST + WEEK, 0), (FIRST + 2 * WEEK, FIRST + 2 * WEEK, 0)]
    assert replayed() == [*first, (late, None, 2), (FIRST + 5 * WEEK, FIRST + 5 * WEEK, 0)]
    assert replayed(catch_up=True)[3] == (late, FIRST + 4 * WEEK, 2)
    assert len(list(replayed_steps(a_series(), FIRST + 5 * WEEK, BERLIN, lambda _: None))) == 0


def test_times_past_their_within_are_missed_and_nothing_runs() -> None:
    now = FIRST + 2 * WEEK + timedelta(hours=6)
    step = due_step(a_series(), now, BERLIN, is_open=False)
    assert step is not None
    assert step.missed == (FIRST, FIRST + 2 * WEEK, 3)
    assert (step.planned_at, step.after.missed, step.after.next_at) == (None, 3, FIRST + 3 * WEEK)
    assert run_of(a_series(), step, "jobaaaa2", now, BERLIN) is None


def test_catch_up_makes_one_run_of_all_missed_times() -> None:
    series, now = a_series(catch_up=True), FIRST + 2 * WEEK + timedelta(hours=7)
    step = due_step(series, now, BERLIN, is_open=False)
    assert step is not None
    run = run_of(series, step, "jobaaaa2", now, BERLIN)
    assert run is not None
    assert (step.after.missed, run.planned_at, run.deadline) == (3, FIRST + 2 * WEEK, now + timedelta(hours=6))


def test_of_several_times_that_have_come_the_newest_runs() -> None:
    now = FIRST + WEEK + timedelta(hours=1)
    step = due_step(a_series(), now, BERLIN, is_open=False)
    assert step is not None
    assert (step.planned_at, step.missed) == (FIRST + WEEK, (FIRST, FIRST, 1))


def test_a_long_outage_is_counted_up_to_a_bound() -> None:
    series = a_series(schedule="* * * * *", deadline_s=60.0)
    step = due_step(series, SUBMITTED + timedelta(days=30), BERLIN, is_open=False)
    assert step is not None
    assert step.after.missed == TIMES_MAX
    assert step.after.next_at == SUBMITTED + timedelta(days=30, minutes=1)


def test_the_clocks_do_not_move_the_local_time_of_a_schedule() -> None:
    series = a_series(schedule="0 2 * * 0")
    times = [series.next_at]
    while times[-1] < datetime(2027, 4, 1, tzinfo=UTC):
        step = due_step(series, times[-1], BERLIN, is_open=False)
        assert step is not None
        series = step.after
        times.append(series.next_at)
    local = [at.astimezone(BERLIN).strftime("%H:%M") for at in times]
    assert [at for at in local if at != "02:00"] == ["03:00"]  # 28 March 2027: there is no 02:00


def test_json_says_when_it_runs_next() -> None:
    assert msgspec.to_builtins(series_view(a_series())) == {
        "name": "nightly",
        "schedule": "0 2 * * 6",
        "within_s": 21_600.0,
        "catch_up": False,
        "next_at": "2026-12-05T01:00:00Z",
        "last_planned_at": None,
        "last_job_id": None,
        "missed": 0,
        "skipped": 0,
        "submitted_at": "2026-11-29T12:00:00Z",
        "ended_at": None,
    }


PLAIN = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_price = 2 }\n'


def test_a_job_file_with_a_schedule(tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(PLAIN + 'schedule = "0 2 * * sat"\nwithin = "6h"\ncatch_up = true\n')
    spec = read_job_file(path)
    assert (spec.schedule, spec.deadline_s, spec.catch_up) == ("0 2 * * sat", 21_600.0, True)


def test_wrong_keys_of_a_schedule_are_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    wrong = {
        'schedule = "0 2 * * 6"\n': "schedule: expected within",
        'within = "6h"\n': "within and catch_up: expected only with schedule",
        "catch_up = true\n": "within and catch_up: expected only with schedule",
        'schedule = "0 2 * * 6"\nwithin = "6h"\ndeadline = "2d"\n': "deadline: not with schedule",
        'schedule = "0 0 30 2 *"\nwithin = "6h"\n': "schedule: never comes: no day 30",
        'schedule = "0 25 * * *"\nwithin = "6h"\n': "schedule: hour '25': expected 0 to 23",
        'schedule = "nightly"\nwithin = "6h"\n': "schedule: expected five fields",
        'schedule = 5\nwithin = "6h"\n': "schedule",
    }
    for text, said in wrong.items():
        path.write_text(PLAIN + text)
        with case(text), pytest.raises(SettingsError) as error:
            read_job_file(path)
        (line,) = error.value.faults
        assert said in line, line
