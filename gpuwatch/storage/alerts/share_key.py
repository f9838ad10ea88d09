"""The key that signs shared links: one per database, created with the first link, replaced to end them all."""

from __future__ import annotations

import secrets
from datetime import datetime

from sqlalchemy import Connection, Update, select, update

from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.setup.account_rows import ensure_installation
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import installation

_READ = select(installation.c.share_key)


class SqlShareKey:
    """Stores the key. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self) -> str | None:
        """Return the key; None: nothing was shared yet."""
        with self._database.read() as connection:
            return connection.execute(_READ).scalar_one_or_none()

    def ensure(self, now: datetime, audit: OutboxAlert) -> str:
        """Return the key, created if there is none, and store that a link was made."""
        with self._database.write() as connection:
            ensure_installation(connection, now)
            # another process may create it at the same moment; one of the two stays
            connection.execute(_new_key().where(installation.c.share_key.is_(None)))
            add_audit(connection, audit)
            return _stored(connection)

    def update_key(self, now: datetime, audit: OutboxAlert) -> None:
        """Replace the key: every link that was made ends."""
        with self._database.write() as connection:
            ensure_installation(connection, now)
            connection.execute(_new_key())
            add_audit(connection, audit)


def _new_key() -> Update:
    return update(installation).values(share_key=secrets.token_hex(32))


def _stored(connection: Connection) -> str:
    return str(connection.execute(_READ).scalar_one())
