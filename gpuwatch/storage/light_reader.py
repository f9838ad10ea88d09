"""SQLite for short commands, without SQLAlchemy, whose import takes 250 ms: a connection, a reading transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.storage.database_errors import sqlite_error
from gpuwatch.storage.executor import Executor, driver_executor
from gpuwatch.storage.schema_head import newest_schema
from gpuwatch.storage.sqlite_driver import (
    configure_connection,
    connect_read_only,
    drop_empty_wal,
    has_wal,
    sqlite_driver,
)

_HOUR_S = 3600  # as in `hourly_rollup`, which a short command does not import
HISTORY_START = "SELECT (SELECT min(at_s) FROM poll), (SELECT min(hour) FROM hourly)"
GPU_NAMES = """SELECT gpu FROM segment UNION SELECT gpu_family FROM segment
 UNION SELECT value FROM seen_value WHERE kind = 'gpu'"""


@contextmanager
def open_light_reader(database_url: str) -> Iterator[Executor]:
    """Open a snapshot of a database with the current schema; writes nothing.

    Raises:
        StoreNotReady: the database is missing, or its schema is older; the message names the command to run.
        StoreError: it cannot be read, or a newer gpuwatch wrote it.
    """
    path = plain_sqlite_path(database_url)
    if path is not None and path.is_file():
        had_wal = has_wal(path)
        try:
            connection = connect_read_only(path)
            try:
                executor = Executor(connection.cursor())
                if revision_of(executor) == newest_schema():
                    connection.execute("BEGIN")
                    yield executor
                    return
            finally:
                connection.close()
                if not had_wal:
                    drop_empty_wal(path)
        except sqlite_driver().Error as error:
            raise sqlite_error(error, str(path)) from error
    from gpuwatch.storage.migrate import open_read_only  # noqa: PLC0415 250 ms, only if needed

    with open_read_only(database_url) as database, database.read() as reader:
        yield driver_executor(reader)


def history_start(polled_s: int | None, hour: int | None) -> datetime | None:
    """Return the beginning of the history from a row of `HISTORY_START`, or None."""
    starts = [start for start in (polled_s, None if hour is None else hour * _HOUR_S) if start is not None]
    return datetime.fromtimestamp(min(starts), UTC) if starts else None


def plain_sqlite_path(url: str) -> Path | None:
    """Return the file of a plain SQLite URL; None: only SQLAlchemy can read it."""
    for prefix in ("sqlite:///", "sqlite+pysqlite:///"):
        if url.startswith(prefix) and "?" not in url and "%" not in url and "#" not in url:
            return Path(url.removeprefix(prefix))
    return None


@contextmanager
def connect_sqlite(path: Path) -> Iterator[Any]:
    """Open a driver connection; rolls back uncommitted changes, and raises the driver's errors as StoreError."""
    driver = sqlite_driver()
    try:
        connection = driver.connect(str(path))
        try:
            configure_connection(connection)
            yield connection
        finally:
            connection.close()
    except driver.Error as error:
        raise sqlite_error(error, str(path)) from error


def revision_of(executor: Executor) -> str | None:
    """Return the schema revision of a database; None: it has none."""
    if not executor.rows("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"):
        return None
    rows = executor.rows("SELECT version_num FROM alembic_version")
    return str(rows[0][0]) if rows else None
