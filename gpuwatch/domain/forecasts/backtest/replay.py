"""Replays a market history poll by poll: what each watch would have decided and rented. Pure.

The decisions are those of `watches.decide` and `launches.life.admission`, as in the daemon. Nothing looks ahead: if the
history is cut after any poll, everything before it stays the same.

- `replay`: all watches together, with a shared budget;
- `SimulatedLaunches`: the launches of one replay, admitted by the daemon's rules, running at once, ended when their
  time is over.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from itertools import groupby
from typing import NamedTuple

import msgspec

from gpuwatch.domain.forecasts.backtest.replayed_candidates import (
    HUNT,
    BacktestCandidate,
    BacktestProgress,
    KnownOffers,
    QueryKey,
)
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll
from gpuwatch.domain.launches.instances.machines_and_places import AVOID_FOR
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.admission import AdmissionState, admit_launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import Commission, threshold_microusd
from gpuwatch.domain.watches.decide import (
    Decision,
    DecisionReason,
    Match,
    PollCycle,
    WatchMemory,
    cycle_members,
    decide,
)
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.domain.watches.windows import is_open

SimulatedLaunch = tuple[Launch, Match]
ASSUMED_LIFETIME = timedelta(hours=24)  # the assumption of budgets without a `max_runtime`

_PROGRESS_EVERY = 1024
_NONE = -1.0
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
    limit: Callable[[Watch, datetime], Watch] = lambda watch, now: watch  # the watch with its limit at this time

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
    at_s: array[int] = msgspec.field(default_factory=lambda: array("q"))
    cheapest: array[float] = msgspec.field(default_factory=lambda: array("d"))  # of the offers that fit at any price
    taken: array[float] = msgspec.field(default_factory=lambda: array("d"))  # the best match, if the watch could rent
    blind: int = 0  # polls with too little data for a decision
    refused: dict[str, int] = {}  # reason of the refusal → number of polls


def replay(
    watches: Sequence[tuple[Watch, Sequence[BacktestCandidate]]],
    market_history: MarketHistory,
    setting: ReplaySettings,
    progress: BacktestProgress | None = None,
) -> tuple[list[WatchReplay], SimulatedLaunches]:
    """What these watches would have done together, with a shared budget."""
    simulated = SimulatedLaunches([watch for watch, _ in watches], setting.budget, setting.zone, setting.job)
    replayers = [_WatchReplayer(watch, found, setting, simulated) for watch, found in watches]
    asked = _AskedFor(replayers)
    for number, (at_s, polls) in enumerate(_polls_by_second(market_history)):
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(
                at_s - (market_history.starts_s or 0), (market_history.ends_s or 0) - (market_history.starts_s or 0)
            )
        now = datetime.fromtimestamp(at_s, UTC)
        simulated.advance(now)
        for replayer in asked(polls):
            replayer.process(polls, at_s, now)
    return [replayer.watch_replay for replayer in replayers], simulated


def _polls_by_second(market_history: MarketHistory) -> Iterator[tuple[int, list[MarketPoll]]]:
    """Group all queries of one second into one poll, because their order is not recorded."""
    for at_s, polls in groupby(market_history.polls, key=lambda poll: poll.at_s):
        yield at_s, list(polls)


class _AskedFor:
    """Finds the watches for which polls were sent: of many watches, a poll is about few."""

    def __init__(self, replayers: Sequence[_WatchReplayer]) -> None:
        self._replayers = replayers
        self._by_query: dict[tuple[str, str, bool], Sequence[_WatchReplayer]] = {}

    def __call__(self, polls: Sequence[MarketPoll]) -> Sequence[_WatchReplayer]:
        if len(polls) > 1:
            return self._replayers
        (poll,) = polls
        query = (poll.provider, poll.gpu, poll.spot)
        asked = self._by_query.get(query)
        if asked is None:
            asked = self._by_query[query] = [replayer for replayer in self._replayers if replayer.keys_of(poll)]
        return asked


class _WatchReplayer:
    """The replay of one watch."""

    def __init__(
        self, watch: Watch, found: Sequence[BacktestCandidate], setting: ReplaySettings, simulated: SimulatedLaunches
    ) -> None:
        self.watch_replay = WatchReplay(watch=watch)
        self._watch = watch
        self._setting = setting
        self._simulated = simulated
        # a method instead would keep all offers alive until the garbage is collected
        self._age_s = cache(lambda provider: int(setting.age_of(provider).total_seconds()))
        self._known_offers = KnownOffers(watch, found, self._age_s)
        self._memory = WatchMemory()
        self._rounds = PollCycle()
        self._expected: frozenset[QueryKey] | None = None
        self._paces: frozenset[QueryKey] = frozenset()
        self._keys_by_query: dict[tuple[str, str, bool], tuple[QueryKey, ...]] = {}
        self._own_label = watch.gpu_names[0] if len(watch.gpu_names) == 1 else _SEVERAL
        self._hunted_s: dict[QueryKey, int] = {}
        self._judged: tuple[Match, ...] = ()
        self._under: tuple[Match, ...] = ()
        self._limit: Decimal | None = None

    def process(self, polls: Sequence[MarketPoll], at_s: int, now: datetime) -> None:
        """Process one poll, if it was sent for this watch."""
        keys = [key for poll in polls for key in self._queries_to_decide(poll)]
        if not keys:
            return
        decision = self._decide(keys, at_s, now)
        begun, refusal = self._rent(decision, now)
        self._note(decision, begun, refusal, at_s)

    def _queries_to_decide(self, poll: MarketPoll) -> Iterator[QueryKey]:
        """The queries to decide on. If the daemon hunted for this watch, it decided on hunts and not on sweeps."""
        is_own = poll.lane == HUNT and poll.gpu == self._own_label
        keys = self.keys_of(poll)
        least_s = poll.at_s - self._age_s(poll.provider) if keys else 0
        for key in keys:
            if poll.proves_absence:
                self._known_offers.note_complete(key, poll.at_s)
            if is_own:
                self._hunted_s[key] = poll.at_s
            if is_own or self._hunted_s.get(key, least_s - 1) < least_s:
                self._known_offers.apply_query(key, poll)
                yield key

    def keys_of(self, poll: MarketPoll) -> tuple[QueryKey, ...]:
        """The queries of this watch that a poll answers."""
        polled = (poll.provider, poll.gpu, poll.spot)
        keys = self._keys_by_query.get(polled)
        if keys is None:
            watch, (provider, gpu, spot) = self._watch, polled
            is_mine = (watch.providers is None or provider in watch.providers) and _wants(watch.spot, spot)
            gpus = (name for name in watch.gpu_names if gpu in (_SEVERAL, name))
            keys = self._keys_by_query[polled] = tuple((provider, name, spot) for name in gpus) if is_mine else ()
        return keys

    def _decide(self, keys: Sequence[QueryKey], at_s: int, now: datetime) -> Decision:
        known_offers, setting = self._known_offers, self._setting
        known_offers.drop_older(at_s)
        expected = known_offers.recent_queries
        if expected is not self._expected:
            self._expected, self._paces = expected, cycle_members(expected, setting.age_of)
        watch, found = setting.limit(self._watch, now), known_offers.under
        if watch is not self._watch:
            found = self._under_limit(watch, found)
        look = self._rounds.observe(
            keys,
            found,
            near=known_offers.near,
            known=known_offers.known,
            expected=expected,
            paces=self._paces,
            observed_at=now,
        )
        decision = decide(watch, look, self._memory, now, setting.zone)
        self._memory = decision.memory
        return decision

    def _under_limit(self, watch: Watch, found: tuple[Match, ...]) -> tuple[Match, ...]:
        """The offers that a watch accepts at its limit: judged again only when the offers or the limit change."""
        limit = watch.max_price_usd_gpu_hour
        if found is not self._judged or limit != self._limit:
            self._judged, self._limit = found, limit
            self._under = tuple([match for match in found if _is_under(watch, match)])
        return self._under

    def _rent(self, decision: Decision, now: datetime) -> tuple[list[SimulatedLaunch], LaunchRefusal | None]:
        if self._watch.action is not Action.LAUNCH or not decision.true_now:
            return [], None
        return self._simulated.fill(self._watch, self._setting.able(decision.matches), now)

    def _note(
        self, decision: Decision, begun: Sequence[SimulatedLaunch], refusal: LaunchRefusal | None, at_s: int
    ) -> None:
        watch_replay, cheapest, best = self.watch_replay, self._known_offers.cheapest, decision.best
        watch_replay.at_s.append(at_s)
        watch_replay.cheapest.append(_NONE if cheapest is None else cheapest)
        watch_replay.taken.append(best.price_microusd_gpu_hour if best is not None and decision.true_now else _NONE)
        watch_replay.blind += decision.reason is DecisionReason.NO_DATA
        if refusal is not None:
            watch_replay.refused[refusal.reason.value] = watch_replay.refused.get(refusal.reason.value, 0) + 1
        last = watch_replay.steps[-1] if watch_replay.steps else None
        if decision.fires or begun or last is None or _differs(last, decision, refusal):
            step = ReplayStep(decision.decided_at, decision.reason, best, tuple(begun), refusal)
            watch_replay.steps.append(step)


def _differs(last: ReplayStep, decision: Decision, refusal: LaunchRefusal | None) -> bool:
    """Does the step differ? Refusals are compared by reason: their texts contain sums that change with every poll."""
    if last.reason is not decision.reason or last.best is not decision.best:
        return True
    return (last.refusal and last.refusal.reason) is not (refusal and refusal.reason)


def _wants(policy: SpotPolicy, spot: bool) -> bool:
    return policy is SpotPolicy.ANY or spot is (policy is SpotPolicy.ONLY)


def _is_under(watch: Watch, match: Match) -> bool:
    most = threshold_microusd(watch.max_price_usd_gpu_hour, match.offer.gpu_count)
    return match.price.price_microusd_hour <= most


class SimulatedLaunches:
    """All launches of one replay. A launch lasts for its `max_runtime`, or for the duration that the owner states."""

    def __init__(self, watches: Sequence[Watch], budget: Budget, zone: tzinfo, job: timedelta | None) -> None:
        self._lifetimes = {watch.name: lifetime_of(watch, job) for watch in watches}
        self._leaves = {w.name: w.active for w in watches if w.launch is not None and w.launch.stop_outside}
        self._budget = budget
        self._zone = zone
        self._alive: list[Launch] = []
        self._over: list[Launch] = []
        self._known: dict[str, Launch] = {}  # ended launches, by id
        self._totals: dict[str, int] = {}

    def newest(self, launch: Launch) -> Launch:
        """The current state of a launch."""
        return self._known.get(launch.launch_id, launch)

    def advance(self, now: datetime) -> None:
        """End the launches whose time is over."""
        for launch in list(self._alive):
            ends_at = self._ends_at(launch, now)
            if ends_at is not None:
                self._alive.remove(launch)
                over = self._known[launch.launch_id] = _ended(launch, ends_at)
                self._over.append(over)

    def fill(
        self, watch: Watch, found: Sequence[Match], now: datetime
    ) -> tuple[list[SimulatedLaunch], LaunchRefusal | None]:
        """Rent as many offers as the watch may, cheapest first; return them, and the reason why not more."""
        begun: list[SimulatedLaunch] = []
        left = list(found)
        while left:
            intent = Intent(
                watch=watch, match=left[0], launch_id=self._next_id(), dry_run=False, alternatives=tuple(left[1:])
            )
            got = admit_launch(intent, self._standing(watch, now), self._budget, now)
            if isinstance(got, LaunchRefusal):
                return begun, got
            launch, rented = got
            begun.append((self._runs(launch, now), rented))
            left = [match for match in left if match.offer.terms.fungible or not _is_of(match, launch)]
        return begun, None

    def cost_microusd(self, launch: Launch) -> int:
        """The cost of a launch up to its end, even if the history ends earlier."""
        ends_at = launch.ended_at or (launch.running_at or launch.intended_at) + self._lifetimes[launch.watch]
        return cost_microusd(_ended(launch, ends_at), ends_at)

    def life_of(self, launch: Launch) -> timedelta:
        """How long a launch lasts, unless its windows close."""
        return (launch.ended_at or launch.intended_at + self._lifetimes[launch.watch]) - launch.intended_at

    def _standing(self, watch: Watch, now: datetime) -> AdmissionState:
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since = min(month, now - AVOID_FOR)
        return AdmissionState(
            known=lambda: [
                *self._alive,
                *(launch for launch in self._over if launch.ended_at and launch.ended_at >= since),
            ],
            total=lambda: self._totals.get(watch.name, 0),
            avoided=lambda _known: {},
            ticked=lambda: watch.require,
        )

    def _runs(self, launch: Launch, now: datetime) -> Launch:
        running = msgspec.structs.replace(
            launch, state=LaunchState.RUNNING, running_at=now, instance_id=launch.launch_id
        )
        self._alive.append(running)
        self._totals[launch.watch] = self._totals.get(launch.watch, 0) + 1
        return running

    def _ends_at(self, launch: Launch, now: datetime) -> datetime | None:
        ends_at = launch.intended_at + self._lifetimes[launch.watch]
        if ends_at <= now:
            return ends_at
        windows = self._leaves.get(launch.watch, ())
        return now if windows and not is_open(windows, now, self._zone) else None

    def _next_id(self) -> str:
        return f"backtest{sum(self._totals.values()) + 1:06d}"


def lifetime_of(watch: Watch, job: timedelta | None) -> timedelta:
    """How long a launch of this watch lasts."""
    spec = watch.launch or LaunchSpec()
    limits = [job, None if spec.max_runtime_s is None else timedelta(seconds=spec.max_runtime_s)]
    return min((limit for limit in limits if limit is not None), default=ASSUMED_LIFETIME)


def _ended(launch: Launch, at: datetime) -> Launch:
    return msgspec.structs.replace(
        launch, state=LaunchState.ENDED, ended_at=at, end_reason=EndReason.MAX_RUNTIME.text()
    )


def _is_of(match: Match, launch: Launch) -> bool:
    return (match.offer.provider, match.offer.offer_id) == (launch.provider, launch.offer_id)
