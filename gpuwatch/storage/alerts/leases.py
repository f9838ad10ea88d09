"""Leases that a daemon holds in the database: deliveries of alerts, hooks, and the right to poll a chat.

A lease belongs to a process and to a generation of its service. SQLite has one daemon: whoever holds its lock takes
over the leases of the process before, once, at its start. A reload starts a new generation in the same process: the old
one may still be sending, so its leases end when it is done, or by themselves. On PostgreSQL the leases may be those of
living daemons, and end by themselves.
"""

from __future__ import annotations

from sqlalchemy import and_, update

from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import chat_poller
from gpuwatch.storage.setup.tables import delivery, hook_run

_RELEASES = (
    *(
        update(table)
        .where(and_(table.c.state == "pending", table.c.leased_until_ms.is_not(None)))
        .values(leased_until_ms=None)
        for table in (delivery, hook_run)
    ),
    update(chat_poller).where(chat_poller.c.leased_until_ms > 0).values(leased_until_ms=0),
)


def release_leases(database: Database) -> None:
    """Release every lease of earlier processes, if no other daemon can be running.

    Call it once in a process, by the holder of the daemon lock. Raises StoreError.
    """
    if not database.is_sqlite:
        return
    with database.write() as connection:
        for statement in _RELEASES:
            connection.execute(statement)
