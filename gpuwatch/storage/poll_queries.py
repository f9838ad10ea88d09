"""What the recorded polls tell about asking: when the market was swept last, and what that cost."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor

_ONE_ROUND_S = 86_400  # a sweep of another day belongs to GPUs that are no longer swept
_NEWEST = """SELECT p.at_s, p.rows FROM poll p WHERE p.id IN (SELECT max(id) FROM poll
 WHERE provider = ? AND covers = 1 AND completeness = 'complete' GROUP BY gpu, spot)"""

_COMPLETE = """SELECT at_s, rows, skipped, gpu, lane FROM poll WHERE provider = ?
 AND completeness IN ('complete', 'truncated') ORDER BY at_s DESC, id DESC LIMIT 1"""
_DRIFT = (
    "SELECT value, first_seen_ms FROM seen_value WHERE provider = ? AND kind = 'field' ORDER BY first_seen_ms, value"
)


class LastSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The newest complete sweep of every GPU and rental type that is swept."""

    at: datetime  # the newest of them
    rows: int  # what all of them cost


class LastPoll(msgspec.Struct, frozen=True, kw_only=True):
    """The newest question that a provider answered completely."""

    at: datetime
    offers: int  # rows that were understood
    skipped: int  # rows that were not
    gpu: str  # what was asked for; "": several models
    lane: str


class FormatChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a provider's format: "new field: x", "field gone: y"."""

    text: str
    first_seen_at: datetime


def last_sweep(database: Database, provider: str) -> LastSweep | None:
    """When a provider's market was read last; None: never. Raises StoreError."""
    with database.read() as connection:
        found = CoreExecutor(connection).rows(_NEWEST, (provider,))
    if not found:
        return None
    newest_change_s = max(at_s for at_s, _ in found)
    rows = sum(rows for at_s, rows in found if at_s > newest_change_s - _ONE_ROUND_S)
    return LastSweep(at=datetime.fromtimestamp(newest_change_s, UTC), rows=rows)


def last_poll(database: Database, provider: str) -> LastPoll | None:
    """When a provider last answered a question completely, and with what; None: never. Raises StoreError."""
    with database.read() as connection:
        found = CoreExecutor(connection).rows(_COMPLETE, (provider,))
    if not found:
        return None
    at_s, rows, skipped, gpu, lane = found[0]
    at = datetime.fromtimestamp(at_s, UTC)
    return LastPoll(at=at, offers=max(0, rows - skipped), skipped=skipped, gpu=gpu, lane=lane)


def format_changes(database: Database, provider: str) -> list[FormatChange]:
    """What changed in a provider's format since it is watched, oldest first. Raises StoreError."""
    with database.read() as connection:
        found = CoreExecutor(connection).rows(_DRIFT, (provider,))
    return [FormatChange(text=word, first_seen_at=datetime.fromtimestamp(ms / 1000, UTC)) for word, ms in found]
