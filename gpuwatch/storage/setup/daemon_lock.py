"""What one daemon holds: the lock on its database, and the leases in it.

One daemon per SQLite file: the kernel's lock on a file beside it ends with the process in any case. On PostgreSQL
several daemons may share a database: unique rows ensure that everything happens once.

A lease (of a delivery, of a hook, of the right to poll a chat) belongs to a process and to a generation of its service.
Whoever holds the lock of a SQLite file takes over the leases of the process before, once, at its start. A reload starts
a new generation in the same process: the old one may still be sending, so its leases end when it is done, or by
themselves. On PostgreSQL the leases may be those of living daemons, and end by themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import and_, update

from gpuwatch.errors import StoreError, StoreInUse
from gpuwatch.storage.setup.database import Database, sqlite_path
from gpuwatch.storage.setup.side_tables import chat_poller, delivery
from gpuwatch.storage.setup.sqlite_driver import make_own_folder
from gpuwatch.storage.setup.tables import hook_run

_RELEASES = (
    *(
        update(table)
        .where(and_(table.c.state == "pending", table.c.leased_until_ms.is_not(None)))
        .values(leased_until_ms=None)
        for table in (delivery, hook_run)
    ),
    update(chat_poller).where(chat_poller.c.leased_until_ms > 0).values(leased_until_ms=0),
)


@contextmanager
def claim_daemon(database_url: str) -> Iterator[None]:
    """Lock a database for this process.

    Raises:
        StoreInUse: a daemon has locked it; the message names its process.
        StoreError: the lock file cannot be written.
    """
    database = sqlite_path(database_url)
    if database is None:
        yield
        return
    make_own_folder(database)
    path = database.resolve()
    path = path.with_name(path.name + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot open the lock file {path}: {error.strerror}") from error
    try:
        _lock_or_raise(handle, str(database))
        yield
    finally:
        os.close(handle)  # the file stays: after unlinking it, two processes could lock two files of one name


def _lock_or_raise(handle: int, place: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise StoreInUse(
            f"a daemon (process {holder}) uses the database {place}; stop it, or set another database_url"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot lock {place}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # on a full disk the lock still works; only the process id is missing
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)


def release_leases(database: Database) -> None:
    """Release every lease of earlier processes, if no other daemon can be running.

    Call it once in a process, by the holder of the daemon lock. Raises StoreError.
    """
    if not database.is_sqlite:
        return
    with database.write() as connection:
        for statement in _RELEASES:
            connection.execute(statement)
