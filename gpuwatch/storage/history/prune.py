"""Deletes old prices and keeps their roll-ups: in small transactions, so that a daemon can record in between.

Every step is repeatable: the next prune completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import ColumnElement, Table, and_, delete, func, or_, select, update

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.open_prices import lock_history
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import JOBS_OVER, alert, delivery, job, job_event, job_run
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, history_state, launch, poll, price_interval, series

_MAX_KEY_WINDOW = timedelta(days=32)  # an exhausted budget is reported once a month
_SERIES_PER_STEP = 1000
_POLLS_PER_STEP = 5000
_NO_INTERVAL = ~select(price_interval.c.series_id).where(price_interval.c.series_id == series.c.id).exists()


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted."""

    kept_from: datetime  # every moment from then on can still be reconstructed
    intervals: int
    series: int
    polls: int
    alerts: int
    jobs: int


def prune(database: Database, keep: timedelta, now: datetime) -> PruneReport:
    """Delete prices and polls older than `keep`; aggregates all hours first.

    Raises:
        StoreError: the database failed; earlier deletions remain.
    """
    SqlHistoryRecorder(database).roll_up(now)
    horizon_s = _horizon(database, seconds_since_1970(now - keep))
    with database.write() as connection:
        is_later = func.coalesce(history_state.c.kept_from_s, -1) < horizon_s
        connection.execute(update(history_state).where(is_later).values(kept_from_s=horizon_s))
        connection.execute(update(history_state).values(rewritten=history_state.c.rewritten + 1))
    intervals, series = _prune_prices(database, horizon_s)
    polls = _prune_polls(database, horizon_s)
    alerts = _prune_alerts(database, now - keep, now)
    kept_from = datetime.fromtimestamp(horizon_s, UTC)
    jobs = _prune_jobs(database, now - keep)
    return PruneReport(kept_from=kept_from, intervals=intervals, series=series, polls=polls, alerts=alerts, jobs=jobs)


def _horizon(database: Database, wanted_s: int) -> int:
    """Return the moment before which no roll-up needs prices any more."""
    with database.read() as connection:
        next_hour = connection.execute(select(history_state.c.next_hour)).scalar_one()
    return wanted_s if next_hour is None else min(wanted_s, next_hour * HOUR_S - COVERAGE_S)


def _prune_prices(database: Database, horizon_s: int) -> tuple[int, int]:
    intervals = dropped = 0
    for first, after in _steps(database, series, _SERIES_PER_STEP):
        with database.write() as connection:
            lock_history(connection)  # no series goes while a recorder brings it back
            number = price_interval.c.series_id
            ended = delete(price_interval).where(number >= first, number < after, price_interval.c.ended_s <= horizon_s)
            intervals += connection.execute(ended).rowcount
            without_intervals = delete(series).where(series.c.id >= first, series.c.id < after, _NO_INTERVAL)
            dropped += connection.execute(without_intervals).rowcount
    return intervals, dropped


def _prune_polls(database: Database, horizon_s: int) -> int:
    """Delete polls before the horizon, except the newest covering ones: they define what was on offer there."""
    other = poll.alias()
    is_same_scope = and_(other.c.provider == poll.c.provider, other.c.gpu == poll.c.gpu, other.c.spot == poll.c.spot)
    newest = select(func.max(other.c.at_s)).where(other.c.covers == 1, is_same_scope, other.c.at_s <= horizon_s)
    is_expendable = and_(poll.c.at_s < horizon_s, ~and_(poll.c.covers == 1, poll.c.at_s == newest.scalar_subquery()))
    dropped = 0
    for first, after in _steps(database, poll, _POLLS_PER_STEP):
        with database.write() as connection:
            statement = delete(poll).where(poll.c.id >= first, poll.c.id < after, is_expendable)
            dropped += connection.execute(statement).rowcount
    return dropped


def _prune_alerts(database: Database, before: datetime, now: datetime) -> int:
    """Delete alerts that every channel has settled; a `once_key` stays while it may still be needed."""
    before_ms = to_ms(before)
    with database.write() as connection:
        # an expired or refused delivery without `sent_at_ms` must still be mentioned in a later message
        is_reported = and_(delivery.c.state.in_(("expired", "refused")), delivery.c.sent_at_ms.is_not(None))
        expired = select(alert.c.alert_id).where(alert.c.expires_at_ms < before_ms)
        is_settled = and_(or_(delivery.c.state == "sent", is_reported), delivery.c.alert_id.in_(expired))
        connection.execute(delete(delivery).where(is_settled))
        has_deliveries = select(delivery.c.alert_id).where(delivery.c.alert_id == alert.c.alert_id).exists()
        is_done = and_(alert.c.expires_at_ms < before_ms, alert.c.routed_at_ms.is_not(None), ~has_deliveries)
        is_key_unused = or_(alert.c.once_key.is_(None), _is_over(min(before, now - _MAX_KEY_WINDOW)))
        return connection.execute(delete(alert).where(is_done, is_key_unused)).rowcount


def _prune_jobs(database: Database, before: datetime) -> int:
    """Delete jobs that ended before then, with their runs and events."""
    query = select(job.c.job_id).where(job.c.ended_at_ms < to_ms(before), job.c.state.in_(JOBS_OVER))
    with database.write() as connection:
        for table in (job_event, job_run):
            connection.execute(delete(table).where(table.c.job_id.in_(query)))
        return connection.execute(delete(job).where(job.c.job_id.in_(query))).rowcount


def _is_over(before: datetime) -> ColumnElement[bool]:
    """Match alerts whose key is not needed any more: its time window has passed, or its launch is over.

    An instance with gpuwatch's label may be listed as long as it lives, and a channel's address stays changed.
    """
    is_of_launch = alert.c.once_key.contains(launch.c.launch_id)
    is_active = select(launch.c.launch_id).where(IS_ALIVE, is_of_launch).exists()
    is_lasting = or_(alert.c.once_key.startswith("orphan:"), alert.c.once_key.startswith("moved:"))
    return and_(alert.c.expires_at_ms < to_ms(before), ~is_lasting, ~is_active)


def _steps(database: Database, table: Table, size: int) -> Iterator[tuple[int, int]]:
    with database.read() as connection:
        lowest, highest = connection.execute(select(func.min(table.c.id), func.max(table.c.id))).one()
    if lowest is None:
        return
    for first in range(lowest, highest + 1, size):
        yield first, first + size
