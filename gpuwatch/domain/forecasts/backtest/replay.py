"""Replays a market history poll by poll: what each watch would have decided and rented. Pure.

The decisions are those of `watches.decide` and `launches.life.admission`, as in the daemon. Nothing looks ahead: if the
history is cut after any poll, everything before it stays the same.

`replay`: all watches together, with a shared budget. What they rent is in `SimulatedLaunches`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from math import inf
from typing import NamedTuple

import msgspec

from gpuwatch.domain.forecasts.backtest.known_offers import KnownOffers, WatchPoll, is_at_most
from gpuwatch.domain.forecasts.backtest.replayed_candidates import QueryKey, WatchCandidates
from gpuwatch.domain.forecasts.backtest.simulated_launches import SimulatedLaunch, SimulatedLaunches
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll
from gpuwatch.domain.history.market_polls import MarketPolls, poll_columns_of
from gpuwatch.domain.launches.launch import LaunchRefusal
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.decide import (
    Decision,
    DecisionReason,
    Match,
    PollCycle,
    WatchMemory,
    after_refusal,
    after_renting,
    cycle_members,
    decide,
    same_until,
)
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch

BacktestProgress = Callable[[int, int], None]  # done, total

_PROGRESS_EVERY = 1024
_NONE = -1.0
_HUNT = "hunt"
_SEVERAL = ""  # a poll for several or all GPUs


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all watches."""

    commissions: Mapping[str, Commission]
    max_age: timedelta  # maximum age of an answer
    max_ages: Mapping[str, timedelta] = {}  # by provider
    budget: Budget = Budget()
    zone: tzinfo = UTC
    job: timedelta | None = None  # how long a launch is needed; None: its `max_runtime`
    reference_disk_gb: float = 0.0  # disk size in a quote without a requested disk
    able: Callable[[Sequence[Match]], Sequence[Match]] = lambda found: found  # keeps the offers that can be rented
    # the watch with its limit at this time, and the time (seconds since 1970) before which that stays
    limit: Callable[[Watch, datetime], tuple[Watch, float]] = lambda watch, now: (watch, inf)

    def age_of(self, provider: str) -> timedelta:
        """The maximum age of a provider's answer."""
        return self.max_ages.get(provider, self.max_age)


class ReplayStep(NamedTuple):
    """A poll that changed something: the reason, the best offer or its price, or a rental."""

    at: datetime
    reason: DecisionReason
    best: Match | None
    begun: tuple[SimulatedLaunch, ...] = ()
    refusal: LaunchRefusal | None = None


class WatchReplay(msgspec.Struct, kw_only=True):
    """The result of one watch, poll by poll. Prices are micro-dollars per GPU-hour; -1: no offer."""

    watch: Watch
    steps: list[ReplayStep] = []
    at_s: array[int] = msgspec.field(default_factory=lambda: array("I"))  # before 2106: half the memory
    cheapest: array[float] = msgspec.field(default_factory=lambda: array("d"))  # of the offers that fit at any price
    taken: array[float] = msgspec.field(default_factory=lambda: array("d"))  # the best match, if the watch could rent
    blind: int = 0  # polls with too little data for a decision
    refused: dict[str, int] = {}  # reason of the refusal → number of polls


def replay(
    watches: Sequence[tuple[Watch, WatchCandidates]],
    market_history: MarketHistory,
    setting: ReplaySettings,
    progress: BacktestProgress | None = None,
) -> tuple[list[WatchReplay], SimulatedLaunches]:
    """What these watches would have done together, with a shared budget."""
    simulated = SimulatedLaunches([watch for watch, _ in watches], setting.budget, setting.zone, setting.job)
    replayers = [_WatchReplayer(watch, found, setting, simulated) for watch, found in watches]
    polls = poll_columns_of(market_history.polls)
    polled = _PolledWatches(replayers, polls.polls_by_kind)
    for number, (at_s, kinds) in enumerate(_polls_by_second(polls)):
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(at_s - polls.at_s[0], polls.at_s[-1] - polls.at_s[0])
        if simulated.has_alive:
            simulated.advance(datetime.fromtimestamp(at_s, UTC))
        for replayer, watch_polls in polled(kinds):
            replayer.process(watch_polls, at_s)
    return [replayer.watch_replay for replayer in replayers], simulated


