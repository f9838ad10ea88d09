"""Raw SQL on a driver's own cursor: for the recorder, the roll-up, and the commands that start without SQLAlchemy.

Everything else uses SQLAlchemy Core. Statements are written with `?`, in what SQLite (3.35) and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

Row = tuple[Any, ...]


class Executor:
    """Runs statements inside a transaction that its owner began and ends; rows are plain tuples, at the driver's speed.

    Args:
        cursor: of `sqlite3`, pysqlite3 or psycopg.
        psycopg: parameters are written `%s` there.
    """

    def __init__(self, cursor: Any, *, psycopg: bool = False) -> None:
        self._cursor = cursor
        self.psycopg = psycopg

    def rows(self, sql: str, parameters: Row = ()) -> Sequence[Row]:
        """All rows of a query."""
        self._cursor.execute(_for_psycopg(sql) if self.psycopg else sql, parameters)
        found: list[Row] = self._cursor.fetchall()
        return found

    def run(self, sql: str, parameters: Row = ()) -> int:
        """Run one statement; returns how many rows it touched."""
        self._cursor.execute(_for_psycopg(sql) if self.psycopg else sql, parameters)
        return int(self._cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row; none: nothing happens."""
        if rows:
            self._cursor.executemany(_for_psycopg(sql) if self.psycopg else sql, rows)


def driver_executor(connection: Connection) -> Executor:
    """On the driver's cursor beneath a connection of SQLAlchemy, in the same transaction."""
    return Executor(connection.connection.cursor(), psycopg=connection.dialect.name != "sqlite")


@cache
def _for_psycopg(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")
