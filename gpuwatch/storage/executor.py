"""Raw SQL on a driver's own cursor: for the recorder, the roll-up, and the commands that start without SQLAlchemy.

Everything else uses SQLAlchemy Core. Statements use `?` and only SQL that SQLite (3.35) and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

Row = tuple[Any, ...]


class Executor:
    """Runs statements inside a transaction that its caller begins and ends; returns tuples, as fast as the driver.

    Args:
        cursor: of `sqlite3`, pysqlite3 or psycopg.
        psycopg: whether to translate `?` into psycopg's `%s`.
    """

    def __init__(self, cursor: Any, *, psycopg: bool = False) -> None:
        self._cursor = cursor
        self.psycopg = psycopg
        self.connection: Any = None

    def rows(self, sql: str, parameters: Row = ()) -> Sequence[Row]:
        """Return all rows of a query."""
        self._cursor.execute(_for_psycopg(sql) if self.psycopg else sql, parameters)
        rows: list[Row] = self._cursor.fetchall()
        return rows

    def run(self, sql: str, parameters: Row = ()) -> int:
        """Run one statement; return the number of affected rows."""
        self._cursor.execute(_for_psycopg(sql) if self.psycopg else sql, parameters)
        return int(self._cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row, if any."""
        if rows:
            self._cursor.executemany(_for_psycopg(sql) if self.psycopg else sql, rows)


def driver_executor(connection: Connection) -> Executor:
    """Return an executor on the driver's cursor of an SQLAlchemy connection, in the same transaction."""
    executor = Executor(connection.connection.cursor(), psycopg=connection.dialect.name != "sqlite")
    executor.connection = connection
    return executor


@cache
def _for_psycopg(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")
