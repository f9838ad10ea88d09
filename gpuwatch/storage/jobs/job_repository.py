"""Jobs as rows. Each transition of a job is one transaction: its row, its event, its run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, and_, bindparam, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from gpuwatch.domain.jobs.job import (
    MOVE_EVENT,
    ON_AN_INSTANCE,
    RELOCATED,
    Job,
    JobEvent,
    JobMove,
    JobRun,
    JobState,
    JobTransition,
    apply_transition,
    move_in,
)
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_series import JobSeries
from gpuwatch.domain.launches.life.owner_decisions import pause_refusal
from gpuwatch.domain.watches.owner_names import owned_name, owner_of
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.alerts.pauses import load_pauses, lock_reservations
from gpuwatch.storage.history.pruned_totals import counted_ever
from gpuwatch.storage.jobs.series_rows import names_of_series, store_series
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.job_tables import JOB_IS_OPEN, job_changes, job_event, job_run
from gpuwatch.storage.setup.schema.job_tables import job as jobs
from gpuwatch.storage.setup.side_tables import watch_identity
from gpuwatch.storage.setup.stored_values import AnyRow, QueryCache, from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import IS_ALIVE, launch

_CHANGES = select(job_changes.c.changes)
_IDS_PER_QUERY = 500
_ROWS_AT_ONCE = 500
_NAMES_PER_QUERY = 200  # SQLite takes at most 1,000 terms in an expression
_DEFINITION_DECODER = msgspec.json.Decoder(JobDefinition)
_IDENTITY = watch_identity.c.watch_id == bindparam("of_job")
_IS_VERSION = and_(jobs.c.job_id == bindparam("of_job"), jobs.c.version == bindparam("as_read"))
_UPDATE = update(jobs).where(_IS_VERSION)
_ACTIVE_LAUNCH = select(launch.c.launch_id).where(launch.c.watch_id == bindparam("of_job"), IS_ALIVE)


class _OpenJobs(NamedTuple):
    """Open jobs as last read, oldest first."""

    generation: int  # of the database
    changes: int | None  # of jobs, when they were read; None: never
    jobs: dict[str, Job]


class SqlJobRepository:
    """Implements `ports.jobs.JobStore` over the database, and further queries of the queue and the commands."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_read = _OpenJobs(0, None, {})  # reading 10,000 of them at each pass would be slow
        self._open_jobs = QueryCache(database, self._read_open)

    # --- for the daemon -----------------------------------------------------------------------------------------------

    def open_jobs(self) -> list[Job]:
        """Return this owner's open jobs, oldest first; reads what changed since the last call. Raises StoreError."""
        return list(self._open_jobs.get())

    def _read_open(self, connection: Connection) -> Sequence[Job]:
        last, generation = self._last_read, self._database.generation
        changes = connection.execute(_CHANGES).scalar_one()  # before the rows: they are at least as new
        if last.changes is None or changes < last.changes or generation != last.generation:
            last, query = _OpenJobs(generation, None, {}), select(jobs).where(JOB_IS_OPEN)
        elif changes == last.changes:
            return list(last.jobs.values())
        else:
            query = select(jobs).where(jobs.c.changed > last.changes)
        rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
        read = {row.job_id: _job_of(row) for row in rows}
        found = [job for job in (last.jobs | read).values() if not job.is_over]
        found = [job for job in found if owner_of(job.name) == self._database.owner]
        found.sort(key=lambda job: (job.submitted_at, job.job_id))
        self._last_read = _OpenJobs(generation, changes, {job.job_id: job for job in found})
        return found

    def job(self, job_id: str) -> Job | None:
        """Return one job. Raises StoreError."""
        return next(iter(self._select(jobs.c.job_id == job_id)), None)

    def runs(self, job_id: str) -> list[JobRun]:
        """Return its runs, oldest first. Raises StoreError."""
        query = select(job_run).where(job_run.c.job_id == job_id).order_by(job_run.c.run_number)
        with self._database.read() as connection:
            return [_run_of(row) for row in connection.execute(query)]

    def save_run(self, run: JobRun, event: JobEvent | None = None) -> None:
        """Store a run and an event in one transaction. Raises StoreError."""
        with self._database.write() as connection:
            upsert(connection, job_run, _row_of_run(run))
            if event is not None:
                connection.execute(insert(job_event), _row_of_event(event))

    def record(
        self, job: Job, transition: JobTransition, run: JobRun | None = None, audit: OutboxAlert | None = None
    ) -> Job:
        """Store one transition with its event and run. Raises JobConflict, JobTransitionRefused, StoreError."""
        with self._database.write() as connection:
            add_audit(connection, audit)
            return _step(connection, job, transition, *(() if run is None else (run,)))

    def take_over(self, job: Job, transition: JobTransition, run: JobRun, donor_run: JobRun) -> Job:
        """Move a queued job onto the instance of a finished job. Raises JobConflict, StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)  # a reservation reads whether the job is queued
            if connection.execute(_ACTIVE_LAUNCH, {"of_job": job.job_id}).first() is not None:
                raise JobConflict(f"job {job.name!r} rents its own instance")
            paused = pause_refusal(load_pauses(connection).by_hand, job.watch_name, transition.at)
            if paused is not None:
                raise JobConflict(f"job {job.name!r}: {paused.text}")
            return _step(connection, job, transition, run, donor_run)

    def ended_jobs(self, names: Collection[str]) -> list[Job]:
        """Return ended jobs with one of these names, or of an array with such a name. Raises StoreError."""
        all_names, ended = list(names), []
        for start in range(0, len(all_names), _NAMES_PER_QUERY):
            chunk = all_names[start : start + _NAMES_PER_QUERY]
            is_in_array = [jobs.c.name.startswith(f"{name}-", autoescape=True) for name in chunk]
            ended += self._select(and_(~JOB_IS_OPEN, or_(jobs.c.name.in_(chunk), *is_in_array)))
        return [job for job in ended if job.name in names or job.definition.group in names]

    def save_spent(self, job_id: str, spent_microusd: int) -> None:
        """Store the cost of a job so far, without a new version. Raises StoreError."""
        with self._database.write() as connection:
            values = {"spent_microusd": spent_microusd, "changed": next_change(connection)}
            connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(values))

    # --- for the commands ---------------------------------------------------------------------------------------------

    def submit(self, new_jobs: Sequence[Job], series: Sequence[JobSeries] = ()) -> None:
        """Store new jobs and recurring ones, all or none; a recurring job with a known name gets its new file.

        Raises:
            UsageError: an open job has one of these names, or a recurring job that of a new job.
            StoreError: nothing was written.
        """
        with self._database.write() as connection:
            if recurring := names_of_series(connection, {job.name for job in new_jobs}):
                taken = f"a recurring job {min(recurring)!r} exists"
                raise UsageError(f"{taken}; end it with gpuwatch jobs cancel, or choose another name")
            names = {job.name for job in new_jobs} | {one.name for one in series}
            open_name = (
                connection.execute(select(jobs.c.name).where(JOB_IS_OPEN, jobs.c.name.in_(names))).scalars().first()
            )
            if open_name is not None:
                raise UsageError(f"a job {open_name!r} is already open; cancel it, or choose another name")
            store_series(connection, series)
            changed = next_change(connection)
            for job in new_jobs:
                insert_job(connection, job, changed)

    def recent(self, limit: int | None = None, state: JobState | None = None) -> list[Job]:
        """Return the newest jobs, oldest first. Raises StoreError."""
        query = select(jobs).order_by(jobs.c.submitted_at_ms.desc(), jobs.c.job_id.desc())
        if state is not None:
            query = query.where(jobs.c.state == state.value)
        with self._database.read() as connection:
            rows = connection.execute(query if limit is None else query.limit(limit)).all()
        return [_job_of(row) for row in reversed(rows)]

    def find_job(self, name_or_id: str) -> Job | None:
        """Return a job by its id, else the newest with that name. Raises StoreError."""
        job, name = self.job(name_or_id), owned_name(self._database.owner, name_or_id)
        return job or next(reversed(self._select(jobs.c.name == name)), None)

    def array_jobs(self, group: str) -> list[Job]:
        """Return the jobs of an array, oldest first. Raises StoreError."""
        candidates = self._select(jobs.c.name.startswith(f"{group}-", autoescape=True))
        return [job for job in candidates if job.definition.group == group]

    def runs_of_series(self, series: str) -> list[Job]:
        """Return the jobs of a recurring job, oldest first. Raises StoreError."""
        return self._select(jobs.c.series == series)

    def events(self, job_id: str) -> list[JobEvent]:
        """Return its events, oldest first. Raises StoreError."""
        query = select(job_event).where(job_event.c.job_id == job_id).order_by(job_event.c.id)
        with self._database.read() as connection:
            return [_event_of(row) for row in connection.execute(query)]

    def newest_events(self, job_ids: Collection[str], kinds: Collection[str]) -> list[JobEvent]:
        """Return the newest event of each of these kinds for each of these jobs. Raises StoreError."""
        all_ids, newest_rows = list(job_ids), []
        with self._database.read() as connection:
            for start in range(0, len(all_ids), _IDS_PER_QUERY):
                newest = (
                    select(func.max(job_event.c.id))
                    .where(job_event.c.job_id.in_(all_ids[start : start + _IDS_PER_QUERY]), job_event.c.kind.in_(kinds))
                    .group_by(job_event.c.job_id, job_event.c.kind)
                )
                rows = connection.execute(select(job_event).where(job_event.c.id.in_(newest)))
                newest_rows += [_event_of(row) for row in rows]
        return newest_rows

    def moves(self, job_ids: Collection[str]) -> dict[tuple[str, int], JobMove]:
        """Return the moves of these jobs to cheaper machines, by job id and the run that ended. Raises StoreError."""
        is_of_run = and_(job_run.c.job_id == job_event.c.job_id, job_run.c.run_number == job_event.c.run_number)
        made: dict[tuple[str, int], JobMove] = {}
        all_ids = list(job_ids)
        with self._database.read() as connection:
            for start in range(0, len(all_ids), _IDS_PER_QUERY):
                query = (
                    select(job_event)
                    .join(job_run, is_of_run)
                    .where(job_event.c.job_id.in_(all_ids[start : start + _IDS_PER_QUERY]))
                    .where(job_event.c.kind == MOVE_EVENT, job_run.c.step == RELOCATED)
                    .order_by(job_event.c.id)
                )
                for event in map(_event_of, connection.execute(query)):
                    if (move := move_in(event)) is not None:
                        made[event.job_id, event.run_number] = move  # decided again after a crash: the newest counts
        return made

    def runs_on_an_instance(self) -> list[JobRun]:
        """Return the newest run of each job that is on an instance. Raises StoreError."""
        is_newest = and_(job_run.c.job_id == jobs.c.job_id, job_run.c.run_number == jobs.c.run_number)
        on_instance = [state.value for state in ON_AN_INSTANCE]
        query = select(job_run).join(jobs, is_newest).where(jobs.c.state.in_(on_instance))
        with self._database.read() as connection:
            return [_run_of(row) for row in connection.execute(query)]

    def open_with_deadline(self) -> list[Job]:
        """Return open jobs with a deadline. Raises StoreError."""
        return self._select(and_(JOB_IS_OPEN, jobs.c.deadline_ms.is_not(None)))

    def jobs_on_instance(self) -> list[Job]:
        """Return jobs whose instance runs. Raises StoreError."""
        return self._select(jobs.c.state.in_([state.value for state in ON_AN_INSTANCE]))

    def spent_microusd(self) -> int:
        """Return the total cost of all jobs, also of those that were pruned. Raises StoreError."""
        with self._database.read() as connection:
            return sum(counted_ever(connection, jobs).values())

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state. Raises StoreError."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.read() as connection:
            return {row.state: row[1] for row in connection.execute(query)}

    def _select(self, where: Any) -> list[Job]:
        query = select(jobs).where(where).order_by(jobs.c.submitted_at_ms, jobs.c.job_id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_job_of(row) for row in rows]


def _step(connection: Connection, job: Job, transition: JobTransition, *runs: JobRun) -> Job:
    updated, event = apply_transition(job, transition)
    values = _row_of(updated) | {"of_job": job.job_id, "as_read": job.version, "changed": next_change(connection)}
    if "spent_microusd" not in transition.changes:
        del values["spent_microusd"]  # see save_spent
    try:
        changed = connection.execute(_UPDATE, values).rowcount
    except IntegrityError:
        other = f"job {job.name!r}" if job.series is None else f"run of {job.series!r}"
        raise UsageError(f"another {other} is open; cancel it first") from None
    if changed != 1:
        raise JobConflict(f"job {job.name!r} was changed concurrently")
    connection.execute(insert(job_event), _row_of_event(event))
    for run in runs:
        upsert(connection, job_run, _row_of_run(run))
    retired_at_ms = to_ms(transition.at) if updated.is_over else None
    connection.execute(
        update(watch_identity).where(_IDENTITY).values(retired_at_ms=retired_at_ms), {"of_job": job.job_id}
    )
    return updated


def next_change(connection: Connection) -> int:
    """Return the number of this transaction's change of jobs; others that change jobs wait until it ends.

    Nothing with a lower number can therefore appear later: a sequence would not promise that.
    """
    connection.execute(update(job_changes).values(changes=job_changes.c.changes + 1))
    return int(connection.execute(_CHANGES).scalar_one())


def insert_job(connection: Connection, job: Job, changed: int) -> None:
    """Store a new job with its identity and its first event in the caller's transaction."""
    connection.execute(insert(jobs), _row_of(job) | {"job_id": job.job_id, "changed": changed})
    # its launches have its id as the id of their watch
    identity = {"watch_id": job.job_id, "name": job.watch_name, "created_at_ms": to_ms(job.submitted_at)}
    connection.execute(insert(watch_identity), identity)
    event = JobEvent(job_id=job.job_id, run_number=0, at=job.submitted_at, kind="submitted")
    connection.execute(insert(job_event), _row_of_event(event))


