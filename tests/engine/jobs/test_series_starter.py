"""The daemon starts each time of a schedule once, whatever else happens to the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select, update

from gpuwatch.domain.jobs.job import Job, JobState, JobTransition
from gpuwatch.domain.jobs.job_series import JobSeries, due_step, new_series, run_of
from gpuwatch.engine.jobs.series_starter import SeriesStarter
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.schema.job_tables import job_series
from gpuwatch.storage.setup.side_tables import alert
from tests.builders_jobs import a_definition, a_job

BERLIN = ZoneInfo("Europe/Berlin")
SUBMITTED = datetime(2026, 11, 29, 12, tzinfo=UTC)
FIRST = datetime(2026, 12, 5, 1, tzinfo=UTC)
WEEK, HOUR = timedelta(days=7), timedelta(hours=1)


def a_series(**changes: Any) -> JobSeries:
    spec = {"name": "nightly", "schedule": "0 2 * * 6", "deadline_s": 21_600.0} | changes
    return new_series(a_definition(**spec), SUBMITTED, BERLIN)


class World:
    """The part of a daemon that starts recurring jobs, over a real store."""

    def __init__(self, database: Database, ids: Callable[[], str] | None = None) -> None:
        numbers = count(2)
        self.database = database
        self.series, self.jobs = SqlSeriesRepository(database), SqlJobRepository(database)
        self.starter = SeriesStarter(self.series, self.jobs, BERLIN, ids or (lambda: f"run{next(numbers):05}"))

    def submit(self, **changes: Any) -> None:
        self.jobs.submit([], [a_series(**changes)])

    def tick(self, at: datetime) -> list[tuple[str, str]]:
        """Run one pass; return all runs and their states."""
        self.starter.tick(at)
        return [(job.name, job.state.value) for job in self.jobs.recent()]

    def stored(self) -> JobSeries:
        found = self.series.find("nightly")
        assert found is not None
        return found

    def end(self, name: str, at: datetime, state: JobState = JobState.FAILED) -> Job:
        job = self.jobs.find_job(name)
        assert job is not None
        return self.jobs.record(job, JobTransition(to_state=state, at=at))

    def alerts(self) -> list[str]:
        with self.database.read() as connection:
            return list(connection.execute(select(alert.c.headline).order_by(alert.c.created_at_ms)).scalars())


@pytest.fixture
def world(database: Database) -> World:
    world = World(database)
    world.submit()
    return world


def test_a_time_becomes_one_run_however_often_a_daemon_looks(world: World) -> None:
    assert world.tick(FIRST - HOUR) == []
    for at in (FIRST, FIRST + HOUR / 60, FIRST + HOUR):
        assert world.tick(at) == [("nightly@2026-12-05-0200", "queued")]
    stored = world.stored()
    assert (stored.last_job_id, stored.last_planned_at, stored.next_at) == ("run00002", FIRST, FIRST + WEEK)
    assert (stored.missed, stored.skipped, world.alerts()) == (0, 0, [])


def test_a_time_is_skipped_while_a_run_is_open_and_that_is_reported_once(world: World) -> None:
    world.tick(FIRST)
    for week in (1, 2, 3):
        assert len(world.tick(FIRST + week * WEEK)) == 1
    assert (world.stored().skipped, world.stored().next_at) == (3, FIRST + 4 * WEEK)
    assert world.alerts() == ["job nightly: its previous run is not over"]
    world.end("nightly@2026-12-05-0200", FIRST + 4 * WEEK - HOUR)
    assert [name for name, state in world.tick(FIRST + 4 * WEEK) if state == "queued"] == ["nightly@2027-01-02-0200"]


def test_times_at_which_no_daemon_ran_are_one_alert(world: World) -> None:
    assert world.tick(FIRST + 2 * WEEK + 7 * HOUR) == []
    assert (world.stored().missed, world.alerts()) == (3, ["job nightly: missed runs: 3"])
    assert world.tick(FIRST + 2 * WEEK + 8 * HOUR) == []
    assert len(world.alerts()) == 1


def test_catch_up_runs_once_for_them(database: Database) -> None:
    world, now = World(database), FIRST + WEEK + 7 * HOUR
    world.submit(catch_up=True)
    assert world.tick(now) == [("nightly@2026-12-12-0200", "queued")]
    assert world.tick(now + HOUR) == [("nightly@2026-12-12-0200", "queued")]
    (run,) = world.jobs.open_jobs()
    assert (run.deadline, world.stored().missed, world.alerts()) == (now + 6 * HOUR, 2, ["job nightly: missed runs: 2"])


def test_two_daemons_on_one_store_start_a_time_once(database: Database) -> None:
    """Both read the series before either has written."""
    World(database).submit()
    one, two = World(database), World(open_database(database.engine.url.render_as_string(hide_password=False)))
    series = one.series.find("nightly")
    assert series is not None
    for world, job_id in ((one, "jobaaaa2"), (two, "jobaaaa3")):
        step = due_step(series, FIRST, BERLIN, is_open=False)
        assert step is not None
        run = run_of(series, step, job_id, FIRST, BERLIN)
        if world is one:
            world.series.record(step.after, run, None)
        else:
            with pytest.raises(JobConflict):
                world.series.record(step.after, run, None)
    assert [job.job_id for job in one.jobs.recent()] == ["jobaaaa2"]
    two.database.close()


def test_a_death_between_run_and_next_time_leaves_neither(world: World) -> None:
    class Killed(BaseException):
        """The process ended here."""

    def dies() -> None:
        raise Killed

    step = due_step(world.stored(), FIRST, BERLIN, is_open=False)
    assert step is not None
    with pytest.raises(Killed):
        world.series.record(step.after, run_of(world.stored(), step, "jobaaaa9", FIRST, BERLIN), None, dies)
    assert (world.jobs.recent(), world.stored().next_at) == ([], FIRST)
    assert world.tick(FIRST) == [("nightly@2026-12-05-0200", "queued")]


def test_a_time_that_ran_before_the_clock_was_set_back_does_not_run_again(world: World) -> None:
    world.tick(FIRST)
    world.end("nightly@2026-12-05-0200", FIRST + HOUR)
    with world.database.write() as connection:
        connection.execute(update(job_series).values(next_at_ms=round(FIRST.timestamp() * 1000)))
    assert world.tick(FIRST + 2 * HOUR) == [("nightly@2026-12-05-0200", "failed")]
    assert world.stored().next_at == FIRST + WEEK


def test_an_older_run_cannot_be_retried_beside_an_open_one(world: World) -> None:
    world.tick(FIRST)
    world.end("nightly@2026-12-05-0200", FIRST + HOUR)
    world.tick(FIRST + WEEK)
    with pytest.raises(UsageError, match="another run of 'nightly' is open; cancel it first"):
        world.end("nightly@2026-12-05-0200", FIRST + WEEK + HOUR, JobState.QUEUED)


def test_a_changed_file_keeps_counts_and_begins_with_its_next_time(world: World) -> None:
    world.tick(FIRST + 7 * HOUR)
    daily = new_series(a_definition(name="nightly", schedule="@daily", deadline_s=60.0), FIRST + 8 * HOUR, BERLIN)
    world.jobs.submit([], [daily])
    stored = world.stored()
    assert (stored.definition.schedule, stored.missed, stored.next_at) == ("@daily", 1, FIRST + 22 * HOUR)


def test_an_ended_one_starts_nothing_until_it_is_submitted_again(world: World) -> None:
    assert world.series.end(world.stored(), FIRST - HOUR)
    assert not world.series.end(world.stored(), FIRST - HOUR)
    assert world.tick(FIRST) == []
    world.submit()
    assert world.tick(FIRST) == [("nightly@2026-12-05-0200", "queued")]


def test_a_job_and_a_recurring_job_cannot_have_one_name(world: World) -> None:
    with pytest.raises(UsageError, match="a recurring job 'nightly' exists; end it with gpuwatch jobs cancel"):
        world.jobs.submit([a_job(name="nightly")])
    world.jobs.submit([a_job(name="daily")])
    with pytest.raises(UsageError, match="a job 'daily' is already open"):
        world.jobs.submit([], [a_series(name="daily")])


def test_those_of_another_owner_are_not_started(world: World) -> None:
    world.jobs.submit([], [a_series(name="lab::weekly")])
    assert [one.name for one in world.series.every()] == ["nightly"]
