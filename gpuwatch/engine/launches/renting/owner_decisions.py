"""Decisions of the owner about launches: approvals are requested and carried out.

- `request_approval`: a firing watch with `action = "ask"` asks its owner instead of renting.
- `ApprovalHandler` carries out an approval for exactly the quoted machine, at the quoted price or less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.alerts import offer_texts as texts
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import AgentEnvelope, Approval, ApprovalState, is_approval_id
from gpuwatch.domain.market.money import MICRO, Commission, price_text, usd
from gpuwatch.domain.market.offer import Offer, clean, gpus_text, priced_units
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.match import NO_COMMISSION, failures, match_of, price_for
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.domain.watches.windows import is_open
from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders
from gpuwatch.engine.launches.renting.requoter import payable_match
from gpuwatch.engine.market.watch_search import PAGE_ROWS, find_offer, queries_for, why_incomplete
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import ProviderError, ResourceNotFound, UsageError
from gpuwatch.ports import Completeness, Market, OutboxAlert, Query, UnitOfWork

if TYPE_CHECKING:
    from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
    from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository

log = logging.getLogger(__name__)

_QUOTE_LIVES_S = 60.0  # from the new quote to the order, without another search that could return other prices
_ROUNDED_UP = Context(prec=28, rounding=ROUND_CEILING)
_NOT_REACHED = (EndReason.NOT_SENT, EndReason.NOT_CHECKED)


class ApprovalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to all approvals."""

    budget: Budget
    dry_run: bool
    zone: tzinfo
    commissions: Mapping[str, Commission]
    unable: UnavailableProviders = UnavailableProviders()  # providers at which nothing can be rented
    label_lengths: Mapping[str, int] = {}  # provider → maximum length of a label there
    accounts: Callable[[], Mapping[str, str]] = dict  # by provider, as far as known

    def unable_for(self, watch: Watch) -> UnavailableProviders:
        """Return where nothing can be rented for a watch; a command needs none of gpuwatch's accounts."""
        return UnavailableProviders() if watch.action is Action.COMMAND else self.unable


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a firing watch's alert. `ask` None: no approval was requested, and `did` states why."""

    decision: Decision  # the offer to approve comes first
    ask: Approval | None
    did: str
    why_not: str = ""  # why none was requested, as the rest of a sentence

    @property
    def once_key(self) -> str:
        """At most one message per request, whatever becomes of it; without one, at most one per firing."""
        if self.ask is not None:
            return f"approval:{self.ask.approval_id}"
        fired_at = self.decision.memory.fired_at or self.decision.decided_at
        return f"not-asked:{self.decision.watch[:150]}:{fired_at:%Y%m%dT%H%M%S.%f}"


def request_approval(
    uow: UnitOfWork,
    watch: Watch,
    decision: Decision,
    intent_of: Callable[[Sequence[Match]], Intent],
    terms: ApprovalTerms,
) -> ApprovalRequest | None:
    """Request approval of the cheapest offer that can be rented. None: the owner denied them all; send no alert.

    Args:
        decision: a decision that fires, or that fired before without a valid request.
        intent_of: returns an intent with a new id for some offers.
    """
    now = decision.decided_at
    able = terms.unable.able(decision.matches, terms.dry_run)
    if not able:
        return _not_asked(decision, terms.unable.why_none(decision.matches))
    quotes = [quote for match in able if (quote := payable_quote(match, watch, terms.commissions)) is not None]
    if not quotes:
        why = "the minimum bid is over the limit"
        return ApprovalRequest(decision=decision, ask=None, did=texts.BID_OVER_LIMIT, why_not=why)
    deadline = now + timedelta(seconds=(watch.launch or LaunchSpec()).approve_within_s)
    ignores_denials = decision.reason is DecisionReason.FIRST_MATCH
    got = uow.request_approval(intent_of(quotes), terms.budget, deadline, now, ignores_denials)
    if got is None:
        if decision.fires:
            log.info("watch %s: every offer was denied recently; no alert", watch.name, extra={"watch": watch.name})
        return None
    if isinstance(got, LaunchRefusal):
        return _not_asked(decision, got.said)
    mine = next(quote for quote in quotes if quote.offer.identity == got.match.offer.identity)
    others = tuple(match for match in decision.matches if match.offer.identity != mine.offer.identity)
    first = msgspec.structs.replace(decision, matches=(mine, *others))
    return ApprovalRequest(decision=first, ask=got, did=_did(got, terms))