def _polls_by_second(polls: MarketPolls) -> Iterator[tuple[int, Sequence[int]]]:
    """Group the kinds of all queries of one second into one poll, because their order is not recorded."""
    times_s, start, count = polls.at_s, 0, len(polls)
    while start < count:
        at_s, end = times_s[start], start + 1
        while end < count and times_s[end] == at_s:
            end += 1
        yield at_s, polls.kinds[start:end]
        start = end


class _PolledWatches:
    """Finds the watches for which polls were sent: of many watches, a poll is about few."""

    def __init__(self, replayers: Sequence[_WatchReplayer], polls_by_kind: Sequence[MarketPoll]) -> None:
        self._by_kind = [[(one, found) for one in replayers if (found := one.poll_of(kind))] for kind in polls_by_kind]
        self._of_one = [[(replayer, (poll,)) for replayer, poll in polled] for polled in self._by_kind]
        self._order = {replayer: number for number, replayer in enumerate(replayers)}

    def __call__(self, kinds: Sequence[int]) -> Iterable[tuple[_WatchReplayer, Sequence[WatchPoll]]]:
        if len(kinds) == 1:
            return self._of_one[kinds[0]]
        polled: dict[_WatchReplayer, list[WatchPoll]] = {}
        for kind in kinds:
            for replayer, poll in self._by_kind[kind]:
                polled.setdefault(replayer, []).append(poll)
        return sorted(polled.items(), key=lambda item: self._order[item[0]])


