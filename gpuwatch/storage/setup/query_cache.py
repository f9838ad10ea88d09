"""Caches results of frequent queries that rarely change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection

from gpuwatch.storage.setup.database import Database

T = TypeVar("T")


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
