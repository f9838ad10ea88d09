"""One reading transaction for a short command: on SQLite without SQLAlchemy, whose import takes 250 ms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from gpuwatch.storage import HEAD
from gpuwatch.storage.database_errors import sqlite_error
from gpuwatch.storage.executor import Executor, driver_executor
from gpuwatch.storage.hourly_rollup import HOUR_S
from gpuwatch.storage.light_writer import plain_sqlite_path, revision_of
from gpuwatch.storage.sqlite_driver import connect_read_only, drop_empty_wal, has_wal, sqlite_driver

EARLIEST = "SELECT (SELECT min(at_s) FROM poll), (SELECT min(hour) FROM hourly)"
GPU_NAMES = """SELECT gpu FROM segment UNION SELECT gpu_family FROM segment
 UNION SELECT value FROM seen_value WHERE kind = 'gpu'"""


@contextmanager
def read_light(database_url: str) -> Iterator[Executor]:
    """One moment of a database of this program's schema; nothing is written.

    Raises:
        StoreNotReady: there is none, or its schema is older; the line says what to run.
        StoreError: it cannot be read, or a newer gpuwatch wrote it.
    """
    path = plain_sqlite_path(database_url)
    if path is not None and path.is_file():
        had_wal = has_wal(path)
        try:
            connection = connect_read_only(path)
            try:
                light = Executor(connection.cursor())
                if revision_of(light) == HEAD:
                    connection.execute("BEGIN")
                    yield light
                    return
            finally:
                connection.close()
                if not had_wal:
                    drop_empty_wal(path)
        except sqlite_driver().Error as error:
            raise sqlite_error(error, str(path)) from error
    from gpuwatch.storage.migrate import open_read_only  # noqa: PLC0415 - 250 ms, only where it must be

    with open_read_only(database_url) as database, database.read() as reading:
        yield driver_executor(reading)


def earliest(polled_s: int | None, hour: int | None) -> datetime | None:
    """When the history begins, from a row of `EARLIEST`; None without any."""
    starts = [start for start in (polled_s, None if hour is None else hour * HOUR_S) if start is not None]
    return datetime.fromtimestamp(min(starts), UTC) if starts else None
