"""Rents one launch: requests the candidates in order, each once, until an instance is created or none is left.

The candidates may belong to several providers. A refusal has a scope: no other candidate within it is requested; the
next candidate outside it is. An unknown outcome ends the launch's requests, because the order may have been carried
out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.launches.instance import LABEL_LENGTH, label_of
from gpuwatch.domain.launches.instances.end_rules import longest_hook_s
from gpuwatch.domain.launches.launch import (
    EndReason,
    Launch,
    LaunchConflict,
    LaunchRefusal,
    RefusalReason,
    offer_fields,
)
from gpuwatch.domain.launches.life.launch_events import AnswerLost, ClockReading, InstanceCreated, NothingCreated
from gpuwatch.domain.launches.life.refused_scopes import SkippedScope, refused_order, skipped_by, whole_provider
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.launches.renting.launch_orders import build_order
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.launches.renting.prerequisite_gate import PrerequisiteGate
from gpuwatch.engine.launches.renting.requoter import BalanceCache, Requoter
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import (
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
    RefusalScope,
    StoreError,
)
from gpuwatch.ports import EndMover, Launcher, Market
from gpuwatch.ports.remote import RemoteRefused
from gpuwatch.ports.store import NO_OBLIGATION_LOG, ObligationLog

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
    from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes

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
    RefusalReason.COOLING: EndReason.OFFERS_GONE,
    RefusalReason.PAUSED: EndReason.PAUSED,
}


class ProviderContext(msgspec.Struct, frozen=True):
    """What renting at one provider needs. Without a reconciler (a command beside a daemon) no instances are listed.

    `renting_fault`: why nothing can be rented at all, in one line; empty: renting is possible. `account_id`: the
    account of the key, once known. `scopes`: stores the scopes of refusals; None: a simulation. `public_key`: creates
    the key pair for the launch of a job and returns the public key.
    """

    launcher: Launcher
    market: Market
    commission: Commission
    balance: BalanceCache | None = None
    reconciler: LaunchReconciler | None = None
    obligations: ObligationLog = NO_OBLIGATION_LOG
    renting_fault: str = ""
    label_length: int = LABEL_LENGTH
    account_id: Callable[[], str | None] = lambda: None
    scopes: SqlSkippedScopes | None = None
    gate: PrerequisiteGate | None = None  # prerequisites of the first rent there
    public_key: Callable[[str], str] | None = None

    def job_key(self, launch: Launch) -> str | None:
        """Return the public key for a job's instance; None: the launch is not a job's. Raises GpuwatchError."""
        return None if launch.purpose.job is None or self.public_key is None else self.public_key(launch.launch_id)

    def not_ready(self, price_microusd_hour: int, watch: str) -> str | None:
        """Return why nothing can be rented here at this price for this watch now, or None. Raises StoreError.

        Earlier launches must be reconciled first, and the balance must cover one hour.
        """
        lacks = self.renting_fault or (
            self.gate.why_not(is_job=Purpose.of(watch).job is not None) if self.gate else None
        )
        if lacks:
            return lacks
        unreconciled = self.reconciler.not_ready() if self.reconciler else None
        return unreconciled or self.why_unaffordable(price_microusd_hour)

    def why_unaffordable(self, price_microusd_hour: int) -> str | None:
        """Return why the balance does not cover one hour at this price; None: it does, or it is unknown."""
        return self.balance.why_unaffordable(price_microusd_hour) if self.balance else None

    def belongs_to_another(self, instance_id: str, launch_id: str) -> bool:
        """Whether this instance was listed before, and not as this launch's."""
        return self.reconciler is not None and self.reconciler.belongs_to_another(instance_id, launch_id)


class _Refused(msgspec.Struct, frozen=True):
    """Nothing was created. `scope`: which other candidates to skip; None: only this offer.

    `comes_last`: a launch failed at its place lately, so it is tried again when no other candidate is left.
    """

    why: str
    scope: SkippedScope | None = None
    comes_last: bool = False


