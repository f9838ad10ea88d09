"""One transaction over all repositories that a decision changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, select

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal
from gpuwatch.domain.launches.life.owner_decisions import Approval, unticked
from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.domain.market.offer import Identity, storable_text
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.domain.watches.decide import Match, WatchMemory
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.owner_names import owned_name, owner_of, plain_name
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports import OutboxAlert, ProviderHealth
from gpuwatch.ports.market import Hold
from gpuwatch.storage.alerts.alert_rows import enqueue
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.history.queries.machine_prices import recorded_bids
from gpuwatch.storage.launches import approval_rows, launch_admission
from gpuwatch.storage.launches.renting_blocks import ticked_items
from gpuwatch.storage.market.provider_holds import load_holds, save_hold
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease
from gpuwatch.storage.setup.database import Database, owner_in
from gpuwatch.storage.setup.side_tables import provider_health, seen_value
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, insert_if_absent, to_ms, upsert
from gpuwatch.storage.setup.tables import watch_state
from gpuwatch.storage.watches.watch_decisions import newest_decisions, record_decision

_MEMORIES_OF = select(watch_state).where(watch_state.c.watch.in_(bindparam("watches", expanding=True)))


class SqlDecisionStore:
    """Implements `ports.UnitOfWorkFactory` over the database.

    Args:
        lease: whoever lost it decides nothing.
    """

    def __init__(self, database: Database, lease: Lease = NO_LEASE) -> None:
        self._database = database
        self._lease = lease

    def memories(self) -> Mapping[str, WatchMemory]:
        """Return the memory of each watch that has one."""
        with self._database.read() as connection:
            return {row.watch: _memory_of(row) for row in connection.execute(select(watch_state))}

    def newest_decisions(self) -> Mapping[str, PastDecision]:
        """Return the last recorded decision of each watch."""
        with self._database.read() as connection:
            return newest_decisions(connection)

    def provider_health(self) -> Mapping[tuple[str, str], ProviderHealth]:
        """Return the health of each provider on each lane."""
        with self._database.read() as connection:
            return {
                (plain_name(row.provider), row.lane): _health_of(row)
                for row in connection.execute(select(provider_health))
                if owner_of(row.provider) == self._database.owner
            }

    @contextmanager
    def open(self) -> Iterator[SqlUnitOfWork]:
        """Open a transaction that is durable when the block ends."""
        with self._database.write() as connection:
            self._database.check_lineage(connection)  # here, where it is decided whether anything is rented
            self._lease.verify(connection)
            yield SqlUnitOfWork(connection, self._lease)


class SqlUnitOfWork:
    """Implements `ports.UnitOfWork` on an open connection."""

    def __init__(self, connection: Connection, lease: Lease = NO_LEASE) -> None:
        self._connection = connection
        self._lease = lease

    def memories(self, watches: Collection[str]) -> Mapping[str, WatchMemory]:
        """Return the memories of watches, as stored now; others wait to read them until this transaction ends."""
        lock_reservations(self._connection)
        rows = self._connection.execute(_MEMORIES_OF, {"watches": list(watches)})
        return {row.watch: _memory_of(row) for row in rows}

    def health(self, provider: str, lane: str) -> ProviderHealth:
        """Return the health of a lane, as stored now; others wait."""
        lock_reservations(self._connection)
        name = owned_name(owner_in(self._connection), provider)
        of_lane = and_(provider_health.c.provider == name, provider_health.c.lane == lane)
        row = self._connection.execute(select(provider_health).where(of_lane)).first()
        return ProviderHealth() if row is None else _health_of(row)

    def hold(self, provider: str, kind: str) -> Hold | None:
        """Return the last hold of a class of requests, as stored now; others wait."""
        lock_reservations(self._connection)
        return next((hold for hold in load_holds(self._connection, provider) if hold.kind == kind), None)

    def save_memory(self, watch: str, memory: WatchMemory) -> None:
        """Save the memory of a watch."""
        row = {
            "watch": watch,
            "fired_at_ms": to_ms(memory.fired_at),
            "fired_microusd_gpu_hour": memory.fired_microusd_gpu_hour,
            "under_since_ms": to_ms(memory.under_since),
            "misses": memory.misses,
            "spot_wait_since_ms": to_ms(memory.spot_wait_since),
            "spot_idle_since_ms": to_ms(memory.spot_idle_since),
        }
        upsert(self._connection, watch_state, row)

    def record_decision(self, watch: str, decision: PastDecision) -> None:
        """Store what a watch decided."""
        record_decision(self._connection, watch, decision)

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        """Reserve a free slot and its budget, or return why not."""
        return launch_admission.reserve(self._connection, intent, budget, now, self._lease)

    def would_refuse(self, intent: Intent, budget: Budget, now: datetime) -> LaunchRefusal | None:
        """Return why a reservation would be refused now, or None."""
        return launch_admission.refusal_of_rehearsal(self._connection, intent, budget, now)

    def would_refuse_instead(
        self, intent: Intent, leaving: Launch, budget: Budget, now: datetime
    ) -> LaunchRefusal | None:
        """Return why a reservation would be refused if an active launch had just ended, or None."""
        return launch_admission.refusal_instead(self._connection, intent, leaving, budget, now)

    def request_approval(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, ignores_denials: bool
    ) -> Approval | LaunchRefusal | None:
        """Request an approval, or return why not."""
        return approval_rows.create_approval(self._connection, intent, budget, deadline, now, ignores_denials)

    def unticked(self, watch: Watch) -> Sequence[str]:
        """Return the items that the watch requires and its owner has not ticked."""
        return unticked(watch, ticked_items(self._connection, watch))

    def is_request_due(self, watch: str, fired_at: datetime, seen_at: datetime, now: datetime) -> bool:
        """Whether a watch that fired then still needs an approval."""
        return approval_rows.is_request_due(self._connection, watch, fired_at, seen_at, now)

    def recorded_bids(
        self, machines: Collection[Identity], since_s: int, until_s: int
    ) -> Mapping[Identity, Sequence[RecordedBid]]:
        """Implements `ports.store.UnitOfWork`."""
        return recorded_bids(self._connection, machines, since_s, until_s)

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        """Put an alert into the outbox."""
        return enqueue(self._connection, outbox_alert)

    def save_health(self, provider: str, lane: str, health: ProviderHealth) -> None:
        """Save the health of a provider on one lane."""
        row = {
            "provider": owned_name(owner_in(self._connection), provider),
            "lane": lane,
            "complete_at_ms": to_ms(health.complete_at),
            "blind_since_ms": to_ms(health.blind_since),
            "last_error": None if health.last_error is None else storable_text(health.last_error, 500),
            "not_understood": int(health.not_understood),
            "reported": int(health.reported),
        }
        upsert(self._connection, provider_health, row)

    def save_hold(self, hold: Hold) -> None:
        """Save a hold in place of the last one of its class."""
        save_hold(self._connection, hold)

    def record_new_value(self, provider: str, kind: str, new_value: str, now: datetime) -> bool:
        """Record a value; return whether it was never seen before."""
        value = {"provider": provider, "kind": storable_text(kind, 16), "value": storable_text(new_value, 200)}
        return insert_if_absent(self._connection, seen_value, value | {"first_seen_ms": to_ms(now)})


def _memory_of(row: AnyRow) -> WatchMemory:
    return WatchMemory(
        fired_at=from_ms(row.fired_at_ms),
        fired_microusd_gpu_hour=row.fired_microusd_gpu_hour,
        under_since=from_ms(row.under_since_ms),
        misses=row.misses,
        spot_wait_since=from_ms(row.spot_wait_since_ms),
        spot_idle_since=from_ms(row.spot_idle_since_ms),
    )


def _health_of(row: AnyRow) -> ProviderHealth:
    return ProviderHealth(
        complete_at=from_ms(row.complete_at_ms),
        blind_since=from_ms(row.blind_since_ms),
        last_error=row.last_error,
        not_understood=bool(row.not_understood),
        reported=bool(row.reported),
    )
