"""Requests an approval: a firing watch with `action = "ask"` asks its owner instead of renting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, tzinfo

import msgspec

from gpuwatch.domain.launches.launch import Intent, LaunchRefusal
from gpuwatch.domain.launches.life.approval import Approval
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.match import NO_COMMISSION
from gpuwatch.domain.watches.watch import Action, Budget, LaunchSpec, Watch
from gpuwatch.engine.launches.renting.launch_orders import UnavailableProviders
from gpuwatch.engine.launches.renting.requoter import payable_match
from gpuwatch.ports import UnitOfWork

log = logging.getLogger(__name__)


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
        why = terms.unable.why_none(decision.matches)
        return ApprovalRequest(decision=decision, ask=None, did=f"Not asked: {why}.")
    quotes = [quote for match in able if (quote := payable_quote(match, watch, terms.commissions)) is not None]
    if not quotes:
        return ApprovalRequest(
            decision=decision, ask=None, did="No approval requested: the minimum bid is over the limit."
        )
    deadline = now + timedelta(seconds=(watch.launch or LaunchSpec()).approve_within_s)
    ignores_denials = decision.reason is DecisionReason.FIRST_MATCH
    got = uow.request_approval(intent_of(quotes), terms.budget, deadline, now, ignores_denials)
    if got is None:
        if decision.fires:
            log.info("watch %s: every offer was denied recently; no alert", watch.name, extra={"watch": watch.name})
        return None
    if isinstance(got, LaunchRefusal):
        return ApprovalRequest(decision=decision, ask=None, did=f"Not asked: {got.text}.")
    mine = next(quote for quote in quotes if quote.offer.identity == got.match.offer.identity)
    others = tuple(match for match in decision.matches if match.offer.identity != mine.offer.identity)
    first = msgspec.structs.replace(decision, matches=(mine, *others))
    return ApprovalRequest(decision=first, ask=got, did=_did(got, terms))


def payable_quote(match: Match, watch: Watch, commissions: Mapping[str, Commission]) -> Match | None:
    """Return the offer at the price to pay; None: its minimum bid is over the limit."""
    return payable_match(match, watch, commissions.get(match.offer.provider, NO_COMMISSION))


def _did(ask: Approval, terms: ApprovalTerms) -> str:
    asked = f"It awaits your approval until {format_moment(ask.deadline, terms.zone)}."
    dry = " An approval rents nothing and reports what it would rent (dry_run = true)." if terms.dry_run else ""
    return f"{asked} gpuwatch rents nothing without your approval.{dry}"
