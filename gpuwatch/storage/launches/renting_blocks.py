"""What bars a launch, as rows: open items of a checklist, avoided machines, refused scopes, unknown instances.

A reservation reads them in its own transaction: what the owner has decided, or another process has written, by then
counts. Scopes and unknown instances block every process on this database: a scope those of its owner until it expires,
an unknown instance renting at its provider until it is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, select

from gpuwatch.domain.launches.instance import label_ids
from gpuwatch.domain.launches.instances.machines_and_places import (
    AVOID_FOR,
    RECORDED_FOR,
    AvoidedMachine,
    MachineNote,
    MachineVerdict,
    find_avoided_machines,
    machine_records,
)
from gpuwatch.domain.launches.launch import LaunchRefusal
from gpuwatch.domain.launches.life.owner_decisions import ChecklistTick
from gpuwatch.domain.launches.life.refused_scopes import SkippedScope, scopes_in_force
from gpuwatch.domain.launches.life.strays import UnknownInstance, unknown_refusal
from gpuwatch.domain.market.offer import clean, storable_text
from gpuwatch.domain.watches.owner_names import owned_name, owner_of, plain_name
from gpuwatch.domain.watches.past_limits import MachineRecord, ProviderMachine
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import RefusalScope
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.setup.database import Database, owner_in
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.schema.launch_side_tables import machine_note
from gpuwatch.storage.setup.side_tables import skipped_scope, unknown_instance
from gpuwatch.storage.setup.stored_values import from_ms, insert_if_absent, to_ms, upsert
from gpuwatch.storage.setup.tables import OVER_STATES, checklist_tick
from gpuwatch.storage.setup.tables import launch as launches

_MAX_NOTE_LENGTH = 500
_MAX_ID_LENGTH, _MAX_NOTE_REASON_LENGTH = 64, 200
_MAX_KEY_LENGTH, _MAX_SKIP_REASON_LENGTH = 200, 300
_SKIPPED = skipped_scope.c
_UNKNOWN = unknown_instance.c
_TICKS_OF_WATCH = (
    select(checklist_tick.c.item, checklist_tick.c.at_ms, checklist_tick.c.note)
    .where(checklist_tick.c.watch == bindparam("of_watch"))
    .order_by(checklist_tick.c.at_ms, checklist_tick.c.item)
)


def ticks_of(connection: Connection, watch: str) -> list[ChecklistTick]:
    """Return the ticked items of a watch's checklist, oldest first, including those that it no longer requires."""
    rows = connection.execute(_TICKS_OF_WATCH, {"of_watch": watch})
    return [ChecklistTick(item=item, at=from_ms(at_ms), words=note) for item, at_ms, note in rows]


def ticked_items(connection: Connection, watch: Watch) -> frozenset[str]:
    """Return the names of ticked items; reads nothing for a watch that requires nothing."""
    return frozenset(tick.item for tick in ticks_of(connection, watch.name)) if watch.require else frozenset()


class SqlChecklistRepository:
    """The operations of `gpuwatch watches checklist`: each change is a transaction, serialised with reservations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, watch: str) -> list[ChecklistTick]:
        """Return the ticked items. Raises StoreError."""
        with self._database.read() as connection:
            return ticks_of(connection, watch)

    def items(self, watch: str) -> frozenset[str]:
        """Return the names of the ticked items. Raises StoreError."""
        return frozenset(tick.item for tick in self.load(watch))

    def tick(
        self, watch: str, items: Sequence[str], note_text: str, now: datetime, audit: OutboxAlert | None = None
    ) -> None:
        """Tick items, all or none; a second tick renews the first. Raises StoreError.

        Args:
            audit: stored if an item was not ticked yet, or with another note.
        """
        note = clean(note_text, _MAX_NOTE_LENGTH) or None
        with self._database.write() as connection:
            lock_reservations(connection)
            ticked = {tick.item: tick.words for tick in ticks_of(connection, watch)}
            if any(item not in ticked or ticked[item] != note for item in items):
                add_audit(connection, audit)
            rows = [{"watch": watch, "item": item, "at_ms": to_ms(now), "note": note} for item in items]
            upsert(connection, checklist_tick, rows)

    def untick(self, watch: str, items: Sequence[str], audit: OutboxAlert | None = None) -> list[str]:
        """Untick items; return those that were ticked. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            is_tick = and_(checklist_tick.c.watch == watch, checklist_tick.c.item == bindparam("item_is"))
            untick = delete(checklist_tick).where(is_tick)
            unticked = [item for item in items if connection.execute(untick, {"item_is": item}).rowcount == 1]
            if unticked:
                add_audit(connection, audit)
            return unticked


_ALL_NOTES = select(machine_note).order_by(machine_note.c.provider, machine_note.c.machine_id)
_RECENTLY_ENDED = select(launches).where(
    launches.c.state.in_(OVER_STATES), launches.c.ended_at_ms >= bindparam("since"), launches.c.dry_run.is_(False)
)


def load_notes(connection: Connection) -> Sequence[MachineNote]:
    """Return all notes, including those that no longer apply."""
    return [
        MachineNote(
            provider=row.provider,
            machine_id=row.machine_id,
            verdict=MachineVerdict(row.verdict),
            at=from_ms(row.at_ms),
            until=from_ms(row.until_ms),
            why=row.why,
        )
        for row in connection.execute(_ALL_NOTES)
    ]


