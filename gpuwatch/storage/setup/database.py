"""The only access to the database: how it is opened, and how transactions run.

SQLite: every writing transaction is `BEGIN IMMEDIATE` (a deferred one that reads first fails at once if another
process wrote), one writer of the process at a time; reading transactions cannot write. `sqlite_driver` selects the
journal.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpuwatch.errors import StoreError, StoreMissing
from gpuwatch.installation import install_hint
from gpuwatch.language import mark_text
from gpuwatch.storage.setup.database_errors import postgres_error, sqlite_error
from gpuwatch.storage.setup.lineage import Lineage
from gpuwatch.storage.setup.sqlite_driver import (
    BUSY_TIMEOUT_MS,
    connect_read_only,
    drop_empty_wal,
    has_wal,
    make_own_folder,
    sqlite_driver,
    sqlite_engine,
    wal_is_safe,
)

__all__ = ["BUSY_TIMEOUT_MS", "Database", "open_database", "sqlite_path", "wal_is_safe"]

READER_TIMEOUT_S = 600.0  # a command may read years of prices
POSTGRES_NETWORK: Final = {
    "prepare_threshold": None,  # a pooler gives each transaction another session
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_OWNER = "owner"  # in the `info` of a connection


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a session of PostgreSQL waits, and how many of them one process keeps.

    Attributes:
        statement_s: longer than any wait for a lock; a network that drops packets reports no error.
        idle_s: a writer that is idle for this long is ended: a stopped process would keep its locks. Longer than a busy
            machine stalls, shorter than others wait for a lock.
        connections: of a pool that never grows, and does not test a connection before each use; None: SQLAlchemy's own.
    """

    connect_s: int = 10
    lock_s: float = 30.0
    statement_s: float = 40.0
    idle_s: float = 20.0
    connections: int | None = None

    @property
    def on_begin(self) -> str:
        """The statements that begin a writing transaction; their effect ends with it."""
        return (
            f"SET LOCAL idle_in_transaction_session_timeout = {self.idle_s * 1000:.0f};"
            f" SET LOCAL lock_timeout = {self.lock_s * 1000:.0f};"
            f" SET LOCAL statement_timeout = {self.statement_s * 1000:.0f};"  # an abandoned query would continue
            # a server that answers before its commits are on disk may forget a launch whose order was sent
            " SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )


WRITER = SessionLimits()


class Database:
    """An opened database. `write` and `read` are the only ways to get a connection."""

    def __init__(
        self,
        url: str,
        engine: Engine,
        *,
        read_only: bool = False,
        limits: SessionLimits = WRITER,
        lineage: Lineage | None = None,
    ) -> None:
        self.url = url
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"  # otherwise PostgreSQL
        self.path = Path(str(engine.url.database)) if self.is_sqlite else None  # SQLite's file
        self._file = str(self.path)  # used several times a second
        self.read_only = read_only
        self.owner = ""  # whose list reads and writes here; what has another owner is not taken for its own
        # called directly: an engine with event listeners doubles the calls of each statement
        self._begin = _begin_sqlite if self.is_sqlite else partial(_begin_postgres, limits.on_begin)
        self._write_lock = threading.Lock()
        self._writer: int | None = None  # the thread inside `write`
        self._moment = threading.local()  # `connection`: of the `one_moment` that this thread is in
        self.lineage = lineage or Lineage()
        self._faults: dict[str, str] = {}  # "read" and "write": the error of the last one
        self._file_id: tuple[int, int] | None = None
        self._version_connection: Any = None  # a connection that never writes: its own commits would not count
        self._version_lock = threading.Lock()
        self._had_wal = self.path is not None and has_wal(self.path)

    @property
    def fault(self) -> str | None:
        """The error of the last write or the last read; None: both succeeded."""
        return self._faults.get("write") or self._faults.get("read")

    @property
    def place(self) -> str:
        """The location of the database for messages, without a password."""
        return str(self.path) if self.is_sqlite else self.engine.url.render_as_string(hide_password=True)

    @property
    def generation(self) -> int:
        """A number that grows when the database turned out to be another or an older one: see `Lineage`."""
        return self.lineage.generation

    def check_lineage(self, connection: Connection) -> None:
        """Find out, in this transaction, whether it is still the database that this process has written."""
        if not self.is_sqlite:
            self.lineage.check(connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One writing transaction: committed at the end, rolled back on any error. Keep network work outside.

        Raises:
            StoreError: the database is full, locked, read-only or broken. sqlalchemy.exc.IntegrityError passes: the
                caller handles a lost race for a unique row.
        """
        if self.read_only:
            raise RuntimeError("write() on a database that was opened for reading only")
        thread_id = threading.get_ident()
        if self._writer == thread_id:
            raise RuntimeError("write() inside write(): pass the connection on instead")
        with self._store_errors("write"):
            if not self._write_lock.acquire(timeout=2 * WRITER.statement_s):
                raise StoreError(f"another task has been writing the database {self.place} for too long")
            self._writer = thread_id
            try:
                with self._open_connection() as connection:
                    if self._file_id is None:
                        self._check_file()
                    with connection.begin():
                        self._begin(connection, writes=True)
                        yield connection
            finally:
                self._writer = None
                self._write_lock.release()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One reading transaction, or that of `one_moment`: a consistent snapshot, in which nothing can be written.

        Raises:
            StoreError: there is no database yet, or it cannot be read.
        """
        shared: Connection | None = getattr(self._moment, "connection", None)
        if shared is not None:
            with self._store_errors("read"):
                yield shared
            return
        if self.path is not None and self._file_id is None and not self.path.exists():
            raise no_database(self.place)
        with self._store_errors("read"), self._open_connection() as connection, connection.begin():
            self._begin(connection, writes=False)
            yield connection

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """All that this thread reads within the block is of one moment: one transaction, begun and ended once.

        Raises:
            StoreError: as `read`.
        """
        with self.read() as connection:
            before, self._moment.connection = getattr(self._moment, "connection", None), connection
            try:
                yield
            finally:
                self._moment.connection = before

    def version(self) -> int | None:
        """Return a number that differs after any commit, at a tenth of the cost of a read; None: unknown, so read.

        PostgreSQL has no such number, nor has a database that this process does not write. After a fault, only a read
        shows whether it is over.
        """
        if self._file_id is None or "read" in self._faults:
            return None
        try:
            self._check_file()
            with self._version_lock:
                if self._version_connection is None:
                    assert self.path is not None, "only a file has an id"
                    self._version_connection = connect_read_only(self.path)
                    # no waiting here: the read that follows waits
                    self._version_connection.execute("PRAGMA busy_timeout=0")
                return int(self._version_connection.execute("PRAGMA data_version").fetchall()[0][0])
        except (StoreError, sqlite_driver().Error):
            return None  # the read that follows reports the error

    def close(self) -> None:
        """Close all connections."""
        with self._version_lock:
            if self._version_connection is not None:
                self._version_connection.close()
                self._version_connection = None
        self.engine.dispose()
        if self.read_only and self.path is not None and not self._had_wal:
            drop_empty_wal(self.path)

    @contextmanager
    def _open_connection(self) -> Iterator[Connection]:
        if self._file_id is not None:
            self._check_file()  # before a new connection creates an empty file in its place
        with self.engine.connect() as connection:
            if self.owner:
                connection.info[_OWNER] = self.owner
            yield connection

    def _check_file(self) -> None:
        """Raise if the file was deleted or replaced: SQLite would go on writing to a file that nobody reads."""
        if self.path is None:
            return
        try:
            info = os.stat(self._file)
        except FileNotFoundError:
            info = None
        file_id = None if info is None else (info.st_dev, info.st_ino)
        if self._file_id is None:
            self._file_id = file_id
        if file_id is None or self._file_id != file_id:
            self.engine.dispose()
            raise StoreError(f"the database {self.place} was moved, deleted or replaced while in use; restart gpuwatch")

    @contextmanager
    def _store_errors(self, direction: str) -> Iterator[None]:
        """Raise the driver's errors as StoreError, and store whether the last read or write failed."""
        translate = sqlite_error if self.is_sqlite else postgres_error
        try:
            yield
        except IntegrityError:
            raise
        except StoreError as error:
            self._faults[direction] = str(error)
            raise
        except PoolTimeout as error:
            self._faults[direction] = f"the database {self.place} does not answer: all connections are waiting for it"
            raise StoreError(self._faults[direction]) from error
        except DBAPIError as error:
            translated = translate(error.orig if isinstance(error.orig, Exception) else error, self.place)
            self._faults[direction] = str(translated)
            raise translated from error
        self._faults.pop(direction, None)


def owner_in(connection: Connection) -> str:
    """Return whose list reads and writes in this transaction; "": the installation's."""
    return str(connection.info.get(_OWNER, ""))


_NO_DATABASE = mark_text(
    "there is no database {place} yet; create it with `gpuwatch run`, `gpuwatch store import` or "
    "`gpuwatch store upgrade`"
)


def no_database(place: str) -> StoreMissing:
    """The error for a database that does not exist yet."""
    return StoreMissing(_NO_DATABASE.format(place=place))


def open_database(
    url: str, *, read_only: bool = False, limits: SessionLimits = WRITER, lineage: Lineage | None = None
) -> Database:
    """Open a database without migrating it. Nothing is read yet: a wrong file is found at the first use.

    Args:
        url: `sqlite:///file.db`, `postgresql+psycopg://…` (`postgresql://` means the same).
        read_only: create nothing and write nothing. `migrate.open_read_only` checks the schema, too.
        limits: of PostgreSQL's sessions.
        lineage: what another object of this process knows about the same database.

    Raises:
        StoreMissing: read-only, and SQLite's file does not exist.
        StoreError: the URL is invalid, or its driver is not installed.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(url, parsed, read_only)
    return _open_postgres(url, parsed, read_only, limits, lineage)


def _open_postgres(url: str, parsed: URL, read_only: bool, limits: SessionLimits, lineage: Lineage | None) -> Database:
    network, count = POSTGRES_NETWORK | {"connect_timeout": limits.connect_s}, limits.connections
    pool = {"pool_pre_ping": True} if count is None else {"pool_size": count, "max_overflow": 0}
    try:
        engine = create_engine(
            parsed,
            pool_timeout=limits.lock_s,
            connect_args={name: value for name, value in network.items() if name not in parsed.query},
            **pool,
        )
    except ModuleNotFoundError as error:
        raise StoreError(f"PostgreSQL needs {error.name}: {install_hint('postgres')}") from error
    except NoSuchModuleError as error:
        raise StoreError(
            f"database_url: unsupported driver {parsed.drivername!r}; use sqlite:/// or postgresql+psycopg://"
        ) from error
    from gpuwatch.storage.setup.postgres_connection import connect_bounded  # noqa: PLC0415 - its driver is an extra

    statement_timeout_s = READER_TIMEOUT_S if read_only else limits.statement_s
    event.listen(
        engine,
        "do_connect",
        lambda _dialect, _record, args, named: connect_bounded(statement_timeout_s, *args, **named),
    )
    if read_only:
        event.listen(engine, "connect", lambda connection, _record: setattr(connection, "read_only", True))
    return Database(url, engine, read_only=read_only, limits=limits, lineage=lineage)


@contextmanager
def with_long_timeout(connection: Connection) -> Iterator[None]:
    """Allow long statements in this transaction: a migration rewrites years of prices. SQLite has no limit."""
    if connection.dialect.name == "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    timeout_s, driver.statement_timeout_s = driver.statement_timeout_s, READER_TIMEOUT_S
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {READER_TIMEOUT_S * 1000:.0f}")
    try:
        yield
    finally:
        driver.statement_timeout_s = timeout_s


def release_free_pages(connection: Connection, most: int) -> None:
    """Give free pages of SQLite's file back to the disk, in this writing transaction."""
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA incremental_vacuum({most})").fetchall()  # a page for each row, and SQLAlchemy reads none


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError("database_url is not a valid URL; use sqlite:///file.db or postgresql+psycopg://…") from error
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise StoreError(f"database_url: unknown driver {parsed.drivername!r}; use sqlite:/// or postgresql+psycopg://")
    return parsed


def sqlite_path(url: str) -> Path | None:
    """Return the file that a URL names; None: PostgreSQL. Raises StoreError."""
    parsed = _parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError("database_url: an in-memory database is not persistent; use a file: sqlite:///gpuwatch.db")
    return Path(parsed.database)


def _open_sqlite(url: str, parsed: URL, read_only: bool) -> Database:
    path = sqlite_path(url)
    assert path is not None
    if not read_only:
        make_own_folder(path)
    elif not path.exists():
        raise no_database(str(path))
    return Database(url, sqlite_engine(parsed, path if read_only else None), read_only=read_only)


def _begin_sqlite(connection: Connection, *, writes: bool) -> None:
    connection.exec_driver_sql(f"PRAGMA query_only={'OFF' if writes else 'ON'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgres(on_begin: str, connection: Connection, *, writes: bool) -> None:
    connection.exec_driver_sql(on_begin if writes else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
