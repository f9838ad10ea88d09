"""The owner's actions from a page, the API or a chat: idempotent, and each change leaves an audit event.

A button may be pressed twice, late, or by two people: repeating a decision changes nothing, the opposite is a conflict.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.launches import approvals as pauses_app
from gpuwatch.app.launches.approvals import approval_json, approve, deny, reply_json
from gpuwatch.app.launches.launches import known_launch
from gpuwatch.app.launches.stop import mark_stopping, own_tool_text, stop
from gpuwatch.bootstrap import new_id, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.keeper_building import obligation_file
from gpuwatch.domain.alerts.service_texts import CHANGED_BY_OWNER
from gpuwatch.domain.launches.life.owner_decisions import Approval, ApprovalState, is_approval_id
from gpuwatch.domain.market.offer import clean
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome, ApprovalReply, closed_reply
from gpuwatch.errors import GpuwatchError, ResourceNotFound, UsageError
from gpuwatch.ports import OutboxAlert
from gpuwatch.redaction import redact
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.alerts.pauses import PauseTable

log = logging.getLogger(__name__)

_MAX_LENGTH = 300  # of a text in an audit event
_WISHES = {True: ApprovalState.APPROVED, False: ApprovalState.DENIED}
_OUTCOMES = {True: ApprovalOutcome.RENTED, False: ApprovalOutcome.DENIED}


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an answer. `changed`: this call decided; `conflict`: it was decided otherwise before."""

    approval: Approval
    reply: ApprovalReply
    changed: bool
    conflict: bool


def answer_approval(
    settings: Settings, approval_id: str, *, is_approved: bool, actor: str, why: str = ""
) -> ApprovalAnswer:
    """Approve (`is_approved`) or deny a quote. Repeating the same answer changes nothing.

    Args:
        actor: who answers and how, such as "web page (password)".

    Raises:
        UsageError: no such approval, or the settings no longer allow it.
        StoreError: the store shows whether a launch was started.
    """
    before, decided = approval_of(settings, approval_id), _WISHES[is_approved]
    state = before.state_at(real_now())
    if state is not ApprovalState.OPEN:
        reply, after = closed_reply(before, state, ZoneInfo(settings.timezone)), before
    else:
        reply = approve(settings, approval_id) if is_approved else deny(settings, approval_id, why)
        after = approval_of(settings, approval_id)
        state = after.state_at(real_now())
    if not reply.changed:
        if state is decided:  # the same answer again is no failure
            reply = msgspec.structs.replace(reply, outcome=_OUTCOMES[is_approved])
        return ApprovalAnswer(approval=after, reply=reply, changed=False, conflict=state is not decided)
    decision = "approved" if is_approved else "denied"
    record_audit(
        settings, actor, f"approval {approval_id} {decision}: {reply.text}", subject=approval_id, watch=before.watch
    )
    return ApprovalAnswer(approval=after, reply=reply, changed=state is not ApprovalState.OPEN, conflict=False)


def approval_of(settings: Settings, approval_id: str) -> Approval:
    """One approval. Raises UsageError: there is none; StoreError."""
    with open_store_read_only(settings) as store:
        approval = SqlApprovalRepository(store).get(approval_id) if is_approval_id(approval_id) else None
    if approval is None:
        raise ResourceNotFound(f"there is no approval {approval_id[:40]!r}; see: gpuwatch asks")
    return approval


def approval_answer_json(answer: ApprovalAnswer) -> dict[str, Any]:
    """JSON of an answer: as in `gpuwatch approve --json`, and the current approval."""
    now = real_now()
    return {
        **reply_json(answer.reply),
        "launch_id": answer.approval.launch_id,
        "state": answer.approval.state_at(now).value,
        "changed": answer.changed,
        "approval": approval_json(answer.approval, now),
    }


# --- launches ---------------------------------------------------------------------------------------------------------


def request_stop(settings: Settings, launch_id: str, *, actor: str) -> tuple[Launch, bool]:
    """Mark a launch to be ended, and end it in a separate thread; a daemon does so, too.

    Returns:
        The launch, and whether this call changed it: a launch that is ending or over stays as it is.

    Raises:
        UsageError: no such launch, or a command carries it out.
        StoreError: nothing was marked.
    """
    with open_store(settings) as store:
        repository = SqlLaunchRepository(store, obligation_file(settings))
        before = known_launch(repository, launch_id)
        if before.is_by_command and not before.is_over:
            raise UsageError(own_tool_text(before))
        after = mark_stopping(repository, before)
    changed = after.version != before.version
    if changed:
        record_audit(settings, actor, f"launch {launch_id} stopped", subject=launch_id, watch=before.watch)
    if not after.is_over:
        threading.Thread(target=_end, args=(settings, launch_id), name=f"stop {launch_id}", daemon=True).start()
    return after, changed


def _end(settings: Settings, launch_id: str) -> None:
    try:
        stop(settings, [launch_id], lambda line: log.info("%s", line))
    except GpuwatchError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("cannot end launch %s; gpuwatch run keeps trying", launch_id)


# --- pauses -----------------------------------------------------------------------------------------------------------


def pause(
    settings: Settings, watch: str | None, for_s: float | None, why: str, *, actor: str
) -> tuple[PauseTable, bool]:
    """Pause renting; repeating the same pause changes nothing. Raises UsageError (no such watch), StoreError."""
    now = real_now()
    active_pauses = [active for active in pauses_app.pauses(settings).in_force(now) if active.watch == watch]
    if active_pauses and for_s is None and active_pauses[0].until is None:
        return pauses_app.pauses(settings), False
    pauses = pauses_app.pause(settings, watch, for_s, why)
    subject = "renting" if watch is None else f"watch {watch}"
    record_audit(
        settings, actor, f"{subject} paused{f': {why}' if why else ''}", subject=watch or "renting", watch=watch
    )
    return pauses, True


def resume(settings: Settings, watch: str | None, *, actor: str) -> tuple[PauseTable, bool]:
    """Allow renting again. Raises UsageError (no such watch), StoreError."""
    resumed, pauses = pauses_app.resume(settings, watch)
    if resumed:
        subject = "renting" if watch is None else f"watch {watch}"
        record_audit(settings, actor, f"{subject} resumed", subject=watch or "renting", watch=watch)
    return pauses, resumed


# --- audit ------------------------------------------------------------------------------------------------------------


def record_audit(settings: Settings, actor: str, action: str, *, subject: str, watch: str | None = None) -> None:
    """Store the action as an event that no channel sends. Raises StoreError: the action is done, but not recorded."""
    alert = audit_alert(actor, action, subject=subject, watch=watch, alert_id=new_id(), now=real_now())
    log.info("%s, by %s", action, actor)
    with open_store(settings) as store:
        SqlLaunchRepository(store).enqueue(alert)


def audit_alert(actor: str, what: str, *, subject: str, watch: str | None, alert_id: str, now: datetime) -> OutboxAlert:
    """Return the event: who did what, and through which interface.

    Args:
        actor: such as "web page (password)".
        what: one line, such as "launch k3f7q2mzt5ab stopped".
    """
    return CHANGED_BY_OWNER.outbox(
        alert_id,
        now,
        subject=subject,
        watch=watch,
        what=clean(redact(what), _MAX_LENGTH),
        actor=clean(redact(actor), _MAX_LENGTH),
    )
