"""Figures about the store: its size and contents, and totals for metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection, func, inspect, select

from gpuwatch.domain.history.market_history import moment_of
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.migrate import revision
from gpuwatch.storage.setup.side_tables import lake
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from gpuwatch.storage.setup.tables import (
    history_state,
    launch,
    launch_event,
    metadata,
    poll,
    poll_total,
    quota_day,
    series,
)

# The first and the last poll that is a row, looked up for each provider: there are millions.
_polled = select(poll_total.c.provider).distinct().subquery()
_at_s = select(poll.c.at_s).where(poll.c.provider == _polled.c.provider).limit(1)
POLL_ROWS_SPAN = select(
    func.min(_at_s.order_by(poll.c.at_s).scalar_subquery()),
    func.max(_at_s.order_by(poll.c.at_s.desc()).scalar_subquery()),
).select_from(_polled)


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about the store."""

    place: str
    engine: str  # with its version and, for SQLite, its journal mode
    schema: str | None
    bytes: int
    free_bytes: int  # reusable space inside the file; 0 on PostgreSQL
    rows: dict[str, int]  # by table
    first_poll_at: datetime | None
    last_poll_at: datetime | None
    prices_kept_from: datetime | None  # None: nothing was pruned
    rolled_up_to: datetime | None
    lakes: dict[str, datetime | None]  # folder or bucket → until when all that is over is there, and verified
    on_offer: int  # identities with an open price
    rows_received: int  # offers of all polls since the first one
    bytes_per_offer_and_poll: float | None


def read_store_stats(database: Database) -> StoreStats:
    """Count everything, which takes a moment on a big database. Raises StoreError."""
    schema = revision(database)
    with database.read() as connection:
        tables = set(inspect(connection).get_table_names())
        rows = {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
            if name in tables
        }
        used, free = _size(connection, database.is_sqlite)
        first, last = connection.execute(POLL_ROWS_SPAN).one()
        received = connection.execute(select(func.sum(poll_total.c.rows))).scalar()
        on_offer = select(func.count()).where(series.c.on_offer == 1)
        next_hour, kept_from_s = connection.execute(
            select(history_state.c.next_hour, history_state.c.kept_from_s)
        ).one()
        lakes = connection.execute(select(lake.c.url, lake.c.verified_until_s).order_by(lake.c.url)).all()
        return StoreStats(
            place=database.place,
            engine=_engine(connection, database.is_sqlite),
            schema=schema,
            bytes=used + free,
            free_bytes=free,
            rows=rows,
            first_poll_at=moment_of(first),
            last_poll_at=moment_of(last),
            prices_kept_from=moment_of(kept_from_s),
            rolled_up_to=moment_of(None if next_hour is None else next_hour * HOUR_S),
            lakes={url: moment_of(until_s) for url, until_s in lakes},
            on_offer=connection.execute(on_offer).scalar_one(),
            rows_received=int(received or 0),
            bytes_per_offer_and_poll=round(used / int(received), 3) if received else None,
        )


def _size(connection: Connection, sqlite: bool) -> tuple[int, int]:
    """Return the bytes in use, and the bytes free inside the file."""
    if not sqlite:
        return connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one(), 0
    names = ("page_size", "page_count", "freelist_count")
    page, pages, free_pages = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)
    return (pages - free_pages) * page, free_pages * page


def _engine(connection: Connection, sqlite: bool) -> str:
    if not sqlite:
        return str(connection.execute(select(func.version())).scalar_one()).partition(" on ")[0]
    journal = str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()).upper()
    return f"SQLite {sqlite_driver().sqlite_version}, journal {journal}"


def searches_recorded(database: Database) -> Mapping[tuple[str, str], int]:
    """Return (provider, lane) → searches, also those whose rows are deleted. Raises StoreError."""
    scope = poll_total.c.provider, poll_total.c.lane
    query = select(*scope, func.sum(poll_total.c.searches)).group_by(*scope)
    with database.read() as connection:
        return {(provider, lane): int(searches) for provider, lane, searches in connection.execute(query)}


def newest_complete_polls(database: Database, providers: Collection[str]) -> Mapping[str, datetime]:
    """Return provider → newest recorded complete answer, of any lane. Raises StoreError."""
    query = (
        select(poll_total.c.provider, func.max(poll_total.c.complete_s))
        .where(poll_total.c.provider.in_(providers), poll_total.c.complete_s.is_not(None))
        .group_by(poll_total.c.provider)
    )
    with database.read() as connection:
        return {name: datetime.fromtimestamp(at_s, UTC) for name, at_s in connection.execute(query)}


def rows_returned(database: Database) -> Mapping[str, int]:
    """Return provider → number of rows that it ever returned. Raises StoreError."""
    query = select(quota_day.c.provider, func.sum(quota_day.c.rows)).group_by(quota_day.c.provider)
    with database.read() as connection:
        return {provider: int(rows) for provider, rows in connection.execute(query)}


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
