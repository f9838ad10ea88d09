"""Pauses and circuit breakers as rows of one table, which every reservation reads in its own transaction.

Scope '' is all renting ('OWNER::': of that owner), 'watch:NAME' a watch that its owner paused, 'breaker:NAME' a watch
whose launches failed (see `domain.launches.life.circuit_breaker`; closed if until is at or before at).

A reservation reads under the lock that changes of the table take, too: after a pause, every reservation is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, delete, select, text

from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker, closed_breaker
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.market.offer import storable_text
from gpuwatch.domain.watches.owner_names import owned_name, owner_of
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.setup.database import Database, owner_in
from gpuwatch.storage.setup.schema.launch_side_tables import pause as pause_rows
from gpuwatch.storage.setup.side_tables import skipped_scope
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, to_ms, upsert

_RESERVATION_LOCK_KEY = 0x67707577  # the key of PostgreSQL's advisory lock: "gpuw"
WATCH_SCOPE, BREAKER_SCOPE = "watch:", "breaker:"
_MAX_PAUSE_REASON_LENGTH = 200
_ALL_PAUSES = select(pause_rows).order_by(pause_rows.c.scope)


class PauseTable(msgspec.Struct, frozen=True, kw_only=True):
    """The whole table: the owner's pauses and the watches' breakers, including closed ones."""

    by_hand: tuple[Pause, ...] = ()
    breakers: tuple[CircuitBreaker, ...] = ()

    def breaker_of(self, watch: str) -> CircuitBreaker | None:
        """Return the breaker of a watch; None: it never tripped."""
        return next((breaker for breaker in self.breakers if breaker.watch == watch), None)

    def open_breakers(self) -> Sequence[CircuitBreaker]:
        """Return the breakers that are not closed: open, or waiting for one attempt."""
        return [breaker for breaker in self.breakers if not breaker.is_closed]

    def in_force(self, now: datetime) -> Sequence[Pause]:
        """Return the owner's pauses in force, the global one first."""
        return [pause for pause in self.by_hand if pause.holds(now)]


def lock_reservations(connection: Connection) -> None:
    """Serialise counting money and pausing. SQLite's writing transactions are exclusive anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _RESERVATION_LOCK_KEY})


def load_pauses(connection: Connection) -> PauseTable:
    """Load the whole table, without what other owners paused as a whole."""
    by_hand, breakers = [], []
    everything = _scope(connection, None)
    for scope, at_ms, until_ms, why in connection.execute(_ALL_PAUSES):
        at, until = from_ms(at_ms), from_ms(until_ms)
        if scope.startswith(BREAKER_SCOPE):
            breakers.append(CircuitBreaker(watch=scope.removeprefix(BREAKER_SCOPE), at=at, until=until or at, why=why))
        elif scope == everything or scope.startswith(WATCH_SCOPE):
            watch = scope.removeprefix(WATCH_SCOPE) if scope.startswith(WATCH_SCOPE) else None
            by_hand.append(Pause(watch=watch, at=at, until=until, why=why))
    return PauseTable(by_hand=tuple(by_hand), breakers=tuple(breakers))


def save_breaker(connection: Connection, breaker: CircuitBreaker) -> None:
    """Save it."""
    _save(connection, BREAKER_SCOPE + breaker.watch, breaker.at, breaker.until, breaker.why)


def save_pause(connection: Connection, pause: Pause) -> None:
    """Save it, in place of an earlier one of the same scope."""
    _save(connection, _scope(connection, pause.watch), pause.at, pause.until, pause.why)


def _save(connection: Connection, scope: str, at: datetime, until: datetime | None, why: str) -> None:
    row = {
        "scope": scope,
        "at_ms": to_ms(at),
        "until_ms": to_ms(until),
        "why": storable_text(why, _MAX_PAUSE_REASON_LENGTH),
    }
    upsert(connection, pause_rows, row)


def keep_paused(connection: Connection, previous: str, watches: Iterable[str], now: datetime) -> list[str]:
    """Pause each of these watches as long as the previous owner's pause of everything would; return those."""
    pauses = {row.scope: row for row in connection.execute(_ALL_PAUSES)}
    whole = pauses.get(owned_name(previous, ""))
    if whole is None or _end_ms(whole) <= to_ms(now):
        return []
    paused = [name for name in watches if _end_ms(pauses.get(WATCH_SCOPE + name)) < _end_ms(whole)]
    for name in paused:
        _save(connection, WATCH_SCOPE + name, from_ms(whole.at_ms), from_ms(whole.until_ms), whole.why)
    return paused


def _end_ms(row: AnyRow | None) -> float:
    """Return when a pause ends; infinity: never."""
    return -math.inf if row is None else math.inf if row.until_ms is None else float(row.until_ms)


def delete_pause(connection: Connection, watch: str | None) -> bool:
    """Delete it; False: there was none."""
    is_scope = pause_rows.c.scope == _scope(connection, watch)
    return connection.execute(delete(pause_rows).where(is_scope)).rowcount > 0


class SqlPauseRepository:
    """The operations of `gpuwatch watches pause` and `resume`: each is a transaction, serialised with reservations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> PauseTable:
        """Return the table. Raises StoreError."""
        with self._database.read() as connection:
            return load_pauses(connection)

    def pause(self, pause: Pause, audit: OutboxAlert | None = None) -> tuple[bool, PauseTable]:
        """Pause: once this returns, no reservation is made. Raises StoreError.

        Returns:
            Whether this changed anything, and the new table: a pause without an end that is repeated stays as it is.
        """
        with self._database.write() as connection:
            lock_reservations(connection)
            before = [one for one in load_pauses(connection).in_force(pause.at) if one.watch == pause.watch]
            changed = not any(one.until is None is pause.until and pause.why in {"", one.why} for one in before)
            if changed:
                save_pause(connection, pause)
                add_audit(connection, audit)
            return changed, load_pauses(connection)

    def resume(
        self, watch: str | None, now: datetime, why: str, audit: OutboxAlert | None = None
    ) -> tuple[bool, PauseTable]:
        """Lift the pause; for a watch, also close its breaker and forget its failures.

        Returns:
            Whether anything in force was lifted, which leaves the audit event, and the new table.
        """
        with self._database.write() as connection:
            lock_reservations(connection)
            previous = load_pauses(connection)
            was_paused = any(pause.watch == watch and pause.holds(now) for pause in previous.by_hand)
            delete_pause(connection, watch)
            if watch is None:
                _forget_scopes(connection)
            if watch is not None:
                was_paused = was_paused or any(breaker.watch == watch for breaker in previous.open_breakers())
                save_breaker(connection, closed_breaker(watch, now, why))
            if was_paused:
                add_audit(connection, audit)
            return was_paused, load_pauses(connection)


def _forget_scopes(connection: Connection) -> None:
    """Delete the refused scopes of the owner alone."""
    watch, owner = skipped_scope.c.watch, owner_in(connection)
    own = [name for name in connection.execute(select(watch).distinct()).scalars() if owner_of(name) == owner]
    connection.execute(delete(skipped_scope).where(watch.in_(own)))


def _scope(connection: Connection, watch: str | None) -> str:
    return owned_name(owner_in(connection), "") if watch is None else WATCH_SCOPE + watch
