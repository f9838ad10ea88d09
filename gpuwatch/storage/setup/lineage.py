"""Notices that the database is another one, or an older one, than this process has written.

A promoted standby may lack the last commits, and a restored copy all of them since its backup. The connections of a
pool then lead there without an error. Only PostgreSQL: SQLite's file is checked for being the same (`database`).
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

log = logging.getLogger(__name__)

# Some hosted servers do not have, or do not allow, all of these functions. The first query asks for the timeline of the
# newest WAL, because that of the last checkpoint changes only some time after a promotion.
_QUERIES: Final = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()) || '/' || oid::text,"
    " CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,"
    " (SELECT max(id) FROM launch_event) FROM pg_database WHERE datname = current_database()",
    "SELECT oid::text, (SELECT timeline_id::text FROM pg_control_checkpoint()), (SELECT max(id) FROM launch_event)"
    " FROM pg_database WHERE datname = current_database()",
    "SELECT oid::text, '', (SELECT max(id) FROM launch_event) FROM pg_database WHERE datname = current_database()",
)


class Lineage:
    """The server, its timeline and the newest event of a launch, as of the last check. Thread-safe.

    Attributes:
        generation: grows whenever a check finds another server or timeline, or that events are missing. Whatever was
            concluded from the rows of an earlier generation must be concluded again.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.Lock()
        self._query: str | None = None  # the first one that this server answers
        self._identity: tuple[str, str] | None = None
        self._newest = 0

    @property
    def identity(self) -> str:
        """The server and timeline of the last check, as text; empty: unknown."""
        return "" if self._identity is None else "/".join(self._identity)

    def note_change(self, what: str) -> None:
        """Start a new generation."""
        with self._lock:
            self.generation += 1
        log.error("the database went back (%s): nothing is rented until the launches are looked up again", what)

    def check(self, connection: Connection) -> None:
        """Compare the database of this connection with that of the last check. Raises DBAPIError."""
        with self._lock:
            before, last = self._identity, self._newest  # before the query: its answer includes what is known by now
        system, timeline, newest = self._ask(connection)
        if timeline is None:  # a standby: nothing can be written there
            return
        identity, newest = (system, timeline), newest or 0
        with self._lock:
            if self._identity != before:
                return  # another thread noticed a change meanwhile; the next check compares with that
            is_same = before is None or (identity == before and newest >= last)
            self._identity = identity
            self._newest = max(newest, self._newest) if is_same else newest
        if not is_same:
            self.note_change(
                "another server or timeline answers" if before != identity else "its newest events are gone"
            )

    def _ask(self, connection: Connection) -> tuple[str, str | None, int | None]:
        for query in (self._query,) if self._query else _QUERIES:
            try:
                with connection.begin_nested():  # a function that is missing must not end the transaction
                    system, timeline, newest = connection.exec_driver_sql(query).one()
            except DBAPIError as error:
                if self._query or error.connection_invalidated or query == _QUERIES[-1]:
                    raise
            else:
                self._query = query
                return system, timeline, newest
        raise AssertionError("the last query raises")