def _row_of(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "definition": msgspec.json.encode(job.definition).decode(),
        "state": job.state.value,
        "priority": job.priority,
        "deadline_ms": to_ms(job.deadline),
        "submitted_at_ms": to_ms(job.submitted_at),
        "started_at_ms": to_ms(job.started_at),
        "ended_at_ms": to_ms(job.ended_at),
        "exit_code": job.exit_code,
        "launch_id": job.launch_id,
        "progress": job.progress,
        "predicted_microusd": job.predicted_microusd,
        "spent_microusd": job.spent_microusd,
        "reason": job.reason,
        "run_number": job.run_number,
        "retries_left": job.retries_left,
        "version": job.version,
        "series": job.series,
        "planned_at_ms": to_ms(job.planned_at),
    }


def _job_of(row: AnyRow) -> Job:
    return Job(
        job_id=row.job_id,
        name=row.name,
        definition=_DEFINITION_DECODER.decode(row.definition),
        state=JobState(row.state),
        priority=row.priority,
        deadline=from_ms(row.deadline_ms),
        submitted_at=from_ms(row.submitted_at_ms),
        started_at=from_ms(row.started_at_ms),
        ended_at=from_ms(row.ended_at_ms),
        exit_code=row.exit_code,
        launch_id=row.launch_id,
        progress=row.progress,
        predicted_microusd=row.predicted_microusd,
        spent_microusd=row.spent_microusd,
        reason=row.reason,
        run_number=row.run_number,
        retries_left=row.retries_left,
        version=row.version,
        series=row.series,
        planned_at=from_ms(row.planned_at_ms),
    )


