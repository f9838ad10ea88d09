"""Evaluates watches: observes an answer, decides, stores the result in one transaction, starts the launches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.alerts import offer_texts as texts
from gpuwatch.domain.alerts.alert import alert_id_from, outbox_alert, without_numbers
from gpuwatch.domain.alerts.launch_texts import DAY_LIMIT
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason, free_slot
from gpuwatch.domain.launches.life.owner_decisions import Approval, checklist_warning
from gpuwatch.domain.launches.past_decision import RENTED
from gpuwatch.domain.watches.decide import (
    Decision,
    DecisionReason,
    Match,
    Observation,
    PollCycle,
    StockProofs,
    WatchMemory,
    after_refusal,
    after_renting,
    decide,
)
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.match import is_near, matches
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.engine.alerts.launch_alerts import next_steps
from gpuwatch.engine.alerts.offer_alerts import offer_alert
from gpuwatch.engine.launches.renting.candidate_selection import (
    StartsLaunches,
    is_same_offer,
    reservation_summary,
    reserved_first,
    select_candidates,
    with_rented_offer_first,
)
from gpuwatch.engine.launches.renting.launch_commands import command_summary
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.launches.renting.owner_decisions import request_approval
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.engine.watches.decision_log import DecisionLog
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.gather import NewestObservations, QuoteGathering, is_under_limit
from gpuwatch.engine.watches.readiness_notes import ReadinessNotes
from gpuwatch.ports import Answer, Completeness, UnitOfWork, UnitOfWorkFactory

ReservedLaunch = tuple[Launch, Watch, tuple[Match, ...]]  # durable as `requested`; the reserved candidate comes first
_Outcome = tuple[list[ReservedLaunch], str, tuple[str, ...]]  # the reserved launches, the text about them, advice
_Decided = tuple[Watch, Observation, Decision]


class Evaluator:
    """Evaluates watches on answers. Safe to call from the hunts of several providers at once."""

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        uow_factory: UnitOfWorkFactory,
        rules: EvaluationRules,
        launcher: StartsLaunches,
        slots: LaunchSlots,
        new_id: Callable[[], str],
        gathering: QuoteGathering | None = None,
        *,
        observations: NewestObservations | None = None,
        commands: StartsLaunches | None = None,  # for action "command"
    ) -> None:
        self._commands = commands
        self._gathering = gathering or QuoteGathering()
        self.observations = observations or NewestObservations()
        self._uow_factory = uow_factory
        self._rules = rules
        self._launcher = launcher
        self._slots = slots
        self._new_id = new_id
        self._stock = StockProofs()
        self._memories = dict(uow_factory.memories())
        self._cycles: dict[str, PollCycle] = {}
        self._decisions = DecisionLog(uow_factory.newest_decisions())
        self._reported_not_ready: dict[str, str] = {}  # watch → text of its alert while nothing could be rented
        self._notes = ReadinessNotes()
        self._lock = threading.Lock()

    def may_rent_more(self, watch: Watch) -> bool:
        """Whether it would rent more offers if there were any; then it is polled at full pace."""
        return watch.rents_alone and not self._rules.dry_run and not self._slots.is_full(watch.name)

    def will_rent(self, watch: Watch) -> bool:
        """Whether it wants more, and nothing, such as a pause or an empty balance, blocked its last launch."""
        return self.may_rent_more(watch) and not self._slots.is_blocked(watch.name)

    def observe(self, watches: Sequence[Watch], answer: Answer, now: datetime) -> Mapping[str, Observation]:
        """Return the observation of each watch, by name: the offers that it accepts, cheapest first."""
        found = {watch.name: matches(watch, answer.offers, self._rules.commissions, now) for watch in watches}
        is_complete = answer.completeness is Completeness.COMPLETE and answer.provider not in self._rules.emptied
        return {
            watch.name: Observation(
                matches=found[watch.name],
                near=bool(found[watch.name])
                or (watch.has_near_limit and is_near(watch, answer.offers, self._rules.commissions, now)),
                known=bool(found[watch.name]) or is_complete,
                observed_at=answer.observed_at,
                answered_at=answer.observed_at + timedelta(seconds=answer.elapsed_s),  # earlier if an adapter cached it
            )
            for watch in watches
        }

    def evaluate(
        self, watches: Sequence[Watch], provider: str, spot: bool, observed: Mapping[str, Observation], now: datetime
    ) -> list[Decision]:
        """Decide on the observations, store the results in one transaction, start the reserved launches.

        Args:
            observed: by the watch's name, from `observe` or, without an answer, from `unanswered`.
        """
        with self._lock:
            self.observations.note(provider, spot, observed)
            decided = [self._decide(watch, ((provider, spot),), now) for watch in watches if not watch.only_observed]
            acted = self._act([one for one in decided if not self._waits(one[0], one[2], now)], now)
        return [acted.get(watch.name, decision) for watch, _, decision in decided]

    def decide_gathered(self, now: datetime) -> float:
        """Decide for watches that have waited long enough for quotes.

        Returns:
            Seconds until the next watch will have waited long enough; infinity: none waits.

        Raises:
            StoreError: a decision cannot be stored.
        """
        with self._lock:
            due = self._gathering.due(now)
            self._act([self._decide(watch, (), now) for watch in due], now)
            return self._gathering.next_due_s(now)

    def forget_except(self, names: Collection[str]) -> None:
        """Forget all other watches: jobs that are over."""
        with self._lock:
            for known in (self._memories, self._cycles, self._reported_not_ready):
                for name in known.keys() - set(names):
                    del known[name]
            for part in (self.observations, self._stock, self._slots, self._notes, self._decisions):
                part.forget_except(names)

    def _decide(self, watch: Watch, just_polled: Collection[tuple[str, bool]], now: datetime) -> _Decided:
        observed = self._stock.added_to(self._merged(watch, just_polled, now), watch, now)
        return watch, observed, decide(watch, observed, self._memory(watch), now, self._rules.zone)

    def _act(self, decided: Sequence[_Decided], now: datetime) -> dict[str, Decision]:
        """Store the results of decisions, and start the reserved launches; return the decisions as stored."""
        try:
            stored, reserved = self._store(decided, now)
            for launch, watch, candidates in reserved:
                self._starter(watch).start(launch, watch, candidates)
            final = [(watch, stored.get(watch.name, decision)) for watch, _, decision in decided]
            self._stock.note_all(final)
        finally:
            for watch, _, _ in decided:
                self._gathering.close(watch)
        self._decisions.log_changes(final)
        self._slots.unblock(watch.name for watch, decision in final if decision.best is None)
        return {watch.name: decision for watch, decision in final}

    def _waits(self, watch: Watch, decision: Decision, now: datetime) -> bool:
        """Whether a decision to rent waits for the quotes of other providers."""
        rents = self._should_launch(watch, decision) or (watch.action is Action.ASK and decision.fires)
        if not rents or self._slots.is_full(watch.name) or self._slots.is_blocked(watch.name):
            return False
        return self._gathering.waits(watch, self._rentable_views(watch), self.observations.of(watch.name), now)

    def _rentable_views(self, watch: Watch) -> frozenset[tuple[str, bool]]:
        if watch.action is Action.ALERT:
            return frozenset()
        expected = self._rules.expected_views.get(watch.name) or self._rules.views_of(watch)
        unable = self._rules.unable_for(watch)
        return frozenset(view for view in expected if unable.why_not(view[0]) is None)

    def _memory(self, watch: Watch) -> WatchMemory:
        return self._memories.get(watch.name, WatchMemory())

    def _merged(self, watch: Watch, just_polled: Collection[tuple[str, bool]], now: datetime) -> Observation:
        """Merge a watch's recent observations: best offers of any provider first, old quotes behind young ones."""
        age_of = self._rules.age_of
        every = self.observations.of(watch.name)
        recent = {key: one for key, one in every.items() if abs(now - one.observed_at) <= age_of(key[0])}
        found = self._gathering.in_order(watch, self._rentable_views(watch), recent, now)
        found = [match for match in found if is_under_limit(watch, match)]
        expected = self._rules.expected_views.get(watch.name) or self._rules.views_of(watch)
        return self._cycles.setdefault(watch.name, PollCycle()).observe(
            just_polled,
            tuple(found),
            near=any(one.near for one in recent.values()),
            known={key for key, one in recent.items() if one.known},
            expected=expected,
            paces=self._rules.paces(expected),
            observed_at=max((one.observed_at for one in recent.values()), default=now),
        )

    def _store(self, decided: Sequence[_Decided], now: datetime) -> tuple[dict[str, Decision], list[ReservedLaunch]]:
        """Store all results in one transaction; open none if there is nothing to store. Return what was stored.

        The memories are read in it: what another process has decided since is not decided again.
        """
        worth = [one for one in decided if self._is_worth(one[0], one[2], self._memory(one[0]))]
        if not worth:
            return {}, []
        final, reserved, not_ready = {}, [], dict(self._reported_not_ready)
        with self._uow_factory.open() as uow:
            memories = uow.memories([watch.name for watch, _, _ in worth])
            for watch, observed, decided_before in worth:
                memory, decision = memories.get(watch.name, WatchMemory()), decided_before
                if memory != self._memory(watch):
                    decision = decide(watch, observed, memory, now, self._rules.zone)
                final[watch.name] = decision
                if not self._is_worth(watch, decision, memory):
                    continue
                self._decisions.begin(watch, decision)
                if watch.action is Action.ASK:
                    self._request_approval(uow, watch, decision, now)
                else:
                    outcome = self._reserve(uow, watch, decision, now)
                    self._report(uow, watch, decision, outcome, not_ready, now)
                    reserved += outcome[0]
                    decision = final[watch.name] = self._with_wait(uow, watch, decision, memory, outcome[0], now)
                uow.save_memory(watch.name, decision.memory)
                self._decisions.store(uow, watch)
            failpoint("intent.before_commit")
        failpoint("intent.after_commit")
        self._decisions.committed([watch for watch, _, _ in worth])
        self._memories.update({name: decision.memory for name, decision in final.items()})
        self._reported_not_ready = not_ready
        return final, reserved

    def _with_wait(
        self,
        uow: UnitOfWork,
        watch: Watch,
        decision: Decision,
        before: WatchMemory,
        reserved: Sequence[ReservedLaunch],
        now: datetime,
    ) -> Decision:
        """Return the decision with the wait for a spot offer as the admission leaves it."""
        if watch.spot is not SpotPolicy.FIRST or not watch.rents_alone or not decision.matches:
            return decision
        if reserved:
            return after_renting(decision)
        not_ready, dry_run = self._starter(watch).not_ready, self._rules.dry_run
        left, _ = select_candidates(decision.matches, self._rules.unable_for(watch), not_ready, dry_run, watch.name)
        is_free = left and uow.would_refuse(self._intent(watch, left), self._rules.budget, now) is None
        return decision if is_free else after_refusal(decision, before)

    def _is_worth(self, watch: Watch, decision: Decision, memory: WatchMemory) -> bool:
        follows = decision.fires or self._needs_action(watch, decision) or decision.memory != memory
        return follows or self._decisions.is_news(watch, decision)

    def _report(
        self,
        uow: UnitOfWork,
        watch: Watch,
        decision: Decision,
        outcome: _Outcome,
        not_ready: dict[str, str],
        now: datetime,
    ) -> None:
        """Alert about the matches, and about what was or was not reserved.

        Args:
            not_ready: updated. If an earlier "not rented" had a provisional reason, the true reason is reported too.
        """
        reserved, done, can_do = outcome
        if reserved or (decision.fires and watch.action is Action.ALERT):
            done += checklist_warning(uow.unticked(watch))
        before = not_ready.get(watch.name)
        is_news = before is not None and bool(done) and without_numbers(done) != without_numbers(before)
        once_key = None
        if not decision.fires:
            if not (reserved or is_news):
                return  # "not rented" was already reported; an offer that flaps must not flood the owner
            what = "renting" if reserved else f"refused:{alert_id_from(without_numbers(done))}"
            once_key = f"{what}:{watch.name[:150]}:{now:%Y-%m-%dT%H}"
        shown = with_rented_offer_first(decision, reserved[0][2][0] if reserved else None)
        self._alert(uow, watch, shown, done, can_do=can_do, once_key=once_key)
        not_ready.pop(watch.name, None)
        if can_do == texts.NOT_READY:
            not_ready[watch.name] = done

    def _request_approval(self, uow: UnitOfWork, watch: Watch, decision: Decision, now: datetime) -> None:
        """Request an approval and alert about it, in the transaction of the decision.

        A request that failed before is made again; an approved offer that is gone is requested again at its new price.
        """
        if not decision.fires:
            fired_at = decision.memory.fired_at
            if not decision.true_now or fired_at is None or decision.best is None:
                return
            if not uow.is_request_due(watch.name, fired_at, decision.best.offer.observed_at, now):
                return
        request = request_approval(uow, watch, decision, lambda left: self._intent(watch, left), self._rules)
        if request is None:
            return
        self._decisions.because(watch.name, BlockReason.APPROVAL if request.ask else BlockReason.NOT_READY, request.did)
        done = request.did + ("" if request.ask is None else checklist_warning(uow.unticked(watch)))
        self._alert(uow, watch, request.decision, done, approval=request.ask, once_key=request.once_key)

    def _needs_action(self, watch: Watch, decision: Decision) -> bool:
        """Whether there is something to do while the condition stays true."""
        if decision.reason is DecisionReason.WAITS_FOR_SPOT and watch.rents_alone:
            return True  # what stops it from renting anyway stops the wait, too
        return self._should_launch(watch, decision) or (watch.action is Action.ASK and decision.true_now)

    def _should_launch(self, watch: Watch, decision: Decision) -> bool:
        if not watch.rents_alone or not decision.true_now:
            return False
        return decision.fires or not self._rules.dry_run  # a dry run is reported once, not at every poll

    def _reserve(self, uow: UnitOfWork, watch: Watch, decision: Decision, now: datetime) -> _Outcome:
        """Fill the free slots of the watch, one offer each; return the launches, the alert's text and advice."""
        if decision.best is None or not self._should_launch(watch, decision):
            return [], texts.ONLY_ALERTS if watch.action is Action.ALERT else "", ()
        rules = self._rules
        not_ready = self._starter(watch).not_ready
        left, why = select_candidates(decision.matches, rules.unable_for(watch), not_ready, rules.dry_run, watch.name)
        if not left:
            self._slots.hold(watch.name)
            provider = decision.best.offer.provider
            self._decisions.because(watch.name, BlockReason.NOT_READY, why)
            self._notes.not_ready(uow, watch.name, provider, why, now, rules.age_of(provider))
            return [], texts.NOT_RENTED.format(why=why), texts.NOT_READY
        self._notes.ready(uow, watch.name, now)
        reserved: list[ReservedLaunch] = []
        refusal: LaunchRefusal | None = None
        while left:
            # what was just reserved may already fill the watch: no query is needed before the commit
            launches = [launch for launch, _, _ in reserved]
            full = free_slot(watch.launch or LaunchSpec(), watch.name, launches, len(launches))
            got = full if isinstance(full, LaunchRefusal) else uow.reserve(self._intent(watch, left), rules.budget, now)
            if isinstance(got, LaunchRefusal):
                refusal = got
                break
            launch, match = got
            reserved.append((launch, watch, reserved_first(match, left)))
            left = [one for one in left if one.offer.terms.fungible or not is_same_offer(one, match)]
            if launch.dry_run:
                break
        self._slots.note_reservation(watch.name, refusal)
        reason, text = (RENTED, "") if reserved or refusal is None else (refusal.reason, refusal.text)
        self._decisions.because(watch.name, reason, text)
        if refusal is not None and refusal.reason is RefusalReason.MAX_PER_DAY:
            limit = {"watch": watch.name, "max_per_day": watch.max_per_day, "refusal": refusal.said}
            uow.enqueue(DAY_LIMIT.outbox(self._new_id(), now, can_do=next_steps(watch, (), refusal), **limit))
        launches = [launch for launch, _, _ in reserved]
        done = reservation_summary(launches, refusal, why) + command_summary(reserved)
        return reserved, done, next_steps(watch, launches, refusal)

    def _starter(self, watch: Watch) -> StartsLaunches:
        return self._commands if watch.action is Action.COMMAND and self._commands else self._launcher

    def _intent(self, watch: Watch, left: Sequence[Match]) -> Intent:
        first, *others = left
        return Intent(
            watch=watch,
            match=first,
            launch_id=self._new_id(),
            dry_run=self._rules.dry_run,
            alternatives=tuple(others),
            accounts=self._rules.accounts(),
            label_lengths=self._rules.label_lengths,
            compared=self._gathering.compared(watch, self._rentable_views(watch), self.observations.of(watch.name)),
        )

    def _alert(  # noqa: PLR0913 each is a part of the alert
        self,
        uow: UnitOfWork,
        watch: Watch,
        decision: Decision,
        did: str,
        *,
        approval: Approval | None = None,
        can_do: tuple[str, ...] = (),
        once_key: str | None = None,
    ) -> None:
        """Put the alert about a decision into the outbox; an approval request stays deliverable until its deadline."""
        rules = self._rules
        alert = offer_alert(
            watch,
            decision,
            alert_id=self._new_id(),
            zone=rules.zone,
            did=did,
            links=rules.links,
            approval=approval,
            can_do=can_do,
            rank_of=rules.rank_of,
            recorded_bids=uow.recorded_bids,
        )
        uow.enqueue(outbox_alert(alert, once_key, None if approval is None else approval.deadline))
