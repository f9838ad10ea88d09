"""Selects the SQLite driver, and prepares the connections that SQLAlchemy opens with it.

The journal is WAL only if the linked SQLite does not have the WAL-reset bug (sqlite.org: 3.7.0 to 3.51.2, fixed in
3.51.3; 3.52.0 was withdrawn), else TRUNCATE. `synchronous=FULL`, because money is recorded here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Engine, create_engine, event
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from gpuwatch.errors import StoreError

BUSY_TIMEOUT_MS = 30_000
OWN_FOLDER = "gpuwatch"
_JOURNAL_ATTEMPTS = 50
_BUSY = {5, 6}  # SQLITE_BUSY, SQLITE_LOCKED
_READ_ONLY = 8  # SQLITE_READONLY


@cache
def sqlite_driver() -> Any:
    """Return the standard library's `sqlite3`, or `pysqlite3` if it is installed and has a newer SQLite."""
    if importlib.util.find_spec("pysqlite3") is None:
        return sqlite3
    newer = importlib.import_module("pysqlite3.dbapi2")
    return newer if newer.sqlite_version_info > sqlite3.sqlite_version_info else sqlite3


def wal_is_safe(version: tuple[int, ...] | None = None) -> bool:
    """Whether this SQLite version (None: the one in use) is free of the WAL-reset bug."""
    if version is None:
        version = sqlite_driver().sqlite_version_info
    assert version is not None
    return version >= (3, 51, 3) and version[:2] != (3, 52)


def sqlite_engine(parsed: URL, read_only: Path | None) -> Engine:
    """Return the engine of a file. `read_only`: the file, if nothing may be created or written."""
    if read_only is not None:
        return create_engine(parsed, module=sqlite_driver(), creator=lambda: connect_read_only(read_only))
    engine = create_engine(parsed, module=sqlite_driver(), connect_args={"check_same_thread": False})
    event.listen(engine, "connect", lambda connection, _record: configure_connection(connection))
    return engine


def configure_connection(connection: Any) -> None:
    """Set up a new driver connection: we begin transactions, never the driver implicitly."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    _choose_journal(connection, "wal" if wal_is_safe() else "truncate")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def connect_read_only(path: Path) -> Any:
    """Open a connection that cannot write; the file must exist.

    A killed writer may have left a journal behind, without which the file cannot be read. A read-only connection cannot
    roll it back, so a writing one does that first, as the next start of the daemon would.
    """
    for has_retried in (False, True):
        connection = sqlite_driver().connect(_uri(path, "ro"), uri=True, check_same_thread=False)
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return connection
        except sqlite_driver().OperationalError as error:
            connection.close()
            if has_retried or getattr(error, "sqlite_errorcode", 0) & 0xFF != _READ_ONLY:
                raise
            _touch(path)
    raise AssertionError("unreachable")


def has_wal(path: Path) -> bool:
    """Whether there is a write-ahead log beside the database."""
    return path.with_name(path.name + "-wal").exists()


def drop_empty_wal(path: Path) -> None:
    """Remove the log files that a reader had to create; closing the last writing connection does that.

    Does nothing while the daemon has the database open, or if this user cannot write.
    """
    if has_wal(path):
        with contextlib.suppress(sqlite_driver().Error):
            _touch(path)


def _touch(path: Path) -> None:
    with closing(sqlite_driver().connect(_uri(path, "rw"), uri=True)) as connection:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.resolve()))}?mode={mode}"


def _is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


@retry(
    retry=retry_if_exception(_is_busy),
    stop=stop_after_attempt(_JOURNAL_ATTEMPTS),
    wait=wait_fixed(0.02),
    retry_error_callback=lambda _: None,
)
def _choose_journal(connection: Any, wanted: str) -> None:
    """Change the journal mode if it differs.

    SQLite rejects that at once while others use the file, regardless of the busy timeout, such as two processes that
    start together on a new database. After some attempts the mode stays, which is slower but not wrong.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:  # only a new file can take it without VACUUM
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute(f"PRAGMA journal_mode={wanted}")


def make_own_folder(path: Path) -> None:
    """Create the folder of a database if it is gpuwatch's own: users do not create `<state>/gpuwatch/` themselves.

    Any other missing folder is probably a typing error, and is reported when the database is opened.

    Raises:
        StoreError: it cannot be created.
    """
    if path.parent.name != OWN_FOLDER or path.parent.is_dir():
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the folder of {path}: {error.strerror}") from error
