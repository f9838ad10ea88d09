"""The owner's word on machines, as rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from gpuwatch.domain.launches.machines import (
    AVOID_FOR,
    AvoidedMachine,
    MachineNote,
    MachineVerdict,
    ProviderMachine,
    find_avoided_machines,
)
from gpuwatch.storage.answer_changes import clean
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.launch_rows import launch_of
from gpuwatch.storage.pauses import lock_reservations
from gpuwatch.storage.tables import OVER_STATES
from gpuwatch.storage.tables import launch as launches
from gpuwatch.storage.watch_states import from_ms, to_ms

_ALL = "SELECT provider, machine_id, verdict, at_ms, until_ms, why FROM machine_note ORDER BY provider, machine_id"
_SAVE = """INSERT INTO machine_note (provider, machine_id, verdict, at_ms, until_ms, why) VALUES (?, ?, ?, ?, ?, ?)
 ON CONFLICT (provider, machine_id) DO UPDATE SET verdict = excluded.verdict, at_ms = excluded.at_ms,
 until_ms = excluded.until_ms, why = excluded.why"""
_LATELY_OVER = select(launches).where(
    launches.c.state.in_(OVER_STATES), launches.c.ended_at_ms >= bindparam("since"), launches.c.dry_run.is_(False)
)
_LONGEST_ID, _LONGEST_WHY = 64, 200


def load_notes(connection: Connection) -> Sequence[MachineNote]:
    """Everything the owner said, also what no longer holds."""
    return [
        MachineNote(
            provider=provider,
            machine_id=machine_id,
            verdict=MachineVerdict(verdict),
            at=at,
            until=from_ms(until_ms),
            why=why,
        )
        for provider, machine_id, verdict, at_ms, until_ms, why in CoreExecutor(connection).rows(_ALL)
        if (at := from_ms(at_ms)) is not None
    ]


def save_note(connection: Connection, note: MachineNote) -> None:
    """Keep it, instead of what was said of that machine before."""
    names = clean(note.provider, 32), clean(note.machine_id, _LONGEST_ID)
    row = (*names, note.verdict.value, to_ms(note.at), to_ms(note.until), clean(note.why, _LONGEST_WHY))
    CoreExecutor(connection).run(_SAVE, row)


class SqlMachineNoteRepository:
    """What `gpuwatch machines` shows and changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def avoided(self, now: datetime, relaunching: Collection[str] = ()) -> Mapping[ProviderMachine, AvoidedMachine]:
        """What is not rented now, and why; `relaunching` as in `launches.machines`. Raises StoreError."""
        with self._database.read() as connection:
            rows = connection.execute(_LATELY_OVER, {"since": to_ms(now - AVOID_FOR)})
            return find_avoided_machines([launch_of(row) for row in rows], load_notes(connection), now, relaunching)

    def note(self, note: MachineNote) -> None:
        """The owner's word, from its return on binding for every reservation. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            save_note(connection, note)
