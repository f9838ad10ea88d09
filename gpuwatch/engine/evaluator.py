"""From an answer to what follows: look at each watch, decide, write it down in one transaction, start the launches."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.domain.launches.approval import Approval
from gpuwatch.domain.launches.checklist import checklist_warning
from gpuwatch.domain.launches.launch import (
    Intent,
    Launch,
    LaunchRefusal,
    RefusalReason,
)
from gpuwatch.domain.market.pricing import Commission, threshold_microusd
from gpuwatch.domain.watches.decide import (
    Decision,
    DecisionReason,
    Match,
    Observation,
    WatchMemory,
    decide,
)
from gpuwatch.domain.watches.index import WatchIndex
from gpuwatch.domain.watches.match import is_near, matches, rank
from gpuwatch.domain.watches.poll_cycle import PollCycle, cycle_members
from gpuwatch.domain.watches.watch import Action, Budget, Watch
from gpuwatch.engine.alerts import alert_id_from, alert_lifetime, offer_alert
from gpuwatch.engine.approval_requests import ApprovalTerms, request_approval
from gpuwatch.engine.candidates import (
    UnavailableProviders,
    is_reserved_offer,
    reservation_summary,
    select_candidates,
    with_rented_offer_first,
)
from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import NOT_READY, next_steps
from gpuwatch.ports import (
    Alert,
    AlertKind,
    Answer,
    Completeness,
    UnitOfWork,
    UnitOfWorkFactory,
)

log = logging.getLogger(__name__)

_WORTH_AN_INDEX = 5_000  # pairs of watch and offer


class WatchView(msgspec.Struct, frozen=True, kw_only=True):
    """What one search showed one watch."""

    matches: tuple[Match, ...]
    near: bool
    known: bool
    observed_at: datetime


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A launch whose intent is durable and that may now be asked for."""

    launch: Launch
    watch: Watch
    candidates: tuple[Match, ...]
    observed_at: datetime


