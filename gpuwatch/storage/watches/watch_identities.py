"""Identifies watches by an id that survives renaming, and renames every row with the watch's name as its key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Column, Connection, Table, and_, bindparam, delete, exists, insert, or_, select, update

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.watches.owner_names import Purpose, owner_of
from gpuwatch.domain.watches.watch import Watch, WatchChanges, watch_changes
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import enqueue
from gpuwatch.storage.alerts.pauses import BREAKER_SCOPE, WATCH_SCOPE, lock_reservations
from gpuwatch.storage.setup.account_rows import new_identity
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.schema.launch_side_tables import approval, pause
from gpuwatch.storage.setup.side_tables import alert, silence, watch_decision, watch_identity
from gpuwatch.storage.setup.stored_values import AnyRow, to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, OVER_STATES, auto_price, checklist_tick, watch_state
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.watches.running_hosts import other_hosts

_IN_USE = watch_identity.c.retired_at_ms.is_(None)
_ALIVE = and_(IS_ALIVE, launches.c.dry_run.is_(False))
WATCH_ID = (  # for a query that reads other data anyway
    select(watch_identity.c.watch_id).where(watch_identity.c.name == bindparam("of_watch"), _IN_USE).scalar_subquery()
)
_KEYED: tuple[tuple[Table, Column[str]], ...] = (  # at most one row per watch, or one per further key
    (watch_state, watch_state.c.watch),
    (auto_price, auto_price.c.watch),
    (watch_decision, watch_decision.c.watch),
    (checklist_tick, checklist_tick.c.watch),
    (silence, silence.c.watch),
)


class WatchIdentityChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes after reading the settings, and the active launches whose watch was removed.

    `elsewhere`: watches that are not in these settings but in those of another host that runs, by that host.
    """

    changes: WatchChanges
    abandoned: Sequence[Launch]
    elsewhere: Mapping[str, Sequence[str]] = {}


class SqlWatchIdentities:
    """Stores the identities of watches in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def apply(
        self, watches: Sequence[Watch], now: datetime, *, host: str | None = None, role: str = ""
    ) -> WatchIdentityChanges:
        """Apply the watches of new settings: rename, add and retire, in one transaction.

        What another running host has put in use is not retired: its list may be the newer one.

        Args:
            host: whose settings they are, with the role of its daemon; None: there is only one.

        Raises:
            StoreError: nothing was changed.
        """
        with self._database.write() as connection:
            lock_reservations(connection)
            others = frozenset() if host is None else other_hosts(connection, role, host)
            applied = _apply(connection, self._database.owner, watches, now, others)
            if host is not None:
                _note_host(connection, [watch.name for watch in watches], host)
            return applied

    def differences(self, watches: Sequence[Watch], host: str, role: str) -> dict[str, list[str]]:
        """Return, by the host that leads, the watches that only its settings or these of a standby have.

        Raises StoreError.
        """
        owner = self._database.owner
        with self._database.read() as connection:
            others = other_hosts(connection, role, host)
            rows = connection.execute(select(watch_identity).where(_IN_USE)).all()
        in_use = {row.name: row.host for row in rows if _is_watch_of(owner, row.name)}
        applied = {other for other in in_use.values() if other in others}
        if len(applied) != 1:  # nobody leads, or the hosts take turns
            return {}
        own = {watch.name for watch in watches}
        names = sorted((own - in_use.keys()) | {name for name in in_use if name not in own})
        return {applied.pop(): names} if names else {}

    def report(self, alerts: Sequence[OutboxAlert]) -> None:
        """Store alerts about them; each is sent once. Raises StoreError."""
        with self._database.write() as connection:
            for one in alerts:
                enqueue(connection, one)


def identify(connection: Connection, name: str, now: datetime) -> str:
    """Return the id of a watch: the current one, else its last one, or a new one."""
    query = select(watch_identity.c.watch_id, watch_identity.c.retired_at_ms).where(watch_identity.c.name == name)
    ids_by_retirement = {row.retired_at_ms: row.watch_id for row in connection.execute(query)}
    if None in ids_by_retirement:
        return str(ids_by_retirement[None])
    latest_id = ids_by_retirement[max(ids_by_retirement)] if ids_by_retirement else None
    if latest_id is not None:
        is_latest = watch_identity.c.watch_id == latest_id
        connection.execute(update(watch_identity).where(is_latest).values(retired_at_ms=None))
        return str(latest_id)
    return _insert(connection, name, now)


def renamed_candidate(connection: Connection, name: str) -> str | None:
    """Return a removed watch with an active launch that this watch may be under a new name; None: there is none, or
    this watch has launches of its own.
    """
    if connection.execute(select(launches.c.launch_id).where(launches.c.watch == name, _ALIVE).limit(1)).first():
        return None
    is_same_name = watch_identity.c.name == launches.c.watch
    is_retired = and_(exists().where(is_same_name, ~_IN_USE), ~exists().where(is_same_name, _IN_USE))
    candidates = connection.execute(select(launches.c.watch).where(_ALIVE, is_retired)).scalars()
    # an ended job may have left its instance
    return next((candidate for candidate in candidates if _is_watch_of(owner_of(name), candidate)), None)


def _apply(
    connection: Connection, owner: str, watches: Sequence[Watch], now: datetime, others: Collection[str]
) -> WatchIdentityChanges:
    """Apply one owner's list; nothing of another owner is compared with it."""
    rows = connection.execute(select(watch_identity)).all()
    rows = [row for row in rows if _is_watch_of(owner, row.name)]  # jobs come and go without settings
    alive = [launch_of(row) for row in connection.execute(select(launches).where(_ALIVE))]
    alive = [launch for launch in alive if _is_watch_of(owner, launch.watch)]
    in_use = {row.name for row in rows if row.retired_at_ms is None}
    if not rows:  # written by a gpuwatch that identified watches by name alone
        in_use = {name for name in _names_in_store(connection) if _is_watch_of(owner, name)}
        for name in sorted(in_use):
            _insert(connection, name, now)
    elsewhere = _elsewhere(rows, watches, others)
    kept = {name for names in elsewhere.values() for name in names}
    in_use, alive = in_use - kept, [launch for launch in alive if launch.watch not in kept]
    retired = {row.name for row in rows} - in_use - kept
    changes = watch_changes(watches, in_use, retired, {launch.watch for launch in alive})
    for old, new in changes.renamed.items():
        rename_watch(connection, old, new, now)
    for name in changes.added:
        if name not in changes.renamed.values():
            identify(connection, name, now)
    _retire(connection, changes.removed, in_use, now)
    abandoned = [launch for launch in alive if launch.watch in changes.abandoned]
    return WatchIdentityChanges(changes=changes, abandoned=abandoned, elsewhere=elsewhere)


