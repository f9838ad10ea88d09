"""Implements the port `HoldStore`. On SQLite short commands need no SQLAlchemy for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuwatch.errors import StoreError
from gpuwatch.ports.holds import Hold
from gpuwatch.storage.executor import Executor, driver_executor
from gpuwatch.storage.light_reader import connect_sqlite, open_light_reader, plain_sqlite_path, revision_of
from gpuwatch.storage.schema_head import newest_schema

if TYPE_CHECKING:
    from gpuwatch.storage.database import Database

log = logging.getLogger(__name__)

_LOAD = "SELECT kind, set_at_ms, until_ms, reason, quota_resets_ms FROM provider_hold WHERE provider = ? ORDER BY kind"
_SAVE = """INSERT INTO provider_hold (provider, kind, set_at_ms, until_ms, reason, quota_resets_ms)
 VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (provider, kind) DO UPDATE SET set_at_ms = excluded.set_at_ms,
 until_ms = excluded.until_ms, reason = excluded.reason, quota_resets_ms = excluded.quota_resets_ms"""


class SqlHolds:
    """The daemon's holds, over its open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, provider: str) -> Sequence[Hold]:
        """See `HoldStore`."""
        try:
            with self._database.read() as connection:
                return load_holds(driver_executor(connection), provider)
        except StoreError as error:
            log.warning("cannot read the holds: %s", error, extra={"provider": provider})
            return ()

    def save(self, hold: Hold) -> None:
        """See `HoldStore`."""
        try:
            with self._database.write() as connection:
                save_hold(driver_executor(connection), hold)
        except StoreError as error:
            log.warning("cannot store the hold for the next start: %s", error, extra={"provider": hold.provider})


class LightHolds:
    """A command's holds: opens the store for each call; the store may be missing or have another schema.

    Args:
        keep: whether the command may write.
    """

    def __init__(self, database_url: str, may_write: bool = False) -> None:
        self._url = database_url
        self._may_write = may_write

    def load(self, provider: str) -> Sequence[Hold]:
        """See `HoldStore`."""
        path = plain_sqlite_path(self._url)
        if path is not None and not path.is_file():
            return ()
        try:
            with open_light_reader(self._url) as executor:
                return load_holds(executor, provider)
        except StoreError:
            return ()

    def save(self, hold: Hold) -> None:
        """See `HoldStore`."""
        if self._may_write:
            with suppress(StoreError):
                self._write(hold)

    def _write(self, hold: Hold) -> None:
        path = plain_sqlite_path(self._url)
        if path is None:
            from gpuwatch.storage.database import open_database  # noqa: PLC0415 250 ms, only if needed
            from gpuwatch.storage.migrate import require_head  # noqa: PLC0415

            database = open_database(self._url)
            try:
                require_head(database)
                with database.write() as connection:
                    save_hold(driver_executor(connection), hold)
            finally:
                database.close()
        elif path.is_file():
            with connect_sqlite(path) as connection:
                executor = Executor(connection.cursor())
                if revision_of(executor) == newest_schema():
                    connection.execute("BEGIN IMMEDIATE")
                    save_hold(executor, hold)
                    connection.execute("COMMIT")


def load_holds(executor: Executor, provider: str) -> Sequence[Hold]:
    """Return the last hold of each class of requests, even if it is over."""
    return [
        Hold(
            provider=provider,
            kind=kind,
            set_at=_time(set_at_ms),
            until=_time(until_ms),
            reason=reason,
            quota_resets_at=None if resets_ms is None else _time(resets_ms),
        )
        for kind, set_at_ms, until_ms, reason, resets_ms in executor.rows(_LOAD, (provider,))
    ]


def save_hold(executor: Executor, hold: Hold) -> None:
    """Store a hold in place of the last one of its class."""
    resets_ms = None if hold.quota_resets_at is None else _ms(hold.quota_resets_at)
    executor.run(_SAVE, (hold.provider, hold.kind, _ms(hold.set_at), _ms(hold.until), hold.reason, resets_ms))


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
