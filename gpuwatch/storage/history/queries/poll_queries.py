"""Queries on the recorded polls: the last sweep, the last poll, and changes of a provider's format."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, func, select, true

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.ports.market import SWEEP
from gpuwatch.storage.history.recording.recorded_polls import newest_covers as read_newest_covers
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import seen_value
from gpuwatch.storage.setup.tables import poll, poll_total

_SWEEP_SPAN_S = 86_400  # an older sweep is of GPUs that are no longer swept


class LastSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The newest complete sweep of every GPU and rental type that is swept."""

    at: datetime  # time of the newest one
    rows: int  # rows of all together


class LastPoll(msgspec.Struct, frozen=True, kw_only=True):
    """The newest complete answer of a provider."""

    at: datetime
    offers: int  # usable rows
    skipped: int  # unusable rows
    gpu: str  # requested GPU; "": several models
    lane: str


class FormatChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a provider's format: "new field: x", "field gone: y"."""

    text: str
    first_seen_at: datetime


def last_sweep(database: Database, provider: str) -> LastSweep | None:
    """Return the last sweep of a provider's market, or None. Raises StoreError."""
    total = poll_total.c
    complete = select(total.complete_s, total.complete_rows).where(
        total.provider == provider, total.lane == SWEEP, total.complete_s.is_not(None)
    )
    with database.read() as connection:
        polls = connection.execute(complete).all()
    if not polls:
        return None
    newest_s = max(at_s for at_s, _ in polls)
    rows = sum(rows for at_s, rows in polls if at_s > newest_s - _SWEEP_SPAN_S)
    return LastSweep(at=datetime.fromtimestamp(newest_s, UTC), rows=rows)


def last_poll(database: Database, provider: str, lane: str | None = None) -> LastPoll | None:
    """Return the last complete poll of a provider, on any lane or on one, or None.

    Raises StoreError.
    """
    total = poll_total.c
    newest = (
        select(total.answered_s, total.answered_rows, total.answered_skipped, total.gpu, total.lane)
        .where(total.provider == provider, total.answered_s.is_not(None))
        .where(total.lane == lane if lane is not None else true())
        .order_by(total.answered_s.desc())
        .limit(1)
    )
    with database.read() as connection:
        row = connection.execute(newest).first()
    if row is None:
        return None
    at_s, rows, skipped, gpu, lane = row
    at = datetime.fromtimestamp(at_s, UTC)
    return LastPoll(at=at, offers=max(0, rows - skipped), skipped=skipped, gpu=gpu, lane=lane)


def last_not_understood(database: Database, provider: str) -> Mapping[str, int]:
    """Return what the last complete poll did not understand: reason → rows, most first. Raises StoreError."""
    newest = select(poll.c.not_understood).where(*_answered(provider)).order_by(*_NEWEST_FIRST).limit(1)
    with database.read() as connection:
        text = connection.execute(newest).scalar()
    try:
        return msgspec.json.decode(text, type=dict[str, int]) if text else {}
    except msgspec.DecodeError:  # written by another version
        return {}


def _answered(provider: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return poll.c.provider == provider, poll.c.completeness.in_(("complete", "truncated"))


_NEWEST_FIRST: Final = (poll.c.at_s.desc(), poll.c.id.desc())


def newest_covers(database: Database, at_s: int) -> dict[CoverScope, int]:
    """Return when each GPU and rental type was last read completely until then, by name. Raises StoreError."""
    with database.read() as connection:
        return read_newest_covers(connection, at_s)


def longest_gap(database: Database, provider: str, polls: int) -> timedelta:
    """Return the longest time between two of a provider's newest complete polls, so many of them. Raises StoreError."""
    newest = (
        select(poll.c.at_s)
        .where(poll.c.provider == provider, poll.c.completeness.in_(("complete", "truncated")))
        .order_by(poll.c.at_s.desc())
        .limit(polls)
    )
    with database.read() as connection:
        times = connection.execute(newest).scalars().all()
    return timedelta(seconds=max((later - before for later, before in pairwise(times)), default=0))


def recent_sweeps(database: Database, provider: str, since: datetime) -> list[tuple[str, bool, int, datetime]]:
    """Return (GPU, spot, rows, time) of a provider's complete sweeps, oldest first. Raises StoreError."""
    complete = (
        select(poll.c.gpu, poll.c.spot, poll.c.rows, poll.c.at_s)
        .where(poll.c.provider == provider, poll.c.lane == "sweep", poll.c.at_s >= int(since.timestamp()))
        .where(poll.c.completeness.in_(("complete", "truncated")))
        .order_by(poll.c.at_s, poll.c.id)
    )
    with database.read() as connection:
        rows = connection.execute(complete).all()
    return [(gpu, bool(spot), count, datetime.fromtimestamp(at_s, UTC)) for gpu, spot, count, at_s in rows]


def searches_since(database: Database, provider: str, since: datetime) -> dict[str, int]:
    """Return the number of searches by lane; one of several pages counts once. Raises StoreError."""
    counts = (
        select(poll.c.lane, func.count())
        .where(poll.c.provider == provider, poll.c.at_s > int(since.timestamp()))
        .group_by(poll.c.lane)
    )
    with database.read() as connection:
        return {row.lane: row[1] for row in connection.execute(counts)}


def format_changes(database: Database, provider: str) -> list[FormatChange]:
    """Return changes of a provider's format since the first poll, oldest first. Raises StoreError."""
    changes = (
        select(seen_value.c.value, seen_value.c.first_seen_ms)
        .where(seen_value.c.provider == provider, seen_value.c.kind.in_(("field", "unusable")))
        .order_by(seen_value.c.first_seen_ms, seen_value.c.value)
    )
    with database.read() as connection:
        rows = connection.execute(changes).all()
    return [FormatChange(text=value, first_seen_at=datetime.fromtimestamp(ms / 1000, UTC)) for value, ms in rows]
