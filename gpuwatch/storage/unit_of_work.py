"""One transaction over all repositories that a decision changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.domain.launches.approval import Approval
from gpuwatch.domain.launches.checklist import unticked
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal
from gpuwatch.domain.watches.decide import Match, WatchMemory
from gpuwatch.domain.watches.watch import Budget, Watch
from gpuwatch.ports import Alert, ProviderHealth
from gpuwatch.storage import approvals, decision_rows, launch_repository, outbox
from gpuwatch.storage.checklists import ticked_items
from gpuwatch.storage.database import Database


class SqlDecisionStore:
    """Implements `ports.UnitOfWorkFactory` over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def memories(self) -> Mapping[str, WatchMemory]:
        """What each watch remembers."""
        with self._database.read() as connection:
            return decision_rows.load_watch_states(connection)

    def provider_health(self) -> Mapping[str, ProviderHealth]:
        """The health of each provider."""
        with self._database.read() as connection:
            return decision_rows.load_provider_health(connection)

    @contextmanager
    def open(self) -> Iterator[SqlUnitOfWork]:
        """A transaction, durable when the block ends."""
        with self._database.write() as connection:
            yield SqlUnitOfWork(connection)


class SqlUnitOfWork:
    """Implements `ports.UnitOfWork` on an open connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remember(self, watch: str, remembered: WatchMemory) -> None:
        """Save what a watch remembers."""
        decision_rows.save_watch_state(self._connection, watch, remembered)

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        """Take a free slot and the money for it, or say why not."""
        return launch_repository.reserve(self._connection, intent, budget, now)

    def ask(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, rearmed: bool
    ) -> Approval | LaunchRefusal | None:
        """Request an approval, or say why not."""
        return approvals.create_approval(self._connection, intent, budget, deadline, now, rearmed)

    def unticked(self, watch: Watch) -> Sequence[str]:
        """What the watch requires, and its owner has not ticked."""
        return unticked(watch, ticked_items(self._connection, watch))

    def has_lapsed_approval(self, watch: str, now: datetime) -> bool:
        """Did the owner lately approve a quote that was no longer valid?"""
        return approvals.has_lapsed_approval(self._connection, watch, now)

    def enqueue(self, alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None) -> bool:
        """Put an alert into the outbox."""
        return outbox.enqueue(self._connection, alert, channels, expires_at, once_key)

    def save_health(self, provider: str, sight: ProviderHealth) -> None:
        """Save the health of a provider."""
        decision_rows.save_provider_health(self._connection, provider, sight)

    def record_new_value(self, provider: str, kind: str, word: str, now: datetime) -> bool:
        """Record a value; True: never seen before."""
        return not decision_rows.was_seen_before(self._connection, provider, kind, word, now)
