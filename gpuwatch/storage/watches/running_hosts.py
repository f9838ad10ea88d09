"""Which hosts run a daemon on this database now: for commands and lists that must not cross another host."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwatch.storage.setup.daemon_lease import load_hosts
from gpuwatch.storage.setup.database import Database

_SEEN_WITHIN_S = 60.0  # a daemon notes four times as often that it runs


def leading_host(database: Database, role: str) -> str | None:
    """Return the host that leads in a role now; None: nobody does, or no lease is needed. Raises StoreError."""
    if database.is_sqlite:
        return None
    with database.read() as connection:
        leases, hosts = load_hosts(connection)
    holder = next((lease.holder for lease in leases if lease.role == role and lease.expires_in_s > 0), None)
    return None if holder is None else next((one.host for one in hosts if one.holder == holder), "another host")


def is_unserved(database: Database, role: str) -> bool:
    """Whether no daemon leads in a role, and none did within a minute. Raises StoreError."""
    if database.is_sqlite:  # the only daemon has another role
        return True
    with database.read() as connection:
        leases = load_hosts(connection)[0]
    return not any(lease.role == role and lease.expires_in_s > -_SEEN_WITHIN_S for lease in leases)


def other_hosts(connection: Connection, role: str, host: str) -> frozenset[str]:
    """Return the other hosts whose daemons run in a role now: they were seen within a minute."""
    if connection.dialect.name == "sqlite":
        return frozenset()
    known = load_hosts(connection)[1]
    return frozenset(one.host for one in known if one.role == role and one.seen_ago_s < _SEEN_WITHIN_S) - {host}