def save_note(connection: Connection, note: MachineNote) -> None:
    """Save it, in place of an earlier one about that machine."""
    row = {
        "provider": storable_text(note.provider, 32),
        "machine_id": storable_text(note.machine_id, _MAX_ID_LENGTH),
        "verdict": note.verdict.value,
        "at_ms": to_ms(note.at),
        "until_ms": to_ms(note.until),
        "why": storable_text(note.why, _MAX_NOTE_REASON_LENGTH),
    }
    upsert(connection, machine_note, row)


class SqlMachineNoteRepository:
    """The operations of `gpuwatch providers machines`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def avoided(self, now: datetime, relaunching: Collection[str] = ()) -> Mapping[ProviderMachine, AvoidedMachine]:
        """Return avoided machines and why; `relaunching` as in `find_avoided_machines`. Raises StoreError."""
        with self._database.read() as connection:
            rows = connection.execute(_RECENTLY_ENDED, {"since": to_ms(now - AVOID_FOR)})
            return find_avoided_machines([launch_of(row) for row in rows], load_notes(connection), now, relaunching)

    def records(self, now: datetime) -> Mapping[ProviderMachine, MachineRecord]:
        """Return the results of recent launches, by machine. Raises StoreError."""
        with self._database.read() as connection:
            rows = connection.execute(_RECENTLY_ENDED, {"since": to_ms(now - RECORDED_FOR)})
            return machine_records((launch_of(row) for row in rows), load_notes(connection), now)

    def note(self, note: MachineNote, audit: OutboxAlert | None = None) -> None:
        """Save the owner's decision, which every later reservation obeys. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            save_note(connection, note)
            add_audit(connection, audit)


_ALL_SCOPES = select(skipped_scope).order_by(_SKIPPED.provider, _SKIPPED.scope, _SKIPPED.key, _SKIPPED.watch)


def load_scopes(connection: Connection) -> Sequence[SkippedScope]:
    """Return the owner's scopes, including expired ones: another owner's key and balance say nothing about this one's.

    Kinds that only a newer gpuwatch knows are left out.
    """
    known_kinds, owner = {one.value for one in RefusalScope}, owner_in(connection)
    return [
        SkippedScope(
            provider=row.provider,
            scope=RefusalScope(row.scope),
            key=row.key,
            watch=row.watch if plain_name(row.watch) else None,
            why=row.why,
            since=from_ms(row.since_ms),
            until=from_ms(row.until_ms),
            launch_id=row.launch_id,
        )
        for row in connection.execute(_ALL_SCOPES)
        if row.scope in known_kinds and owner_of(row.watch) == owner
    ]


class SqlSkippedScopes:
    """The scopes that `gpuwatch providers machines --scopes` shows and launches add."""

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
            "watch": scope.watch or owned_name(self._database.owner, ""),
            "why": storable_text(scope.why, _MAX_SKIP_REASON_LENGTH),
            "since_ms": to_ms(scope.since),
            "until_ms": to_ms(scope.until),
            "launch_id": scope.launch_id,
        }
        with self._database.write() as connection:
            lock_reservations(connection)
            upsert(connection, skipped_scope, row)


_OLDEST_FIRST = select(unknown_instance).order_by(_UNKNOWN.first_listed_ms, _UNKNOWN.instance_id)


def load_unknown(connection: Connection, provider: str | None) -> list[UnknownInstance]:
    """Return those of one provider, or of all, oldest first."""
    query = _OLDEST_FIRST if provider is None else _OLDEST_FIRST.where(_UNKNOWN.provider == provider)
    return [
        UnknownInstance(
            provider=row.provider,
            instance_id=row.instance_id,
            account_id=row.account_id,
            label=row.label,
            first_listed_at=from_ms(row.first_listed_ms),
        )
        for row in connection.execute(query)
    ]


def unknown_refusals(connection: Connection) -> Mapping[str, LaunchRefusal]:
    """Return why nothing can be rented, by provider, where unknown instances were listed."""
    ids_by_provider: dict[str, list[str]] = {}
    for row in connection.execute(_OLDEST_FIRST):
        ids_by_provider.setdefault(row.provider, []).append(row.instance_id)
    return {provider: unknown_refusal(provider, ids) for provider, ids in ids_by_provider.items()}


def add_unknown(connection: Connection, unknown: UnknownInstance) -> None:
    """Store one; an existing row stays unchanged."""
    row = {
        "provider": unknown.provider,
        "instance_id": storable_text(unknown.instance_id, 64),
        "account_id": unknown.account_id,
        "label": storable_text(unknown.label, 200),
        "first_listed_ms": to_ms(unknown.first_listed_at),
    }
    insert_if_absent(connection, unknown_instance, row)


def remove_unknown(connection: Connection, provider: str, instance_ids: Collection[str]) -> None:
    """Delete settled instances."""
    if instance_ids:
        is_settled = and_(_UNKNOWN.provider == provider, _UNKNOWN.instance_id.in_(list(instance_ids)))
        connection.execute(delete(unknown_instance).where(is_settled))


def remove_installation(connection: Connection, install_id: str) -> None:
    """Delete all instances labelled by another installation, at every provider."""
    for row in connection.execute(_OLDEST_FIRST).all():
        ids = label_ids(row.label)
        if ids is not None and ids.install_id == install_id:
            remove_unknown(connection, row.provider, [row.instance_id])
