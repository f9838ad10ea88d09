"""Is what money hangs on readable? A damaged page elsewhere costs history; one here would cost a launch its memory."""

from __future__ import annotations

from gpuwatch.errors import StoreError
from gpuwatch.storage.database import Database

_CHECKED_TABLES = ("launch", "launch_event", "alert", "delivery")


def require_intact(database: Database) -> None:
    """Go on only if the tables of launches and alerts are whole. PostgreSQL checks its pages itself.

    Raises:
        StoreError: they are not; the line names the file, and how to restore it.
    """
    if not database.is_sqlite:
        return
    for table in _CHECKED_TABLES:
        with database.read() as connection:
            said = str(connection.exec_driver_sql(f"PRAGMA quick_check('{table}')").scalar())
        if said != "ok":
            raise StoreError(
                f"the database {database.place} is damaged ({' '.join(said.split())[:120]}); nothing is rented. Stop"
                f" gpuwatch, move the file away, and: cp BACKUP {database.place} (`gpuwatch db backup` wrote it)"
            )
