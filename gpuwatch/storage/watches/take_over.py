"""One owner takes over what another one stored: watches, jobs, their launches and alerts, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec
from sqlalchemy import Connection, and_, delete, select, update

from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.watches.owner_names import Purpose, owned_name, owner_of, plain_name
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.alerts.pauses import keep_paused, lock_reservations
from gpuwatch.storage.jobs.job_repository import next_change
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.job_tables import JOBS_OVER, job, job_series
from gpuwatch.storage.setup.side_tables import alert, delivery, watch_identity
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.watches.watch_identities import rename_watch

_DECODER = msgspec.json.Decoder(JobDefinition)


class TakenOver(msgspec.Struct, frozen=True, kw_only=True):
    """What has another owner now, by the plain names, and how many of its launches are active.

    `paused`: what rents nothing, as the previous owner had paused everything; by the names that `resume` takes.
    """

    watches: tuple[str, ...]
    jobs: tuple[str, ...]
    active_launches: int
    paused: tuple[str, ...]


def take_over(
    database: Database,
    names: Collection[str] | None,
    *,
    previous: str,
    owner: str,
    now: datetime,
    audit: OutboxAlert | None = None,
) -> TakenOver:
    """Give an owner's watches of these names (None: all, and its jobs) to another owner.

    Where both have a watch of one name, their launches become one list, and what the new owner's remembers stays.

    Raises:
        ResourceNotFound: the previous owner has no such watch.
        UsageError: the new owner has an open job of the same name.
        StoreError: nothing was changed.
    """
    with database.write() as connection:
        lock_reservations(connection)
        known = _names_of(connection, previous)
        watches = {name for name in known if Purpose.of(name).job is None}
        wanted = watches if names is None else {owned_name(previous, name) for name in names}
        if missing := sorted(map(plain_name, wanted - watches)):
            there = ", ".join(sorted(map(plain_name, watches))) or "none"
            raise ResourceNotFound(f"{_whose(previous)} has no watch {missing[0]!r}; watches: {there}")
        jobs = known - watches if names is None else set()
        if names is None:
            _rename_jobs(connection, previous, owner)
        moved = {name: _moved(name, owner) for name in sorted(wanted | jobs)}
        for old, new in moved.items():
            rename_watch(connection, old, new, now)
            connection.execute(update(watch_identity).where(watch_identity.c.name == old).values(name=new))  # retired
        paused = keep_paused(connection, previous, moved.values(), now)
        _retire_ended_jobs(connection, now)
        _move_alerts(connection, moved.values(), previous, owner)
        is_moved = launches.c.watch.in_(list(moved.values()))
        active = connection.execute(select(launches.c.launch_id).where(IS_ALIVE, is_moved)).all()
        add_audit(connection, audit)
    return TakenOver(
        watches=tuple(sorted(map(plain_name, wanted))),
        jobs=tuple(sorted(str(Purpose.of(plain_name(name)).job) for name in jobs)),
        active_launches=len(active),
        paused=tuple(plain_name(name) if Purpose.of(name).job is None else name for name in paused),
    )


def _whose(owner: str) -> str:
    return f"owner {owner!r}" if owner else "the installation"


def _moved(name: str, owner: str) -> str:
    purpose = Purpose.of(plain_name(name))
    if purpose.job is None:
        return owned_name(owner, purpose.watch)
    return Purpose.of_job(owned_name(owner, purpose.job)).watch


def _names_of(connection: Connection, owner: str) -> set[str]:
    """Return the stored names of an owner's watches and jobs, also of those that only launches remember."""
    rented = connection.execute(select(launches.c.watch).distinct()).scalars()
    identified = connection.execute(select(watch_identity.c.name)).scalars()
    return {name for name in (*rented, *identified) if owner_of(name) == owner}


def _rename_jobs(connection: Connection, previous: str, owner: str) -> None:
    """Rename an owner's jobs, and the jobs that they name. Raises UsageError."""
    changed = next_change(connection)
    _rename_series(connection, previous, owner)
    rows = connection.execute(select(job.c.job_id, job.c.name, job.c.state, job.c.definition, job.c.series)).all()
    taken = {row.name for row in rows if row.state not in JOBS_OVER}
    for row in rows:
        if owner_of(row.name) != previous:
            continue
        name = owned_name(owner, plain_name(row.name))
        if name in taken and row.state not in JOBS_OVER:
            raise UsageError(f"a job {name!r} is open; cancel it first")
        values = {"name": name, "definition": _definition_of(row.definition, owner), "changed": changed}
        values["series"] = row.series and owned_name(owner, plain_name(row.series))
        values["version"] = job.c.version + 1
        connection.execute(update(job).where(job.c.job_id == row.job_id).values(**values))


def _rename_series(connection: Connection, previous: str, owner: str) -> None:
    """Rename an owner's recurring jobs. Raises UsageError."""
    rows = connection.execute(select(job_series.c.name, job_series.c.definition, job_series.c.ended_at_ms)).all()
    taken = {row.name: row.ended_at_ms is None for row in rows}
    for row in rows:
        if owner_of(row.name) != previous:
            continue
        name = owned_name(owner, plain_name(row.name))
        if taken.get(name):
            raise UsageError(f"a recurring job {name!r} exists; end it first")
        connection.execute(delete(job_series).where(job_series.c.name == name))
        values = {"name": name, "definition": _definition_of(row.definition, owner)}
        changed = values | {"version": job_series.c.version + 1}
        connection.execute(update(job_series).where(job_series.c.name == row.name).values(**changed))


def _definition_of(stored: str, owner: str) -> str:
    """Return the stored definition of a job with the names that its new owner's jobs have."""
    definition = _DECODER.decode(stored)
    name = owned_name(owner, plain_name(definition.name))
    renamed = msgspec.structs.replace(
        definition,
        name=name,
        group=definition.group and owned_name(owner, plain_name(definition.group)),
        depends_on=tuple(owned_name(owner, plain_name(other)) for other in definition.depends_on),
        resources=msgspec.structs.replace(definition.resources, name=Purpose.of_job(name).watch),
    )
    return msgspec.json.encode(renamed).decode()


def _retire_ended_jobs(connection: Connection, now: datetime) -> None:
    ended = select(job.c.job_id).where(job.c.state.in_(JOBS_OVER))
    is_ended = and_(watch_identity.c.watch_id.in_(ended), watch_identity.c.retired_at_ms.is_(None))
    connection.execute(update(watch_identity).where(is_ended).values(retired_at_ms=to_ms(now)))


def _move_alerts(connection: Connection, watches: Iterable[str], previous: str, owner: str) -> None:
    """Let the new owner's channels have what those of the previous one did not send."""
    is_moved = and_(alert.c.watch.in_(list(watches)), alert.c.owner == previous)
    pending = select(delivery.c.alert_id, delivery.c.channel).join(alert, alert.c.alert_id == delivery.c.alert_id)
    waiting = connection.execute(pending.where(is_moved, delivery.c.state == "pending")).all()
    for row in waiting:
        is_row = and_(delivery.c.alert_id == row.alert_id, delivery.c.channel == row.channel)
        connection.execute(delete(delivery).where(is_row))
    unsent = sorted({row.alert_id for row in waiting})
    connection.execute(update(alert).where(is_moved).values(owner=owner))
    connection.execute(update(alert).where(alert.c.alert_id.in_(unsent)).values(routed_at_ms=None))
