"""Recurring jobs as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, insert, select, update

from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_series import JobSeries
from gpuwatch.storage.setup.schema.job_tables import job_series
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, to_ms

_DEFINITION_DECODER = msgspec.json.Decoder(JobDefinition)


def row_of_series(series: JobSeries) -> dict[str, Any]:
    """Return the columns of a recurring job."""
    return {
        "name": series.name,
        "definition": msgspec.json.encode(series.definition).decode(),
        "submitted_at_ms": to_ms(series.submitted_at),
        "next_at_ms": to_ms(series.next_at),
        "last_job_id": series.last_job_id,
        "last_planned_at_ms": to_ms(series.last_planned_at),
        "missed": series.missed,
        "skipped": series.skipped,
        "version": series.version,
        "ended_at_ms": to_ms(series.ended_at),
    }


def series_of_row(row: AnyRow) -> JobSeries:
    """Return the recurring job of a row."""
    return JobSeries(
        name=row.name,
        definition=_DEFINITION_DECODER.decode(row.definition),
        submitted_at=from_ms(row.submitted_at_ms),
        next_at=from_ms(row.next_at_ms),
        last_job_id=row.last_job_id,
        last_planned_at=from_ms(row.last_planned_at_ms),
        missed=row.missed,
        skipped=row.skipped,
        version=row.version,
        ended_at=from_ms(row.ended_at_ms),
    )


def names_of_series(connection: Connection, names: set[str]) -> set[str]:
    """Return those of these names that recurring jobs have which are not ended."""
    query = select(job_series.c.name).where(job_series.c.name.in_(names), job_series.c.ended_at_ms.is_(None))
    return set(connection.execute(query).scalars())


def store_series(connection: Connection, every: Sequence[JobSeries]) -> None:
    """Add recurring jobs. One with a known name gets the new file and its next time, and keeps its runs and counts."""
    for series in every:
        row = row_of_series(series)
        changed = {name: row[name] for name in ("definition", "submitted_at_ms", "next_at_ms", "ended_at_ms")}
        again = update(job_series).where(job_series.c.name == series.name)
        if not connection.execute(again.values(changed | {"version": job_series.c.version + 1})).rowcount:
            connection.execute(insert(job_series), row)
