"""What an agent may ask for: a launch, which its owner approves unless it fits the envelope, and the end of one.

Everything takes the owner's own path: a quote with a deadline, the admission with its budgets, one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.launches.approvals import (
    ApprovalAnswerView,
    ApprovalView,
    approval_answer_view,
    approval_view,
    approve,
    open_approvals,
    request_terms,
)
from gpuwatch.app.launches.launches import known_launch, open_launches
from gpuwatch.app.launches.requests.rent import RentRefusal, RentRequest, quote_rent
from gpuwatch.app.launches.stop import request_stop
from gpuwatch.app.watches.agent_watch import is_agents
from gpuwatch.app.watches.check import check_markets
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import new_id, open_store, real_now
from gpuwatch.bootstrap.provider_access import label_lengths
from gpuwatch.domain.alerts import offer_texts
from gpuwatch.domain.alerts.alert import OutboxAlert, outbox_alert
from gpuwatch.domain.alerts.launch_texts import ASKED_TO_END
from gpuwatch.domain.launches.launch import Intent
from gpuwatch.domain.launches.life.launch_record import LaunchView, launch_view
from gpuwatch.domain.launches.life.owner_decisions import AgentEnvelope, Approval, ApprovalState
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match, WatchMemory
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.alerts.offer_alerts import offer_alert
from gpuwatch.engine.launches.renting.owner_decisions import (
    ApprovalRequest,
    request_approval,
)
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.storage.watches.running_hosts import has_leader

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

AGENT = "agent (gpuwatch mcp)"
_WHY_LENGTH = 200
_OPEN_S = 900.0  # a quote without a watch, as one of a watch
_MOST_OPEN = 10  # quotes that await the owner at a time; an agent requests no more


class LaunchRequestView(JsonView, frozen=True, kw_only=True):
    """What became of a request: it awaits the owner's approval, or was rented within the envelope."""

    awaits_owner: bool
    text: str
    approval: ApprovalView
    answer: ApprovalAnswerView | None  # None: nobody has answered


class EndRequestView(JsonView, frozen=True, kw_only=True):
    """What became of a request to end a launch."""

    ending: bool
    text: str
    launch: LaunchView


def request_launch(settings: Settings, watch_name: str, offer_id: str | None, why: str) -> LaunchRequestView:
    """Ask for the best offer of a watch with `action = "ask"`, or for a certain one, at its price now.

    Within `[mcp] max_usd_day` the agent approves it itself; otherwise the owner gets the quote.

    Raises:
        UsageError: no such watch, it does not ask, or nothing can be requested now.
        StoreError: nothing was requested.
    """
    watch = watch_named(settings, watch_name)
    if watch.action is not Action.ASK or watch.launch is None or watch.launch.max_runtime_s is None:
        raise UsageError(f'watch {watch.name!r}: an agent may use only watches with action = "ask" and a max_runtime')
    _require_room(settings)
    (watch,) = current_limits(settings, [watch], keep=False, from_daemon=True).watches
    found = _found(settings, watch, offer_id)
    with open_store(settings) as store:
        envelope = _envelope(settings, store, watch)
        request = _request(settings, store, watch, found, why, is_reported=envelope is None)
        if request.ask is None:
            raise UsageError(f"nothing was requested: {request.did}")
        return _decided(settings, store, watch, request, why, envelope)


def request_rent(settings: Settings, rent: RentRequest, why: str) -> LaunchRequestView:
    """Ask for one offer without a watch (`gpuwatch rent`), under the envelope of `request_launch`.

    Raises:
        UsageError: nothing can be requested now; if the offer is gone, the nearest is named.
        ProviderStateUnknown: the provider did not answer.
        StoreError: nothing was requested.
    """
    _require_room(settings)
    terms = msgspec.structs.replace(rent.terms, open_s=_OPEN_S)  # the owner is not at the keyboard
    quote = quote_rent(settings, msgspec.structs.replace(rent, terms=terms), respects_denials=True)
    if isinstance(quote, RentRefusal):
        raise UsageError(f"nothing was requested: {quote.text}")
    watch, ask = quote.approval.own_watch, quote.approval
    assert watch is not None  # it was made for this offer
    decision = Decision(
        watch=watch.name, reason=DecisionReason.REPEAT_DUE, decided_at=ask.created_at, matches=(ask.match,)
    )
    with open_store(settings) as store:
        envelope = _envelope(settings, store, watch)
        request = ApprovalRequest(decision=decision, ask=ask, did=offer_texts.AGENT_RENTS)
        if envelope is None:
            _tell(settings, store, watch, request, why)
        return _decided(settings, store, watch, request, why, envelope)


def _require_room(settings: Settings) -> None:
    waiting = [ask for ask in open_approvals(settings, real_now()) if owner_of(ask.watch) == settings.owner]
    if len(waiting) >= _MOST_OPEN:
        raise UsageError(f"nothing was requested: {_MOST_OPEN} quotes await the owner's answer already")


