"""Silenced watches: their alerts are stored and logged, but not sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, and_, delete, select

from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import silence

_CLOCKS_DIFFER_MS = 120_000  # between the hosts of several daemons


def in_force_at(at_ms: ColumnElement[int] | int) -> ColumnElement[bool]:
    """Match a silence that applies then. If the clock was set back since it began, it does not last until then."""
    return and_(silence.c.until_ms > at_ms, silence.c.created_at_ms <= at_ms + _CLOCKS_DIFFER_MS)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """One silenced watch."""

    watch: str
    at: datetime
    until: datetime


class SqlSilences:
    """Stores silences; all methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def silence(self, entry: Silence) -> None:
        """Silence a watch; replaces an earlier silence."""
        row = {"watch": entry.watch, "created_at_ms": to_ms(entry.at), "until_ms": to_ms(entry.until)}
        with self._database.write() as connection:
            upsert(connection, silence, row)

    def end(self, watch: str, now: datetime) -> bool:
        """Send its alerts again; False: it was not silenced."""
        with self._database.write() as connection:
            statement = delete(silence).where(silence.c.watch == watch).returning(silence.c.until_ms)
            until_ms = connection.execute(statement).scalar_one_or_none()
        return until_ms is not None and until_ms > to_ms(now)

    def in_force(self, now: datetime) -> Sequence[Silence]:
        """Return the current silences, by watch."""
        query = select(silence).where(in_force_at(to_ms(now))).order_by(silence.c.watch)
        with self._database.read() as connection:
            return [
                Silence(watch=row.watch, at=from_ms(row.created_at_ms), until=from_ms(row.until_ms))
                for row in connection.execute(query)
            ]
