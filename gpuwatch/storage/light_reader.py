"""One reading transaction for a command of a second: on SQLite without SQLAlchemy, whose import takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpuwatch.storage.executor import CoreExecutor, Executor, SqliteExecutor
from gpuwatch.storage.light_writer import connect_sqlite, plain_sqlite_path, revision_of
from gpuwatch.storage.schema_head import HEAD


@contextmanager
def read_light(database_url: str) -> Iterator[Executor]:
    """One moment of a database of this program's schema; nothing is written.

    Raises:
        StoreError: there is none, it has another schema, or it cannot be read.
    """
    path = plain_sqlite_path(database_url)
    if path is not None and path.is_file():
        with connect_sqlite(path) as connection:
            quick = SqliteExecutor(connection)
            if revision_of(quick) == HEAD:
                connection.execute("BEGIN")
                yield quick
                return
    with _with_sqlalchemy(database_url) as thorough:
        yield thorough


@contextmanager
def _with_sqlalchemy(database_url: str) -> Iterator[Executor]:
    """With SQLAlchemy: PostgreSQL, or a line that says what is wrong."""
    from gpuwatch.storage.database import open_database  # noqa: PLC0415 - 250 ms, only where it must be
    from gpuwatch.storage.migrate import require_head  # noqa: PLC0415

    database = open_database(database_url)
    try:
        require_head(database)
        with database.read() as connection:
            yield CoreExecutor(connection)
    finally:
        database.close()
