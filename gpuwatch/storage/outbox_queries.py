"""The queries of the outbox, each built once: building a query costs ten times as much as running it."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, bindparam, func, or_, select, true, update

from gpuwatch.ports import Severity
from gpuwatch.storage import undelivered
from gpuwatch.storage.tables import alert as alerts
from gpuwatch.storage.tables import delivery

LONGEST_LEASE_MS = 600_000  # a lease that ends later than this from now was written before the clock was set back
LONGEST_REST_MS = 90_000_000  # 25 h: the same, for waits
_MOST_MISSED = 500  # mentioned in one message; the rest in the next
NOW = bindparam("now_ms", type_=BigInteger)  # parameters: `now_ms`, `alert_id_is`, `channel_is`, `attempts_are`, …

PENDING = select(delivery.c.channel).where(delivery.c.state == "pending").limit(1)
UNMENTIONED = (
    select(delivery.c.channel, func.count())
    .where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.channel.not_in(select(delivery.c.channel).where(delivery.c.state == "pending")))
    .group_by(delivery.c.channel)
)
_EXPIRED = select(delivery.c.channel).where(delivery.c.state == "expired", delivery.c.sent_at_ms.is_(None))
_UNROUTED = select(alerts.c.alert_id).where(alerts.c.routed_at_ms.is_(None))
HAS_WORK = select(or_(_UNROUTED.exists(), PENDING.exists(), _EXPIRED.exists()))
_UNTAKEN = select(delivery.c.channel).where(delivery.c.state.in_(("pending", "refused")))
HAS_UNTAKEN = select(or_(_UNTAKEN.exists(), _EXPIRED.exists()))

_ROW = and_(delivery.c.alert_id == bindparam("alert_id_is"), delivery.c.channel == bindparam("channel_is"))
SENT = update(delivery).where(_ROW, delivery.c.state != "sent").values(state="sent", leased_until_ms=None)
# only for a row whose lease is still held
SETTLE = (
    update(delivery)
    .where(_ROW, delivery.c.state == "pending", delivery.c.attempts == bindparam("attempts_are"))
    .values(leased_until_ms=None)
)
MENTIONED = (
    update(delivery)
    .where(delivery.c.channel == bindparam("channel_is"))
    .where(delivery.c.alert_id.in_(bindparam("alert_ids", expanding=True)))
    .where(delivery.c.state.in_(("expired", "refused")))
    .values(sent_at_ms=NOW)
)
MISSED = (
    select(delivery.c.alert_id, alerts.c.body)
    .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
    .where(delivery.c.channel == bindparam("channel_is"), delivery.c.sent_at_ms.is_(None))
    .where(delivery.c.state.in_(("expired", "refused")))
    .order_by(alerts.c.created_at_ms, delivery.c.alert_id)
    .limit(_MOST_MISSED)
)


def _free() -> ColumnElement[bool]:
    until = delivery.c.leased_until_ms
    return or_(until.is_(None), until <= NOW, until > NOW + LONGEST_LEASE_MS)


def _overdue() -> ColumnElement[bool]:
    """Match overdue rows; an alert about money waits until some channel has accepted it."""
    its_alert = select(alerts.c.alert_id).where(alerts.c.alert_id == delivery.c.alert_id)
    late = its_alert.where(alerts.c.expires_at_ms <= NOW).exists()  # few are pending, many were sent
    return and_(delivery.c.state == "pending", _free(), late, undelivered.may_be_lost())


OVERDUE = PENDING.where(_overdue())
EXPIRE = update(delivery).where(_overdue()).values(state="expired", leased_until_ms=None)
# a conditional update: only one of several daemons succeeds
CLAIM = (
    update(delivery)
    .where(_ROW, delivery.c.state == "pending", delivery.c.attempts == bindparam("attempts_are"), _free())
    .values(attempts=delivery.c.attempts + 1, first_try_at_ms=func.coalesce(delivery.c.first_try_at_ms, NOW))
)


@cache
def ready(*, everywhere: bool, only_critical: bool) -> Select[Any]:
    """Return the query for at most `most` rows that can be leased, in the order of sending.

    Args:
        everywhere: in all channels, not only in `channels`.
    """
    other = delivery.alias()
    quiet = (
        select(other.c.channel)
        .where(other.c.state == "pending", other.c.leased_until_ms.between(NOW + 1, NOW + LONGEST_LEASE_MS))
        .union(
            select(other.c.channel)
            .where(other.c.state.in_(("pending", "expired", "refused")))
            .where(other.c.next_try_at_ms.between(NOW + 1, NOW + LONGEST_REST_MS))
            .where(other.c.attempts > 0, other.c.settled_recipients.is_(None))
        )
    )
    due = or_(delivery.c.next_try_at_ms <= NOW, delivery.c.next_try_at_ms > NOW + LONGEST_REST_MS)
    return (
        select(
            delivery.c.alert_id, delivery.c.channel, delivery.c.attempts, delivery.c.settled_recipients, alerts.c.body
        )
        .join(alerts, alerts.c.alert_id == delivery.c.alert_id)
        .where(delivery.c.state == "pending", _free(), due)
        .where(or_(alerts.c.expires_at_ms > NOW, undelivered.about_money()))
        .where(or_(delivery.c.settled_recipients.is_not(None), delivery.c.channel.not_in(quiet)))
        .where(true() if everywhere else delivery.c.channel.in_(bindparam("channels", expanding=True)))
        .where(alerts.c.severity == Severity.CRITICAL.value if only_critical else true())
        .order_by(delivery.c.channel, alerts.c.created_at_ms, delivery.c.alert_id)
        .limit(bindparam("most"))
    )