class _WatchReplayer:
    """The replay of one watch."""

    def __init__(
        self, watch: Watch, found: WatchCandidates, setting: ReplaySettings, simulated: SimulatedLaunches
    ) -> None:
        self.watch_replay = WatchReplay(watch=watch)
        self._watch = watch
        self._setting = setting
        self._simulated = simulated
        self._known_offers = KnownOffers(watch, found)
        self._memory = WatchMemory()
        self._rounds = PollCycle()
        self._expected: frozenset[QueryKey] | None = None
        self._paces: frozenset[QueryKey] = frozenset()
        self._own_label = watch.gpu_names[0] if len(watch.gpu_names) == 1 else _SEVERAL
        self._rents = watch.action is Action.LAUNCH
        self._limited, self._limited_until_s = watch, -inf
        # at the newest decision:
        self._has_match = False
        self._is_blind = False
        self._taken = _NONE
        self._all_known = False  # every query had a recent complete answer, or there was a match
        self._changes = -1  # of the known offers
        self._same_until_s = -inf  # before that, only such changes lead to another decision

    def poll_of(self, poll: MarketPoll) -> WatchPoll | None:
        """What polls of this kind are to the watch; None: nothing."""
        watch = self._watch
        if not (watch.providers is None or poll.provider in watch.providers) or not _wants(watch.spot, poll.spot):
            return None
        names = [name for name in watch.gpu_names if poll.gpu in (_SEVERAL, name)]
        queries = [self._known_offers.query((poll.provider, name, poll.spot)) for name in names]
        return (
            WatchPoll(
                queries=queries,
                age_s=int(self._setting.age_of(poll.provider).total_seconds()),
                is_own=poll.lane == _HUNT and poll.gpu == self._own_label,
                proves_absence=poll.proves_absence,
                failed=poll.failed,
            )
            if queries
            else None
        )

    def process(self, polls: Sequence[WatchPoll], at_s: int) -> None:
        """Process the polls of one second, if one was sent for this watch."""
        known_offers = self._known_offers
        keys = known_offers.apply(polls[0], at_s)
        for poll in polls[1:]:
            keys += known_offers.apply(poll, at_s)
        if not keys:
            return
        if at_s > known_offers.valid_until_s:
            known_offers.drop_older(at_s)
        if known_offers.changes != self._changes or at_s >= self._same_until_s:
            self._decide_and_rent(keys, at_s)
        elif not self._has_match:
            self._rounds.note(keys, self._paces, has_match=False, all_known=self._all_known)
        watch_replay, cheapest = self.watch_replay, known_offers.cheapest
        watch_replay.at_s.append(at_s)
        watch_replay.cheapest.append(_NONE if cheapest is None else cheapest)
        watch_replay.taken.append(self._taken)
        watch_replay.blind += self._is_blind

    def _decide_and_rent(self, keys: Sequence[QueryKey], at_s: int) -> None:
        now = datetime.fromtimestamp(at_s, UTC)
        before = self._memory
        decision = self._decide(keys, at_s, now)
        begun, refusal = self._rent(decision, now)
        if self._rents and self._watch.spot is SpotPolicy.FIRST:
            self._memory = self._with_wait(decision, before, now, has_rented=bool(begun)).memory
        self._note_step(decision, begun, refusal)
        best = decision.best
        self._has_match, self._is_blind = best is not None, decision.reason is DecisionReason.NO_DATA
        self._taken = best.price_microusd_gpu_hour if best is not None and decision.true_now else _NONE

    def _decide(self, keys: Sequence[QueryKey], at_s: int, now: datetime) -> Decision:
        known_offers, setting = self._known_offers, self._setting
        expected = known_offers.recent_queries
        if expected is not self._expected:
            self._expected, self._paces = expected, cycle_members(expected, setting.age_of)
        if at_s >= self._limited_until_s:
            self._limited, self._limited_until_s = setting.limit(self._watch, now)
        watch = self._limited
        observation = self._rounds.observe(
            keys,
            self._found(watch),
            near=known_offers.near,
            known=known_offers.known,
            expected=expected,
            paces=self._paces,
            observed_at=now,
        )
        decision = decide(watch, observation, self._memory, now, setting.zone)
        self._memory = decision.memory
        is_tried = decision.true_now or decision.reason is DecisionReason.WAITS_FOR_SPOT
        until = None if self._rents and is_tried else same_until(watch, observation, decision)
        self._same_until_s = min(self._limited_until_s, at_s if until is None else until.timestamp())
        self._all_known, self._changes = observation.known, known_offers.changes
        return decision

    def _found(self, watch: Watch) -> tuple[Match, ...]:
        """The offers that the watch accepts at its limit, cheapest first; an alert needs only the first."""
        limit = watch.max_price_usd_gpu_hour
        if not self._rents and watch.spot is not SpotPolicy.FIRST:
            return self._known_offers.best_under(limit)
        found = self._known_offers.under
        return found if watch is self._watch else tuple([match for match in found if is_at_most(limit, match)])

    def _rent(self, decision: Decision, now: datetime) -> tuple[list[SimulatedLaunch], LaunchRefusal | None]:
        if not self._rents or not decision.true_now:
            return [], None
        return self._simulated.fill(self._watch, self._setting.able(decision.matches), now)

    def _with_wait(self, decision: Decision, before: WatchMemory, now: datetime, *, has_rented: bool) -> Decision:
        """The decision with the wait for a spot offer as the admission leaves it, as in the daemon."""
        if has_rented or not decision.matches:
            return after_renting(decision) if has_rented else decision
        found = self._setting.able(decision.matches)
        is_free = bool(found) and self._simulated.admits(self._watch, found, now)
        return decision if is_free else after_refusal(decision, before)

    def _note_step(self, decision: Decision, begun: Sequence[SimulatedLaunch], refusal: LaunchRefusal | None) -> None:
        watch_replay = self.watch_replay
        if refusal is not None:
            watch_replay.refused[refusal.reason.value] = watch_replay.refused.get(refusal.reason.value, 0) + 1
        last = watch_replay.steps[-1] if watch_replay.steps else None
        if decision.fires or begun or last is None or _differs(last, decision, refusal):
            step = ReplayStep(decision.decided_at, decision.reason, decision.best, tuple(begun), refusal)
            watch_replay.steps.append(step)


def _differs(last: ReplayStep, decision: Decision, refusal: LaunchRefusal | None) -> bool:
    """Does the step differ? Refusals are compared by reason: their texts contain sums that change with every poll."""
    if last.reason is not decision.reason or last.best is not decision.best:
        return True
    return (last.refusal and last.refusal.reason) is not (refusal and refusal.reason)


def _wants(policy: SpotPolicy, spot: bool) -> bool:
    return policy in {SpotPolicy.ANY, SpotPolicy.FIRST} or spot is (policy is SpotPolicy.ONLY)
