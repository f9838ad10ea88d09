"""The launches as rows: reserved by `launch_admission`, changed by the process with the newest version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, bindparam, delete, exists, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from gpuwatch.domain.launches.launch import (
    ALLOWED_TRANSITIONS,
    Launch,
    LaunchConflict,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
    offer_fields,
)
from gpuwatch.domain.launches.life.circuit_breaker import is_counted_failure
from gpuwatch.domain.launches.life.launch_record import LaunchEvent
from gpuwatch.domain.launches.life.strays import UnknownInstance
from gpuwatch.domain.market.offer import storable_text
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import StoreError
from gpuwatch.ports import OutboxAlert
from gpuwatch.ports.store import NO_OBLIGATION_LOG, ObligationLog
from gpuwatch.storage.alerts.alert_rows import add_audit, enqueue, newest_key
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.launches import hook_runs
from gpuwatch.storage.launches.launch_admission import (
    admit_retarget,
    extension_refusal,
    refusal_before_send,
    update_breaker,
    with_free_slots,
)
from gpuwatch.storage.launches.renting_blocks import add_unknown, load_unknown, remove_installation, remove_unknown
from gpuwatch.storage.setup.account_rows import ensure_installation
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import event_of_row, launch_of, launch_row_of, row_of_event
from gpuwatch.storage.setup.schema.launch_side_tables import foreign_instance
from gpuwatch.storage.setup.side_tables import foreign_installation
from gpuwatch.storage.setup.stored_values import QueryCache, insert_if_absent, to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, OVER_STATES, launch_event
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.watches.watch_identities import WATCH_ID

_UPDATE_UNCHANGED = update(launches).where(
    launches.c.launch_id == bindparam("read_id"),
    launches.c.state == bindparam("read_state"),
    launches.c.version == bindparam("read_version"),
)
_ALIVE = select(launches).where(IS_ALIVE).order_by(launches.c.intended_at_ms)


class SqlLaunchRepository:
    """All launches. Every transition is one transaction: the row, its event, and its alert.

    Args:
        obligations: the keeper's file; it gets every change that is written here.
        lease: whoever lost it sends no order.
    """

    def __init__(
        self, database: Database, obligations: ObligationLog = NO_OBLIGATION_LOG, lease: Lease = NO_LEASE
    ) -> None:
        self._database = database
        self.lease = lease
        self._obligations = obligations
        self._alive = QueryCache(database, lambda connection: [launch_of(row) for row in connection.execute(_ALIVE)])

    def get(self, launch_id: str) -> Launch | None:
        """Return one launch. Raises StoreError."""
        matching = self._read(select(launches).where(launches.c.launch_id == launch_id))
        return matching[0] if matching else None

    def alive(self, provider: str | None = None) -> list[Launch]:
        """Return active launches, oldest first. Raises StoreError."""
        return [launch for launch in self._alive.get() if provider is None or launch.provider == provider]

    def own_alive(self, provider: str | None = None) -> list[Launch]:
        """Return the active launches of this owner's watches and jobs, oldest first. Raises StoreError."""
        return [launch for launch in self.alive(provider) if owner_of(launch.watch) == self._database.owner]

    def update_obligations(self) -> list[Launch]:
        """Write what other hosts changed to this host's keeper's file: a later end, or that it is over.

        Returns the active launches. Raises StoreError: the rows or the file cannot be read.
        """
        with self._database.read() as connection:
            self._database.check_lineage(connection)
        alive = self.own_alive()
        self._obligations.record_changes(alive)
        rest = self._obligations.open_launch_ids() - {launch.launch_id for launch in alive}
        if rest:
            over = select(launches).where(launches.c.launch_id.in_(rest), launches.c.state.in_(OVER_STATES))
            self._obligations.record_changes(self._read(over))
        return alive

    def all(self) -> list[Launch]:
        """Return every launch, newest first. Raises StoreError."""
        return self._read(select(launches).order_by(launches.c.intended_at_ms.desc(), launches.c.launch_id))

    def own(self) -> list[Launch]:
        """Return every launch of this owner, newest first. Raises StoreError."""
        return [launch for launch in self.all() if owner_of(launch.watch) == self._database.owner]

    def reopened(self) -> list[Launch]:
        """Return active launches that had ended before. Raises StoreError."""
        is_end = launch_event.c.launch_id == launches.c.launch_id, launch_event.c.from_state.in_(OVER_STATES)
        found = self._read(select(launches).where(IS_ALIVE, exists().where(*is_end)))
        return [launch for launch in found if owner_of(launch.watch) == self._database.owner]

    def events(self, launch_id: str) -> list[LaunchEvent]:
        """Return its transitions, oldest first. Raises StoreError."""
        query = select(launch_event).where(launch_event.c.launch_id == launch_id).order_by(launch_event.c.id)
        with self._database.read() as connection:
            return [event_of_row(row) for row in connection.execute(query)]

    def transition(  # noqa: PLR0913 the row, its event, its alert and its hook are one transition
        self,
        launch: Launch,
        to_state: LaunchState,
        cause: str,
        now: datetime,
        outbox_alert: OutboxAlert | None = None,
        *,
        message: str | None = None,
        hook: str | None = None,
        audit: OutboxAlert | None = None,
        **changes: Any,
    ) -> Launch:
        """Apply one transition with its event, hook and alert, unless another process has changed the launch.

        Args:
            hook: the owner's hook to run afterwards.

        Raises:
            LaunchConflict, StoreError: it was not written, so its effects must not be carried out.
        """
        if to_state not in ALLOWED_TRANSITIONS[launch.state]:
            raise LaunchConflict(f"launch {launch.launch_id} cannot change from {launch.state} to {to_state}")
        changed = msgspec.structs.replace(launch, state=to_state, version=launch.version + 1, **changes)
        with self._database.write() as connection:
            if is_counted_failure(changed):  # two simultaneous failures count each other
                lock_reservations(connection)
            if launch.is_over:
                lock_reservations(connection)
                changed = with_free_slots(connection, changed)
            self._step(connection, launch, changed, cause, now, message)
            update_breaker(connection, changed, now)
            if hook is not None:
                hook_runs.schedule_hook(connection, changed, hook, now)
            if outbox_alert is not None:
                enqueue(connection, outbox_alert)
            add_audit(connection, audit)
        self._obligations.record_changes([changed])
        return changed

    def _step(
        self,
        connection: Connection,
        launch: Launch,
        changed: Launch,
        cause: str,
        now: datetime,
        message: str | None = None,
    ) -> None:
        version_read = {"read_id": launch.launch_id, "read_state": launch.state.value, "read_version": launch.version}
        if connection.execute(_UPDATE_UNCHANGED, launch_row_of(changed) | version_read).rowcount != 1:
            raise LaunchConflict(f"launch {launch.launch_id} was changed concurrently")
        connection.execute(insert(launch_event), row_of_event(changed, launch.state, cause, now, message))

    def retarget(  # noqa: PLR0913 the last two are further fields of the row
        self,
        launch: Launch,
        match: Match,
        watch: Watch,
        budget: Budget,
        now: datetime,
        *,
        provider_fields: Mapping[str, Any] | None = None,
        message: str | None = None,
        is_last_resort: bool = False,
    ) -> Launch | LaunchRefusal:
        """Change to another offer, by the rules of the first one, except for the slot, which it already has.

        Args:
            provider_fields: fields that change if the offer is from another provider.
            message: why the previous offer was not rented.
            is_last_resort: no other candidate is left, so stock of a place that failed lately may be ordered again.

        Raises:
            LaunchConflict, StoreError: it was not written, so the offer must not be requested.
        """
        fields = {**offer_fields(match, watch), **(provider_fields or {})}
        retargeted = msgspec.structs.replace(launch, state=LaunchState.REQUESTED, version=launch.version + 1, **fields)
        try:
            with self._database.write() as connection:
                lock_reservations(connection)
                admitted = admit_retarget(
                    connection, retargeted, match, watch, budget, now, previous=launch, is_last_resort=is_last_resort
                )
                if isinstance(admitted, Launch):
                    provider_note = "" if admitted.provider == launch.provider else f" at {admitted.provider}"
                    self._step(connection, launch, admitted, f"offer {admitted.offer_id}{provider_note}", now, message)
        except IntegrityError:
            return LaunchRefusal(RefusalReason.OFFER_TAKEN, f"another of your launches has offer {retargeted.offer_id}")
        return admitted

    def extend(
        self,
        launch: Launch,
        by_s: float,
        budget: Budget,
        watch_budget: Budget,
        now: datetime,
        *,
        audit: OutboxAlert | None = None,
    ) -> Launch | LaunchRefusal:
        """Extend its end, if the budgets allow that; see `extend_to`."""
        extended = msgspec.structs.replace(launch, max_runtime_s=(launch.max_runtime_s or 0.0) + by_s)
        check = partial(extension_refusal, budget=budget, watch_budget=watch_budget, now=now)
        return self.extend_to(launch, extended, f"extended by {format_duration(by_s)}", check, now, audit=audit)

    def extend_to(
        self,
        launch: Launch,
        extended: Launch,
        cause: str,
        check: Callable[[Connection, Launch], LaunchRefusal | None],
        now: datetime,
        *,
        audit: OutboxAlert | None = None,
    ) -> Launch | LaunchRefusal:
        """Record a launch with a later end, unless the check refuses it. The keeper's file is written before the row.

        Raises LaunchConflict, StoreError: it was not written, and the old end stays.
        """
        extended = msgspec.structs.replace(extended, version=launch.version + 1)
        refused = None
        try:
            with self._database.write() as connection:
                lock_reservations(connection)
                refused = check(connection, extended)
                if refused is None:
                    self._obligations.record_extension(extended)
                    self._step(connection, launch, extended, cause, now)
                    add_audit(connection, audit)
        except (LaunchConflict, StoreError):  # the row has the old end, so the file must have it, too
            self._obligations.record_changes([msgspec.structs.replace(launch, version=extended.version)])
            raise
        return refused or extended

    def may_send(self, launch: Launch, now: datetime) -> LaunchRefusal | None:
        """Check right before the order is sent whether renting was paused or the machine blocked since the reservation.

        Raises:
            LaunchConflict: another process took it over; a process that slept long must not send an abandoned order.
            StoreError: reading failed twice, or this daemon no longer leads: the order must not be sent.
        """
        try:
            return self._refusal_before_send(launch, now)
        except StoreError:  # such as a connection that died within the transaction; the offer is still there
            return self._refusal_before_send(launch, now)

    def _refusal_before_send(self, launch: Launch, now: datetime) -> LaunchRefusal | None:
        opened = self._database.read() if self._database.is_sqlite else self._database.write()  # it locks the lease
        with opened as connection:
            return refusal_before_send(connection, launch, now, self.lease)

    def known_foreign_instances(self, provider: str) -> frozenset[str]:
        """Return ids of labelled instances that the owner assigned to other installations. Raises StoreError."""
        with self._database.read() as connection:
            query = select(foreign_instance.c.instance_id).where(foreign_instance.c.provider == provider)
            return frozenset(connection.execute(query).scalars())

    def ended_with_instances(self, provider: str, instance_ids: Collection[str]) -> list[Launch]:
        """Return ended launches that had one of these instances, oldest first. Raises StoreError."""
        has_instance = and_(launches.c.provider == provider, launches.c.instance_id.in_(list(instance_ids)))
        query = select(launches).where(has_instance, launches.c.state.in_(OVER_STATES))
        return self._read(query.order_by(launches.c.intended_at_ms))

    def accounted_instances(self, provider: str, instance_ids: Collection[str]) -> frozenset[str]:
        """Return which of them a launch has or had, or belong to other installations. Raises StoreError."""
        ids = list(instance_ids)
        with self._database.read() as connection:
            with_launch = select(launches.c.instance_id).where(
                launches.c.provider == provider, launches.c.instance_id.in_(ids)
            )
            foreign = select(foreign_instance.c.instance_id).where(
                foreign_instance.c.provider == provider, foreign_instance.c.instance_id.in_(ids)
            )
            return frozenset(connection.execute(with_launch.union(foreign)).scalars())

    def foreign_installations(self) -> frozenset[str]:
        """Return ids of installations whose instances the owner assigned to others. Raises StoreError."""
        with self._database.read() as connection:
            return frozenset(connection.execute(select(foreign_installation.c.install_id)).scalars())

    def unknown_instances(self, provider: str | None = None) -> list[UnknownInstance]:
        """Return instances that block renting there, or anywhere, until they are settled. Raises StoreError."""
        with self._database.read() as connection:
            return load_unknown(connection, provider)

    def add_unknown_instance(self, unknown: UnknownInstance) -> None:
        """Store one; an existing row stays unchanged. Raises StoreError."""
        with self._database.write() as connection:
            add_unknown(connection, unknown)

    def remove_unknown_instance(self, unknown: UnknownInstance) -> None:
        """Delete a settled one. Raises StoreError."""
        with self._database.write() as connection:
            remove_unknown(connection, unknown.provider, [unknown.instance_id])

    def mark_foreign(
        self,
        provider: str,
        instance_id: str,
        now: datetime,
        install_id: str | None = None,
        audit: OutboxAlert | None = None,
    ) -> bool:
        """Store that it belongs to another installation, as the owner stated; False: that was known.

        Args:
            install_id: the installation that its label names; if it is another one, this covers all its instances.

        Raises:
            StoreError: it was not written.
        """
        with self._database.write() as connection:
            if install_id is not None and install_id != ensure_installation(connection, now).install_id:
                insert_if_absent(connection, foreign_installation, {"install_id": install_id, "at_ms": to_ms(now)})
                remove_installation(connection, install_id)
            remove_unknown(connection, provider, [instance_id])
            row = {"provider": provider, "instance_id": storable_text(instance_id, 64), "at_ms": to_ms(now)}
            is_new = insert_if_absent(connection, foreign_instance, row)
            if is_new:
                add_audit(connection, audit)
            return is_new

    def adopt(self, launch: Launch, now: datetime, outbox_alert: OutboxAlert, audit: OutboxAlert | None = None) -> bool:
        """Store a launch for an existing instance, with its alert; False: another launch has it.

        Raises:
            StoreError: it was not written.
        """
        has_instance = and_(launches.c.provider == launch.provider, launches.c.instance_id == launch.instance_id)
        active = select(literal(1)).where(has_instance, IS_ALIVE)
        try:
            with self._database.write() as connection:
                lock_reservations(connection)
                if connection.execute(active).first() is not None:
                    return False
                launch = msgspec.structs.replace(
                    launch,
                    install_id=ensure_installation(connection, now).install_id,
                    watch_id=connection.execute(select(WATCH_ID), {"of_watch": launch.watch}).scalar(),
                )
                connection.execute(insert(launches), launch_row_of(launch))
                connection.execute(insert(launch_event), row_of_event(launch, None, "adopted by the owner", now))
                is_foreign = and_(
                    foreign_instance.c.provider == launch.provider,
                    foreign_instance.c.instance_id == (launch.instance_id or ""),
                )
                connection.execute(delete(foreign_instance).where(is_foreign))
                remove_unknown(connection, launch.provider, [launch.instance_id or ""])
                enqueue(connection, outbox_alert)
                add_audit(connection, audit)
        except IntegrityError:
            return False
        self._obligations.record_changes([launch])
        return True

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        """Put an alert into the outbox; False: an alert with this `once_key` exists. Raises StoreError."""
        with self._database.write() as connection:
            return enqueue(connection, outbox_alert)

    def newest_key(self, prefix: str, now: datetime) -> str | None:
        """Return the newest key that begins so, of an alert that has not expired. Raises StoreError."""
        with self._database.read() as connection:
            return newest_key(connection, prefix, now)

    def _read(self, query: Select[Any]) -> list[Launch]:
        with self._database.read() as connection:
            return [launch_of(row) for row in connection.execute(query)]