class CandidateLoop:
    """The candidates of one launch: the reserved one first, then the next best, each at its current price.

    Args:
        contexts: by provider; candidates of other providers are skipped.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        repository: SqlLaunchRepository,
        transitions: TransitionExecutor,
        contexts: Mapping[str, ProviderContext],
        watch: Watch,
        budget: Budget,
        *,
        clock: Callable[[], datetime],
        slots: LaunchSlots,
    ) -> None:
        self._slots = slots
        self._repository = repository
        self._transitions = transitions
        self._contexts = contexts
        self._watch = watch
        self._budget = budget
        self._clock = clock
        self._spec = watch.launch or LaunchSpec()
        self._requoters: dict[str, Requoter] = {}

    def try_candidates(self, launch: Launch, candidates: Sequence[Match]) -> Launch:
        """Request candidates until an instance is created, an answer is lost, or a limit is reached.

        Args:
            candidates: the reserved offer first, then the next best of any provider.

        Raises:
            LaunchConflict: another process took over the launch; nothing more was done.
            StoreError: the result could not be stored.
        """
        if launch.dry_run or launch.is_by_command:  # the command, not gpuwatch, places the order
            return launch
        with self._slots.requesting(launch):
            until = self._clock() + timedelta(seconds=self._spec.try_for_s)
            refused = _Refused(EndReason.OFFERS_GONE.text())
            skipped: list[SkippedScope] = []
            tries = 0
            queue = [(match, False) for match in candidates]
            for match, is_last_resort in queue:
                if skipped_by(skipped, match.offer, self._watch.name) or match.offer.provider not in self._contexts:
                    continue
                try:
                    words = refused.why if tries else None
                    launch, outcome = self._try(launch, match, words, is_last_resort)
                except ProviderError as error:
                    gone = whole_provider(match.offer, str(error), self._clock())
                    outcome = _Refused(EndReason.NOT_CHECKED.text(str(error)), gone)
                if outcome is None:
                    return launch
                refused = outcome
                if outcome.comes_last and not is_last_resort:
                    queue.append((match, True))
                    continue
                skipped += [] if outcome.scope is None else [outcome.scope]
                tries += 1
                if tries >= self._spec.max_tries or self._clock() >= until:
                    break
            return self._failed(launch, refused.why)

    def _try(
        self, launch: Launch, match: Match, words: str | None, is_last_resort: bool
    ) -> tuple[Launch, _Refused | None]:
        """Try one candidate. A refusal: nothing was created, and the next may be requested. Raises ProviderError.

        Args:
            words: why the previous candidate was not rented; None: this is the first.
            is_last_resort: no other candidate is left, so its place may be one that failed lately.
        """
        quote = self._requoter(match.offer.provider).requote(match)
        if quote is None:
            return launch, _Refused(EndReason.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or costs more"))
        try:
            unready = self._unavailable(launch, quote)
            if unready is not None:
                return launch, unready
            retargeted = self._retarget(launch, quote, words, is_last_resort)
            if isinstance(retargeted, LaunchRefusal):
                end = _END_OF.get(retargeted.reason, EndReason.BUDGET)
                comes_last = retargeted.reason is RefusalReason.MACHINE_FAILED
                return launch, _Refused(end.text(retargeted.text), comes_last=comes_last)
            failpoint("launch.before_look")
            refused = self._refused(retargeted)
        except LaunchConflict:  # another daemon or the owner took it over: nothing was created so far
            return self._failed(
                launch, EndReason.NOT_SENT.text("another process took it over before the request")
            ), None
        except (StoreError, RemoteRefused) as error:  # without its obligation, nothing would end the instance
            return self._failed(launch, EndReason.NOT_SENT.text(str(error))), None
        if refused is not None:
            return self._failed(retargeted, refused), None
        return self._send(retargeted, quote)

    def _requoter(self, provider: str) -> Requoter:
        if provider not in self._requoters:
            context = self._contexts[provider]
            self._requoters[provider] = Requoter(context.market, context.commission, self._watch, self._clock)
        return self._requoters[provider]

    def _unavailable(self, launch: Launch, quote: Match) -> _Refused | None:
        """Return why another provider cannot be used; its state may have changed since the launch was reserved."""
        provider = quote.offer.provider
        if provider == launch.provider:
            return None
        why = self._contexts[provider].not_ready(quote.price.price_microusd_hour, launch.watch)
        return None if why is None else _Refused(EndReason.NOT_SENT.text(why))

    def _retarget(
        self, launch: Launch, match: Match, words: str | None, is_last_resort: bool
    ) -> Launch | LaunchRefusal:
        """Store the offer, its provider and its price in the launch's row, before the request."""
        provider, fields = match.offer.provider, offer_fields(match, self._watch)
        place = {}
        if provider != launch.provider:
            context = self._contexts[provider]
            place = _place_fields(launch, provider, context.account_id(), context.label_length, self._watch)
        if not place and all(getattr(launch, name) == value for name, value in fields.items()):
            return launch
        now = self._clock()
        return self._repository.retarget(
            launch,
            match,
            self._watch,
            self._budget,
            now,
            provider_fields=place,
            message=words,
            is_last_resort=is_last_resort,
        )

    def _refused(self, launch: Launch) -> str | None:
        """Make the last check before money is spent, and write the keeper's obligation; None: the order may be sent.

        Raises:
            LaunchConflict: another process took the launch over.
            StoreError, RemoteRefused: the check, the keeper's file or the job's key failed: nothing may be sent.
        """
        context = self._contexts[launch.provider]
        poor = context.why_unaffordable(launch.price_microusd_hour)
        if poor is not None:
            return EndReason.NO_CREDIT.text(poor)
        refusal = self._repository.may_send(launch, self._clock())
        if refusal is not None:
            return _END_OF.get(refusal.reason, EndReason.PAUSED).text(refusal.said)
        context.job_key(launch)  # without the key nobody could log in
        context.obligations.record_order(launch, longest_hook_s(self._watch.launch))
        return None

    def _send(self, launch: Launch, match: Match) -> tuple[Launch, _Refused | None]:
        """Send the order once. A refusal: nothing was created, and the next candidate may be requested."""
        failpoint("launch.before_send")
        context = self._contexts[launch.provider]
        if not self._repository.lease.is_held:  # the process may have slept since the last check
            return self._failed(launch, EndReason.NOT_SENT.text("another host leads")), None
        try:
            moves_ends = isinstance(context.launcher, EndMover)
            order = build_order(launch, match, self._watch, context.job_key(launch), moves_ends=moves_ends)
            created = context.launcher.create(order)
        except (OfferGone, OrderRateLimited, OrderRefused) as error:
            return launch, self._skip(launch, match, error)
        except OutcomeUnknown as error:
            return self._lost(launch, str(error), error.instance_id), None
        except ProviderError as error:  # not an order error: it is unknown whether the request was carried out
            return self._lost(launch, str(error)), None
        if context.belongs_to_another(created.instance_id, launch.launch_id):
            text = f"its answer names instance {created.instance_id}, which existed before"
            return self._lost(launch, text), None
        failpoint("launch.after_send")
        recorded = self._record(launch, InstanceCreated(created.instance_id, created.starting))
        failpoint("launch.after_record")
        return recorded, None

    def _skip(self, launch: Launch, match: Match, error: OrderError) -> _Refused:
        """Return the refusal with its scope, and store the scope for later launches if it lasts."""
        found = refused_order(error, match.offer, self._watch.name, launch.launch_id, self._clock())
        scopes = self._contexts[launch.provider].scopes
        log.info("launch %s: %s: %s", launch.launch_id, found.scope.name, error)
        if found.is_kept and scopes is not None:
            try:
                scopes.skip(found.scope)
            except StoreError as failed:  # this launch skips the scope anyway
                log.warning("launch %s: cannot store a refusal: %s", launch.launch_id, failed)
        return _Refused(_end_of(error).text(str(error)), found.scope)

    def _lost(self, launch: Launch, error: str, instance_id: str | None = None) -> Launch:
        """Record that an instance may exist. One that was listed before is another launch's; the label finds ours."""
        failpoint("launch.no_answer")
        log.warning("launch %s: its outcome is unknown: %s", launch.launch_id, error)
        context = self._contexts[launch.provider]
        if instance_id is not None and context.belongs_to_another(instance_id, launch.launch_id):
            instance_id = None
        return self._record(launch, AnswerLost(error, instance_id))

    def _failed(self, launch: Launch, reason: str) -> Launch:
        """Record that nothing was created. The owner, who has an alert about the rent, gets another one."""
        log.warning("launch %s failed: %s", launch.launch_id, reason)
        return self._record(launch, NothingCreated(reason))

    def _record(self, launch: Launch, event: InstanceCreated | AnswerLost | NothingCreated) -> Launch:
        """Store what only this process knows. The reconciler carries out a destroy that follows from it."""
        now = self._clock()
        launch, _ = self._transitions.apply_to_latest(launch, event, ClockReading(now, now))
        return launch


def _end_of(error: OrderError) -> EndReason:
    if isinstance(error, OrderRefused):
        is_narrow = error.scope in {RefusalScope.ZONE, RefusalScope.REGION_FAMILY}
        return EndReason.REFUSED if is_narrow else _REFUSED[error.kind]
    return EndReason.RATE_LIMITED if isinstance(error, OrderRateLimited) else EndReason.OFFERS_GONE


def _place_fields(
    launch: Launch, provider: str, account_id: str | None, label_length: int, watch: Watch
) -> dict[str, Any]:
    """Return the fields that change when a launch continues at another provider."""
    label = label_of(
        launch.launch_id,
        (watch.launch or LaunchSpec()).label_extra,
        install_id=launch.install_id,
        watch_id=launch.watch_id,
        length=label_length,
    )
    return {"provider": provider, "account_id": account_id, "label": label}
