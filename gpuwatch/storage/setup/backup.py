"""An online, verified copy of an SQLite database: complete, or absent. And whether the database itself is intact."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import make_url, select

from gpuwatch.atomic_file import publish
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.database_errors import sqlite_error
from gpuwatch.storage.setup.sqlite_driver import BUSY_TIMEOUT_MS, connect_read_only, sqlite_driver
from gpuwatch.storage.setup.tables import IS_ALIVE, launch, metadata

_CHECKED_TABLES = ("launch", "launch_event", "alert", "delivery")


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup."""

    path: str
    bytes: int
    rows: dict[str, int]  # by table, counted in the copy


def backup(database: Database, target: Path, *, force: bool = False) -> BackupReport:
    """Copy the database while it is in use, check the copy, and only then give it its name.

    Args:
        force: replace an existing file.

    Raises:
        UsageError: the target exists, or is unsuitable.
        StoreError: the copy failed; no partial file is left behind.
    """
    if database.path is None:
        raise StoreError(f"for PostgreSQL: {dump_command(database.url, str(target))} ; restore it with pg_restore")
    _check_target(database.path, target, force)
    part = target.with_name(target.name + ".part")  # a fixed name: the next backup removes what a killed one left
    try:
        part.unlink(missing_ok=True)
        with _faults(database.path, part):
            rows = _copy(database.path, part)
            _verify(part, rows)
        publish(part, target, is_durable=True, may_replace=force)
    except FileExistsError as error:
        raise UsageError(f"{target} exists; choose another file, or replace it with --force") from error
    except OSError as error:
        raise StoreError(f"cannot write the backup {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return BackupReport(path=str(target), bytes=target.stat().st_size, rows=rows)


def put_in_place(copy: Path, path: Path) -> None:
    """Replace the content of a database by that of a copy, in one transaction; the copy stays.

    Raises:
        StoreError: the copy is damaged, or the database is in use or cannot be written; it is unchanged.
    """
    driver = sqlite_driver()
    with _faults(copy, path), closing(connect_read_only(copy)) as source:
        errors = [row[0] for row in source.execute("PRAGMA integrity_check(3)")]
        if errors != ["ok"]:
            raise StoreError(f"the copy {copy} is damaged: {'; '.join(map(str, errors))[:200]}")
        with closing(driver.connect(str(path), timeout=BUSY_TIMEOUT_MS / 1000)) as target:
            source.backup(target)


def launches_missing_in(copy: Path, database: Database) -> tuple[int, list[str]]:
    """How many launches of the database a copy, of any schema, does not have, and which of them are not over."""
    with _faults(copy, copy), closing(connect_read_only(copy)) as older:
        is_there = older.execute("SELECT 1 FROM sqlite_master WHERE name = 'launch'").fetchone()
        known = {row[0] for row in older.execute("SELECT launch_id FROM launch")} if is_there else set()
    with database.read() as connection:
        found = connection.execute(select(launch.c.launch_id, IS_ALIVE).order_by(launch.c.launch_id)).all()
    missing = [(launch_id, is_alive) for launch_id, is_alive in found if launch_id not in known]
    return len(missing), [launch_id for launch_id, is_alive in missing if is_alive]


def dump_command(url: str, target: str) -> str:
    """The command that copies a PostgreSQL database. pg_dump takes its password from PGPASSWORD or ~/.pgpass."""
    server = make_url(url)._replace(drivername="postgresql", password=None).difference_update_query(["password"])
    name = shlex.quote(f"--dbname={server.render_as_string()}")
    return f"pg_dump --format=custom --file={shlex.quote(target)} {name}"


def rebuild(path: Path, timeout_s: float = BUSY_TIMEOUT_MS / 1000) -> int:
    """Rewrite a database without free pages, so that later ones can be given back; return its bytes.

    The copy lies beside it: SQLite's own VACUUM would hold all of it in memory in some builds. Nobody else reads or
    writes meanwhile; the copy replaces the content in one transaction.

    Raises:
        StoreError: it is in use or damaged, or the disk is full; nothing was changed.
    """
    driver = sqlite_driver()
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with _faults(path, part), closing(driver.connect(str(path), timeout=timeout_s)) as connection:
            connection.isolation_level = None
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")  # the lock stays
            connection.execute("VACUUM INTO ?", (str(part),))
            with closing(driver.connect(str(part))) as copy:
                copy.backup(connection)
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size


def _check_target(source: Path, target: Path, force: bool) -> None:
    if not source.exists():
        raise StoreError(f"there is no database {source} to back up")
    if target.exists() and target.samefile(source):
        raise UsageError(f"{target} is the database itself; choose another file")
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"cannot write {target}; choose a file in an existing folder")
    if target.exists() and not force:
        raise UsageError(f"{target} exists; choose another file, or replace it with --force")


def _copy(source: Path, part: Path) -> dict[str, int]:
    """Copy in one step and one reading transaction, so that the counts match the copy despite concurrent writers."""
    driver = sqlite_driver()
    with closing(connect_read_only(source)) as source_connection:
        source_connection.execute("BEGIN")
        rows = _counts(source_connection)
        with closing(driver.connect(str(part))) as target_connection:
            source_connection.backup(target_connection)
    return rows


def _verify(part: Path, rows: dict[str, int]) -> None:
    with closing(sqlite_driver().connect(str(part))) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # one file, whatever the journal mode of the original
        errors = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
        if errors != ["ok"]:
            raise StoreError(f"the database is damaged, and so is the copy: {'; '.join(map(str, errors))[:200]}")
        violation = connection.execute("PRAGMA foreign_key_check").fetchone()
        if violation is not None:
            raise StoreError(f"the database is damaged, and so is the copy: {violation[0]} has dangling foreign keys")
        if _counts(connection) != rows:
            raise StoreError("the copy lacks rows of the database; try again")


def _counts(connection: Any) -> dict[str, int]:
    existing = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names = [name for name in metadata.tables if name in existing]
    return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}  # noqa: S608


@contextmanager
def _faults(source: Path, part: Path) -> Iterator[None]:
    driver = sqlite_driver()
    try:
        yield
    except driver.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        is_damaged = code in {driver.SQLITE_CORRUPT, driver.SQLITE_NOTADB}  # the copy repeats the source's damage
        raise sqlite_error(error, str(source if is_damaged else part)) from error


def require_intact(database: Database) -> None:
    """Check that the tables of launches and alerts are intact; damage elsewhere affects only the history.

    PostgreSQL checks its pages itself.

    Raises:
        StoreError: they are damaged; the message names the file, and how to restore it.
    """
    if not database.is_sqlite:
        return
    for table in _CHECKED_TABLES:
        with database.read() as connection:
            result = str(connection.exec_driver_sql(f"PRAGMA quick_check('{table}')").scalar())
        if result != "ok":
            raise StoreError(
                f"the database {database.place} is damaged ({' '.join(result.split())[:120]}). Stop gpuwatch,"
                f" move the file, and its -wal and -shm, away, and restore it from `gpuwatch store backup`:"
                f" cp BACKUP {database.place}"
            )
