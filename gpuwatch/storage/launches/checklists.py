"""Ticked items of the watches' checklists, as rows. A reservation reads them in its own transaction: an item that is
not ticked by then prevents renting.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, select

from gpuwatch.domain.launches.life.checklist import ChecklistTick
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, to_ms, upsert
from gpuwatch.storage.setup.tables import checklist_tick

_MAX_NOTE_LENGTH = 500
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
    """The operations of `gpuwatch checklist`: each change is one transaction, serialised with the reservations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, watch: str) -> list[ChecklistTick]:
        """Return the ticked items. Raises StoreError."""
        with self._database.read() as connection:
            return ticks_of(connection, watch)

    def items(self, watch: str) -> frozenset[str]:
        """Return the names of the ticked items. Raises StoreError."""
        return frozenset(tick.item for tick in self.load(watch))

    def tick(self, watch: str, items: Sequence[str], note_text: str, now: datetime) -> None:
        """Tick items, all or none; a second tick renews the first. Raises StoreError."""
        note = clean(note_text, _MAX_NOTE_LENGTH) or None
        with self._database.write() as connection:
            lock_reservations(connection)
            rows = [{"watch": watch, "item": item, "at_ms": to_ms(now), "note": note} for item in items]
            upsert(connection, checklist_tick, rows)

    def untick(self, watch: str, items: Sequence[str]) -> list[str]:
        """Untick items; return those that were ticked. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            return [item for item in items if _delete(connection, watch, item)]


def _delete(connection: Connection, watch: str, item: str) -> bool:
    is_tick = and_(checklist_tick.c.watch == watch, checklist_tick.c.item == item)
    return connection.execute(delete(checklist_tick).where(is_tick)).rowcount == 1
