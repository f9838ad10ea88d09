"""Jobs as rows: each transition with its event, once; on both engines."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

import pytest
from sqlalchemy import event, select, update

from gpuwatch.domain.jobs.job import (
    ALLOWED_JOB_TRANSITIONS,
    JobEvent,
    JobRun,
    JobState,
    JobTransition,
    JobTransitionRefused,
)
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.jobs.job_repository import SqlJobRepository, insert_job, next_change
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.schema.job_tables import JOB_STATES, job_changes
from gpuwatch.storage.setup.schema.job_tables import job as job_table
from gpuwatch.storage.setup.side_tables import watch_identity
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.builders_jobs import a_definition, a_job
from tests.reserving import launch_or_refusal

S = JobState


def to(state: JobState, minutes: int = 1, **changes: object) -> JobTransition:
    return JobTransition(to_state=state, at=NOON + timedelta(minutes=minutes), changes=changes)


@pytest.fixture
def repository(database: Database) -> SqlJobRepository:
    return SqlJobRepository(database)


def test_the_states_of_the_table_are_those_of_the_jobs() -> None:
    assert (
        set(JOB_STATES)
        == {one.value for one in JobState}
        == {transition.value for transition in ALLOWED_JOB_TRANSITIONS}
    )


def test_a_job_comes_back_as_it_was_submitted(repository: SqlJobRepository) -> None:
    job = a_job(deadline=NOON + timedelta(days=2), priority=3)
    repository.submit([job])
    assert repository.open_jobs() == [job]
    assert repository.job(job.job_id) == job == repository.find_job("train")


def test_only_jobs_that_changed_are_read_again(database: Database, repository: SqlJobRepository) -> None:
    """Of 10,000 open jobs few change between two passes of a daemon: another process changes them here."""
    other, statements = SqlJobRepository(database), []
    first, second = a_job(), a_job(job_id="jobbbbb2", name="other", submitted_at=NOON + timedelta(minutes=1))
    repository.submit([first, second])
    before = repository.open_jobs()

    @event.listens_for(database.engine, "before_cursor_execute")
    def note(_1: object, _2: object, statement: str, *_others: object) -> None:
        statements.append(statement)

    assert repository.open_jobs() == before
    assert not [one for one in statements if "FROM job " in one or "FROM job\n" in one]
    other.save_spent(first.job_id, 5)
    other.submit([a_job(job_id="jobcccc2", name="early", submitted_at=NOON - timedelta(minutes=1))])
    early, changed, same = repository.open_jobs()
    assert (early.name, changed.spent_microusd, changed.version) == ("early", 5, 0)
    assert same is before[1], "it was not read again"
    other.record(second, to(S.CANCELLED))
    assert [job.name for job in repository.open_jobs()] == ["early", "train"]
    assert repository.open_jobs() == SqlJobRepository(database).open_jobs()


def test_a_change_that_is_committed_late_is_read(database: Database, repository: SqlJobRepository) -> None:
    """Another process began its change first and commits last: its number must not be skipped."""
    other = open_database(database.engine.url.render_as_string(hide_password=False))
    later = Thread(target=repository.submit, args=([a_job(job_id="jobbbbb2", name="other")],))
    with other.write() as connection:
        insert_job(connection, a_job(), next_change(connection))
        later.start()
        later.join(0.3)
        assert repository.open_jobs() == []
    later.join()
    other.close()
    assert sorted(job.name for job in repository.open_jobs()) == ["other", "train"]


def test_a_store_put_back_to_an_earlier_state_is_read_whole(database: Database, repository: SqlJobRepository) -> None:
    repository.submit([a_job()])
    assert len(repository.open_jobs()) == 1
    with database.write() as connection:
        connection.execute(update(job_changes).values(changes=0))
        connection.execute(update(job_table).values(priority=7, changed=0))
    assert [job.priority for job in repository.open_jobs()] == [7]


def test_a_second_open_job_of_a_name_is_refused_and_nothing_is_written(repository: SqlJobRepository) -> None:
    repository.submit([a_job()])
    with pytest.raises(UsageError, match="'train' is already open"):
        repository.submit([a_job(job_id="jobbbbb2", name="other"), a_job(job_id="jobcccc2")])
    assert [job.name for job in repository.open_jobs()] == ["train"]


def test_a_step_writes_job_event_and_run_or_nothing(repository: SqlJobRepository) -> None:
    job = a_job()
    repository.submit([job])
    run = JobRun(job_id=job.job_id, run_number=1, launch_id="k" * 12, started_at=NOON)
    after = repository.record(job, to(S.RENTING, run_number=1, launch_id="k" * 12), run)
    assert (after.state, after.run_number, after.version) == (S.RENTING, 1, 1)
    assert repository.job(job.job_id) == after
    assert repository.runs(job.job_id) == [run]
    assert [event.kind for event in repository.events(job.job_id)] == ["submitted", "renting"]
    with pytest.raises(JobConflict):
        repository.record(job, to(S.CANCELLED))
    with pytest.raises(JobTransitionRefused, match="cannot become done"):
        repository.record(after, to(S.DONE))
    assert repository.job(job.job_id) == after


def test_a_run_keeps_what_was_fetched(repository: SqlJobRepository) -> None:
    job = a_job()
    repository.submit([job])
    fetched = ({"path": "out/adapter.bin", "bytes": 7, "sha256": "ab"},)
    run = JobRun(job_id=job.job_id, run_number=1, launch_id="k" * 12, results=fetched, checkpoint="step-9")
    repository.save_run(run, JobEvent(job_id=job.job_id, run_number=1, at=NOON, kind="checkpoint", detail={"step": 9}))
    assert repository.runs(job.job_id) == [run]
    assert repository.events(job.job_id)[-1].detail == {"step": 9}


def test_the_watch_of_a_job_has_the_id_of_the_job_while_it_is_open(
    repository: SqlJobRepository, database: Database
) -> None:
    job = a_job()
    repository.submit([job])
    ended = repository.record(job, to(S.CANCELLED))
    with database.read() as connection:
        (row,) = connection.execute(select(watch_identity).where(watch_identity.c.name == "job:train")).all()
    assert row.watch_id == job.job_id
    assert row.retired_at_ms is not None
    again = a_job(job_id="jobbbbb2")
    repository.submit([again])
    with pytest.raises(UsageError, match="is open"):
        repository.record(ended, to(S.QUEUED))
    assert repository.find_job("train") == again


def test_ended_jobs_are_pruned_and_open_ones_stay(repository: SqlJobRepository, database: Database) -> None:
    repository.submit([a_job(), a_job(job_id="jobbbbb2", name="other")])
    repository.record(a_job(), to(S.CANCELLED))
    assert prune(database, timedelta(days=1), NOON + timedelta(days=30)).jobs == 1
    assert [job.name for job in repository.recent()] == ["other"]
    assert repository.events("jobaaaa2") == []


def test_what_an_open_job_depends_on_is_not_pruned(repository: SqlJobRepository, database: Database) -> None:
    report = a_job(job_id="jobbbbb3", definition=a_definition(name="report", depends_on=("train", "grid")))
    part = a_job(job_id="jobbbbb4", definition=a_definition(name="grid-1", group="grid"))
    repository.submit([a_job(), a_job(job_id="jobbbbb2", name="other"), part, report])
    for job in (a_job(), a_job(job_id="jobbbbb2", name="other"), part):
        repository.record(job, to(S.CANCELLED))
    assert prune(database, timedelta(days=1), NOON + timedelta(days=30)).jobs == 1
    assert {job.name for job in repository.ended_jobs(["train", "grid"])} == {"train", "grid-1"}
    repository.record(report, to(S.CANCELLED))
    assert prune(database, timedelta(days=1), NOON + timedelta(days=30)).jobs == 3


def test_a_job_takes_over_an_instance_only_while_it_rents_none_and_renting_is_not_paused(database: Database) -> None:
    """Both runs and the transition, or nothing; a concurrent reservation sees one or the other."""
    repository = SqlJobRepository(database)
    first, second = a_job(), a_job(job_id="jobbbbb2", name="next")
    repository.submit([first, second])
    given = JobRun(job_id=first.job_id, run_number=1, launch_id="k" * 12, held_until=NOON)
    begins = JobRun(job_id=second.job_id, run_number=1, launch_id="k" * 12, held_from=NOON)
    step = to(S.PREPARING, run_number=1, launch_id="k" * 12)
    pauses = SqlPauseRepository(database)
    pauses.pause(Pause(watch=None, at=NOON, why="holiday"))
    with pytest.raises(JobConflict, match="holiday"):
        repository.take_over(second, step, begins, given)
    pauses.resume(None, NOON, "back")
    with database.write() as connection:
        launch = launch_or_refusal(connection, _intent("job:next"), Budget(), NOON)
    assert isinstance(launch, Launch)
    with pytest.raises(JobConflict, match="rents its own"):
        repository.take_over(second, step, begins, given)
    assert (repository.runs(first.job_id), repository.runs(second.job_id)) == ([], [])
    SqlLaunchRepository(database).transition(launch, LaunchState.FAILED, "gone", NOON, ended_at=NOON)
    after = repository.take_over(second, step, begins, given)
    assert (after.state, repository.runs(first.job_id), repository.runs(second.job_id)) == (
        S.PREPARING, [given], [begins],
    )  # fmt: skip
    with pytest.raises(JobConflict, match="changed concurrently"):
        repository.take_over(second, step, begins, given)


@pytest.mark.parametrize("state", [S.PREPARING, S.CANCELLED])
def test_nothing_is_reserved_for_a_job_that_is_not_queued_any_more(database: Database, state: JobState) -> None:
    """Its watch may be a second old: it was cancelled, or uses another job's instance."""
    repository = SqlJobRepository(database)
    repository.submit([a_job()])
    repository.record(a_job(), to(state))
    with database.write() as connection:
        refused = launch_or_refusal(connection, _intent("job:train"), Budget(), NOON)
    assert isinstance(refused, LaunchRefusal)


def test_an_instance_that_outlives_its_job_is_no_renamed_watch(database: Database) -> None:
    """A new watch was refused, because it might have been the job's new name."""
    repository = SqlJobRepository(database)
    repository.submit([a_job()])
    with database.write() as connection:
        assert isinstance(launch_or_refusal(connection, _intent("job:train"), Budget(), NOON), Launch)
    repository.record(a_job(), to(S.CANCELLED))
    with database.write() as connection:
        assert isinstance(launch_or_refusal(connection, _intent("h100", "2"), Budget(), NOON), Launch)


def _intent(watch: str, offer_id: str = "1") -> Intent:
    wanted = a_watch(name=watch, action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0, max_total=0))
    match = a_match(an_offer(offer_id=offer_id, machine_id=f"m{offer_id}"))
    return Intent(watch=wanted, match=match, launch_id=offer_id * 12, dry_run=False)
