"""Upgrades a database to the newest schema, once, even if several processes start together; a crash changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, select

from gpuwatch.errors import StoreError, StoreInUse, StoreMissing, StoreNotReady, StoreTooNew
from gpuwatch.installation import packaged_path
from gpuwatch.storage.setup.daemon_lease import GONE_AFTER_S, NOW_MS, claim_daemon
from gpuwatch.storage.setup.database import Database, no_database, open_database, sqlite_path, with_long_timeout
from gpuwatch.storage.setup.side_tables import daemon_host
from gpuwatch.storage.setup.sqlite_driver import OWN_FOLDER

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import Script

_ADVISORY_LOCK = 0x6770_7577  # "gpuw"; any number that nothing else uses


def upgrade(database: Database) -> list[str]:
    """Run every missing migration, in one transaction.

    Returns:
        The applied revisions, oldest first; empty if there was nothing to do.

    Raises:
        StoreTooNew: a newer gpuwatch wrote it.
        StoreInUse: a daemon of an older version runs on it (PostgreSQL; on SQLite see `claim_daemon`).
        StoreError: the database cannot be used, or has tables that are not gpuwatch's.
    """
    with database.write() as connection:
        if not database.is_sqlite:  # held until the commit: a concurrent start waits
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        previous = _revision(connection)
        if previous == newest_schema():
            return []
        _require_known(connection, previous, database.place)
        if not database.is_sqlite:
            _require_unused(connection, database.place)
        with with_long_timeout(connection):
            return _run(connection, previous, database.place)


def revision(database: Database) -> str | None:
    """Return the schema's revision; None for an empty database. Raises StoreError."""
    with database.read() as connection:
        return _revision(connection)


@cache
def newest_schema() -> str:
    """Return the revision of the newest migration, by its file name; a test compares it with Alembic's answer.

    Each start compares it with the store's, and importing Alembic takes 140 ms.

    Raises:
        StoreError: the migrations are missing from this installation.
    """
    names = os.listdir(_migrations_folder() / "versions")
    return max(name.partition("_")[0] for name in names if name.endswith(".py") and not name.startswith("_"))


def pending_migrations(schema: str | None, place: str) -> dict[str, str]:
    """What each missing migration does, in a sentence, by its revision; oldest first.

    Args:
        schema: of the database; None: an empty one.

    Raises:
        StoreTooNew: a newer gpuwatch wrote it.
    """
    if schema == newest_schema():
        return {}
    texts = {script.revision: script.doc for script in _scripts()}
    if schema is not None and schema not in texts:
        raise _too_new_error(schema, place)
    return {revision: text for revision, text in texts.items() if schema is None or revision > schema}


def require_head(database: Database) -> None:
    """Check that the schema is the one of this program.

    Raises:
        StoreMissing: the database is missing or empty.
        StoreNotReady: the schema is older; the message names the command to run.
        StoreTooNew: a newer gpuwatch wrote it.
    """
    current = revision(database)
    if current == newest_schema():
        return
    if current is None:
        raise no_database(database.place)
    if current not in _known_revisions():
        raise _too_new_error(current, database.place)
    raise StoreNotReady(
        f"the database {database.place} has an older schema ({current}, this gpuwatch requires {newest_schema()});"
        " stop a running daemon, then run `gpuwatch store upgrade`"
    )


def create_or_require_head(database: Database) -> None:
    """Create a missing schema, but upgrade none: a daemon of an older version may be using it.

    Raises:
        StoreNotReady: the schema is older; the message names the command to run.
        StoreTooNew: a newer gpuwatch wrote it.
    """
    try:
        require_head(database)
    except StoreMissing:
        upgrade(database)


def upgrade_unused(database: Database) -> list[str]:
    """Upgrade as `upgrade` does, but only while no daemon uses the database.

    Raises:
        StoreInUse: a daemon uses it, and its tables would change.
        StoreError: as `upgrade`.
    """
    try:
        require_head(database)
    except StoreMissing:
        return upgrade(database)
    except StoreNotReady:
        with claim_daemon(database.url):
            return upgrade(database)
    return []


@contextmanager
def open_read_only(url: str) -> Iterator[Database]:
    """Open a database with the current schema for reading, and close it at the end. Changes nothing.

    Raises:
        StoreNotReady: the database is missing, or its schema is older; the message names the command to run.
        StoreError: it cannot be read, or a newer gpuwatch wrote it.
    """
    database = open_database(url, read_only=True)
    try:
        require_head(database)
        yield database
    finally:
        database.close()


def require_writable(url: str) -> None:
    """Fail early if a database cannot be created or written; creates and locks nothing.

    Raises:
        StoreError: it cannot; the message gives the reason.
    """
    path = sqlite_path(url)
    if path is None:
        database = open_database(url, read_only=True)
        try:
            with database.read() as connection:
                if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar():
                    raise StoreError(f"the database {database.place} is a standby; use the primary in database_url")
        finally:
            database.close()
        return
    folder = path.absolute().parent
    if folder.name == OWN_FOLDER:  # created when needed
        folder = next(existing for existing in (folder, *folder.parents) if existing.exists())
    if not folder.is_dir():
        raise StoreError(f"cannot open the database {path}; check that its folder exists and is writable")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise StoreError(f"cannot write the database {path}; check the permissions of the file and its folder")


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's settings, built here: there is no alembic.ini whose syntax a URL could break."""
    from alembic.config import Config as AlembicConfig  # noqa: PLC0415 140 ms that only a migration needs

    alembic_config = AlembicConfig()
    alembic_config.set_main_option("script_location", str(_migrations_folder()).replace("%", "%%"))
    alembic_config.set_main_option("path_separator", "os")
    alembic_config.attributes["connection"] = connection
    return alembic_config


def _run(connection: Connection, previous: str | None, place: str) -> list[str]:
    from alembic import command  # noqa: PLC0415

    revisions = _known_revisions()
    if previous is not None and previous not in revisions:
        raise _too_new_error(previous, place)
    command.upgrade(alembic_config(connection), "head")
    return revisions[revisions.index(previous) + 1 :] if previous is not None else revisions


def _known_revisions() -> list[str]:
    return [script.revision for script in _scripts()]


def _scripts() -> list[Script]:
    """The migrations, oldest first."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    return [*ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return None if row is None else str(row[0])


def _require_known(connection: Connection, previous: str | None, place: str) -> None:
    if previous is None and set(inspect(connection).get_table_names()) - {"alembic_version"}:
        raise StoreError(f"the database {place} contains tables of another program; set another database_url")


def _require_unused(connection: Connection, place: str) -> None:
    """Refuse to upgrade under a daemon: its version is older, and does not know the new schema. Raises StoreInUse."""
    if not inspect(connection).has_table(daemon_host.name):
        return
    is_seen = daemon_host.c.seen_ms > NOW_MS - GONE_AFTER_S * 1000
    other = connection.execute(select(daemon_host.c.host, daemon_host.c.version).where(is_seen)).first()
    if other is not None:
        raise StoreInUse(
            f"gpuwatch {other.version} on {other.host} uses the database {place}, whose schema is older: stop it first;"
            f" one that was killed counts for {GONE_AFTER_S:g} s"
        )


def _too_new_error(stored_revision: str, place: str) -> StoreTooNew:
    return StoreTooNew(
        f"the database {place} was written by a newer gpuwatch (schema {stored_revision}, "
        f"this one has {newest_schema()}); use that version"
    )


def _migrations_folder() -> Path:
    folder = packaged_path("migrations")
    if folder is None:
        raise StoreError("the migrations are missing from this installation; reinstall gpuwatch")
    return folder
