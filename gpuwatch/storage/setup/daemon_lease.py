"""What one daemon holds: the lock on its database or the lease in it, and the leases of what it sends.

One daemon per SQLite file: the kernel's lock on a file beside it is its lease, and ends with the process in any case.
On PostgreSQL several daemons may share a database: one of them leads, by a row that it renews, and is fenced by its
epoch; unique rows ensure that everything happens once, even if two believe that they lead.

A lease (of a delivery, of a hook, of the right to poll a chat) belongs to a process and to a generation of its service.
Whoever holds the lock of a SQLite file takes over the leases of the process before, once, at its start. A reload starts
a new generation in the same process: the old one may still be sending, so its leases end when it is done, or by
themselves. On PostgreSQL the leases may be those of living daemons, and end by themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from gpuwatch.domain.market.offer import storable_text
from gpuwatch.errors import LeaseLost, StoreError, StoreInUse
from gpuwatch.storage.setup.database import Database, SessionLimits, sqlite_path
from gpuwatch.storage.setup.side_tables import chat_poller, delivery
from gpuwatch.storage.setup.side_tables import daemon_host as host_rows
from gpuwatch.storage.setup.side_tables import daemon_lease as lease_rows
from gpuwatch.storage.setup.sqlite_driver import make_own_folder
from gpuwatch.storage.setup.stored_values import insert_if_absent
from gpuwatch.storage.setup.tables import hook_run

_RELEASES = (
    *(
        update(table)
        .where(and_(table.c.state == "pending", table.c.leased_until_ms.is_not(None)))
        .values(leased_until_ms=None)
        for table in (delivery, hook_run)
    ),
    update(chat_poller).where(chat_poller.c.leased_until_ms > 0).values(leased_until_ms=0),
)


@contextmanager
def claim_daemon(database_url: str) -> Iterator[None]:
    """Lock a database for this process.

    Raises:
        StoreInUse: a daemon has locked it; the message names its process.
        StoreError: the lock file cannot be written.
    """
    database = sqlite_path(database_url)
    if database is None:
        yield
        return
    make_own_folder(database)
    path = database.resolve()
    path = path.with_name(path.name + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot open the lock file {path}: {error.strerror}") from error
    try:
        _lock_or_raise(handle, str(database))
        yield
    finally:
        os.close(handle)  # the file stays: after unlinking it, two processes could lock two files of one name


def _lock_or_raise(handle: int, place: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise StoreInUse(
            f"a daemon (process {holder}) uses the database {place}; stop it, or set another database_url"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot lock {place}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # on a full disk the lock still works; only the process id is missing
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)


def release_leases(database: Database) -> None:
    """Release every lease of earlier processes, if no other daemon can be running.

    Call it once in a process, by the holder of the daemon lock. Raises StoreError.
    """
    if not database.is_sqlite:
        return
    with database.write() as connection:
        for statement in _RELEASES:
            connection.execute(statement)


# --- the lease of a daemon --------------------------------------------------------------------------------------------

LEASE_S = 15.0
RENEW_EVERY_S = 3.0
STEP_DOWN_AFTER_S = 10.0  # since the last successful renewal, by the holder's own clock
STANDBY_EVERY_S = 2.0
RETRY_AFTER_S = 1.0
SEEN_EVERY_S = 15.0
GONE_AFTER_S = 3 * SEEN_EVERY_S
REST_S = 30.0  # after it stepped down, a host lets another one lead
OTHERS_FOR_S = 60.0  # other owners are minded for so long after the last lease of theirs
# Its own connection, with waits so short that a network that drops packets costs one renewal, not three.
LEASE_SESSION = SessionLimits(connect_s=2, lock_s=2.0, statement_s=3.0, idle_s=5.0, connections=1)

NOW_MS: ColumnElement[int] = literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", BigInteger)
IS_ROLE = lease_rows.c.role == bindparam("of_role")
_IS_TERM = and_(IS_ROLE, lease_rows.c.holder == bindparam("of_holder"), lease_rows.c.epoch == bindparam("of_epoch"))
IS_VALID = lease_rows.c.expires_at_ms > NOW_MS
_FENCE = select(lease_rows.c.epoch).where(_IS_TERM, IS_VALID).with_for_update(read=True)
_STATE = select(lease_rows.c.holder, lease_rows.c.expires_at_ms - NOW_MS).where(IS_ROLE)
_LOCK = select(lease_rows.c.lineage, lease_rows.c.expires_at_ms - NOW_MS).where(IS_ROLE).with_for_update()
_TAKING = 0x67706C64  # the key of PostgreSQL's advisory lock: "gpld"
_others = lease_rows.alias()
_HAS_OTHERS = exists().where(  # another owner's host leads, or did within a minute: another one may take over
    _others.c.role.regexp_match("^main(/|$)"),
    _others.c.role != bindparam("of_role"),
    _others.c.expires_at_ms > NOW_MS - OTHERS_FOR_S * 1000,
)
_HAS_HEALTHY = exists().where(  # a host of this role that could rent
    host_rows.c.role == bindparam("of_role"),
    host_rows.c.holder != bindparam("of_holder"),
    host_rows.c.is_rescued.is_(False),
    host_rows.c.seen_ms > NOW_MS - (SEEN_EVERY_S + STEP_DOWN_AFTER_S) * 1000,  # not the one whose lease it took over
)
_IS_FREE = or_(not_(IS_VALID), lease_rows.c.holder == bindparam("of_holder"))
_RENEW = (
    update(lease_rows)
    .where(_IS_TERM, IS_VALID)
    .values(expires_at_ms=NOW_MS + bindparam("for_ms"))
    .returning(lease_rows.c.steps_down, _HAS_OTHERS.label("has_others"), _HAS_HEALTHY.label("has_healthy"))
)
_TAKE = (
    update(lease_rows)
    .where(IS_ROLE, _IS_FREE)
    .values(
        holder=bindparam("of_holder"),
        epoch=lease_rows.c.epoch + 1,
        since_ms=NOW_MS,
        expires_at_ms=NOW_MS + bindparam("for_ms"),
        steps_down=False,
        lineage=bindparam("of_lineage"),
    )
    .returning(lease_rows.c.epoch, _HAS_OTHERS.label("has_others"))
)
_NOW_SEEN = {"seen_ms": NOW_MS, "is_rescued": bindparam("of_rescued")}
_SEEN = update(host_rows).where(host_rows.c.holder == bindparam("of_holder")).values(**_NOW_SEEN)
_FORGET_AFTER_MS = 24 * 3600 * 1000
_RELEASE = update(lease_rows).where(_IS_TERM).values(expires_at_ms=NOW_MS + bindparam("for_ms"), steps_down=False)


class Lease:
    """The lease of whoever needs none: of the process that holds the lock of an SQLite file, and of a command.

    What a command does because its owner says so is fenced by unique rows and by the version of each row.

    Attributes:
        term: another number after each change of what this process is: the leader, or a standby.
        leads: whether this process leads in this term.
        hands_over: whether the owner wants another host to lead; call `release` once nothing acts any more.
        holder: the name of this process in its leases.
        has_others: whether hosts of other owners lead on this database, too.
    """

    term = 1
    leads = True
    hands_over = False
    holder = ""
    has_others = False

    @property
    def is_held(self) -> bool:
        """Whether this process may act now, as far as it knows without asking the database."""
        return True

    @property
    def is_led(self) -> bool:
        """Whether any process leads, as far as this one knows."""
        return True

    @property
    def is_known(self) -> bool:
        """Whether the hosts of all other owners know by now that this one leads."""
        return True

    def verify(self, connection: Connection) -> None:
        """Make sure that this process leads until the end of this transaction. Raises LeaseLost."""

    def release(self, after_s: float = 0.0) -> None:
        """Let another host lead after this time. Raises StoreError."""


NO_LEASE = Lease()


class LeaseOfTerm(Lease):
    """A lease as far as the service that began in its present term may use it.

    A process that slept for long may lead again, in a later term, before a thread of its former service sends the order
    that it had checked: meanwhile another host may have proven its absence, and rented once more.
    """

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.term, self.leads = lease.term, lease.leads

    @property
    def is_held(self) -> bool:
        """Whether this service may act now, as far as it knows without asking the database."""
        return self._lease.term == self.term and self._lease.is_held

    def verify(self, connection: Connection) -> None:
        """Make sure that this service leads until the end of this transaction. Raises LeaseLost."""
        self._lease.verify(connection)
        if not self.is_held:  # afterwards: the term may have changed meanwhile
            raise LeaseLost("this daemon has begun another term; its former service ends")


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon. `holder`: another one for each process."""

    holder: str
    role: str
    host: str
    version: str


