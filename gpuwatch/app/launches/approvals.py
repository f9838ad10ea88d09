"""What the owner allows: approvals of single quotes. Works with and without a running daemon."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.market.offers import OfferView, offer_view
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import (
    build_adapters,
    http_client,
    monotonic,
    new_id,
    open_store,
    open_store_read_only,
    real_now,
)
from gpuwatch.bootstrap.job_building import job_shells
from gpuwatch.bootstrap.keeper_building import obligation_file, obligations_at
from gpuwatch.bootstrap.provider_access import has_credentials, identified_account, label_lengths, not_rentable
from gpuwatch.bootstrap.rules import commissions_of
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch
from gpuwatch.domain.launches.life.owner_decisions import AgentEnvelope, Approval, ApprovalState, is_approval_id
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.provider_account import other_account_reason
from gpuwatch.engine.launches.following.strays import LostLaunches
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.launches.renting.owner_decisions import (
    ApprovalHandler,
    ApprovalOutcome,
    ApprovalReply,
    ApprovalTerms,
    Approver,
)
from gpuwatch.engine.launches.renting.prerequisite_gate import why_held
from gpuwatch.engine.launches.renting.requoter import BalanceCache
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


# --- approvals --------------------------------------------------------------------------------------------------------


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an answer. `changed`: this call decided; `conflict`: it was decided otherwise before."""

    approval: Approval
    reply: ApprovalReply
    changed: bool
    conflict: bool

    @property
    def outcome(self) -> ApprovalOutcome:
        """As of the first time: the same answer again is no failure."""
        if self.reply.changed or self.conflict:
            return self.reply.outcome
        is_denied = self.approval.state is ApprovalState.DENIED
        return ApprovalOutcome.DENIED if is_denied else ApprovalOutcome.RENTED


def approve(
    settings: Settings, approval_id: str, *, actor: str, envelope: AgentEnvelope | None = None
) -> ApprovalAnswer:
    """Rent the quoted offer at its price or less, and wait for the provider's answer. Repeating it changes nothing.

    Args:
        actor: who answers and how, such as "web page (password)".
        envelope: an agent answers, within what it may spend; None: the owner does.

    Raises:
        UsageError: no such approval, or the settings no longer allow it.
        StoreError: nothing was started, or the store holds what was started.
    """
    return _answered(settings, approval_id, actor, ApprovalState.APPROVED, "", envelope)


def deny(settings: Settings, approval_id: str, why: str = "", *, actor: str) -> ApprovalAnswer:
    """Deny the quoted offer, so that it is not requested again for a day. Raises UsageError, StoreError."""
    return _answered(settings, approval_id, actor, ApprovalState.DENIED, why)


def _answered(
    settings: Settings,
    approval_id: str,
    actor: str,
    decision: ApprovalState,
    why: str,
    envelope: AgentEnvelope | None = None,
) -> ApprovalAnswer:
    with open_store(settings) as store, http_client(settings) as http:
        before = _known_approval(store, approval_id)
        action = f"approval {approval_id} {decision.value}{f': {why}' if why else ''}"
        audit = audit_event(actor, action, subject=approval_id, watch=before.watch)
        handler = build_approval_handler(settings, store, http)
        if decision is ApprovalState.APPROVED:
            reply = handler.approve(approval_id, Approver(actor=actor, audit=audit, envelope=envelope))
        else:
            reply = handler.deny(approval_id, why, audit)
        after = SqlApprovalRepository(store).get(approval_id) or before
    state = after.state_at(real_now())
    conflict = not reply.changed and state is not decision
    return ApprovalAnswer(
        approval=after, reply=reply, changed=reply.changed and state is not ApprovalState.OPEN, conflict=conflict
    )


def approval_of(settings: Settings, approval_id: str) -> Approval:
    """One approval. Raises UsageError: there is none; StoreError."""
    with open_store_read_only(settings) as store:
        return _known_approval(store, approval_id)


def _known_approval(store: Database, approval_id: str) -> Approval:
    approval = SqlApprovalRepository(store).get(approval_id) if is_approval_id(approval_id) else None
    if approval is None:
        raise ResourceNotFound(f"there is no approval {clean(approval_id, 40)!r}; see: gpuwatch approvals list")
    return approval


