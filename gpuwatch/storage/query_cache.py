"""What is asked of the database again and again, and changes seldom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection

from gpuwatch.storage.database import Database

T = TypeVar("T")


class QueryCache(Generic[T]):
    """The result of a query, read again only after somebody, in whatever process, has written. Safe from any thread.

    PostgreSQL does not say cheaply whether anybody has: there each call reads, and so does the first call on SQLite,
    because most commands make no second one.

    Args:
        query: of the database alone, and of no clock; what it returns is shared, hence never changed.
    """

    def __init__(self, database: Database, query: Callable[[Connection], T]) -> None:
        self._database = database
        self._query = query
        self._last: tuple[int | None, T] | None = None

    def get(self) -> T:
        """The result as of now. Raises StoreError."""
        last = self._last
        version = None if last is None else self._database.version()
        if last is not None and version is not None and last[0] == version:
            return last[1]
        with self._database.read() as connection:  # after the version: what is read is at least as new
            found = self._query(connection)
        self._last = version, found
        return found
