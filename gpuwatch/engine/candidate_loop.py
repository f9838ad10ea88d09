"""Rents one launch: requests one candidate after the other, each once, until an instance is created or none is left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.events import AnswerLost, ClockReading, InstanceCreated, NothingCreated
from gpuwatch.domain.launches.hook_time import longest_hook_s
from gpuwatch.domain.launches.launch import (
    EndReason,
    Launch,
    LaunchConflict,
    LaunchRefusal,
    RefusalReason,
    offer_fields,
)
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Budget, LaunchSpec, Watch
from gpuwatch.engine.balance_cache import BalanceCache
from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.engine.orders import build_order
from gpuwatch.engine.requoter import Requoter
from gpuwatch.engine.transition_executor import TransitionExecutor
from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
    StoreError,
)
from gpuwatch.ports import Launcher, LaunchRepository, Market
from gpuwatch.ports.obligations import NO_OBLIGATION_LOG, ObligationLog

log = logging.getLogger(__name__)

_REFUSED: Mapping[RefusalKind, EndReason] = {
    RefusalKind.NO_CREDIT: EndReason.NO_CREDIT,
    RefusalKind.KEY: EndReason.KEY,
    RefusalKind.BAD_ORDER: EndReason.BAD_ORDER,
    RefusalKind.BID_TOO_LOW: EndReason.BID_LOST,
    RefusalKind.NOT_SENT: EndReason.NOT_SENT,
    RefusalKind.OTHER: EndReason.REFUSED,
}

_END_OF = {
    RefusalReason.OFFER_TAKEN: EndReason.OFFERS_GONE,
    RefusalReason.MACHINE_FAILED: EndReason.OFFERS_GONE,
    RefusalReason.PAUSED: EndReason.PAUSED,
}


class ProviderContext(msgspec.Struct, frozen=True):
    """What belongs to one provider when renting. Without a reconciler (a command beside a daemon) nothing is listed.

    `why_nothing`: why nothing at all is rented, in one line; empty: something may be.
    """

    launcher: Launcher
    market: Market
    commission: Commission
    balance: BalanceCache | None = None
    reconciler: LaunchReconciler | None = None
    obligations: ObligationLog = NO_OBLIGATION_LOG
    why_nothing: str = ""

    def not_ready(self, price_microusd_hour: int) -> str | None:
        """Why nothing may be rented here at this price now, in one line; None: it may. Raises StoreError.

        What was rented before must be reconciled first, and the balance must cover one hour.
        """
        if self.why_nothing:
            return self.why_nothing
        unreconciled = self.reconciler.not_ready() if self.reconciler else None
        return unreconciled or self.why_unaffordable(price_microusd_hour)

    def why_unaffordable(self, price_microusd_hour: int) -> str | None:
        """Why the balance does not cover one hour at this price; None: it does, or it is unknown."""
        return self.balance.why_unaffordable(price_microusd_hour) if self.balance else None

    def belongs_to_another(self, instance_id: str, launch_id: str) -> bool:
        """Was this instance listed before, and not as this launch's?"""
        return self.reconciler is not None and self.reconciler.belongs_to_another(instance_id, launch_id)


