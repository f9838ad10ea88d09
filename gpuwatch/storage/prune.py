"""Forgets old prices, keeps their roll-ups: in small transactions, so that a daemon goes on recording between them.

Every step can be repeated: a prune that was cut off is finished by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import and_, delete, or_, select

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.hourly_rollup import COVER_LASTS_S, HOUR_S
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.tables import alert, delivery

_SERIES_A_STEP = 1000
_POLLS_A_STEP = 5000
_KEPT_FROM = "UPDATE history_state SET kept_from_s = ? WHERE id = 1 AND (kept_from_s IS NULL OR kept_from_s < ?)"
_COVERS = """SELECT provider, gpu, spot, max(at_s) FROM poll WHERE covers = 1 AND at_s <= ?
 GROUP BY provider, gpu, spot"""
_OLD = """SELECT p.series_id, p.seen_from_s, p.seen_to_s, g.provider, g.gpu, g.spot FROM price_interval p
 JOIN series s ON s.id = p.series_id JOIN segment g ON g.id = s.segment_id
 WHERE p.series_id >= ? AND p.series_id < ? AND p.seen_to_s < ?"""
_DROP = "DELETE FROM price_interval WHERE series_id = ? AND seen_from_s = ?"
_BARE = """DELETE FROM series WHERE id >= ? AND id < ?
 AND NOT EXISTS (SELECT 1 FROM price_interval p WHERE p.series_id = series.id)"""
_POLLS = """DELETE FROM poll WHERE id >= ? AND id < ? AND at_s < ?
 AND NOT (covers = 1 AND at_s = (SELECT max(n.at_s) FROM poll n WHERE n.covers = 1 AND n.provider = poll.provider
  AND n.gpu = poll.gpu AND n.spot = poll.spot AND n.at_s <= ?))"""


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was dropped."""

    kept_from: datetime  # every moment from here on can still be reconstructed
    intervals: int
    series: int
    polls: int
    alerts: int


def prune(database: Database, keep: timedelta, now: datetime) -> PruneReport:
    """Drop prices and polls older than `keep`; all hours are summed up first.

    Raises:
        StoreError: the database did not take it; what was dropped until then stays dropped.
    """
    SqlHistoryRecorder(database).roll_up(now)
    horizon_s = _horizon(database, seconds(now - keep))
    with database.write() as connection:
        CoreExecutor(connection).run(_KEPT_FROM, (horizon_s, horizon_s))
    intervals, series = _prune_prices(database, horizon_s)
    polls = _prune_polls(database, horizon_s)
    alerts = _prune_alerts(database, seconds(now - keep) * 1000)
    kept_from = datetime.fromtimestamp(horizon_s, UTC)
    return PruneReport(kept_from=kept_from, intervals=intervals, series=series, polls=polls, alerts=alerts)


def _horizon(database: Database, wanted_s: int) -> int:
    """Never what a roll-up still needs."""
    with database.read() as connection:
        next_hour = CoreExecutor(connection).rows("SELECT next_hour FROM history_state WHERE id = 1")[0][0]
    return wanted_s if next_hour is None else min(wanted_s, next_hour * HOUR_S - COVER_LASTS_S)


def _prune_prices(database: Database, horizon_s: int) -> tuple[int, int]:
    with database.read() as connection:
        executor = CoreExecutor(connection)
        covers = {(row[0], row[1], row[2]): int(row[3]) for row in executor.rows(_COVERS, (horizon_s,))}
    intervals = series = 0
    for first, after in _steps(database, "series", _SERIES_A_STEP):
        with database.write() as connection:
            executor = CoreExecutor(connection)
            if not database.is_sqlite:  # a series must not go while somebody records that it is back
                executor.rows("SELECT version FROM history_state WHERE id = 1 FOR UPDATE")
            old = _expendable(executor, first, after, horizon_s, covers)
            executor.run_many(_DROP, old)
            intervals += len(old)
            series += executor.run(_BARE, (first, after))
    return intervals, series


def _expendable(
    executor: Executor, first: int, after: int, horizon_s: int, covers: dict[tuple[str, str, int], int]
) -> list[tuple[int, int]]:
    """Intervals that no moment from the horizon on needs: a poll before it had seen their end."""
    return [
        (series, from_s)
        for series, from_s, to_s, provider, gpu, spot in executor.rows(_OLD, (first, after, horizon_s))
        if to_s < max(covers.get((provider, gpu, spot), -1), covers.get((provider, "", spot), -1))
    ]


def _prune_polls(database: Database, horizon_s: int) -> int:
    """All but the newest one before the horizon that covers: it tells what was on offer there."""
    dropped = 0
    for first, after in _steps(database, "poll", _POLLS_A_STEP):
        with database.write() as connection:
            dropped += CoreExecutor(connection).run(_POLLS, (first, after, horizon_s, horizon_s))
    return dropped


def _prune_alerts(database: Database, before_ms: int) -> int:
    """Alerts that every channel is done with; one with a `once_key` stays, or it would be sent again."""
    with database.write() as connection:
        # an expired or refused delivery without `sent_at_ms` is still to be mentioned in a later message
        mentioned = and_(delivery.c.state.in_(("expired", "refused")), delivery.c.sent_at_ms.is_not(None))
        old = select(alert.c.alert_id).where(alert.c.expires_at_ms < before_ms)
        settled = and_(or_(delivery.c.state == "sent", mentioned), delivery.c.alert_id.in_(old))
        connection.execute(delete(delivery).where(settled))
        waiting = select(delivery.c.alert_id).where(delivery.c.alert_id == alert.c.alert_id).exists()
        done = and_(alert.c.expires_at_ms < before_ms, alert.c.once_key.is_(None), ~waiting)
        return connection.execute(delete(alert).where(done)).rowcount


def _steps(database: Database, table: str, size: int) -> Iterator[tuple[int, int]]:
    with database.read() as connection:
        lowest, highest = CoreExecutor(connection).rows(f"SELECT min(id), max(id) FROM {table}")[0]  # noqa: S608
    if lowest is None:
        return
    for first in range(lowest, highest + 1, size):
        yield first, first + size
