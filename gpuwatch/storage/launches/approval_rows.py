"""Approvals as rows. An approval leaves `open` by one UPDATE, in the transaction of the answer's effects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, or_, select, update

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal
from gpuwatch.domain.launches.life.admission import BlockReason, WatchBlock
from gpuwatch.domain.launches.life.owner_decisions import QUIET_AFTER_DENIAL, AgentEnvelope, Approval, ApprovalState
from gpuwatch.domain.launches.money.budgets import WHOLE_LIFE, remaining_microusd
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.market.money import price_text, usd
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.alerts.pauses import lock_reservations
from gpuwatch.storage.launches.launch_admission import reserve
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.launch_side_tables import approval
from gpuwatch.storage.setup.stored_values import from_ms, to_ms

LAPSED_WITHIN = timedelta(hours=1)
RECENT_FOR = timedelta(days=7)
_ENVELOPE_WINDOW = timedelta(hours=24)
_MATCH_DECODER = msgspec.json.Decoder(Match)
_RENT_DECODER = msgspec.json.Decoder(RentTerms)
_OPEN = ApprovalState.OPEN.value


class _RolledBack(Exception):
    """Ends a transaction and rolls it back."""

    def __init__(self, refusal: LaunchRefusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def create_approval(
    connection: Connection, intent: Intent, budget: Budget, deadline: datetime, now: datetime, ignores_denials: bool
) -> Approval | LaunchRefusal | None:
    """Request approval of an intent's first offer that can be rented now, in the caller's transaction.

    Limits and budget are tested by a reservation that is rolled back: nothing is requested that could not be approved.

    Args:
        intent: its id becomes the id of the approval.
        ignores_denials: the watch fires anew, so denied offers may be requested again.

    Returns:
        The approval: a new one, or the open one for the same offer if that costs no more now. A refusal: why nothing
        can be rented. None: the owner recently denied every one of these offers.
    """
    lock_reservations(connection)
    _expire_late(connection, intent.watch.name, now, ignores_denials and intent.rent is None)
    # a person who asks for the offer itself may have changed their mind; for an agent its denial stays
    denied = set() if ignores_denials else _denied_identities(connection, intent.watch.name, now)
    candidates = [match for match in (intent.match, *intent.alternatives) if match.offer.identity not in denied]
    if not candidates:
        return None
    rentable = _first_rentable(connection, intent, candidates, budget, now)
    if isinstance(rentable, LaunchRefusal):
        return rentable
    return _request(connection, intent, rentable, deadline, now)


def approval_block(
    connection: Connection, watch: str, offers: Sequence[Match], now: datetime, zone: tzinfo
) -> WatchBlock | None:
    """Return why a watch that asks waits: for the owner's answer, or after it; None: it would ask now."""
    waiting = select(approval).where(
        approval.c.watch == watch, approval.c.state == _OPEN, approval.c.deadline_ms > to_ms(now)
    )
    row = connection.execute(waiting.order_by(approval.c.deadline_ms)).first()
    if row is not None:
        one = _approval_of_row(row)
        until = format_moment(one.deadline, zone)
        text = f"it awaits your approval until {until}: gpuwatch approvals approve {one.approval_id}"
        return WatchBlock(BlockReason.APPROVAL, text)
    denied = _denied_identities(connection, watch, now)
    if offers and all(match.offer.identity in denied for match in offers):
        hours = round(QUIET_AFTER_DENIAL.total_seconds() / 3600)
        return WatchBlock(BlockReason.DENIED, f"you denied every one of these offers in the last {hours} hours")
    return None


def is_request_due(connection: Connection, watch: str, fired_at: datetime, seen_at: datetime, now: datetime) -> bool:
    """Whether a watch that fired then still needs an approval.

    Either none was requested when it fired, because nothing could be rented; or the owner recently approved a quote
    that was no longer valid, and none was requested since. The rows alone say so: it survives a restart and a rollback.
    What was offered before that answer, at `seen_at`, may be that very quote: a later poll decides.
    """
    of_watch, fired_ms = approval.c.watch == watch, to_ms(fired_at)
    was_open = and_(
        approval.c.deadline_ms > fired_ms,
        or_(approval.c.answered_at_ms.is_(None), approval.c.answered_at_ms >= fired_ms),
    )
    refused_ms = (
        select(func.max(approval.c.answered_at_ms))
        .where(of_watch, approval.c.state == ApprovalState.REFUSED.value)
        .where(approval.c.answered_at_ms.between(to_ms(now - LAPSED_WITHIN) + 1, to_ms(now)))
        .scalar_subquery()
    )
    query = select(
        _exists(of_watch, or_(approval.c.created_at_ms >= fired_ms, was_open)),
        refused_ms,
        _exists(of_watch, approval.c.created_at_ms >= refused_ms),
    )
    was_requested, last_refused_ms, requested_since = connection.execute(query).one()
    return not was_requested or (
        last_refused_ms is not None and not requested_since and to_ms(seen_at) > last_refused_ms
    )