class CandidateLoop:
    """One launch's candidates: the reserved one first, then the next best, each at its current price."""

    def __init__(
        self,
        repository: LaunchRepository,
        transitions: TransitionExecutor,
        context: ProviderContext,
        watch: Watch,
        budget: Budget,
        clock: Callable[[], datetime],
    ) -> None:
        self._repository = repository
        self._transitions = transitions
        self._context = context
        self._watch = watch
        self._budget = budget
        self._clock = clock
        self._spec = watch.launch or LaunchSpec()
        self._requoter = Requoter(context.market, context.commission, watch, clock)

    def try_candidates(self, launch: Launch, candidates: Sequence[Match]) -> Launch:
        """Request one after the other until an instance is created, an answer is lost, or going on makes no sense.

        Args:
            candidates: the reserved offer first, then the next best of the same provider.

        Raises:
            LaunchConflict: somebody else took the launch over; nothing more was done.
            StoreError: what happened could not be stored.
        """
        until = self._clock() + timedelta(seconds=self._spec.try_for_s)
        problem = EndReason.OFFERS_GONE.text()
        for match in candidates[: self._spec.max_tries]:
            try:
                launch, outcome = self._try(launch, match)
            except ProviderError as error:
                return self._failed(launch, EndReason.NOT_CHECKED.text(str(error)))
            if outcome is None:
                return launch
            problem = outcome
            if self._clock() >= until:
                break
        return self._failed(launch, problem)

    def _try(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """One candidate. With a text: nothing was created, and the next may be requested. Raises ProviderError."""
        quote = self._requoter.requote(match)
        if quote is None:
            return launch, EndReason.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or dearer")
        try:
            retargeted = self._retarget(launch, quote)
            if isinstance(retargeted, LaunchRefusal):
                return launch, _END_OF.get(retargeted.reason, EndReason.BUDGET).text(retargeted.text)
            failpoint("launch.before_look")
            refused = self._refused(retargeted)
        except LaunchConflict:  # another daemon, or the owner, has it: nothing was created so far
            return self._failed(launch, EndReason.NOT_SENT.text("it was taken over before it was asked for")), None
        if refused is not None:
            return self._failed(retargeted, refused), None
        return self._send(retargeted, quote)

    def _retarget(self, launch: Launch, match: Match) -> Launch | LaunchRefusal:
        """Make the row say which offer is requested and at what price, before the request."""
        fields = offer_fields(match, self._watch)
        if all(getattr(launch, name) == value for name, value in fields.items()):
            return launch
        return self._repository.retarget(launch, match, self._watch, self._budget, self._clock())

    def _refused(self, launch: Launch) -> str | None:
        """The last check before money is spent; None: nothing stands against it, and the keeper knows of it."""
        poor = self._context.why_unaffordable(launch.price_microusd_hour)
        if poor is not None:
            return EndReason.NO_CREDIT.text(poor)
        refusal = self._repository.may_send(launch, self._clock())
        if refusal is not None:
            return _END_OF.get(refusal.reason, EndReason.PAUSED).text(refusal.text)
        try:
            self._context.obligations.record_order(launch, longest_hook_s(self._watch.launch))
        except StoreError as error:  # without the database, nothing would end it
            return EndReason.NOT_SENT.text(str(error))
        return None

    def _send(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """Send the order, once. With a text: nothing was created, and the next candidate may be requested."""
        failpoint("launch.before_send")
        try:
            created = self._context.launcher.create(build_order(launch, match, self._watch))
        except OfferGone as error:
            return launch, EndReason.OFFERS_GONE.text(str(error))
        except OrderRateLimited as error:
            return self._failed(launch, EndReason.RATE_LIMITED.text(str(error))), None
        except OrderRefused as error:
            if error.kind is RefusalKind.BID_TOO_LOW:
                return launch, EndReason.BID_LOST.text(str(error))
            return self._failed(launch, _REFUSED[error.kind].text(str(error))), None
        except OutcomeUnknown as error:
            return self._lost(launch, str(error), error.instance_id), None
        except ProviderError as error:  # not an order's error: how far the request came is unknown
            return self._lost(launch, str(error)), None
        if self._context.belongs_to_another(created.instance_id, launch.launch_id):
            text = f"its answer names instance {created.instance_id}, which was there before"
            return self._lost(launch, text), None
        failpoint("launch.after_send")
        recorded = self._record(launch, InstanceCreated(created.instance_id, created.starting))
        failpoint("launch.after_record")
        return recorded, None

    def _lost(self, launch: Launch, error: str, instance_id: str | None = None) -> Launch:
        """It may have been created. An instance that was listed before is another launch's: the label finds ours."""
        failpoint("launch.no_answer")
        log.warning("launch %s: its outcome is unknown: %s", launch.launch_id, error)
        if instance_id is not None and self._context.belongs_to_another(instance_id, launch.launch_id):
            instance_id = None
        return self._record(launch, AnswerLost(error, instance_id))

    def _failed(self, launch: Launch, reason: str) -> Launch:
        """Nothing was created; the owner, who was alerted that it is being rented, gets an alert that it is not."""
        log.warning("launch %s failed: %s", launch.launch_id, reason)
        return self._record(launch, NothingCreated(reason))

    def _record(self, launch: Launch, event: InstanceCreated | AnswerLost | NothingCreated) -> Launch:
        """Store what only this process knows. The reconciler carries out a destroy that follows from it."""
        now = self._clock()
        launch, _ = self._transitions.apply_to_latest(launch, event, ClockReading(now, now))
        return launch
