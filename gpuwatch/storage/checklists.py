"""What was ticked of the watches' checklists, as rows. A reservation reads them in its own transaction: what was not
ticked before it, or was unticked, keeps it from renting.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.domain.launches.checklist import ChecklistTick
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.pauses import lock_reservations
from gpuwatch.storage.watch_states import from_ms, to_ms

_LONGEST_WORDS = 500
_OF_WATCH = "SELECT item, at_ms, words FROM checklist_tick WHERE watch = ? ORDER BY at_ms, item"
_TICK = """INSERT INTO checklist_tick (watch, item, at_ms, words) VALUES (?, ?, ?, ?)
 ON CONFLICT (watch, item) DO UPDATE SET at_ms = excluded.at_ms, words = excluded.words"""
_UNTICK = "DELETE FROM checklist_tick WHERE watch = ? AND item = ?"


def ticks_of(connection: Connection, watch: str) -> list[ChecklistTick]:
    """What was ticked of a watch's checklist, oldest first; also what it does not require any more."""
    rows = CoreExecutor(connection).rows(_OF_WATCH, (watch,))
    return [
        ChecklistTick(item=item, at=at, words=words)
        for item, at_ms, words in rows
        if (at := from_ms(at_ms)) is not None
    ]


def ticked_items(connection: Connection, watch: Watch) -> frozenset[str]:
    """The names of what was ticked; nothing is read for a watch that requires nothing."""
    return frozenset(tick.item for tick in ticks_of(connection, watch.name)) if watch.require else frozenset()


class SqlChecklistRepository:
    """What `gpuwatch checklist` does: each change one transaction, in turn with the reservations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, watch: str) -> list[ChecklistTick]:
        """What was ticked. Raises StoreError."""
        with self._database.read() as connection:
            return ticks_of(connection, watch)

    def tick(self, watch: str, items: Sequence[str], words: str, now: datetime) -> None:
        """Keep that these are done, all or none; a second tick renews the first. Raises StoreError."""
        said = clean(words, _LONGEST_WORDS) or None
        with self._database.write() as connection:
            lock_reservations(connection)
            CoreExecutor(connection).run_many(_TICK, [(watch, item, to_ms(now), said) for item in items])

    def untick(self, watch: str, items: Sequence[str]) -> list[str]:
        """They are to be done again; answers those that were ticked. Raises StoreError."""
        with self._database.write() as connection:
            lock_reservations(connection)
            executor = CoreExecutor(connection)
            return [item for item in items if executor.run(_UNTICK, (watch, item)) > 0]
