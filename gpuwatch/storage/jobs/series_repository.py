"""Recurring jobs: each step is one transaction, the run and the next time together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_series import JobSeries
from gpuwatch.domain.watches.owner_names import owned_name, owner_of
from gpuwatch.errors import JobConflict
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit, enqueue
from gpuwatch.storage.jobs.job_repository import insert_job, next_change
from gpuwatch.storage.jobs.series_rows import row_of_series, series_of_row
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.job_tables import job, job_series
from gpuwatch.storage.setup.stored_values import QueryCache, to_ms


class SqlSeriesRepository:
    """Recurring jobs over the database. Every method may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._every = QueryCache(database, self._read)

    def every(self) -> Sequence[JobSeries]:
        """Return this owner's recurring jobs that are not ended, by name."""
        return self._every.get()

    def _read(self, connection: Connection) -> Sequence[JobSeries]:
        rows = connection.execute(
            select(job_series).where(job_series.c.ended_at_ms.is_(None)).order_by(job_series.c.name)
        )
        return [series_of_row(row) for row in rows if owner_of(row.name) == self._database.owner]

    def find(self, name: str) -> JobSeries | None:
        """Return the recurring job with a name, also an ended one; None: there is none."""
        query = select(job_series).where(job_series.c.name == owned_name(self._database.owner, name))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else series_of_row(row)

    def record(
        self,
        after: JobSeries,
        run: Job | None,
        alert: OutboxAlert | None,
        between: Callable[[], None] = lambda: None,
    ) -> JobSeries:
        """Store what follows from the times that have come: the next time, the run, and what the owner is sent.

        Args:
            after: its version is one more than that of the row.
            between: called before the transaction ends, when the run is written and the next time is not.

        Raises:
            JobConflict: the series was changed or ended, or has an open run; nothing was written.
        """
        is_version = (job_series.c.name == after.name, job_series.c.version == after.version - 1)
        if run is not None:
            after = msgspec.structs.replace(after, last_job_id=run.job_id, last_planned_at=run.planned_at)
        with self._database.write() as connection:
            if run is not None and not _has_run(connection, run):
                _insert_run(connection, run)
            between()
            if connection.execute(update(job_series).where(*is_version).values(row_of_series(after))).rowcount != 1:
                raise JobConflict(f"recurring job {after.name!r} was changed concurrently")
            if alert is not None:
                enqueue(connection, alert)
        return after

    def end(self, series: JobSeries, now: datetime, audit: OutboxAlert | None = None) -> bool:
        """End a recurring job; its runs stay. False: it was ended before."""
        is_active = (job_series.c.name == series.name, job_series.c.ended_at_ms.is_(None))
        values = {"ended_at_ms": to_ms(now), "version": job_series.c.version + 1}
        with self._database.write() as connection:
            ended = connection.execute(update(job_series).where(*is_active).values(values)).rowcount == 1
            if ended:
                add_audit(connection, audit)
        return ended


def _has_run(connection: Connection, run: Job) -> bool:
    """Whether its time became a run before: the clock was set back, and the series was submitted again."""
    is_same = (job.c.series == run.series, job.c.planned_at_ms == to_ms(run.planned_at))
    return connection.execute(select(job.c.job_id).where(*is_same)).first() is not None


def _insert_run(connection: Connection, run: Job) -> None:
    try:
        insert_job(connection, run, next_change(connection))
    except IntegrityError:
        raise JobConflict(f"recurring job {run.series!r} has an open run") from None