def _elsewhere(rows: Sequence[AnyRow], watches: Sequence[Watch], others: Collection[str]) -> dict[str, list[str]]:
    """Return the watches in use that only the lists of other running hosts have, by host."""
    own = {watch.name for watch in watches} | {watch.renamed_from for watch in watches}
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.retired_at_ms is None and row.name not in own and row.host in others:
            found.setdefault(row.host, []).append(row.name)
    return found


def _note_host(connection: Connection, names: Collection[str], host: str) -> None:
    is_other = or_(watch_identity.c.host.is_(None), watch_identity.c.host != host)
    is_own = and_(watch_identity.c.name.in_(list(names)), _IN_USE, is_other)
    connection.execute(update(watch_identity).where(is_own).values(host=host))


def _is_watch_of(owner: str, name: str) -> bool:
    return Purpose.of(name).is_of_settings and owner_of(name) == owner


def _names_in_store(connection: Connection) -> set[str]:
    rented = select(launches.c.watch).where(launches.c.dry_run.is_(False))
    return {*connection.execute(rented).scalars(), *connection.execute(select(watch_state.c.watch)).scalars()}


def _insert(connection: Connection, name: str, now: datetime) -> str:
    watch_id = new_identity()
    connection.execute(insert(watch_identity), {"watch_id": watch_id, "name": name, "created_at_ms": to_ms(now)})
    return watch_id


def _retire(connection: Connection, removed: Collection[str], in_use: Collection[str], now: datetime) -> None:
    for name in removed:
        if name not in in_use and connection.execute(select(watch_identity).where(watch_identity.c.name == name)).all():
            continue
        if name not in in_use:
            _insert(connection, name, now)
        is_current = and_(watch_identity.c.name == name, _IN_USE)
        connection.execute(update(watch_identity).where(is_current).values(retired_at_ms=to_ms(now)))


def rename_watch(connection: Connection, old: str, new: str, now: datetime) -> None:
    """Rename every row of the old name. If both names have a row, that of the new name stays."""
    identify(connection, old, now)  # in use: exactly one row continues
    is_new = connection.execute(select(watch_identity).where(watch_identity.c.name == new, _IN_USE)).first() is None
    is_current = and_(watch_identity.c.name == old, _IN_USE)
    retired_at_ms = None if is_new else to_ms(now)
    connection.execute(update(watch_identity).where(is_current).values(name=new, retired_at_ms=retired_at_ms))
    for table, column in _KEYED:
        other_keys = [one for one in table.primary_key if one is not column]
        other_row = table.alias()
        is_same_key = and_(other_row.c[column.name] == new, *(other_row.c[key.name] == key for key in other_keys))
        connection.execute(delete(table).where(column == old, exists().where(is_same_key)))
        connection.execute(update(table).where(column == old).values({column.name: new}))
    for prefix in (WATCH_SCOPE, BREAKER_SCOPE):
        if connection.execute(select(pause).where(pause.c.scope == prefix + new)).first() is None:
            connection.execute(update(pause).where(pause.c.scope == prefix + old).values(scope=prefix + new))
        connection.execute(delete(pause).where(pause.c.scope == prefix + old))
    for table in (approval, alert):
        connection.execute(update(table).where(table.c.watch == old).values(watch=new))
    _rename_launches(connection, old, new)


def _rename_launches(connection: Connection, old: str, new: str) -> None:
    """Raise their versions, so that no process that read one before can write the old name back."""
    is_over = and_(launches.c.watch == old, launches.c.state.in_(OVER_STATES))
    connection.execute(update(launches).where(is_over).values(watch=new))
    query = select(launches.c.slot).where(launches.c.watch == new, IS_ALIVE)
    used_slots = set(connection.execute(query).scalars())
    for row in connection.execute(select(launches).where(launches.c.watch == old).order_by(launches.c.slot)).all():
        slot = next(n for n in (row.slot, *range(len(used_slots) + 1)) if n not in used_slots)
        used_slots.add(slot)
        changes = {"watch": new, "slot": slot, "version": row.version + 1}
        connection.execute(update(launches).where(launches.c.launch_id == row.launch_id).values(**changes))
