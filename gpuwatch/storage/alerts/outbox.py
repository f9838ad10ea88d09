"""The outbox: an alert is written in the transaction of its cause, then routed: one row per channel, to be sent.

Columns of `delivery`:
- `attempts` grows with each lease, which invalidates the previous holder.
- `next_try_at_ms`: until then, if the row was tried (`attempts` > 0, `settled_recipients` NULL), nothing is sent on
  that channel, whatever happened to the row: a waiting time outlives the alert that caused it.
- `first_try_at_ms`: the first lease: a channel that has accepted nothing for long since then fails.
- `sent_at_ms` of an expired or refused row: when a later message of its channel mentioned it.
- `settled_recipients`: set if some of several recipients have the alert; such a row delays no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, func, or_, select, update

from gpuwatch.domain.launches.life.owner_decisions import Pause, pauses_in_force
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.ports import Alert, DueDelivery, OutboxAlert, StalledChannel, UnroutedAlert, WaitingAlert
from gpuwatch.redaction import redact
from gpuwatch.storage.alerts import outbox_queries as queries
from gpuwatch.storage.alerts.alert_rows import enqueue, new_delivery, route, unrouted
from gpuwatch.storage.alerts.pauses import load_pauses
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.setup.side_tables import delivery, seen_value
from gpuwatch.storage.setup.stored_values import AnyRow, QueryCache, from_ms, insert_if_absent, to_ms

_ADDRESS_CHANGE = "moved_chat"  # a stored value: "old new", of one channel


class PendingDeliveries(msgspec.Struct, frozen=True, kw_only=True):
    """The pending deliveries of one channel."""

    channel: str
    count: int
    oldest_at: datetime
    last_error: str | None


class BrokenChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel whose newest outcome is a refusal."""

    channel: str
    error: str