def _exists(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(approval.c.approval_id).where(*conditions).correlate(None).exists()


def _expire_late(connection: Connection, watch: str, now: datetime, ignores_denials: bool) -> None:
    is_late = and_(approval.c.watch == watch, approval.c.state == _OPEN, approval.c.deadline_ms <= to_ms(now))
    connection.execute(update(approval).where(is_late).values(state=ApprovalState.EXPIRED.value))
    if ignores_denials:
        is_muted = and_(approval.c.watch == watch, approval.c.muted_until_ms.is_not(None))
        connection.execute(update(approval).where(is_muted).values(muted_until_ms=None))


def _denied_identities(connection: Connection, watch: str, now: datetime) -> set[object]:
    """Return identities whose approval the owner recently denied.

    A period that ends later than is possible from now was written before the clock was set back; it is ignored.
    """
    now_ms, last_ms = to_ms(now), to_ms(now + QUIET_AFTER_DENIAL)
    query = select(approval).where(approval.c.watch == watch, approval.c.muted_until_ms.between(now_ms, last_ms))
    return {_approval_of_row(row).match.offer.identity for row in connection.execute(query)}


def _first_rentable(
    connection: Connection, intent: Intent, candidates: Sequence[Match], budget: Budget, now: datetime
) -> Match | LaunchRefusal:
    first, *others = candidates
    savepoint = connection.begin_nested()
    attempt = msgspec.structs.replace(intent, match=first, alternatives=tuple(others))
    reserved = reserve(connection, attempt, budget, now)
    savepoint.rollback()
    if isinstance(reserved, LaunchRefusal):
        return reserved
    return reserved[1]


def _request(connection: Connection, intent: Intent, match: Match, deadline: datetime, now: datetime) -> Approval:
    for row in connection.execute(
        select(approval).where(approval.c.watch == intent.watch.name, approval.c.state == _OPEN)
    ):
        open_approval = _approval_of_row(row)
        if open_approval.match.offer.identity != match.offer.identity:
            continue
        is_dearer = match.price.price_microusd_hour > open_approval.match.price.price_microusd_hour
        if not is_dearer and open_approval.rent == intent.rent:
            return open_approval
        price = price_text(usd(match.price.price_microusd_hour), most=6)
        what = f"it now costs ${price} an hour" if is_dearer else "it was asked for on other terms"
        reason = f"{what}; a new approval is {intent.launch_id}"
        _close(connection, open_approval.approval_id, ApprovalState.REFUSED, reason, now)
    new_approval = Approval(
        approval_id=intent.launch_id,
        watch=intent.watch.name,
        match=match,
        created_at=now,
        deadline=deadline,
        rent=intent.rent,
    )
    connection.execute(insert(approval), _row(new_approval))
    return new_approval


def _close(connection: Connection, approval_id: str, state: ApprovalState, reason: str, now: datetime) -> bool:
    is_open = and_(approval.c.approval_id == approval_id, approval.c.state == _OPEN)
    values = {"state": state.value, "answered_at_ms": to_ms(now), "message": clean(reason)}
    return connection.execute(update(approval).where(is_open).values(**values)).rowcount == 1


class SqlApprovalRepository:
    """Approvals, for the handlers of the owner's answers, and for their lists."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, approval_id: str) -> Approval | None:
        """Return one approval. Raises StoreError."""
        with self._database.read() as connection:
            row = connection.execute(select(approval).where(approval.c.approval_id == approval_id)).first()
            return None if row is None else _approval_of_row(row)

    def is_of_agent(self, launch_id: str) -> bool:
        """Whether an agent approved this launch. Raises StoreError."""
        of_agent = and_(approval.c.launch_id == launch_id, approval.c.agent_microusd.is_not(None))
        with self._database.read() as connection:
            return connection.execute(select(approval.c.approval_id).where(of_agent)).first() is not None

    def recent(self, now: datetime) -> list[Approval]:
        """Return open approvals and those of the last week; newest first. Raises StoreError."""
        is_recent = or_(approval.c.state == _OPEN, approval.c.created_at_ms >= to_ms(now - RECENT_FOR))
        with self._database.read() as connection:
            query = select(approval).where(is_recent).order_by(approval.c.created_at_ms.desc(), approval.c.approval_id)
            return [_approval_of_row(row) for row in connection.execute(query)]

    def open_deadlines(self, now: datetime) -> dict[str, datetime]:
        """Return the open approvals and their deadlines, the earliest first. Raises StoreError."""
        is_open = and_(approval.c.state == _OPEN, approval.c.deadline_ms > to_ms(now))
        query = select(approval.c.approval_id, approval.c.deadline_ms).where(is_open).order_by(approval.c.deadline_ms)
        with self._database.read() as connection:
            return {approval_id: from_ms(at_ms) for approval_id, at_ms in connection.execute(query)}

    def approve(
        self,
        approval_id: str,
        intent: Intent,
        budget: Budget,
        now: datetime,
        audit: OutboxAlert | None = None,
        envelope: AgentEnvelope | None = None,
    ) -> Launch | LaunchRefusal | None:
        """Store the approval and reserve its launch, both or neither. Raises StoreError.

        A refusal leaves it open. None: it is no longer open, or has expired.

        Args:
            envelope: an agent approves it, within what it may spend; None: the owner does.
        """
        is_in_time = and_(
            approval.c.approval_id == approval_id, approval.c.state == _OPEN, approval.c.deadline_ms > to_ms(now)
        )
        values = {
            "state": ApprovalState.APPROVED.value,
            "answered_at_ms": to_ms(now),
            "launch_id": intent.launch_id,
        }
        try:
            with self._database.write() as connection:
                lock_reservations(connection)
                if connection.execute(update(approval).where(is_in_time).values(**values)).rowcount != 1:
                    return None
                launch = _raise_refusal(reserve(connection, intent, budget, now))
                if envelope is not None and not launch.dry_run:
                    _spend(connection, approval_id, launch, envelope, now)
                add_audit(connection, audit)
                return launch
        except _RolledBack as undone:
            return undone.refusal

    def mark_refused(self, approval_id: str, reason: str, now: datetime, audit: OutboxAlert | None = None) -> bool:
        """Close an approval whose quote is no longer valid; False: it was not open. Raises StoreError."""
        with self._database.write() as connection:
            is_closed = _close(connection, approval_id, ApprovalState.REFUSED, reason, now)
            if is_closed:
                add_audit(connection, audit)
            return is_closed

    def deny(self, approval_id: str, reason: str, now: datetime, audit: OutboxAlert | None = None) -> bool:
        """Store the owner's denial, also after the deadline; False: it was already answered. Raises StoreError."""
        is_unanswered = and_(
            approval.c.approval_id == approval_id, approval.c.state.in_((_OPEN, ApprovalState.EXPIRED.value))
        )
        values = {
            "state": ApprovalState.DENIED.value,
            "answered_at_ms": to_ms(now),
            "muted_until_ms": to_ms(now + QUIET_AFTER_DENIAL),
            "message": clean(reason) or None,
        }
        with self._database.write() as connection:
            is_denied = connection.execute(update(approval).where(is_unanswered).values(**values)).rowcount == 1
            if is_denied:
                add_audit(connection, audit)
            return is_denied


def _spend(connection: Connection, approval_id: str, launch: Launch, envelope: AgentEnvelope, now: datetime) -> None:
    """Count it into the envelope, in the transaction that reserves it; others wait for the same lock."""
    since = approval.c.answered_at_ms > to_ms(now - _ENVELOPE_WINDOW)
    query = select(approval.c.watch, approval.c.agent_microusd).where(since, approval.c.agent_microusd.is_not(None))
    mine = owner_of(launch.watch)
    used = sum(microusd for watch, microusd in connection.execute(query) if owner_of(watch) == mine)
    cost = remaining_microusd(launch, now, WHOLE_LIFE)
    if (refusal := envelope.refusal(used, cost)) is not None:
        raise _RolledBack(refusal)
    connection.execute(update(approval).where(approval.c.approval_id == approval_id).values(agent_microusd=cost))


def _raise_refusal(reserved: tuple[Launch, Match] | LaunchRefusal) -> Launch:
    if isinstance(reserved, LaunchRefusal):
        raise _RolledBack(reserved)
    return reserved[0]


def _row(request: Approval) -> dict[str, Any]:
    return {
        "approval_id": request.approval_id,
        "watch": request.watch,
        "provider": request.provider,
        "created_at_ms": to_ms(request.created_at),
        "deadline_ms": to_ms(request.deadline),
        "state": request.state.value,
        "offer": msgspec.json.encode(request.match).decode(),
        "listed_microusd_hour": request.match.price.listed_microusd_hour,
        "price_microusd_hour": request.match.price.price_microusd_hour,
        "rent": None if request.rent is None else msgspec.json.encode(request.rent).decode(),
    }


def _approval_of_row(row: Row[Any]) -> Approval:
    return Approval(
        approval_id=row.approval_id,
        watch=row.watch,
        match=_MATCH_DECODER.decode(row.offer),
        created_at=from_ms(row.created_at_ms),
        deadline=from_ms(row.deadline_ms),
        state=ApprovalState(row.state),
        answered_at=from_ms(row.answered_at_ms),
        launch_id=row.launch_id,
        words=row.message,
        rent=None if row.rent is None else _RENT_DECODER.decode(row.rent),
    )
