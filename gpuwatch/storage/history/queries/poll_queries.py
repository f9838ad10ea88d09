"""Queries on the recorded polls: the last sweep, the last poll, and changes of a provider's format."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
from sqlalchemy import bindparam, func, select

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.ports.market import SWEEP
from gpuwatch.storage.history.recording.recorded_polls import newest_covers as read_newest_covers
from gpuwatch.storage.history.recording.recording import utc_day
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import seen_value
from gpuwatch.storage.setup.tables import poll, poll_total, quota_day

_SWEEP_SPAN_S = 86_400  # an older sweep is of GPUs that are no longer swept

# The statements of every page are composed once: composing one takes longer than running it.
_total = poll_total.c
_is_complete = _total.lane == SWEEP, _total.complete_s.is_not(None)
_newest_sweep = (
    select(_total.provider, func.max(_total.complete_s).label("at_s"))
    .where(*_is_complete)
    .group_by(_total.provider)
    .subquery()
)
_LAST_SWEEPS = (
    select(_total.provider, _newest_sweep.c.at_s, func.sum(_total.complete_rows))
    .join(_newest_sweep, _newest_sweep.c.provider == _total.provider)
    .where(*_is_complete, _total.complete_s > _newest_sweep.c.at_s - _SWEEP_SPAN_S)
    .group_by(_total.provider, _newest_sweep.c.at_s)
)
_newer = _total.answered_s.desc(), _total.gpu, _total.spot
_ranked = (
    select(
        poll_total, func.row_number().over(partition_by=(_total.provider, _total.lane), order_by=_newer).label("rank")
    )
    .where(_total.answered_s.is_not(None))
    .subquery()
)
_LAST_POLLS = select(_ranked).where(_ranked.c.rank == 1)
_IS_ANSWERED = poll.c.completeness.in_(("complete", "truncated"))
_polled = select(_total.provider).distinct().subquery()
_NOT_UNDERSTOOD = select(
    _polled.c.provider,
    select(poll.c.not_understood)
    .where(poll.c.provider == _polled.c.provider, _IS_ANSWERED)
    .order_by(poll.c.at_s.desc(), poll.c.id.desc())
    .limit(1)
    .scalar_subquery(),
)
_ROWS_USED = select(quota_day.c.provider, quota_day.c.rows).where(quota_day.c.day == bindparam("day"))
_SEARCHES = (
    select(poll.c.lane, func.count())
    .where(poll.c.provider == bindparam("provider"), poll.c.at_s > bindparam("since_s"))
    .group_by(poll.c.lane)
)
_FORMAT_CHANGES = (
    select(seen_value.c.provider, seen_value.c.value, seen_value.c.first_seen_ms)
    .where(seen_value.c.kind.in_(("field", "unusable")))
    .order_by(seen_value.c.first_seen_ms, seen_value.c.value)
)


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


def last_sweeps(database: Database) -> dict[str, LastSweep]:
    """Return the last sweep of each provider's market. Raises StoreError."""
    with database.read() as connection:
        return {
            provider: LastSweep(at=datetime.fromtimestamp(at_s, UTC), rows=int(rows))
            for provider, at_s, rows in connection.execute(_LAST_SWEEPS)
        }


def last_polls_by_lane(database: Database) -> dict[tuple[str, str], LastPoll]:
    """Return (provider, lane) → the last complete poll. Raises StoreError."""
    with database.read() as connection:
        return {
            (row.provider, row.lane): LastPoll(
                at=datetime.fromtimestamp(row.answered_s, UTC),
                offers=max(0, row.answered_rows - row.answered_skipped),
                skipped=row.answered_skipped,
                gpu=row.gpu,
                lane=row.lane,
            )
            for row in connection.execute(_LAST_POLLS)
        }


def last_polls(database: Database) -> dict[str, LastPoll]:
    """Return the last complete poll of each provider, on any lane. Raises StoreError."""
    return newest_by_provider(last_polls_by_lane(database))


def newest_by_provider(polls: Mapping[tuple[str, str], LastPoll]) -> dict[str, LastPoll]:
    """Return each provider's newest poll of its lanes."""
    return {provider: poll for (provider, _), poll in sorted(polls.items(), key=lambda one: (one[1].at, one[1].lane))}


def last_not_understood(database: Database) -> dict[str, Mapping[str, int]]:
    """Return what the last complete poll of each provider did not understand: reason → rows. Raises StoreError."""
    with database.read() as connection:
        return {name: _reasons(text) for name, text in connection.execute(_NOT_UNDERSTOOD) if text}


def _reasons(text: str) -> Mapping[str, int]:
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:  # written by another version
        return {}


def rows_used(database: Database, now: datetime) -> dict[str, int]:
    """Return provider → rows received since 00:00 UTC. Raises StoreError."""
    with database.read() as connection:
        return {row.provider: row.rows for row in connection.execute(_ROWS_USED, {"day": utc_day(now)})}


def newest_covers(database: Database, at_s: int) -> dict[CoverScope, int]:
    """Return when each GPU and rental type was last read completely until then, by name. Raises StoreError."""
    with database.read() as connection:
        return read_newest_covers(connection, at_s)


def longest_gap(database: Database, provider: str, polls: int) -> timedelta:
    """Return the longest time between two of a provider's newest complete polls, so many of them. Raises StoreError."""
    newest = (
        select(poll.c.at_s).where(poll.c.provider == provider, _IS_ANSWERED).order_by(poll.c.at_s.desc()).limit(polls)
    )
    with database.read() as connection:
        times = connection.execute(newest).scalars().all()
    return timedelta(seconds=max((later - before for later, before in pairwise(times)), default=0))


def recent_sweeps(database: Database, provider: str, since: datetime) -> list[tuple[str, bool, int, datetime]]:
    """Return (GPU, spot, rows, time) of a provider's complete sweeps, oldest first. Raises StoreError."""
    complete = (
        select(poll.c.gpu, poll.c.spot, poll.c.rows, poll.c.at_s)
        .where(poll.c.provider == provider, poll.c.lane == "sweep", poll.c.at_s >= int(since.timestamp()))
        .where(_IS_ANSWERED)
        .order_by(poll.c.at_s, poll.c.id)
    )
    with database.read() as connection:
        rows = connection.execute(complete).all()
    return [(gpu, bool(spot), count, datetime.fromtimestamp(at_s, UTC)) for gpu, spot, count, at_s in rows]


def searches_since(database: Database, provider: str, since: datetime) -> dict[str, int]:
    """Return the number of searches by lane; one of several pages counts once. Raises StoreError."""
    span = {"provider": provider, "since_s": int(since.timestamp())}
    with database.read() as connection:
        return {row.lane: row[1] for row in connection.execute(_SEARCHES, span)}


def format_changes(database: Database) -> dict[str, list[FormatChange]]:
    """Return the changes of each provider's format since the first poll, oldest first. Raises StoreError."""
    found: dict[str, list[FormatChange]] = {}
    with database.read() as connection:
        for provider, value, ms in connection.execute(_FORMAT_CHANGES):
            change = FormatChange(text=value, first_seen_at=datetime.fromtimestamp(ms / 1000, UTC))
            found.setdefault(provider, []).append(change)
    return found