def recent_approvals(settings: Settings) -> list[Approval]:
    """Open approvals and those of the last week, newest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlApprovalRepository(store).recent(real_now())


def open_approvals(settings: Settings, now: datetime) -> list[Approval]:
    """Those that await a decision, newest first. Raises StoreError."""
    return [approval for approval in recent_approvals(settings) if approval.state_at(now) is ApprovalState.OPEN]


def request_terms(settings: Settings) -> ApprovalTerms:
    """What applies to a request for approval by a person or an agent."""
    return ApprovalTerms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=ZoneInfo(settings.timezone),
        commissions=commissions_of(settings),
        unable=not_rentable(settings),
    )


def build_approval_handler(settings: Settings, store: Database, http: HttpClient) -> ApprovalHandler:
    """The approval handler for an open store. It sends no request before a decision."""
    accounts: dict[str, str] = {}
    terms = ApprovalTerms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=ZoneInfo(settings.timezone),
        commissions=commissions_of(settings),
        label_lengths=label_lengths(settings.providers),
        accounts=lambda: accounts,
    )
    return ApprovalHandler(
        SqlApprovalRepository(store),
        watches_that_rent(settings, store),
        terms,
        market_of=lambda name: _adapter(settings, http, name).market,
        executor_of=lambda name, watch: _executor(settings, store, http, name, watch, accounts),
        clock=real_now,
    )


def watches_that_rent(settings: Settings, store: Database) -> dict[str, Watch]:
    """The watches by name, and those of the queued jobs, at the highest price that their limits allow."""
    now = real_now()
    waiting = [job for job in SqlJobRepository(store).open_jobs() if job.state is JobState.QUEUED]
    of_jobs = [waiting_job_watch(job, price_cap(job), now) for job in waiting]
    return {watch.name: watch for watch in (*settings.watches, *of_jobs)}


def _adapter(settings: Settings, http: HttpClient, name: str) -> Adapter:
    if name not in settings.providers:
        raise UsageError(f"{name} is no longer enabled in the settings; nothing was rented")
    return build_adapters(settings, http, [name])[name]


def _executor(
    settings: Settings, store: Database, http: HttpClient, name: str, watch: str, accounts: dict[str, str]
) -> LaunchExecutor:
    """The provider context for renting; its account is recorded in `accounts`."""
    adapter = _adapter(settings, http, name)
    if adapter.launcher is None:
        raise UsageError(f"gpuwatch cannot rent at {name}")
    if not has_credentials(settings.providers[name]):
        raise UsageError(f"there is no key for {name}, so gpuwatch cannot rent there; see: gpuwatch providers")
    account = identified_account(settings, store, adapter.launcher, real_now())
    elsewhere = [launch for launch in SqlLaunchRepository(store).alive(name) if account.is_elsewhere(launch)]
    if (reason := other_account_reason(elsewhere)) is not None:
        raise UsageError(f"nothing was rented: {reason}")
    if lacks := why_held(SqlHolds(store), name, real_now(), is_job=Purpose.of(watch).job is not None):
        raise UsageError(f"nothing was rented: {lacks}")
    if lost := _lost_launches(settings, store, name):
        raise UsageError(f"nothing was rented: {lost}")
    accounts[name] = account.identify(real_now())
    balance = BalanceCache(adapter.launcher, monotonic)
    balance.refresh()
    commission, obligations = settings.providers[name].commission, obligation_file(settings)
    scopes, key = SqlSkippedScopes(store), job_shells(settings).public_key
    context = ProviderContext(
        adapter.launcher,
        adapter.market,
        commission,
        balance,
        obligations=obligations,
        scopes=scopes,
        public_key=key,
    )
    return LaunchExecutor(
        SqlLaunchRepository(store, obligations),
        {name: context},
        LaunchAlerts(new_id, {adapter.name: adapter}),
        real_now,
        settings.budget,
    )


def _lost_launches(settings: Settings, store: Database, name: str) -> str | None:
    """Recall launches that only the keeper's file still has; return why nothing can be rented, or None."""
    obligations = partial(obligations_at, name, obligation_file(settings), store)
    lost = LostLaunches(SqlLaunchRepository(store), name, obligations)
    lost.recall(real_now())  # those with an instance now hold the reservation
    return lost.reason()


class ApprovalView(JsonView, frozen=True, kw_only=True):
    """One approval."""

    ask_id: str
    watch: str
    state: ApprovalState
    created_at: Moment
    deadline: Moment
    answered_at: Moment | None
    launch_id: str | None
    words: str | None
    offer: OfferView


def approval_view(ask: Approval, now: datetime) -> ApprovalView:
    """An approval as other programs see it."""
    offer = offer_view(ask.match.offer, ask.match.price)
    return ApprovalView.of(ask, ask_id=ask.approval_id, state=ask.state_at(now), offer=offer)


class ReplyView(JsonView, frozen=True, kw_only=True):
    """What followed from an answer to an approval."""

    outcome: ApprovalOutcome
    text: str
    launch_id: str | None = None
    instance_id: str | None = None


def reply_view(reply: ApprovalReply) -> ReplyView:
    """The result of `gpuwatch approvals approve` and `gpuwatch approvals deny`."""
    return ReplyView.of(reply) if reply.launch is None else ReplyView.of(reply, reply.launch)


class ApprovalAnswerView(ReplyView, frozen=True, kw_only=True):
    """An answer to an approval, and the approval as it is now."""

    state: ApprovalState
    changed: Annotated[bool, Meta(description="False: it was decided the same way before.")]
    approval: ApprovalView


def approval_answer_view(answer: ApprovalAnswer) -> ApprovalAnswerView:
    """The result of an answer as other programs see it."""
    approval = approval_view(answer.approval, real_now())
    return ApprovalAnswerView.of(
        reply_view(answer.reply),
        outcome=answer.outcome,
        launch_id=answer.approval.launch_id,
        state=approval.state,
        changed=answer.changed,
        approval=approval,
    )
