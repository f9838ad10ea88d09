"""The owner's decisions on machines, as rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from gpuwatch.domain.launches.instances.avoided_machines import (
    AVOID_FOR,
    RECORDED_FOR,
    AvoidedMachine,
    MachineNote,
    MachineVerdict,
    find_avoided_machines,
    machine_records,
)
from gpuwatch.domain.market.text import storable_text
from gpuwatch.domain.watches.reputation import MachineRecord, ProviderMachine
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import OVER_STATES, machine_note
from gpuwatch.storage.setup.tables import launch as launches

_ALL_NOTES = select(machine_note).order_by(machine_note.c.provider, machine_note.c.machine_id)
_RECENTLY_ENDED = select(launches).where(
    launches.c.state.in_(OVER_STATES), launches.c.ended_at_ms >= bindparam("since"), launches.c.dry_run.is_(False)
)
_MAX_ID_LENGTH, _MAX_NOTE_REASON_LENGTH = 64, 200


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
    """The operations of `gpuwatch machines`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def avoided(self, now: datetime, relaunching: Collection[str] = ()) -> Mapping[ProviderMachine, AvoidedMachine]:
        """Return avoided machines and why; `relaunching` as in `launches.machines`. Raises StoreError."""
        with self._database.read() as connection:
            rows = connection.execute(_RECENTLY_ENDED, {"since": to_ms(now - AVOID_FOR)})
            return find_avoided_machines([launch_of(row) for row in rows], load_notes(connection), now, relaunching)

    def records(self, now: datetime) -> Mapping[ProviderMachine, MachineRecord]:
        """Return the results of recent launches, by machine. Raises StoreError."""
        with self._database.read() as connection:
            rows = connection.execute(_RECENTLY_ENDED, {"since": to_ms(now - RECORDED_FOR)})
            return machine_records((launch_of(row) for row in rows), load_notes(connection), now)

    def note(self, note: MachineNote) -> None:
        """Save the owner's decision, which every later reservation obeys. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            save_note(connection, note)
