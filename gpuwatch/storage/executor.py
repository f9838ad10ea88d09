"""One way to run SQL, whoever carries it: SQLAlchemy, or the standard library where the start counts.

Statements are written with `?`; they use only what SQLite (3.35) and PostgreSQL both understand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection

Row = tuple[Any, ...]


class Executor(Protocol):
    """Runs statements inside a transaction that its owner began and will end."""

    def rows(self, sql: str, parameters: Row = ()) -> Sequence[Row]:
        """All rows of a question."""

    def run(self, sql: str, parameters: Row = ()) -> int:
        """Run one statement; answers how many rows it touched."""

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row; none: nothing happens."""


class CoreExecutor:
    """Inside a transaction of SQLAlchemy, on its driver's own cursor: rows are plain tuples, at the driver's speed."""

    def __init__(self, connection: Connection) -> None:
        self._cursor = connection.connection.cursor()
        self._dollar = connection.dialect.name != "sqlite"

    def rows(self, sql: str, parameters: Row = ()) -> Sequence[Row]:
        """All rows of a question."""
        self._cursor.execute(self._own(sql), parameters)
        return list(self._cursor.fetchall())

    def run(self, sql: str, parameters: Row = ()) -> int:
        """Run one statement."""
        self._cursor.execute(self._own(sql), parameters)
        return int(self._cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row."""
        if rows:
            self._cursor.executemany(self._own(sql), rows)

    def _own(self, sql: str) -> str:
        return _for_psycopg(sql) if self._dollar else sql


class SqliteExecutor:
    """On a connection of the standard library's driver (or pysqlite3)."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Row = ()) -> Sequence[Row]:
        """All rows of a question."""
        found: Sequence[Row] = self._connection.execute(sql, parameters).fetchall()
        return found

    def run(self, sql: str, parameters: Row = ()) -> int:
        """Run one statement."""
        return int(self._connection.execute(sql, parameters).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run one statement for each row."""
        if rows:
            self._connection.executemany(sql, rows)


@cache
def _for_psycopg(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")
