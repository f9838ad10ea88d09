"""Shared by all repositories: times as stored, upserts, inserts that tolerate an existing row, cached query results."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar, overload

from sqlalchemy import Connection, Insert, Row, Table, UpdateBase
from sqlalchemy.sql.dml import ReturningInsert

from gpuwatch.storage.setup.database import Database

T = TypeVar("T")
AnyRow = Row[*tuple[Any, ...]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def to_ms(at: datetime) -> int: ...


@overload
def to_ms(at: datetime | None) -> int | None: ...


def to_ms(at: datetime | None) -> int | None:
    """Convert to whole milliseconds since 1970."""
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)


@overload
def from_ms(ms: int) -> datetime: ...


@overload
def from_ms(ms: int | None) -> datetime | None: ...


def from_ms(ms: int | None) -> datetime | None:
    """Convert to a moment in UTC."""
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def upsert(connection: Connection, table: Table, rows: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
    """Insert rows; an existing row with the same primary key gets the given columns."""
    if rows:
        columns = tuple(rows if isinstance(rows, dict) else rows[0])
        connection.execute(_upsert(table, connection.dialect.name, columns), rows)


def execute_many(connection: Connection, statement: UpdateBase, rows: Sequence[Mapping[str, Any]]) -> None:
    """Run a statement for each row, if any: without rows, SQLAlchemy would run it once."""
    if rows:
        connection.execute(statement, rows)


def insert_if_absent(connection: Connection, table: Table, row: dict[str, Any], key: str | None = None) -> bool:
    """Insert a row; False: a row with its key (None: any unique one) existed, and stays unchanged."""
    return connection.execute(_insert_if_absent(table, connection.dialect.name, key), row).first() is not None


# Built once, so that SQLAlchemy finds the compiled statement without comparing it part by part.
@cache
def _upsert(table: Table, dialect: str, columns: tuple[str, ...]) -> Insert:
    statement = dialect_insert(dialect)(table)
    key = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in columns if name not in key}
    on_conflict: Insert = statement.on_conflict_do_update(index_elements=key, set_=changed)
    return on_conflict


@cache
def _insert_if_absent(table: Table, dialect: str, key: str | None) -> ReturningInsert[Any]:
    on_conflict = dialect_insert(dialect)(table).on_conflict_do_nothing(index_elements=None if key is None else [key])
    statement: ReturningInsert[Any] = on_conflict.returning(*table.primary_key)  # psycopg does not count inserted rows
    return statement


def dialect_insert(dialect: str) -> Any:
    """Return `insert` of a dialect, which knows `ON CONFLICT`."""
    return importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert  # PostgreSQL's takes 2 MB


class QueryCache(Generic[T]):
    """The result of a query, read again only after any process has written. Thread-safe.

    PostgreSQL has no cheap test for writes: there each call reads. So does the first call on SQLite, because most
    commands make no second one.

    Args:
        query: depends on the database alone, not on a clock; its result is shared and must not be modified.
    """

    def __init__(self, database: Database, query: Callable[[Connection], T]) -> None:
        self._database = database
        self._query = query
        self._last_result: tuple[int | None, T] | None = None

    def get(self) -> T:
        """Return the current result. Raises StoreError."""
        last_result = self._last_result
        version = None if last_result is None else self._database.version()
        if last_result is not None and version is not None and last_result[0] == version:
            return last_result[1]
        with self._database.read() as connection:  # after the version: the result is at least as new
            result = self._query(connection)
        self._last_result = version, result
        return result