class RowLease(Lease):
    """A lease of several daemons on one PostgreSQL, by the database's clock.

    `tick` runs on a thread of its own; the rest may be called from any thread, and does not wait for it.

    Args:
        database: a connection of its own (`LEASE_SESSION`).
        monotonic: seconds, at real pace.
        is_rescued: in rescue mode it rents nothing: it lets others take a lease that is free, and hands over to them.
    """

    def __init__(
        self, database: Database, identity: HostIdentity, monotonic: Callable[[], float], is_rescued: bool = False
    ) -> None:
        self.database = database
        self.is_rescued = is_rescued
        self._identity = identity
        self._monotonic = monotonic
        self._keys = {"of_role": identity.role, "of_holder": identity.holder}
        self._epoch = 0
        self._renewed_s = -math.inf
        self._led_until_s = -math.inf  # by another host
        self._rests_until_s = -math.inf
        self._seen_s = -math.inf
        self._known_from_s = -math.inf
        self._lock = threading.Lock()  # of `tick` and `release`
        self.term, self.leads, self.hands_over, self.has_others = 1, False, False, False
        self.holder = identity.holder

    @property
    def is_held(self) -> bool:
        """Whether this process may act now, as far as it knows without asking the database."""
        return self.leads and not self.hands_over and not self._is_lapsed

    @property
    def is_led(self) -> bool:
        """Whether any process leads, as far as this one knows."""
        return self.is_held or self._monotonic() < self._led_until_s

    @property
    def is_known(self) -> bool:
        """Whether the hosts of all other owners know by now that this one leads."""
        return self._monotonic() >= self._known_from_s

    @property
    def _is_lapsed(self) -> bool:
        return self._monotonic() - self._renewed_s >= STEP_DOWN_AFTER_S

    def verify(self, connection: Connection) -> None:
        """Make sure that this process leads until the end of this transaction. Raises LeaseLost."""
        if not self.is_held or connection.execute(_FENCE, self._keys | {"of_epoch": self._epoch}).first() is None:
            raise LeaseLost("this daemon no longer leads; see: gpuwatch hosts")

    def tick(self) -> float:
        """Renew the lease, or take it if it is free; return the seconds until the next call. Raises StoreError."""
        with self._lock:
            began_s = self._monotonic()
            if self.leads and not self._is_lapsed:
                self._renew(began_s)
                return RENEW_EVERY_S if self.leads else 0.0
            return self._stand_by(began_s)

    def _renew(self, began_s: float) -> None:
        with self.database.write() as connection:
            parameters = self._keys | {"of_epoch": self._epoch, "for_ms": LEASE_S * 1000}
            row = connection.execute(_RENEW, parameters).first()
            self._note_seen(connection, began_s)
        if row is None:
            self._change(leads=False)
            return
        self._renewed_s = began_s  # before the request: by the database's clock the lease ends later
        self.has_others = row.has_others
        if (row.steps_down or (self.is_rescued and row.has_healthy)) and not self.hands_over:
            self.hands_over = True
            self._change(leads=True)

    def _stand_by(self, began_s: float) -> float:
        with self.database.read() as connection:
            state = connection.execute(_STATE, self._keys).first()
        left_s, patience_s = -math.inf if state is None else state[1] / 1000, LEASE_S if self.is_rescued else 0.0
        is_own = state is not None and state[0] == self._identity.holder
        if not is_own:
            self._led_until_s = began_s + left_s
        if began_s < self._rests_until_s or (left_s > -patience_s and not is_own):
            if self.leads:
                self._change(leads=False)
            if began_s - self._seen_s >= SEEN_EVERY_S:
                with self.database.write() as connection:
                    self._note_seen(connection, began_s)
            return min(max(left_s, 0.05), STANDBY_EVERY_S)
        return RENEW_EVERY_S if self._take(began_s) else RETRY_AFTER_S

    def _take(self, began_s: float) -> bool:
        """Take a lease that is free, or this process's own after it lapsed."""
        with self.database.write() as connection:
            free = {"role": self._identity.role, "holder": "", "epoch": 0, "since_ms": 0, "expires_at_ms": 0}
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TAKING})")  # of two, the second sees the first
            insert_if_absent(connection, lease_rows, free | {"steps_down": False, "lineage": ""})
            before, left_ms = connection.execute(_LOCK, self._keys).one()
            self.database.check_lineage(connection)
            lineage = self.database.lineage.identity
            parameters = self._keys | {"for_ms": LEASE_S * 1000, "of_lineage": lineage}
            taken = connection.execute(_TAKE, parameters).first()
            self._note_seen(connection, began_s)
        if taken is None:
            return False
        if before and lineage and before != lineage and not self.database.lineage.generation:
            self.database.lineage.note_change("it was promoted or restored since another host led")
        self.has_others = taken.has_others
        if self.has_others and left_ms / 1000 < STEP_DOWN_AFTER_S + LEASE_S - OTHERS_FOR_S:  # nobody minds this owner
            self._known_from_s = self._monotonic() + STEP_DOWN_AFTER_S  # they renew before, or act no more
        self.leads = False  # until the term is another one: threads of the former one may be reading
        self._epoch, self._renewed_s, self.hands_over = taken.epoch, began_s, False
        self._change(leads=True)
        return True

    def _change(self, *, leads: bool) -> None:
        self.leads = leads
        self.term += 1

    def _note_seen(self, connection: Connection, began_s: float) -> None:
        if began_s - self._seen_s < SEEN_EVERY_S:
            return
        self._seen_s = began_s
        rescued = {"of_rescued": self.is_rescued}
        if connection.execute(_SEEN, self._keys | rescued).rowcount == 0:
            one = self._identity
            row = {"holder": one.holder, "role": one.role, "host": storable_text(one.host, 200), "version": one.version}
            connection.execute(insert(host_rows).values(started_ms=NOW_MS, **_NOW_SEEN, **row), rescued)
            connection.execute(delete(host_rows).where(host_rows.c.seen_ms < NOW_MS - _FORGET_AFTER_MS))

    def release(self, after_s: float = 0.0) -> None:
        """Let another host lead after this time. Raises StoreError."""
        with self._lock:
            if not self.leads:
                return
            self._rests_until_s, self.hands_over = self._monotonic() + REST_S, False
            self._change(leads=False)
            with self.database.write() as connection:
                connection.execute(_RELEASE, self._keys | {"of_epoch": self._epoch, "for_ms": after_s * 1000})

    def remove_host(self) -> None:
        """Delete this daemon's row: it ends. Raises StoreError."""
        with self._lock, self.database.write() as connection:
            connection.execute(delete(host_rows).where(host_rows.c.holder == self._identity.holder))
