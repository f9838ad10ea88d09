"""How big the store is, and what it holds."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from sqlalchemy import inspect

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor
from gpuwatch.storage.hourly_rollup import HOUR_S
from gpuwatch.storage.migrate import revision
from gpuwatch.storage.sqlite_driver import sqlite_driver
from gpuwatch.storage.tables import metadata


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """The store in figures."""

    place: str
    engine: str  # with its version and, for SQLite, its journal
    schema: str | None
    bytes: int
    free_bytes: int  # inside the file, to be used again; 0 on PostgreSQL
    rows: dict[str, int]  # by table
    first_poll_at: datetime | None
    last_poll_at: datetime | None
    prices_kept_from: datetime | None  # None: nothing was pruned
    rolled_up_to: datetime | None
    on_offer: int  # identities whose newest price stands
    rows_received: int  # offers of all polls that are kept
    bytes_per_offer_and_poll: float | None


def read_store_stats(database: Database) -> StoreStats:
    """Count everything; on a big database this takes a moment. Raises StoreError."""
    schema = revision(database)
    with database.read() as connection:
        tables = set(inspect(connection).get_table_names())
        executor = CoreExecutor(connection)
        names = [name for name in metadata.tables if name in tables]
        rows = {name: int(executor.rows(f"SELECT count(*) FROM {name}")[0][0]) for name in names}  # noqa: S608
        used, free = _size(executor, database.is_sqlite)
        first, last, received = executor.rows("SELECT min(at_s), max(at_s), sum(rows) FROM poll")[0]
        on_offer = executor.rows("SELECT count(*) FROM price_interval WHERE seen_to_s IS NULL")[0][0]
        next_hour, kept_s = executor.rows("SELECT next_hour, kept_from_s FROM history_state WHERE id = 1")[0]
        return StoreStats(
            place=database.place,
            engine=_engine(executor, database.is_sqlite),
            schema=schema,
            bytes=used + free,
            free_bytes=free,
            rows=rows,
            first_poll_at=_moment(first),
            last_poll_at=_moment(last),
            prices_kept_from=_moment(kept_s),
            rolled_up_to=_moment(None if next_hour is None else next_hour * HOUR_S),
            on_offer=int(on_offer),
            rows_received=int(received or 0),
            bytes_per_offer_and_poll=round(used / int(received), 3) if received else None,
        )


def _size(executor: Executor, sqlite: bool) -> tuple[int, int]:
    if not sqlite:
        return int(executor.rows("SELECT pg_database_size(current_database())")[0][0]), 0
    page, pages, free = (
        int(executor.rows(f"PRAGMA {name}")[0][0]) for name in ("page_size", "page_count", "freelist_count")
    )
    return (pages - free) * page, free * page


def _engine(executor: Executor, sqlite: bool) -> str:
    if not sqlite:
        return str(executor.rows("SELECT version()")[0][0]).partition(" on ")[0]
    journal = str(executor.rows("PRAGMA journal_mode")[0][0]).upper()
    return f"SQLite {sqlite_driver().sqlite_version}, journal {journal}"


def _moment(stored_s: int | None) -> datetime | None:
    return None if stored_s is None else datetime.fromtimestamp(stored_s, UTC)