def _not_asked(decision: Decision, why: str) -> ApprovalRequest:
    return ApprovalRequest(decision=decision, ask=None, did=texts.NOT_ASKED.format(why=why), why_not=why)


def payable_quote(match: Match, watch: Watch, commissions: Mapping[str, Commission]) -> Match | None:
    """Return the offer at the price to pay; None: its minimum bid is over the limit."""
    return payable_match(match, watch, commissions.get(match.offer.provider, NO_COMMISSION))


def _did(ask: Approval, terms: ApprovalTerms) -> str:
    text = texts.AWAITS_APPROVAL.format(deadline=format_moment(ask.deadline, terms.zone))
    return texts.APPROVAL_IN_DRY_RUN.format(text=text) if terms.dry_run else text


class ApprovalOutcome(StrEnum):
    """The result of an approval or a denial."""

    RENTED = "rented"
    WOULD_RENT = "would_rent"  # dry run
    DENIED = "denied"
    REFUSED = "refused"  # nothing was rented
    NO_ANSWER = "no_answer"  # the provider did not answer


class ApprovalReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the owner. `text` is one line; `launch` is set if one was started."""

    outcome: ApprovalOutcome
    text: str
    launch: Launch | None = None
    changed: bool = True  # False: it was decided before


class Approver(msgspec.Struct, frozen=True, kw_only=True):
    """Who approves.

    Attributes:
        actor: who, and through which face; stored with the launch.
        audit: stored with what the answer changes.
        envelope: an agent approves, within what it may spend; None: the owner does.
    """

    actor: str | None = None
    audit: OutboxAlert | None = None
    envelope: AgentEnvelope | None = None


_NOBODY = Approver()


class ApprovalHandler:
    """Carries out approvals and denials. Works beside a daemon and without one.

    Args:
        market_of: returns the market of a provider.
        executor_of: returns what rents at a provider for a watch, by their names. Both raise UsageError if the settings
            do not allow it.
    """

    def __init__(
        self,
        approvals: SqlApprovalRepository,
        watches: Mapping[str, Watch],
        terms: ApprovalTerms,
        market_of: Callable[[str], Market],
        executor_of: Callable[[str, str], LaunchExecutor],
        clock: Callable[[], datetime],
    ) -> None:
        self._approvals = approvals
        self._watches = watches
        self._terms = terms
        self._market_of = market_of
        self._executor_of = executor_of
        self._clock = clock

    def approve(self, approval_id: str, by: Approver = _NOBODY) -> ApprovalReply:
        """Rent the quoted offer at the quoted price or less, or nothing.

        Raises:
            UsageError: there is no such approval, or the settings no longer allow it.
            StoreError: the store failed; `gpuwatch launches` shows whether the launch was started.
        """
        ask = self._known(approval_id)
        if ask.state_at(self._clock()) is not ApprovalState.OPEN:
            return self._closed(ask)
        watch = self._watch_of(ask)
        query = _query(watch, ask, self._terms)
        if query is None:
            return self._refused(ask, f"watch {watch.name!r} no longer accepts this rental type", by.audit)
        market = self._market_of(ask.provider)
        executor = None if self._terms.dry_run else self._executor_of(ask.provider, ask.watch)
        try:
            answer, offer = find_offer(market.search, query, ask.match.offer.identity)
        except ProviderError as error:
            return self._unanswered(ask, str(error))
        if offer is None:
            if answer.completeness is not Completeness.COMPLETE:
                return self._unanswered(ask, f"it {why_incomplete(answer) or 'answered only in part'}")
            machine = ask.match.offer.machine_id or "unknown"
            return self._refused(ask, f"machine {machine} no longer offers it", by.audit)
        offer = msgspec.structs.replace(offer, observed_at=answer.observed_at)  # no further search before the order
        quote = _quote(ask.match, watch, offer, self._terms, self._clock())
        if isinstance(quote, str):
            return self._refused(ask, quote, by.audit)
        return self._begin(ask, watch_bound_to_quote(ask, watch), quote, executor, by)

    def deny(self, approval_id: str, why: str = "", audit: OutboxAlert | None = None) -> ApprovalReply:
        """Deny it. Raises UsageError (there is no such approval), StoreError."""
        ask = self._known(approval_id)
        if not self._approvals.deny(approval_id, why, self._clock(), audit):
            return self._closed(self._known(approval_id))
        if ask.rent is not None:
            return ApprovalReply(outcome=ApprovalOutcome.DENIED, text="nothing was rented")
        silent = f"watch {ask.watch!r} does not propose this offer again for 24 h, unless it is re-armed"
        return ApprovalReply(outcome=ApprovalOutcome.DENIED, text=f"denied; {silent}")

    def _known(self, approval_id: str) -> Approval:
        ask = self._approvals.get(approval_id) if is_approval_id(approval_id) else None
        if ask is None:
            raise ResourceNotFound(f"there is no approval {clean(approval_id, 40)!r}; see: gpuwatch approvals list")
        return ask

    def _watch_of(self, ask: Approval) -> Watch:
        watch = ask.own_watch or self._watches.get(ask.watch)
        if watch is None:
            raise UsageError(f"watch {ask.watch!r} is no longer in the settings; nothing was rented")
        if watch.action is not Action.ASK:
            raise UsageError(f'watch {ask.watch!r} now has action = "{watch.action.value}"; nothing was rented')
        spec = watch.launch or LaunchSpec()
        if spec.stop_outside and not is_open(watch.active, self._clock(), self._terms.zone):
            raise UsageError(
                f"watch {ask.watch!r} would end it immediately: it is outside `active` (stop_outside = true)"
            )
        return watch

    def _begin(
        self,
        ask: Approval,
        watch: Watch,
        quote: Match,
        executor: LaunchExecutor | None,
        by: Approver,
    ) -> ApprovalReply:
        intent = Intent(
            watch=watch,
            match=quote,
            launch_id=ask.approval_id,
            dry_run=executor is None,
            label_lengths=self._terms.label_lengths,
            accounts=self._terms.accounts(),
            started_by=by.actor,
        )
        got = self._approvals.approve(ask.approval_id, intent, self._terms.budget, self._clock(), by.audit, by.envelope)
        if got is None:
            return self._closed(self._known(ask.approval_id))
        if isinstance(got, LaunchRefusal):
            text = f"not rented: {got.text}; the approval stays open until {self._until(ask)}"
            return ApprovalReply(outcome=ApprovalOutcome.REFUSED, text=text)
        failpoint("intent.after_commit")
        if executor is None:
            text = f"dry run: would rent {_described(quote)} (dry_run = true); nothing was rented"
            return ApprovalReply(outcome=ApprovalOutcome.WOULD_RENT, text=text, launch=got)
        try:
            return _reply(executor.execute(got, watch, (quote,)), quote)
        except LaunchConflict as error:
            text = f"{error}; the daemon has taken over: gpuwatch launches"
            return ApprovalReply(outcome=ApprovalOutcome.NO_ANSWER, text=text, launch=got)

    def _closed(self, ask: Approval) -> ApprovalReply:
        return closed_reply(ask, ask.state_at(self._clock()), self._terms.zone)

    def _refused(self, ask: Approval, words: str, audit: OutboxAlert | None) -> ApprovalReply:
        if not self._approvals.mark_refused(ask.approval_id, words, self._clock(), audit):
            return self._closed(self._known(ask.approval_id))
        return ApprovalReply(outcome=ApprovalOutcome.REFUSED, text=f"not rented: {words}")

    def _unanswered(self, ask: Approval, words: str) -> ApprovalReply:
        text = f"not rented: the price could not be checked ({words}); the approval stays open until {self._until(ask)}"
        return ApprovalReply(outcome=ApprovalOutcome.NO_ANSWER, text=text)

    def _until(self, ask: Approval) -> str:
        return format_moment(ask.deadline, self._terms.zone)


def closed_reply(ask: Approval, state: ApprovalState, zone: tzinfo) -> ApprovalReply:
    """Return the reply about an approval that was decided before."""
    text = f"it was already {state.value}"
    if state is ApprovalState.EXPIRED:
        text = f"it expired at {format_moment(ask.deadline, zone)}"
    text += f", launch {ask.launch_id}" if ask.launch_id else ""
    text += f": {ask.words}" if ask.words else ""
    return ApprovalReply(outcome=ApprovalOutcome.REFUSED, text=f"{text}; nothing changed", changed=False)


def watch_bound_to_quote(ask: Approval, watch: Watch) -> Watch:
    """Return the watch, restricted so that it cannot rent another machine or pay more than was quoted."""
    offer, price = ask.match.offer, ask.match.price
    most = _ROUNDED_UP.divide(Decimal(price.price_microusd_hour), Decimal(MICRO * priced_units(offer.gpu_count)))
    spec = watch.launch or LaunchSpec()
    return msgspec.structs.replace(
        watch,
        max_price_usd_gpu_hour=min(watch.max_price_usd_gpu_hour, most),
        launch=msgspec.structs.replace(spec, max_tries=1, quote_ttl_s=max(spec.quote_ttl_s, _QUOTE_LIVES_S)),
    )


def _query(watch: Watch, ask: Approval, terms: ApprovalTerms) -> Query | None:
    """Return the query for offers of that size at any price, to report a risen price. None: other rental type."""
    offer = ask.match.offer
    commission = terms.commissions.get(offer.provider, NO_COMMISSION)
    for query in queries_for(watch, commission, PAGE_ROWS):
        if query.spot == offer.spot:
            return msgspec.structs.replace(
                query,
                gpus=(offer.gpu,),
                count_min=offer.gpu_count,
                count_max=offer.gpu_count,
                max_listed_usd_hour=None,
            )
    return None


def _quote(was: Match, watch: Watch, offer: Offer, terms: ApprovalTerms, now: datetime) -> Match | str:
    """Return the offer at the price to pay now, or a text: why it differs from the quote."""
    listed = match_of(watch, offer, price_for(watch, offer, terms.commissions))
    quote = payable_quote(listed, watch, terms.commissions)
    if quote is None:
        return "the minimum bid is now over the limit"
    if quote.price.price_microusd_hour > was.price.price_microusd_hour:
        return f"it now costs {_exact(quote)} an hour; the quote was {_exact(was)}"
    broken = failures(watch, offer, listed.price, now)
    return f"it no longer matches the watch ({broken[0].text})" if broken else quote


def _exact(match: Match) -> str:
    """Format a price to the micro-dollar, so that the smallest rise is visible."""
    return f"${price_text(usd(match.price.price_microusd_hour), most=6)}"


def _reply(launch: Launch, quote: Match) -> ApprovalReply:
    state = launch.state
    if state in {LaunchState.STARTING, LaunchState.RUNNING}:
        text = f"rented {_described(quote)}: launch {launch.launch_id}, instance {launch.instance_id}"
        return ApprovalReply(outcome=ApprovalOutcome.RENTED, text=text, launch=launch)
    if state in {LaunchState.FAILED, LaunchState.STOPPING, LaunchState.ENDED}:
        outcome = ApprovalOutcome.NO_ANSWER if launch.ended_because(*_NOT_REACHED) else ApprovalOutcome.REFUSED
        text = f"not rented: {launch.end_reason or state.value} (launch {launch.launch_id})"
        return ApprovalReply(outcome=outcome, text=text, launch=launch)
    text = (
        f"{launch.provider} did not answer: launch {launch.launch_id} may have been rented. gpuwatch does not repeat "
        f"the order; `gpuwatch run` searches for its label {launch.label}"
    )
    return ApprovalReply(outcome=ApprovalOutcome.NO_ANSWER, text=text, launch=launch)


def _described(match: Match) -> str:
    offer, price = match.offer, match.price
    kind = " (spot)" if offer.spot else ""
    return (
        f"{gpus_text(offer.gpu, offer.gpu_count)}{kind}, machine {offer.machine_id or 'unknown'} at {offer.provider}, "
        f"${price_text(usd(price.price_microusd_hour))} an hour (listed ${price_text(usd(price.listed_microusd_hour))})"
    )