class Outbox:
    """The sender's side of the outbox, and queries of `doctor`. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database
        own = {"owner_is": database.owner}
        self._has_work = QueryCache(
            database, lambda connection: bool(connection.execute(queries.HAS_WORK, own).scalar())
        )
        self._has_undelivered = QueryCache(
            database, lambda connection: bool(connection.execute(queries.HAS_UNDELIVERED).scalar())
        )

    def has_work(self) -> bool:
        """Whether any alert is new, pending, or expired and not mentioned; if not, other queries are unnecessary."""
        return self._has_work.get()

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        """Write an alert in a transaction of its own; False: an alert with this `once_key` exists."""
        with self._database.write() as connection:
            return enqueue(connection, outbox_alert)

    def unrouted(self) -> Sequence[UnroutedAlert]:
        """Return alerts without a route, oldest first; only some of them if there are many."""
        with self._database.read() as connection:
            return unrouted(connection, self._database.owner)

    def route(self, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
        """Route alerts, by id, to channels. Alerts that already have channels keep them."""
        with self._database.write() as connection:
            route(connection, channels, now)

    def hand_over(self, channels: Sequence[str], now: datetime) -> tuple[int, int]:
        """Hand deliveries to channels that are no longer configured over to the configured ones.

        Returns:
            The numbers of deliveries that were handed over, and that an earlier sender is still sending.
        """
        if not channels:
            return 0, 0
        with self._database.write() as connection:
            return _hand_over(connection, self._database.owner, channels, to_ms(now))

    def lease(
        self,
        now: datetime,
        limit: int,
        lease_s: float,
        channels: Sequence[str] | None = None,
        *,
        only_critical: bool = False,
    ) -> Sequence[DueDelivery]:
        """Claim due deliveries, oldest first; skips a channel with a lease or a waiting time.

        Checks without a lock first, because usually nothing is due, and that must not delay a launch.
        """
        now_ms = to_ms(now)
        ready = queries.ready(all_channels=channels is None, only_critical=only_critical)
        parameters = {"now_ms": now_ms} | ({} if channels is None else {"channels": channels})
        with self._database.read() as connection:
            if not _any(connection, queries.PENDING) or not _any(connection, ready, parameters | {"most": 1}):
                return ()
        with self._database.write() as connection:
            claimed: list[AnyRow] = []
            claimed_elsewhere: set[str] = set()
            for row in connection.execute(ready, parameters | {"most": limit}).all():
                if row.channel in claimed_elsewhere:
                    continue
                if _claim(connection, row, now_ms, lease_s):
                    claimed.append(row)
                else:
                    claimed_elsewhere.add(row.channel)  # another daemon has it, and so what follows it
            pauses = load_pauses(connection).by_hand if claimed else ()
            unreported = {name: _unreported(connection, name) for name in {row.channel for row in claimed}}
            return [_due(row, unreported.pop(row.channel, ()), pauses, now) for row in claimed]

    def release(self, due: DueDelivery) -> None:
        """Release a lease unchanged, because there was no time for it."""
        first_try = {} if due.attempts else {"first_try_at_ms": None}
        self._update_leased(due, attempts=due.attempts, **first_try)

    def mark_sent(self, due: DueDelivery, now: datetime, note: str | None = None) -> None:
        """Note that the channel accepted it, even after its lease ran out; mentioned alerts are settled, too."""
        now_ms = to_ms(now)
        with self._database.write() as connection:
            values = {"sent_at_ms": now_ms, "last_error": None if note is None else redact(note)}
            connection.execute(queries.MARK_SENT, _row(due) | values)
            if due.unreported:
                ids = [alert_id for alert_id, _ in due.unreported]
                connection.execute(
                    queries.MARK_REPORTED, {"channel_is": due.channel, "alert_ids": ids, "now_ms": now_ms}
                )

    def postpone(self, due: DueDelivery, next_try_at: datetime, error: str, taken: Sequence[str] = ()) -> None:
        """Postpone it until `next_try_at`, and all deliveries behind it unless `taken` has recipients."""
        self._update_leased(
            due, next_try_at_ms=to_ms(next_try_at), last_error=redact(error), settled_recipients=" ".join(taken) or None
        )

    def mark_refused(self, due: DueDelivery, error: str, probe_at: datetime) -> None:
        """Note that the channel rejects it; nothing else is tried there before `probe_at`."""
        self._update_leased(due, state="refused", next_try_at_ms=to_ms(probe_at), last_error=redact(error))

    def expire(self, now: datetime) -> int:
        """Expire overdue deliveries that are not being sent; return how many."""
        parameters = {"now_ms": to_ms(now)}
        with self._database.read() as connection:
            if not _any(connection, queries.PENDING) or not _any(connection, queries.OVERDUE, parameters):
                return 0
        with self._database.write() as connection:
            return connection.execute(queries.EXPIRE, parameters).rowcount

    def add_deliveries(self, alert_id: str, channels: Sequence[str]) -> int:
        """Add deliveries of an alert to these channels if missing; return how many were added."""
        if not channels:
            return 0
        with self._database.write() as connection:
            rows = [new_delivery(alert_id, channel) for channel in channels]
            return sum(insert_if_absent(connection, delivery, row) for row in rows)

    def stalled_channels(self, before: datetime) -> Sequence[StalledChannel]:
        """Return channels that accepted nothing since a failed attempt at or before then."""
        if not self._has_undelivered.get():
            return ()
        with self._database.read() as connection:
            return [one for one in queries.stalled_channels(connection, to_ms(before)) if self._is_own(one.name)]

    def overdue_alerts(self, channels: Sequence[str], before: datetime) -> Sequence[WaitingAlert]:
        """Return alerts that wait in these channels, and those about money that no channel has accepted since then."""
        if not self._has_undelivered.get():
            return ()
        with self._database.read() as connection:
            if not _any(connection, queries.PENDING):
                return ()
            return queries.overdue_alerts(connection, self._database.owner, channels, to_ms(before))

    def retry_refused(self, now: datetime) -> None:
        """Retry alerts about money that were rejected and that no channel has accepted."""
        if not self._has_undelivered.get():
            return
        now_ms = to_ms(now)
        with self._database.read() as connection:
            if not queries.has_undelivered_refusals(connection, now_ms):
                return
        with self._database.write() as connection:
            queries.retry_refused(connection, now_ms)

    def unreported_failures(self) -> Mapping[str, tuple[int, int]]:
        """Return channel → (count, time of the newest in ms) of expired deliveries that no message mentions or will.

        Without broken channels.
        """
        with self._database.read() as connection:
            counts: dict[str, tuple[int, int]] = {
                row[0]: (row[1], row[2])
                for row in connection.execute(queries.UNREPORTED_COUNTS)
                if self._is_own(row[0])
            }
        if not counts:
            return {}
        broken = {fault.channel for fault in self.broken_channels()}
        return {channel: count for channel, count in counts.items() if channel not in broken}

    def pending(self) -> Sequence[PendingDeliveries]:
        """Return the pending deliveries by channel."""
        query = (
            select(
                delivery.c.channel,
                func.count(),
                func.min(alerts.c.created_at_ms),
                func.max(delivery.c.last_error),
            )
            .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
            .where(delivery.c.state == "pending")
            .group_by(delivery.c.channel)
            .order_by(delivery.c.channel)
        )
        with self._database.read() as connection:
            return [
                PendingDeliveries(channel=channel, count=count, oldest_at=from_ms(oldest_ms), last_error=error)
                for channel, count, oldest_ms, error in connection.execute(query)
                if self._is_own(channel)
            ]

    def broken_channels(self) -> Sequence[BrokenChannel]:
        """Return channels that rejected an alert and accepted none since."""
        refusals = (
            select(delivery.c.channel, delivery.c.next_try_at_ms, delivery.c.last_error)
            .where(delivery.c.state == "refused")
            .order_by(delivery.c.next_try_at_ms)
        )
        sent = (
            select(delivery.c.channel, func.max(delivery.c.sent_at_ms))
            .where(delivery.c.state == "sent")
            .group_by(delivery.c.channel)
        )
        with self._database.read() as connection:
            newest_refusals = {channel: (at_ms, error) for channel, at_ms, error in connection.execute(refusals)}
            sent_ms = {row[0]: row[1] for row in connection.execute(sent)} if newest_refusals else {}
        return [
            BrokenChannel(channel=channel, error=error or "")
            for channel, (at_ms, error) in sorted(newest_refusals.items())
            if at_ms > sent_ms.get(channel, -1) and self._is_own(channel)
        ]

    def new_address(self, channel: str, address: str) -> str | None:
        """Return the newest known address that replaces this one; None: it has not changed."""
        is_move = and_(seen_value.c.provider == channel, seen_value.c.kind == _ADDRESS_CHANGE)
        with self._database.read() as connection:
            values = connection.execute(select(seen_value.c.value).where(is_move)).scalars()
            moves = dict(value.split(" ", 1) for value in values)
        newest: str | None = None
        while (next_address := moves.pop(newest or address, None)) is not None:
            newest = next_address
        return newest

    def save_new_address(self, channel: str, address: str, new_address: str, now: datetime) -> None:
        """Store it for the next start."""
        row = {"provider": channel, "kind": _ADDRESS_CHANGE, "value": f"{address} {new_address}"}
        with self._database.write() as connection:
            insert_if_absent(connection, seen_value, row | {"first_seen_ms": to_ms(now)})

    def _is_own(self, channel: str) -> bool:
        return owner_of(channel) == self._database.owner

    def _update_leased(self, due: DueDelivery, **values: Any) -> None:
        with self._database.write() as connection:
            connection.execute(queries.UPDATE_LEASED, _row(due) | {"attempts_are": due.attempts + 1} | values)


def _hand_over(connection: Connection, owner: str, channels: Sequence[str], now_ms: int) -> tuple[int, int]:
    pending = select(delivery.c.channel).where(delivery.c.state == "pending", delivery.c.channel.not_in(channels))
    gone = [name for name in connection.execute(pending.distinct()).scalars() if owner_of(name) == owner]
    is_left = and_(delivery.c.state == "pending", delivery.c.channel.in_(gone))
    is_leased = delivery.c.leased_until_ms.between(now_ms + 1, now_ms + queries.MAX_LEASE_MS)
    leased = connection.execute(select(func.count()).select_from(delivery).where(is_left, is_leased)).scalar_one()
    is_orphaned = and_(is_left, or_(delivery.c.leased_until_ms.is_(None), ~is_leased))
    alert_ids = connection.execute(select(delivery.c.alert_id).where(is_orphaned)).scalars().all()
    for alert_id in dict.fromkeys(alert_ids):
        for channel in channels:
            insert_if_absent(connection, delivery, new_delivery(alert_id, channel))
    connection.execute(
        update(delivery)
        .where(is_orphaned)
        .values(state="expired", sent_at_ms=0, leased_until_ms=None, last_error="the channel is no longer configured")
    )
    return len(alert_ids), leased


def _any(connection: Connection, query: Select[Any], parameters: Mapping[str, Any] | None = None) -> bool:
    return connection.execute(query, parameters).first() is not None


def _claim(connection: Connection, row: AnyRow, now_ms: int, lease_s: float) -> bool:
    key = {"alert_id_is": row.alert_id, "channel_is": row.channel, "attempts_are": row.attempts}
    lease = {"now_ms": now_ms, "leased_until_ms": now_ms + round(lease_s * 1000)}
    return connection.execute(queries.CLAIM, key | lease).rowcount == 1


def _unreported(connection: Connection, channel: str) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(queries.UNREPORTED, {"channel_is": channel}).all()
    return tuple((row.alert_id, msgspec.json.decode(row.body, type=Alert).headline) for row in rows)


def _due(row: AnyRow, unreported: tuple[tuple[str, str], ...], pauses: Sequence[Pause], now: datetime) -> DueDelivery:
    alert = msgspec.json.decode(row.body, type=Alert)
    return DueDelivery(
        alert=alert,
        channel=row.channel,
        attempts=row.attempts,
        taken=tuple(row.settled_recipients.split()) if row.settled_recipients else (),
        unreported=unreported,
        facts=tuple(("Paused", pause.text()) for pause in pauses_in_force(pauses, alert.watch, now)),
    )


def _row(due: DueDelivery) -> dict[str, str]:
    return {"alert_id_is": due.alert.alert_id, "channel_is": due.channel}
