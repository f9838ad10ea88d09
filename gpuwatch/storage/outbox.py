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
from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, true, update

from gpuwatch.domain.launches.pause import Pause, pauses_in_force
from gpuwatch.ports import Alert, DueDelivery, OutboxAlert, Severity, StalledChannel, UnroutedAlert, WaitingAlert
from gpuwatch.redaction import redact
from gpuwatch.storage import undelivered
from gpuwatch.storage.database import Database
from gpuwatch.storage.new_alerts import enqueue, new_delivery, route, unrouted
from gpuwatch.storage.pauses import load_pauses
from gpuwatch.storage.provider_tables import seen_value
from gpuwatch.storage.query_cache import QueryCache
from gpuwatch.storage.rows import AnyRow, from_ms, insert_if_absent, to_ms
from gpuwatch.storage.tables import alert as alerts
from gpuwatch.storage.tables import delivery

_LONGEST_LEASE_MS = 600_000  # a lease that ends later than this from now was written before the clock was set back
_LONGEST_REST_MS = 90_000_000  # 25 h: the same, for waits
# used every second, hence built once: building a query costs ten times as much as running it
_PENDING = select(delivery.c.channel).where(delivery.c.state == "pending").limit(1)
_UNMENTIONED = (
    select(delivery.c.channel, func.count())
    .where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.channel.not_in(select(delivery.c.channel).where(delivery.c.state == "pending")))
    .group_by(delivery.c.channel)
)
_EXPIRED = select(delivery.c.channel).where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
_UNROUTED = select(alerts.c.alert_id).where(alerts.c.routed_at_ms.is_(None))
_HAS_WORK = select(or_(_UNROUTED.exists(), _PENDING.exists(), _EXPIRED.exists()))
_UNTAKEN = select(delivery.c.channel).where(delivery.c.state.in_(("pending", "refused")))
_HAS_UNTAKEN = select(or_(_UNTAKEN.exists(), _EXPIRED.exists()))
_NEW_ADDRESS = "moved_chat"  # a stored value: "old new", of one channel
_MOST_MISSED = 500  # mentioned in one message; the rest in the next


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
    """The sender's side of the outbox (see `ports.DeliveryQueue`), and queries of `doctor`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._has_work = QueryCache(database, lambda connection: bool(connection.execute(_HAS_WORK).scalar()))
        self._has_untaken = QueryCache(database, lambda connection: bool(connection.execute(_HAS_UNTAKEN).scalar()))

    def has_work(self) -> bool:
        """Whether any alert is new, pending, or expired and not mentioned; if not, other queries are unnecessary."""
        return self._has_work.get()

    def enqueue(self, news: OutboxAlert) -> bool:
        """Write an alert in a transaction of its own."""
        with self._database.write() as connection:
            return enqueue(connection, news)

    def unrouted(self) -> Sequence[UnroutedAlert]:
        """Return alerts without a route, oldest first; only some of them if there are many."""
        with self._database.read() as connection:
            return unrouted(connection)

    def route(self, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
        """Route alerts, by id, to channels. Alerts that already have channels keep them."""
        with self._database.write() as connection:
            route(connection, channels, now)

    def start(self, channels: Sequence[str]) -> int:
        """Prepare for a new sender with these channels.

        Releases earlier leases if no other sender can be running (SQLite has one daemon). Deliveries to channels that
        are no longer configured are handed over to the configured ones.

        Returns:
            The number of deliveries handed over.
        """
        with self._database.write() as connection:
            if self._database.is_sqlite:
                leased = and_(delivery.c.state == "pending", delivery.c.leased_until_ms.is_not(None))
                connection.execute(update(delivery).where(leased).values(leased_until_ms=None))
            return _hand_over(connection, channels) if channels else 0

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
        with self._database.read() as connection:
            if not _any(connection, _PENDING) or not _ready(connection, now_ms, 1, channels, only_critical):
                return ()
        with self._database.write() as connection:
            claimed: list[AnyRow] = []
            lost: set[str] = set()
            for row in _ready(connection, now_ms, limit, channels, only_critical):
                if row.channel in lost:
                    continue
                if _claim(connection, row, now_ms, lease_s):
                    claimed.append(row)
                else:
                    lost.add(row.channel)  # another daemon has it, and so what follows it
            pauses = load_pauses(connection).by_hand if claimed else ()
            return [_due(connection, row, pauses, now) for row in claimed]

    def release(self, due: DueDelivery) -> None:
        """Release a lease unchanged, because there was no time for it."""
        untried = {} if due.attempts else {"first_try_at_ms": None}
        self._settle(due, attempts=due.attempts, **untried)

    def settle_sent(self, due: DueDelivery, now: datetime, note: str | None = None) -> None:
        """Note that the channel accepted it, even after its lease ran out; mentioned alerts are settled, too."""
        now_ms = to_ms(now)
        with self._database.write() as connection:
            connection.execute(
                update(delivery)
                .where(_row(due), delivery.c.state != "sent")
                .values(
                    state="sent",
                    sent_at_ms=now_ms,
                    leased_until_ms=None,
                    last_error=None if note is None else redact(note),
                )
            )
            if due.missed:
                connection.execute(
                    update(delivery)
                    .where(delivery.c.channel == due.channel, delivery.c.alert_id.in_([m[0] for m in due.missed]))
                    .where(delivery.c.state.in_(("expired", "refused")))
                    .values(sent_at_ms=now_ms)
                )

    def settle_later(self, due: DueDelivery, next_try_at: datetime, error: str, taken: Sequence[str] = ()) -> None:
        """Postpone it until `next_try_at`, and all deliveries behind it unless `taken` has recipients."""
        self._settle(
            due, next_try_at_ms=to_ms(next_try_at), last_error=redact(error), settled_recipients=" ".join(taken) or None
        )

    def settle_refused(self, due: DueDelivery, error: str, probe_at: datetime) -> None:
        """Note that the channel rejects it; nothing else is tried there before `probe_at`."""
        self._settle(due, state="refused", next_try_at_ms=to_ms(probe_at), last_error=redact(error))

    def expire(self, now: datetime) -> int:
        """Expire overdue deliveries that are not being sent; return how many."""
        now_ms = to_ms(now)
        with self._database.read() as connection:
            if not _any(connection, _PENDING) or not _any(connection, _PENDING.where(_overdue(now_ms))):
                return 0
        with self._database.write() as connection:
            return connection.execute(
                update(delivery).where(_overdue(now_ms)).values(state="expired", leased_until_ms=None)
            ).rowcount

    def also(self, alert_id: str, channels: Sequence[str]) -> int:
        """Add deliveries of an alert to these channels if missing; return how many were added."""
        if not channels:
            return 0
        with self._database.write() as connection:
            rows = [new_delivery(alert_id, channel) for channel in channels]
            return sum(insert_if_absent(connection, delivery, row) for row in rows)

    def stalled_channels(self, before: datetime) -> Sequence[StalledChannel]:
        """Return channels that accepted nothing since a failed attempt at or before then."""
        if not self._has_untaken.get():
            return ()
        with self._database.read() as connection:
            return undelivered.stalled_channels(connection, to_ms(before))

    def waiting_too_long(self, channels: Sequence[str], before: datetime) -> Sequence[WaitingAlert]:
        """Return alerts that wait in these channels, and those about money that no channel has accepted since then."""
        if not self._has_untaken.get():
            return ()
        with self._database.read() as connection:
            if not _any(connection, _PENDING):
                return ()
            return undelivered.waiting_too_long(connection, channels, to_ms(before))

    def retry_untaken(self, now: datetime) -> None:
        """Retry alerts about money that were rejected and that no channel has accepted."""
        if not self._has_untaken.get():
            return
        now_ms = to_ms(now)
        with self._database.read() as connection:
            untaken = select(delivery.c.channel).where(undelivered.untaken_refusals(now_ms)).limit(1)
            if not _any(connection, untaken):
                return
        with self._database.write() as connection:
            undelivered.retry_untaken(connection, now_ms)

    def unreported_failures(self) -> Mapping[str, int]:
        """Return channel → expired deliveries that no message has mentioned or will; without broken channels."""
        with self._database.read() as connection:
            counts: dict[str, int] = {row[0]: row[1] for row in connection.execute(_UNMENTIONED)}
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
            newest = {channel: (at_ms, error) for channel, at_ms, error in connection.execute(refusals)}
            sent_ms = {row[0]: row[1] for row in connection.execute(sent)} if newest else {}
        return [
            BrokenChannel(channel=channel, error=error or "")
            for channel, (at_ms, error) in sorted(newest.items())
            if at_ms > sent_ms.get(channel, -1)
        ]

    def new_address(self, channel: str, address: str) -> str | None:
        """Return the newest known address that replaces this one; None: it has not changed."""
        of_channel = and_(seen_value.c.provider == channel, seen_value.c.kind == _NEW_ADDRESS)
        with self._database.read() as connection:
            words = connection.execute(select(seen_value.c.value).where(of_channel)).scalars()
            moves = dict(word.split(" ", 1) for word in words)
        at: str | None = None
        while (following := moves.pop(at or address, None)) is not None:
            at = following
        return at

    def note_new_address(self, channel: str, address: str, new: str, now: datetime) -> None:
        """Store it for the next start."""
        word = {"provider": channel, "kind": _NEW_ADDRESS, "value": f"{address} {new}"}
        with self._database.write() as connection:
            insert_if_absent(connection, seen_value, word | {"first_seen_ms": to_ms(now)})

    def _settle(self, due: DueDelivery, **values: Any) -> None:
        still_ours = and_(_row(due), delivery.c.state == "pending", delivery.c.attempts == due.attempts + 1)
        with self._database.write() as connection:
            connection.execute(update(delivery).where(still_ours).values(leased_until_ms=None, **values))


def _hand_over(connection: Connection, channels: Sequence[str]) -> int:
    gone = and_(delivery.c.state == "pending", delivery.c.channel.not_in(channels))
    waiting = connection.execute(select(delivery.c.alert_id).where(gone)).scalars().all()
    for alert_id in dict.fromkeys(waiting):
        for channel in channels:
            insert_if_absent(connection, delivery, new_delivery(alert_id, channel))
    connection.execute(
        update(delivery)
        .where(gone)
        .values(state="expired", sent_at_ms=0, leased_until_ms=None, last_error="the channel is no longer configured")
    )
    return len(waiting)


def _any(connection: Connection, query: Select[Any]) -> bool:
    return connection.execute(query).first() is not None


def _ready(
    connection: Connection, now_ms: int, limit: int, channels: Sequence[str] | None, only_critical: bool
) -> list[AnyRow]:
    """Return rows that can be leased, in the order of sending."""
    pending = delivery.c.state == "pending"
    other = delivery.alias()
    quiet = (
        select(other.c.channel)
        .where(other.c.state == "pending", other.c.leased_until_ms.between(now_ms + 1, now_ms + _LONGEST_LEASE_MS))
        .union(
            select(other.c.channel)
            .where(other.c.state.in_(("pending", "expired", "refused")))
            .where(other.c.next_try_at_ms.between(now_ms + 1, now_ms + _LONGEST_REST_MS))
            .where(other.c.attempts > 0, other.c.settled_recipients.is_(None))
        )
    )
    query = (
        select(
            delivery.c.alert_id, delivery.c.channel, delivery.c.attempts, delivery.c.settled_recipients, alerts.c.body
        )
        .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
        .where(pending, _free(now_ms), or_(alerts.c.expires_at_ms > now_ms, undelivered.about_money()))
        .where(_due_by(now_ms))
        .where(or_(delivery.c.settled_recipients.is_not(None), delivery.c.channel.not_in(quiet)))
        .where(true() if channels is None else delivery.c.channel.in_(channels))
        .where(alerts.c.severity == Severity.CRITICAL.value if only_critical else true())
        .order_by(delivery.c.channel, alerts.c.created_at_ms, delivery.c.alert_id)
        .limit(limit)
    )
    return list(connection.execute(query))


def _claim(connection: Connection, row: AnyRow, now_ms: int, lease_s: float) -> bool:
    """Claim a row by a conditional update: only one of several daemons succeeds."""
    mine = and_(delivery.c.alert_id == row.alert_id, delivery.c.channel == row.channel)
    unchanged = and_(delivery.c.state == "pending", delivery.c.attempts == row.attempts, _free(now_ms))
    lease = {
        "attempts": row.attempts + 1,
        "leased_until_ms": now_ms + round(lease_s * 1000),
        "first_try_at_ms": func.coalesce(delivery.c.first_try_at_ms, now_ms),
    }
    return connection.execute(update(delivery).where(mine, unchanged).values(lease)).rowcount == 1


def _due(connection: Connection, row: AnyRow, pauses: Sequence[Pause], now: datetime) -> DueDelivery:
    missed = connection.execute(
        select(delivery.c.alert_id, alerts.c.body)
        .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
        .where(delivery.c.channel == row.channel, delivery.c.sent_at_ms.is_(None))
        .where(delivery.c.state.in_(("expired", "refused")))
        .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
        .limit(_MOST_MISSED)
    ).all()
    alert = msgspec.json.decode(row.body, type=Alert)
    return DueDelivery(
        alert=alert,
        channel=row.channel,
        attempts=row.attempts,
        taken=tuple(row.settled_recipients.split()) if row.settled_recipients else (),
        missed=tuple((alert_id, msgspec.json.decode(body, type=Alert).headline) for alert_id, body in missed),
        facts=tuple(("Paused", pause.text()) for pause in pauses_in_force(pauses, alert.watch, now)),
    )


def _row(due: DueDelivery) -> ColumnElement[bool]:
    return and_(delivery.c.alert_id == due.alert.alert_id, delivery.c.channel == due.channel)


def _free(now_ms: int) -> ColumnElement[bool]:
    until = delivery.c.leased_until_ms
    return or_(until.is_(None), until <= now_ms, until > now_ms + _LONGEST_LEASE_MS)


def _overdue(now_ms: int) -> ColumnElement[bool]:
    """Match overdue rows; an alert about money waits until some channel has accepted it."""
    its_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id)
    late = its_alert.where(alerts.c.expires_at_ms <= now_ms).exists()  # few are pending, many were sent
    return and_(delivery.c.state == "pending", _free(now_ms), late, undelivered.may_be_lost())


def _due_by(now_ms: int) -> ColumnElement[bool]:
    return or_(delivery.c.next_try_at_ms <= now_ms, delivery.c.next_try_at_ms > now_ms + _LONGEST_REST_MS)