class EvaluationRules(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all watches."""

    commissions: Mapping[str, Commission]
    budget: Budget
    dry_run: bool
    channels: tuple[str, ...]
    zone: ZoneInfo
    expected_views: Mapping[str, frozenset[tuple[str, bool]]]  # watch → (provider, spot) that are asked for it
    max_age: timedelta  # an older view is blindness
    links: Mapping[str, str]  # provider → URL of its console
    max_ages: Mapping[str, timedelta] = {}  # provider → its own, by how often it is asked
    unable: UnavailableProviders = UnavailableProviders()  # where nothing can be rented
    not_ready: Callable[[str, int], str | None] = lambda provider, price: None  # why nothing may be rented there now

    def age_of(self, provider: str) -> timedelta:
        """How old a view of a provider may be: by its own pace, for list prices are asked for a few times a day."""
        return self.max_ages.get(provider, self.max_age)

    def paces(self, expected: frozenset[tuple[str, bool]]) -> frozenset[tuple[str, bool]]:
        """Of what is asked for a watch, what makes up its rounds."""
        return cycle_members(expected, self.age_of) if self.max_ages else expected


class Evaluator:
    """Looks at watches. Safe to be called from the hunts of several providers at once."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        rules: EvaluationRules,
        start: Callable[[LaunchRequest], None],
        new_id: Callable[[], str],
    ) -> None:
        self._uow_factory = uow_factory
        self._rules = rules
        self._start = start
        self._new_id = new_id
        self._memories = dict(uow_factory.memories())
        self._views: dict[str, dict[tuple[str, bool], WatchView]] = {}
        self._rounds: dict[str, PollCycle] = {}
        self._indexes: dict[tuple[tuple[str, bool], tuple[str, ...]], tuple[tuple[Watch, ...], WatchIndex]] = {}
        self._reasons: dict[str, DecisionReason] = {}
        self._unasked: set[str] = set()  # watches that could ask nothing when they last fired
        self._full: set[str] = set()  # watches that could begin no further launch when they last tried
        self._held: set[str] = set()  # watches that could begin none at all, whatever was on offer
        self._not_ready: dict[str, str] = {}  # watch → what its owner was told last, where nothing could be tried yet
        self._lock = threading.Lock()

    def wants_more_launches(self, watch: Watch) -> bool:
        """Would it rent more if it saw more? Then it is asked at full pace."""
        return watch.action is Action.LAUNCH and not self._rules.dry_run and watch.name not in self._full

    def will_rent(self, watch: Watch) -> bool:
        """Is it hungry, and did nothing keep it from renting when it tried last: a pause, an empty balance?"""
        return self.wants_more_launches(watch) and watch.name not in self._held

    def launch_ended(self, watch_name: str) -> None:
        """A launch of this watch is over, or came to nothing: its slot is free again."""
        self._full.discard(watch_name)
        self._held.discard(watch_name)

    def view(self, watch: Watch, answer: Answer, now: datetime) -> WatchView:
        """What this answer shows this watch."""
        return self._view(watch, answer, matches(watch, answer.offers, self._rules.commissions, now), now)

    def _view(self, watch: Watch, answer: Answer, found: tuple[Match, ...], now: datetime) -> WatchView:
        known = bool(found) or answer.completeness is Completeness.COMPLETE
        return WatchView(
            matches=found,
            near=bool(found) or (watch.rearm > 1 and is_near(watch, answer.offers, self._rules.commissions, now)),
            known=known,
            observed_at=answer.observed_at,
        )

    def evaluate(self, watches: Sequence[Watch], answer: Answer, spot: bool, now: datetime) -> list[Decision]:
        """Decide on an answer, write down what follows, start what was reserved."""
        key = (answer.provider, spot)
        found = self._found(watches, answer, key, now)
        views = {watch.name: self._view(watch, answer, found[watch.name], now) for watch in watches}
        return self._judge(watches, key, views, now)

    def evaluate_unanswered(self, watches: Sequence[Watch], provider: str, spot: bool, now: datetime) -> list[Decision]:
        """The provider gave no answer: that is no data, not "no offers"."""
        blind = WatchView(matches=(), near=False, known=False, observed_at=now)
        return self._judge(watches, (provider, spot), {watch.name: blind for watch in watches}, now)

    def _found(
        self, watches: Sequence[Watch], answer: Answer, key: tuple[str, bool], now: datetime
    ) -> Mapping[str, tuple[Match, ...]]:
        """Many watches on many offers are looked at by what changed; a handful is quicker looked at as it is."""
        if len(watches) * len(answer.offers) < _WORTH_AN_INDEX:
            return {w.name: matches(w, answer.offers, self._rules.commissions, now) for w in watches}
        names, mine = tuple(watch.name for watch in watches), tuple(watches)
        of, index = self._indexes.get((key, names), ((), None))
        if index is None or of != mine:  # a limit out of the history has moved
            index = WatchIndex(watches, self._rules.commissions)
            self._indexes[key, names] = mine, index
        return index.update(answer.offers, now)

    def _judge(
        self, watches: Sequence[Watch], key: tuple[str, bool], views: Mapping[str, WatchView], now: datetime
    ) -> list[Decision]:
        with self._lock:
            for name, view in views.items():
                self._views.setdefault(name, {})[key] = view
            decided = [(watch, self._decide(watch, key, now)) for watch in watches]
            starts = self._write_down(decided, now)
            self._log_changes(decided)
            self._held -= {watch.name for watch, decision in decided if decision.best is None}
        for start in starts:
            self._start(start)
        return [decision for _, decision in decided]

    def _log_changes(self, decided: Sequence[tuple[Watch, Decision]]) -> None:
        """The log tells changes, not heartbeats: a reason when it becomes another one, and every telling."""
        for watch, decision in decided:
            if decision.fires or self._reasons.get(watch.name) is not decision.reason:
                best = decision.best
                price = f", best {best.price.gpu_price_usd_hour(best.offer.gpu_count):.4f} $/GPU-h" if best else ""
                log.info("watch %s: %s%s", watch.name, decision.reason.value, price, extra={"watch": watch.name})
            self._reasons[watch.name] = decision.reason

    def _decide(self, watch: Watch, key: tuple[str, bool], now: datetime) -> Decision:
        memory = self._memories.get(watch.name, WatchMemory())
        return decide(watch, self._look(watch, key, now), memory, now, self._rules.zone)

    def _look(self, watch: Watch, key: tuple[str, bool], now: datetime) -> Observation:
        """All fresh views of a watch as one: cheapest first, whoever sells it."""
        views = self._views.get(watch.name, {})
        fresh = {key: view for key, view in views.items() if now - view.observed_at <= self._rules.age_of(key[0])}
        shown = (match for view in fresh.values() for match in view.matches)
        found = sorted((match for match in shown if _is_under(watch, match)), key=rank)
        expected = self._rules.expected_views[watch.name]
        return self._rounds.setdefault(watch.name, PollCycle()).observe(
            (key,),
            tuple(found),
            near=any(view.near for view in fresh.values()),
            known={key for key, view in fresh.items() if view.known},
            expected=expected,
            paces=self._rules.paces(expected),
            observed_at=max((view.observed_at for view in fresh.values()), default=now),
        )

    def _write_down(self, decided: Sequence[tuple[Watch, Decision]], now: datetime) -> list[LaunchRequest]:
        """One transaction for everything that follows; none at all when nothing does."""
        worth = [(w, d) for w, d in decided if d.fires or self._wants(w, d) or self._is_new(w, d)]
        if not worth:
            return []
        starts, not_ready = [], dict(self._not_ready)
        with self._uow_factory.open() as uow:
            for watch, decision in worth:
                if watch.action is Action.ASK:
                    self._ask(uow, watch, decision, now)
                else:
                    starts += self._launch_or_alert(uow, watch, decision, not_ready, now)
                uow.remember(watch.name, decision.memory)
            failpoint("intent.before_commit")
        failpoint("intent.after_commit")
        self._memories.update({watch.name: decision.memory for watch, decision in worth})
        self._not_ready = not_ready
        return starts

    def _launch_or_alert(
        self, uow: UnitOfWork, watch: Watch, decision: Decision, not_ready: dict[str, str], now: datetime
    ) -> list[LaunchRequest]:
        """`not_ready` is changed: what was told while nothing could be tried is no answer, the true one follows it."""
        starts, done, can_do = self._reserve(uow, watch, decision, now)
        if starts or (decision.fires and watch.action is Action.ALERT):
            done += checklist_warning(uow.unticked(watch))
        before = not_ready.get(watch.name)
        is_news = before is not None and bool(done) and _without_numbers(done) != _without_numbers(before)
        shown = with_rented_offer_first(decision, starts[0].launch if starts else None)
        if decision.fires:
            self._tell(uow, watch, self._alert(watch, shown, done, can_do=can_do), now)
        elif starts or is_news:  # "not rented" was told before; an offer that flaps must not flood its owner
            what = "renting" if starts else f"refused:{alert_id_from(_without_numbers(done))}"
            once = f"{what}:{watch.name[:150]}:{now:%Y-%m-%dT%H}"
            self._tell(uow, watch, self._alert(watch, shown, done, can_do=can_do), now, once_key=once)
        else:
            return starts
        not_ready.pop(watch.name, None)
        if can_do == NOT_READY:
            not_ready[watch.name] = done
        return starts

    def _ask(self, uow: UnitOfWork, watch: Watch, decision: Decision, now: datetime) -> None:
        """The question and the alert that puts it, in the transaction of the decision.

        What could not be asked is asked when it can; what was approved and was no more, at its new price.
        """
        again = watch.name in self._unasked or uow.has_lapsed_approval(watch.name, now)
        if not decision.fires and not (decision.true_now and again):
            return
        rules = self._rules
        terms = ApprovalTerms(
            budget=rules.budget,
            dry_run=rules.dry_run,
            zone=rules.zone,
            commissions=rules.commissions,
            unable=rules.unable,
        )
        question = request_approval(uow, watch, decision, lambda left: self._intent(watch, left), terms)
        if question is None:
            return
        if question.ask is not None:
            self._unasked.discard(watch.name)
        elif watch.name in self._unasked and not decision.fires:
            return  # told already
        else:
            self._unasked.add(watch.name)
        until = now if question.ask is None else question.ask.deadline
        done = question.did + ("" if question.ask is None else checklist_warning(uow.unticked(watch)))
        self._tell(uow, watch, self._alert(watch, question.decision, done, question.ask), now, until)

    def _is_new(self, watch: Watch, decision: Decision) -> bool:
        return decision.memory != self._memories.get(watch.name, WatchMemory())

    def _wants(self, watch: Watch, decision: Decision) -> bool:
        """Is there something to be done while it stays true?"""
        return self._wants_launch(watch, decision) or (watch.action is Action.ASK and decision.true_now)

    def _wants_launch(self, watch: Watch, decision: Decision) -> bool:
        if watch.action is not Action.LAUNCH or not decision.true_now:
            return False
        return decision.fires or not self._rules.dry_run  # a dry run is told when it is news, not at every poll

    def _reserve(
        self, uow: UnitOfWork, watch: Watch, decision: Decision, now: datetime
    ) -> tuple[list[LaunchRequest], str, tuple[str, ...]]:
        """Fill the free slots of the watch, one offer each; what the owner is told of it, and what helps."""
        if decision.best is None or not self._wants_launch(watch, decision):
            return [], _ONLY_TOLD.get(watch.action, ""), ()
        rules = self._rules
        choice = select_candidates(decision.matches, rules.unable, rules.not_ready, rules.dry_run)
        left = list(choice.matches)
        if not left:
            self._held.add(watch.name)
            return [], f"Not rented: {choice.why_none}.", NOT_READY
        starts: list[LaunchRequest] = []
        refusal: LaunchRefusal | None = None
        while left:
            got = uow.reserve(self._intent(watch, left), self._rules.budget, now)
            if isinstance(got, LaunchRefusal):
                refusal = got
                break
            starts.append(self._begun(got, watch, left))
            left = [match for match in left if match.offer.terms.fungible or not is_reserved_offer(match, got)]
            if got.dry_run:
                break
        self._note_full(watch, refusal)
        begun = [one.launch for one in starts]
        return starts, reservation_summary(begun, refusal, choice), next_steps(watch, begun, refusal)

    def _note_full(self, watch: Watch, refusal: LaunchRefusal | None) -> None:
        if refusal is None:
            self._held.discard(watch.name)
            self._full.discard(watch.name)
            return
        self._held.add(watch.name)
        if refusal.reason not in _MAY_END_ANY_MOMENT:
            self._full.add(watch.name)

    def _intent(self, watch: Watch, left: Sequence[Match]) -> Intent:
        first, *others = left
        return Intent(
            watch=watch, match=first, launch_id=self._new_id(), dry_run=self._rules.dry_run, others=tuple(others)
        )

    def _begun(self, launch: Launch, watch: Watch, left: Sequence[Match]) -> LaunchRequest:
        mine = next(match for match in left if is_reserved_offer(match, launch))
        return LaunchRequest(launch=launch, watch=watch, candidates=tuple(left), observed_at=mine.offer.observed_at)

    def _alert(
        self, watch: Watch, decision: Decision, did: str, ask: Approval | None = None, can_do: tuple[str, ...] = ()
    ) -> Alert:
        rules, alert_id = self._rules, self._new_id()
        return offer_alert(
            watch, decision, alert_id=alert_id, zone=rules.zone, did=did, links=rules.links, approval=ask, can_do=can_do
        )

    def _tell(
        self,
        uow: UnitOfWork,
        watch: Watch,
        alert: Alert,
        now: datetime,
        until: datetime | None = None,
        once_key: str | None = None,
    ) -> None:
        """`until`: it is worth sending at least so long."""
        channels = self._rules.channels if watch.notify is None else watch.notify
        uow.tell(alert, channels, max(now + alert_lifetime(AlertKind.OFFER), until or now), once_key)


# By the owner's word. A checklist may stand for days: at full pace its offers would eat the day's rows meanwhile.
_MAY_END_ANY_MOMENT = {RefusalReason.PAUSED, RefusalReason.BREAKER}
_ONLY_TOLD = {Action.ALERT: 'Told you; this watch does not rent (action = "alert").'}


def _is_under(watch: Watch, match: Match) -> bool:
    """A limit out of the history may have fallen since another provider's offers were looked at."""
    most = threshold_microusd(watch.max_price_usd_gpu_hour, match.offer.gpu_count)
    return watch.auto is None or match.price.price_microusd_hour <= most


def _without_numbers(did: str) -> str:
    """A balance that falls by a cent is no news."""
    return re.sub(r"[0-9]+", "", did)
