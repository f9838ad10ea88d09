"""Which hosts run a daemon on this database now: for commands and lists that must not cross another host."""

from __future__ import annotations

import fcntl
import os
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select, update

from gpuwatch.storage.setup.daemon_lease import IS_ROLE, IS_VALID, NOW_MS
from gpuwatch.storage.setup.database import Database, sqlite_path
from gpuwatch.storage.setup.side_tables import daemon_host as host_rows
from gpuwatch.storage.setup.side_tables import daemon_lease as lease_rows
from gpuwatch.storage.setup.stored_values import from_ms

_SEEN_WITHIN_S = 60.0  # a daemon notes four times as often that it runs


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads in a role. `expires_in_s`: by the database's clock; 0 or less: nobody leads."""

    role: str
    holder: str
    epoch: int
    since: datetime
    expires_in_s: float
    steps_down: bool


class KnownHost(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that was seen within a day. `is_rescued`: it rents nothing, because its settings are invalid."""

    holder: str
    role: str
    host: str
    version: str
    started_at: datetime
    seen_ago_s: float
    is_rescued: bool


def is_turn(role: str) -> bool:
    """Whether it is the role of an account, PROVIDER/ACCOUNT: see `search_turns`."""
    return "/" in role and not role.startswith("main/")


def load_hosts(connection: Connection) -> tuple[list[LeaseHolder], list[KnownHost]]:
    """Return the leases and the daemons, by role and host."""
    leases = connection.execute(select(lease_rows, NOW_MS.label("now_ms")).order_by(lease_rows.c.role))
    query = select(host_rows, NOW_MS.label("now_ms")).order_by(host_rows.c.role, host_rows.c.host, host_rows.c.holder)
    return [
        LeaseHolder(
            role=row.role,
            holder=row.holder,
            epoch=row.epoch,
            since=from_ms(row.since_ms),
            expires_in_s=(row.expires_at_ms - row.now_ms) / 1000,
            steps_down=row.steps_down,
        )
        for row in leases
        if row.epoch
    ], [
        KnownHost(
            holder=row.holder,
            role=row.role,
            host=row.host,
            version=row.version,
            started_at=from_ms(row.started_ms),
            seen_ago_s=max(row.now_ms - row.seen_ms, 0) / 1000,
            is_rescued=row.is_rescued,
        )
        for row in connection.execute(query)
    ]


def request_step_down(connection: Connection, role: str) -> bool:
    """Ask the leader of a role to let another host lead; False: nobody leads."""
    asked = update(lease_rows).where(IS_ROLE, IS_VALID).values(steps_down=True)
    return connection.execute(asked, {"of_role": role}).rowcount == 1


def leading_host(database: Database, role: str) -> str | None:
    """Return the host that leads in a role now; None: nobody does, or no lease is needed. Raises StoreError."""
    if database.is_sqlite:
        return None
    with database.read() as connection:
        leases, hosts = load_hosts(connection)
    holder = next((lease.holder for lease in leases if lease.role == role and lease.expires_in_s > 0), None)
    return None if holder is None else next((one.host for one in hosts if one.holder == holder), "another host")


def has_leader(database: Database, role: str) -> bool:
    """Whether a daemon runs that follows the launches of this role now, and ends them in time. Raises StoreError."""
    return _is_locked(database.url) if database.is_sqlite else leading_host(database, role) is not None


def _is_locked(database_url: str) -> bool:
    """Whether a daemon has locked this SQLite file now; False: none has, or nobody knows."""
    database = sqlite_path(database_url)
    if database is None:
        return False
    path = database.resolve()
    try:
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(handle)
    return False


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
