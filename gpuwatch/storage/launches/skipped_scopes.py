"""Scopes of refused orders as rows: every process on this database skips them until they expire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, select

from gpuwatch.domain.launches.life.refused_scopes import SkippedScope, scopes_in_force
from gpuwatch.domain.market.text import storable_text
from gpuwatch.errors import RefusalScope
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.provider_tables import skipped_scope
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert

_RETENTION = timedelta(days=1)  # after the expiry
_MAX_KEY_LENGTH, _MAX_SKIP_REASON_LENGTH = 200, 300
_SKIPPED = skipped_scope.c
_ALL_SCOPES = select(skipped_scope).order_by(_SKIPPED.provider, _SKIPPED.scope, _SKIPPED.key, _SKIPPED.watch)


def load_scopes(connection: Connection) -> Sequence[SkippedScope]:
    """Return all scopes, including expired ones. Kinds that only a newer gpuwatch knows are left out."""
    known_kinds = {one.value for one in RefusalScope}
    return [
        SkippedScope(
            provider=row.provider,
            scope=RefusalScope(row.scope),
            key=row.key,
            watch=row.watch or None,
            why=row.why,
            since=from_ms(row.since_ms),
            until=from_ms(row.until_ms),
            launch_id=row.launch_id,
        )
        for row in connection.execute(_ALL_SCOPES)
        if row.scope in known_kinds
    ]


class SqlSkippedScopes:
    """The scopes that `gpuwatch machines --scopes` shows and launches add."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def in_force(self, now: datetime) -> Sequence[SkippedScope]:
        """Return the scopes to skip now. Raises StoreError."""
        with self._database.read() as connection:
            return scopes_in_force(load_scopes(connection), now)

    def skip(self, scope: SkippedScope) -> None:
        """Skip a scope from now on; every later reservation obeys it. Raises StoreError."""
        row = {
            "provider": storable_text(scope.provider, 32),
            "scope": scope.scope.value,
            "key": storable_text(scope.key, _MAX_KEY_LENGTH),
            "watch": scope.watch or "",
            "why": storable_text(scope.why, _MAX_SKIP_REASON_LENGTH),
            "since_ms": to_ms(scope.since),
            "until_ms": to_ms(scope.until),
            "launch_id": scope.launch_id,
        }
        with self._database.write() as connection:
            lock_reservations(connection)
            connection.execute(delete(skipped_scope).where(_SKIPPED.until_ms < to_ms(scope.since - _RETENTION)))
            upsert(connection, skipped_scope, row)