_TIMES_OF_RUN = ("started_at", "lease_until", "last_seen_at", "ended_at", "held_from", "held_until")


def _row_of_run(run: JobRun) -> dict[str, Any]:
    values = msgspec.structs.asdict(run) | {"results": msgspec.json.encode(run.results).decode()}
    return {f"{name}_ms" if name in _TIMES_OF_RUN else name: _stored(value) for name, value in values.items()}


def _stored(value: Any) -> Any:
    return to_ms(value) if isinstance(value, datetime) else value


def _run_of(row: AnyRow) -> JobRun:
    values = {**row._mapping, "results": tuple(msgspec.json.decode(row.results))}
    for name in _TIMES_OF_RUN:
        values[name] = from_ms(values.pop(f"{name}_ms"))
    return JobRun(**values)


def _row_of_event(event: JobEvent) -> dict[str, Any]:
    return {
        "job_id": event.job_id,
        "run_number": event.run_number,
        "at_ms": to_ms(event.at),
        "kind": event.kind,
        "detail": msgspec.json.encode(event.detail).decode(),
    }


def _event_of(row: AnyRow) -> JobEvent:
    return JobEvent(
        job_id=row.job_id,
        run_number=row.run_number,
        at=from_ms(row.at_ms),
        kind=row.kind,
        detail=msgspec.json.decode(row.detail),
    )
