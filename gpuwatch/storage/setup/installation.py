"""This installation: the id in its launches and labels, and the salt of its hashes. Created at first use."""

from __future__ import annotations

import base64
import secrets
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from gpuwatch.storage.setup.identity_tables import installation
from gpuwatch.storage.setup.stored_values import insert_if_absent, to_ms

_ROW_ID = 1
READ_INSTALLATION = select(installation.c.install_id, installation.c.key_salt)
INSTALL_ID = select(installation.c.install_id).scalar_subquery()  # for a query that reads other data anyway


class StoredInstallation(NamedTuple):
    """The identity of the installation that a database belongs to."""

    install_id: str
    key_salt: str


def new_identity() -> str:
    """Return 8 characters of a-z and 2-7: 40 random bits."""
    return base64.b32encode(secrets.token_bytes(5)).decode().lower()


def ensure_installation(connection: Connection, now: datetime) -> StoredInstallation:
    """Return the installation of this database, created if there is none. Needs a writing transaction."""
    existing = connection.execute(READ_INSTALLATION).first()
    if existing is None:  # another process may create it at the same moment; one of the two stays
        row = {
            "id": _ROW_ID,
            "install_id": new_identity(),
            "key_salt": secrets.token_hex(16),
            "created_at_ms": to_ms(now),
        }
        insert_if_absent(connection, installation, row)
        existing = connection.execute(READ_INSTALLATION).one()
    return StoredInstallation(*existing)
