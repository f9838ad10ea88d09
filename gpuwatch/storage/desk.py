"""The desk: one transaction for all that follows from a decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.launches.ask import Ask
from gpuwatch.launches.checklist import unticked
from gpuwatch.launches.launch import Intent, Launch, Refusal
from gpuwatch.ports import Alert, Sight
from gpuwatch.storage import asks, health, ledger, memory, outbox, words
from gpuwatch.storage.checklists import ticked_of
from gpuwatch.storage.database import Database
from gpuwatch.watches.decide import WatchMemory
from gpuwatch.watches.watch import Budget, Watch


class StoreDesk:
    """Implements `ports.Desk` over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def memories(self) -> Mapping[str, WatchMemory]:
        """What each watch remembers."""
        with self._database.read() as connection:
            return memory.load_memories(connection)

    def sights(self) -> Mapping[str, Sight]:
        """What is known of each provider's answers."""
        with self._database.read() as connection:
            return health.load_sights(connection)

    @contextmanager
    def open(self) -> Iterator[StorePage]:
        """A transaction, durable when the block ends."""
        with self._database.write() as connection:
            yield StorePage(connection)


class StorePage:
    """Implements `ports.Page` on an open connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remember(self, watch: str, remembered: WatchMemory) -> None:
        """Keep what a watch remembers."""
        memory.save_memory(self._connection, watch, remembered)

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> Launch | Refusal:
        """Take a free slot and the money for it, or say why not."""
        return ledger.reserve(self._connection, intent, budget, now)

    def ask(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, rearmed: bool
    ) -> Ask | Refusal | None:
        """Put a question to the owner, or say why not."""
        return asks.put(self._connection, intent, budget, deadline, now, rearmed)

    def unticked(self, watch: Watch) -> Sequence[str]:
        """What the watch requires, and its owner has not ticked."""
        return unticked(watch, ticked_of(self._connection, watch))

    def asks_left_open(self, watch: str, now: datetime) -> bool:
        """Did the owner approve a quote lately that was no more?"""
        return asks.left_open(self._connection, watch, now)

    def tell(self, alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None) -> bool:
        """Put an alert into the outbox."""
        return outbox.put(self._connection, alert, channels, expires_at, once_key)

    def keep_sight(self, provider: str, sight: Sight) -> None:
        """Keep what is known of a provider's answers."""
        health.save_sight(self._connection, provider, sight)

    def new_word(self, provider: str, kind: str, word: str, now: datetime) -> bool:
        """Note a word; True: never met before."""
        return not words.told_before(self._connection, provider, kind, word, now)
