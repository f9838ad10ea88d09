"""What watches decided, as rows: one for each change, bounded per watch, and pruned with the history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, func, select

from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.domain.market.offer import storable_text
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import watch_decision
from gpuwatch.storage.setup.stored_values import AnyRow, from_ms, to_ms, upsert

MAX_PER_WATCH = 2000
_TEXT_LENGTH = 400
_of_watch = watch_decision.c.watch == bindparam("of_watch")
_too_many = (
    select(watch_decision.c.at_ms)
    .where(_of_watch)
    .order_by(watch_decision.c.at_ms.desc())
    .offset(MAX_PER_WATCH)
    .limit(1)
    .scalar_subquery()
)
_DELETE_OLDEST = delete(watch_decision).where(_of_watch, watch_decision.c.at_ms <= _too_many)
_newest_at = (
    select(watch_decision.c.watch, func.max(watch_decision.c.at_ms).label("at_ms"))
    .group_by(watch_decision.c.watch)
    .subquery()
)
_NEWEST = select(watch_decision).join(
    _newest_at, and_(watch_decision.c.watch == _newest_at.c.watch, watch_decision.c.at_ms == _newest_at.c.at_ms)
)


def record_decision(connection: Connection, watch: str, decision: PastDecision) -> None:
    """Add a row, and delete the oldest ones above the maximum."""
    row = {
        "watch": watch,
        "at_ms": to_ms(decision.at),
        "reason": decision.reason,
        "message": storable_text(decision.text, _TEXT_LENGTH),
        "limit_microusd_gpu_hour": decision.limit_microusd_gpu_hour,
    }
    upsert(connection, watch_decision, row)
    connection.execute(_DELETE_OLDEST, {"of_watch": watch})


def newest_decisions(connection: Connection) -> Mapping[str, PastDecision]:
    """The last decision of each watch."""
    return {row.watch: _decision_of(row) for row in connection.execute(_NEWEST)}


def decisions_since(database: Database, watch: str, since: datetime, until: datetime) -> list[PastDecision]:
    """The decisions of a watch, oldest first: the one in force at the begin, and those up to and at the end.

    Raises:
        StoreError: the store cannot be read.
    """
    begin = (
        select(func.max(watch_decision.c.at_ms))
        .where(watch_decision.c.watch == watch, watch_decision.c.at_ms <= to_ms(since))
        .scalar_subquery()
    )
    query = (
        select(watch_decision)
        .where(watch_decision.c.watch == watch, watch_decision.c.at_ms <= to_ms(until))
        .where(watch_decision.c.at_ms >= func.coalesce(begin, 0))
        .order_by(watch_decision.c.at_ms)
    )
    with database.read() as connection:
        return [_decision_of(row) for row in connection.execute(query)]


def next_decision_at(database: Database, watch: str, after: datetime) -> datetime | None:
    """When a watch next decided something else; None: it has not. Raises StoreError."""
    query = select(func.min(watch_decision.c.at_ms)).where(
        watch_decision.c.watch == watch, watch_decision.c.at_ms > to_ms(after)
    )
    with database.read() as connection:
        return from_ms(connection.execute(query).scalar())


def _decision_of(row: AnyRow) -> PastDecision:
    return PastDecision(
        at=from_ms(row.at_ms),
        reason=row.reason,
        text=row.message,
        limit_microusd_gpu_hour=row.limit_microusd_gpu_hour,
    )
