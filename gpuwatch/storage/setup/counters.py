"""Totals for metrics: searches, rows, alerts, and how long providers took to accept orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select

from gpuwatch.ports.market import Completeness
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import alert, launch, launch_event, poll, quota_day


class SearchCounter:
    """Counts recorded searches; each is read once, and stays counted after it is pruned."""

    def __init__(self) -> None:
        self._last_poll_id = 0
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, database: Database) -> Mapping[tuple[str, str], int]:
        """Return (provider, lane) → searches. Raises StoreError."""
        query = (
            select(poll.c.provider, poll.c.lane, func.count(), func.max(poll.c.id))
            .where(poll.c.id > self._last_poll_id)
            .group_by(poll.c.provider, poll.c.lane)
        )
        with database.read() as connection:
            rows = connection.execute(query).all()
        for provider, lane, count, newest in rows:
            self._counts[provider, lane] = self._counts.get((provider, lane), 0) + count
            self._last_poll_id = max(self._last_poll_id, newest)
        return dict(self._counts)


def newest_complete_polls(database: Database, providers: Iterable[str]) -> Mapping[str, datetime]:
    """Return provider → newest recorded complete answer, of any lane. Raises StoreError."""
    complete = select(poll.c.at_s).where(poll.c.completeness == Completeness.COMPLETE.value)
    newest_at = {}
    with database.read() as connection:
        for name in providers:  # each query ends at its first row of the index
            newest = complete.where(poll.c.provider == name).order_by(poll.c.at_s.desc()).limit(1)
            if (at_s := connection.execute(newest).scalar()) is not None:
                newest_at[name] = datetime.fromtimestamp(at_s, UTC)
    return newest_at


def rows_returned(database: Database) -> Mapping[str, int]:
    """Return provider → number of rows that it ever returned. Raises StoreError."""
    query = select(quota_day.c.provider, func.sum(quota_day.c.rows)).group_by(quota_day.c.provider)
    with database.read() as connection:
        return {provider: int(rows) for provider, rows in connection.execute(query)}


def alerts_stored(database: Database) -> Mapping[tuple[str, str], int]:
    """Return (kind, severity) → number of stored alerts. Raises StoreError."""
    query = select(alert.c.kind, alert.c.severity, func.count()).group_by(alert.c.kind, alert.c.severity)
    with database.read() as connection:
        return {(kind, severity): count for kind, severity, count in connection.execute(query)}


def reaction_times_s(database: Database) -> Sequence[float]:
    """Return for every launch the seconds from the decision to the accepted order. Raises StoreError."""
    accepted = (
        select(launch_event.c.launch_id, func.min(launch_event.c.at_ms).label("at_ms"))
        .where(launch_event.c.to_state == "starting")
        .group_by(launch_event.c.launch_id)
        .subquery()
    )
    query = (
        select(accepted.c.at_ms - launch.c.intended_at_ms)
        .join(launch, launch.c.launch_id == accepted.c.launch_id)
        .where(launch.c.dry_run.is_(False))
    )
    with database.read() as connection:
        return [max(int(elapsed_ms), 0) / 1000 for (elapsed_ms,) in connection.execute(query)]
