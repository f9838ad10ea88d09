"""One door to the database: how it is opened, and how a transaction runs.

SQLite: every writing transaction is `BEGIN IMMEDIATE` (a deferred one that reads first fails at once when somebody
else wrote), FULL sync because money is recorded here, one writer at a time. The journal is WAL only where the linked
SQLite is free of the WAL-reset fault (sqlite.org: 3.7.0 to 3.51.2, fixed in 3.51.3; 3.52.0 is out), else TRUNCATE.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from gpuwatch.errors import StoreError

BUSY_TIMEOUT_MS = 30_000


class Database:
    """An opened database. `write` and `read` are the only ways to a connection."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        self.engine = engine
        self._writing = threading.RLock()

    @property
    def is_sqlite(self) -> bool:
        """SQLite and not PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One writing transaction: committed at the end, rolled back on any error. Keep network work outside.

        Raises:
            StoreError: the database is full, locked, read-only or broken. sqlalchemy.exc.IntegrityError passes: a lost
                race for a unique row is the caller's answer.
        """
        with self._writing, self._translated(), self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            with connection.begin() if not connection.in_transaction() else connection.get_transaction():  # type: ignore[union-attr]
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One reading transaction. Raises StoreError."""
        with self._translated(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from sqlalchemy.exc import IntegrityError  # noqa: PLC0415

        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise StoreError(f"the database did not take it: {str(error.orig)[:300]}") from error


def open_database(url: str) -> Database:
    """Open, without migrating. Nothing is read yet: a wrong file shows at the first use."""
    if not url.startswith("sqlite"):
        return Database(url, create_engine(url, pool_pre_ping=True))
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    return Database(url, engine)


def wal_is_safe(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Is this SQLite free of the WAL-reset fault?"""
    return version >= (3, 51, 3) and version[:2] != (3, 52)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun in `write`, not behind our back
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        f"journal_mode={'WAL' if wal_is_safe() else 'TRUNCATE'}",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")
