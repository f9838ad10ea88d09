"""The rent of one launch: down a ladder of candidates, each asked for once, until one is made or none is left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.events import (
    AnswerLost,
    ClockReading,
    InstanceCreated,
    NothingCreated,
)
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
from gpuwatch.engine.launch_alerts import LaunchAlerts
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
)
from gpuwatch.ports import (
    Created,
    Launcher,
    LaunchRepository,
    Market,
)

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
    """One provider, as the actor needs it.

    Args:
        is_another: (instance, launch) → was that instance there before, and is not this launch's?
    """

    launcher: Launcher
    market: Market
    commission: Commission
    balance: BalanceCache | None = None
    belongs_to_another: Callable[[str, str], bool] = lambda instance_id, launch_id: False


class OrderResultRecorder:
    """Writes down what came of an order: only this process knows the provider's answer."""

    def __init__(
        self, repository: LaunchRepository, launch_alerts: LaunchAlerts, clock: Callable[[], datetime], budget: Budget
    ) -> None:
        self.repository = repository
        self.clock = clock
        self.budget = budget
        self._executor = TransitionExecutor(repository, launch_alerts)

    def made(self, launch: Launch, created: Created) -> Launch:
        """There is a contract."""
        return self._tell(launch, InstanceCreated(created.instance_id, created.starting))

    def lost(self, launch: Launch, error: OutcomeUnknown) -> Launch:
        """It may exist. Nothing is sent again; `follow` looks for the label."""
        log.warning("launch %s: its fate is not known: %s", launch.launch_id, error)
        return self._tell(launch, AnswerLost(str(error), error.instance_id))

    def failed(self, launch: Launch, reason: str) -> Launch:
        """Nothing was made, and the owner, who was told that it is being rented, hears that it is not."""
        log.warning("launch %s failed: %s", launch.launch_id, reason)
        return self._tell(launch, NothingCreated(reason))

    def _tell(self, launch: Launch, event: InstanceCreated | AnswerLost | NothingCreated) -> Launch:
        """What is to be destroyed, `follow` destroys: it looks at once."""
        now = self.clock()
        launch, _ = self._executor.apply_to_latest(launch, event, ClockReading(now, now))
        return launch


class CandidateLoop:
    """One launch's way over its candidates: the reserved one first, then the next best, each at its price of now."""

    def __init__(self, uow_factory: OrderResultRecorder, context: ProviderContext, watch: Watch) -> None:
        self._uow_factory = uow_factory
        self._context = context
        self._watch = watch
        self._spec = watch.launch or LaunchSpec()
        self._quotes = Requoter(context.market, context.commission, watch, uow_factory.clock)

    def try_candidates(self, launch: Launch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        """Ask for one after the other until one is made, its fate is not known, or there is no sense in going on.

        Raises:
            LaunchMoved: somebody else took the launch over; nothing more was done.
            StoreError: what happened could not be written down.
        """
        mine = [match for match in candidates if match.offer.provider == launch.provider]
        mine.sort(key=lambda match: match.offer.offer_id != launch.offer_id)
        until = self._uow_factory.clock() + timedelta(seconds=self._spec.try_for_s)
        problem = EndReason.OFFERS_GONE.text()
        for match in mine[: self._spec.max_tries]:
            try:
                launch, outcome = self._try(launch, match, observed_at)
            except ProviderError as error:
                return self._uow_factory.failed(launch, EndReason.NOT_CHECKED.text(str(error)))
            if outcome is None:
                return launch
            problem = outcome
            if self._uow_factory.clock() >= until:
                break
        return self._uow_factory.failed(launch, problem)

    def _try(self, launch: Launch, match: Match, observed_at: datetime) -> tuple[Launch, str | None]:
        """One candidate. With a text: nothing was made, and the next may be asked for. Raises ProviderError."""
        quoted = self._quotes.of(match, observed_at)
        if quoted is None:
            return launch, EndReason.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or dearer")
        try:
            pointed = self._point_at(launch, quoted)
            if isinstance(pointed, LaunchRefusal):
                return launch, _END_OF.get(pointed.reason, EndReason.BUDGET).text(pointed.text)
            failpoint("launch.before_look")
            barred = self._barred(pointed)
        except LaunchConflict:  # another daemon, or the owner, has it: nothing was made so far
            return self._uow_factory.failed(
                launch, EndReason.NOT_SENT.text("it was taken over before it was asked for")
            ), None
        if barred is not None:
            return self._uow_factory.failed(pointed, barred), None
        return self._ask(pointed, quoted)

    def _barred(self, launch: Launch) -> str | None:
        """The last look before money is spent."""
        poor = self._context.balance.why_unaffordable(launch.price_microusd_hour) if self._context.balance else None
        if poor is not None:
            return EndReason.NO_CREDIT.text(poor)
        refusal = self._uow_factory.repository.may_send(launch, self._uow_factory.clock())
        return None if refusal is None else _END_OF.get(refusal.reason, EndReason.PAUSED).text(refusal.text)

    def _ask(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """Send the order, once. With a text: nothing was made, and the next candidate may be asked for."""
        failpoint("launch.before_send")
        try:
            return self._keep(launch, self._create(launch, match)), None
        except OfferGone as error:
            return launch, EndReason.OFFERS_GONE.text(str(error))
        except OrderRateLimited as error:
            return self._uow_factory.failed(launch, EndReason.RATE_LIMITED.text(str(error))), None
        except OrderRefused as error:
            if error.kind is RefusalKind.BID_TOO_LOW:
                return launch, EndReason.BID_LOST.text(str(error))
            return self._uow_factory.failed(launch, _REFUSED[error.kind].text(str(error))), None
        except OutcomeUnknown as error:
            failpoint("launch.no_answer")
            return self._uow_factory.lost(launch, error), None

    def _create(self, launch: Launch, match: Match) -> Created:
        """An answer that names an instance which was there before names another's: ours is looked for by its label."""
        try:
            created = self._context.launcher.create(build_order(launch, match, self._watch))
        except OutcomeUnknown as error:
            if error.instance_id is None or not self._context.belongs_to_another(error.instance_id, launch.launch_id):
                raise
            raise OutcomeUnknown(str(error)) from error
        except ProviderError as error:  # no word for an order: what was sent, and how far it came, is not known
            raise OutcomeUnknown(str(error)) from error
        if self._context.belongs_to_another(created.instance_id, launch.launch_id):
            raise OutcomeUnknown(f"its answer names instance {created.instance_id}, which was there before")
        return created

    def _point_at(self, launch: Launch, match: Match) -> Launch | LaunchRefusal:
        """Make the row say which offer is asked for and at what price, before it is."""
        facts = offer_fields(match, self._watch)
        if all(getattr(launch, name) == value for name, value in facts.items()):
            return launch
        uow_factory = self._uow_factory
        return uow_factory.repository.retarget(launch, match, self._watch, uow_factory.budget, uow_factory.clock())

    def _keep(self, launch: Launch, created: Created) -> Launch:
        failpoint("launch.after_send")
        kept = self._uow_factory.made(launch, created)
        failpoint("launch.after_record")
        return kept