def _decided(
    settings: Settings,
    store: Database,
    watch: Watch,
    request: ApprovalRequest,
    why: str,
    envelope: AgentEnvelope | None,
) -> LaunchRequestView:
    """Approve a quote within the envelope, or leave it to the owner."""
    answer, asked = None, request.ask
    assert asked is not None  # the caller requested it
    if envelope is not None:
        try:
            answer = approve(settings, asked.approval_id, actor=_actor(why), envelope=envelope)
        finally:
            after = SqlApprovalRepository(store).get(asked.approval_id) or asked
            if after.state_at(real_now()) is ApprovalState.OPEN:  # the owner decides after all
                _tell(settings, store, watch, request, why)
    asked = asked if answer is None else answer.approval
    return LaunchRequestView(
        awaits_owner=asked.state_at(real_now()) is ApprovalState.OPEN,
        text=request.did if answer is None else answer.reply.text,
        approval=approval_view(asked, real_now()),
        answer=None if answer is None else approval_answer_view(answer),
    )


def request_end(settings: Settings, launch_id: str, why: str) -> EndRequestView:
    """End a launch that an agent approved; of another one, report to the owner that an agent asks.

    Raises:
        UsageError: no such launch.
        StoreError: nothing was changed.
    """
    now = real_now()
    with open_launches(settings) as repository:
        launch = known_launch(repository, launch_id)
    if owner_of(launch.watch) != settings.owner:
        raise ResourceNotFound(f"launch {launch_id} is another owner's")
    with open_store(settings) as store:
        is_approved = SqlApprovalRepository(store).is_of_agent(launch_id)
        if not is_approved:
            alert = LaunchAlerts(new_id).of(ASKED_TO_END, launch, now, why=_said(why))
            Outbox(store).enqueue(alert)
    if not is_approved:
        text = "the owner rented it and decides: an alert was sent"
        return EndRequestView(ending=False, text=text, launch=launch_view(launch, now))
    after, changed = request_stop(settings, launch_id, actor=_actor(why))
    text = "it is being ended" if changed else f"it is {after.state.value} already"
    return EndRequestView(ending=True, text=text, launch=launch_view(after, now))


def _envelope(settings: Settings, store: Database, watch: Watch) -> AgentEnvelope | None:
    """What an agent may spend by this watch without the owner; None: nothing.

    What may be rented was said by the owner alone, and what is rented must end in time: a daemon sees to that.
    """
    if not settings.mcp.max_usd_day or is_agents(watch.name):
        return None
    if not settings.dry_run and not has_leader(store, role_of(settings.owner)):
        return None
    return AgentEnvelope(max_microusd=int(settings.mcp.max_usd_day * MICRO))


def _found(settings: Settings, watch: Watch, offer_id: str | None) -> Sequence[Match]:
    """The offers of a watch, polled now; only the named one, if any."""
    checked = check_markets(settings, [watch], watch.providers or (), keep=True)
    matches = checked.matches[watch.name]
    wanted = [match for match in matches if offer_id is None or match.offer.offer_id == offer_id]
    if wanted:
        return wanted
    errors = "; ".join(one.report.error for one in checked.providers if one.report.error)
    what = "no offer fits it now" if offer_id is None else f"offer {clean(offer_id, 64)!r} is not among its matches now"
    raise UsageError(f"watch {watch.name!r}: {what}{f' ({errors})' if errors else ''}")


def _request(
    settings: Settings, store: Database, watch: Watch, found: Sequence[Match], why: str, *, is_reported: bool
) -> ApprovalRequest:
    now = real_now()
    decision = Decision(
        watch=watch.name,
        reason=DecisionReason.REPEAT_DUE,  # what the owner denied stays denied
        decided_at=now,
        matches=tuple(found),
        memory=WatchMemory(fired_at=now),
    )
    with SqlDecisionStore(store).open() as uow:
        request = request_approval(
            uow, watch, decision, lambda left: _intent(settings, watch, left), request_terms(settings)
        )
        if request is None:
            raise UsageError("nothing was requested: the owner denied these offers within the last day")
        if is_reported and request.ask is not None:
            uow.enqueue(_alert(settings, watch, request, request.ask, why))
    return request


def _intent(settings: Settings, watch: Watch, left: Sequence[Match]) -> Intent:
    first, *others = left
    return Intent(
        watch=watch,
        match=first,
        launch_id=new_id(),
        dry_run=settings.dry_run,
        alternatives=tuple(others),
        label_lengths=label_lengths(settings.providers),
    )


def _tell(settings: Settings, store: Database, watch: Watch, request: ApprovalRequest, why: str) -> None:
    if request.ask is not None:
        Outbox(store).enqueue(_alert(settings, watch, request, request.ask, why))


def _alert(settings: Settings, watch: Watch, request: ApprovalRequest, ask: Approval, why: str) -> OutboxAlert:
    alert = offer_alert(
        watch,
        request.decision,
        alert_id=new_id(),
        zone=ZoneInfo(settings.timezone),
        did=request.did,
        approval=ask,
    )
    alert = msgspec.structs.replace(alert, why=offer_texts.AGENT_ASKS.format(why=_said(why)))
    return outbox_alert(alert, request.once_key, ask.deadline)


def _actor(why: str) -> str:
    return f"{AGENT}: {_said(why)}"


def _said(why: str) -> str:
    """What an agent gave as its reason: text, like that of any host."""
    return clean(why, _WHY_LENGTH) or "no reason given"
