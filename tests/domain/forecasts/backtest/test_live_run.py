"""A daemon's run over a random market, recorded in a real store, replays to exactly the same decisions.

The live side consists of the parts of `gpuwatch run`: hunts, sweeps, `Evaluator`, unit of work and launches on SQLite.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.domain.forecasts.backtest.replay import ReplaySettings, replay
from gpuwatch.domain.forecasts.backtest.replayed_candidates import find_candidates
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Decision, Match, WatchMemory
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import ProviderDown, ProviderError
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_watch
from tests.engine.uow_fakes import Started
from tests.storage.stored_answers import NOON, an_offer

GPUS = ("H100 SXM", "H100 PCIe")
TWENTY = Commission("0.20")
MAX_AGE = timedelta(hours=3)
BUDGET = Budget(max_usd_hour=Decimal("4.50"), max_usd_day=Decimal("24.00"))
Reported = tuple[float, str, str | None, int | None, tuple[str | None, ...]]  # time, reason, offer, price, rented

ALERTS = a_watch(name="alerts", gpu_names=GPUS, max_price_usd_gpu_hour=Decimal("2.40"), repeat_every_s=3600.0)
HELD = a_watch(
    name="held",
    gpu_names=("H100 SXM",),
    max_price_usd_gpu_hour=Decimal("2.16"),
    hold_for_s=300.0,
    active=("13:00-16:00",),
    improve_by=0.02,
    disk_gb=100.0,
)
RENTS = a_watch(
    name="rents",
    gpu_names=GPUS,
    max_price_usd_gpu_hour=Decimal("2.40"),
    spot=SpotPolicy.ANY,
    action=Action.LAUNCH,
    launch=LaunchSpec(max_active=2, max_total=0, max_runtime_s=3000.0),
)
SPOT_FIRST = a_watch(
    name="spot first",
    gpu_names=GPUS,
    max_price_usd_gpu_hour=Decimal("2.40"),
    spot=SpotPolicy.FIRST,
    spot_for_s=900.0,
    repeat_every_s=3600.0,
)
RENTS_FIRST = a_watch(
    name="rents spot first",
    gpu_names=("H100 SXM",),
    max_price_usd_gpu_hour=Decimal("2.16"),
    spot=SpotPolicy.FIRST,
    spot_for_s=1200.0,
    action=Action.LAUNCH,
    launch=LaunchSpec(max_active=1, max_total=0, max_runtime_s=2400.0),
)
WATCHES = (ALERTS, HELD, RENTS)


class Market:
    """Six machines whose prices appear, disappear and change; searches sometimes fail."""

    def __init__(self, seed: int, fails: float = 0.05) -> None:
        self.name, self._fails = "vastai", fails
        self.now = NOON
        self._random = random.Random(seed)
        self._prices: dict[tuple[str, str, bool], float] = {}
        self._is_down = False
        self.passes: Callable[[datetime], None] = lambda now: None  # time does

    def step(self, now: datetime) -> None:
        """Change the market between rounds."""
        self.now = now
        self._is_down = self._random.random() < self._fails
        for machine, gpu, spot in itertools.product("abc", GPUS, (False, True)):
            if now > NOON and self._random.random() < 0.25:
                self._prices.pop((machine, gpu, spot), None)
                if self._random.random() < 0.5:
                    self._prices[machine, gpu, spot] = self._random.choice([1.5, 1.7, 1.75, 1.8, 2.0, 2.4, 3.0])

    def search(self, query: Query) -> Answer:
        """Answer like a marketplace: filtered by the query."""
        self.now += timedelta(seconds=1)  # no two answers arrive at the same moment
        self.passes(self.now)
        if self._is_down:
            raise ProviderDown("503")
        offers = [offer for offer in self._offers(query.disk_gb) if self._is_asked(offer, query)]
        return Answer(
            provider=self.name,
            observed_at=self.now,
            offers=sorted(offers, key=lambda offer: offer.quoted_usd_hour),
            completeness=Completeness.COMPLETE,
            rows=len(offers),
        )

    def _offers(self, disk_gb: float | None) -> Iterator[Offer]:
        size = 8.0 if disk_gb is None else disk_gb
        for (machine, gpu, spot), price in self._prices.items():
            yield an_offer(
                f"{machine}{gpu[5]}",
                price + 0.144 * (size - 8.0) / 720,
                gpu=gpu,
                gpu_wire=gpu,
                spot=spot,
                offer_id=f"9{machine}{gpu[5]}{spot:d}",
                quoted_disk_gb=size,
                disk_usd_gb_month=0.144,
                observed_at=self.now,
            )

    @staticmethod
    def _is_asked(offer: Offer, query: Query) -> bool:
        most = query.max_listed_usd_hour
        is_cheap = most is None or offer.quoted_usd_hour <= most
        return offer.gpu in query.gpus and offer.spot == query.spot and is_cheap


class NotingEvaluator(Evaluator):
    """Records decisions."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.decided: list[tuple[Decision, tuple[str | None, ...]]] = []
        self.begun: list[Started] = []

    def evaluate(self, watches: Sequence[Watch], *rest: object) -> list[Decision]:
        self.begun.clear()
        decisions = super().evaluate(watches, *rest)  # type: ignore[arg-type]
        for decision in decisions:
            mine = tuple(one.launch.machine_id for one in self.begun if one.watch.name == decision.watch)
            self.decided.append((decision, mine))
        return decisions


class Daemon:
    """One provider's hunts and sweeps, and launches that run at once until their end."""

    def __init__(self, database: Database, market: Market, watches: Sequence[Watch] = WATCHES) -> None:
        self.market, self.watches = market, watches
        self.history, self.launch_repository = SqlHistoryRecorder(database), SqlLaunchRepository(database)
        ids = (f"live{n:08d}" for n in itertools.count())
        rules = EvaluationRules(
            commissions={"vastai": TWENTY},
            budget=BUDGET,
            dry_run=False,
            zone=ZoneInfo("UTC"),
            expected_views={
                watch.name: frozenset(("vastai", spot) for spot in RENTAL_TYPES[watch.spot]) for watch in WATCHES
            },
            max_age=MAX_AGE,
            links={},
        )
        self.evaluator = NotingEvaluator(SqlDecisionStore(database), rules, self, LaunchSlots(), lambda: next(ids))
        market.passes = self._end_what_is_over
        self.hunter = Hunter(market, watches, TWENTY, self.evaluator, self._keep_hunt, threading.Event())

    def round(self, now: datetime) -> None:
        """Run a sweep, then the hunts."""
        self.market.step(now)
        for gpu, spot in itertools.product(GPUS, (False, True)):
            self._sweep(gpu, spot)
        self.hunter.run_round(lambda: self.market.now, 1.0, 1.0)

    def _end_what_is_over(self, now: datetime) -> None:
        for launch in self.launch_repository.alive():
            ends_at = launch.intended_at + timedelta(seconds=launch.max_runtime_s or 0)
            if ends_at <= now:
                stopping = self.launch_repository.transition(launch, LaunchState.STOPPING, "over", ends_at)
                self.launch_repository.transition(
                    stopping, LaunchState.ENDED, "gone", ends_at, ended_at=ends_at, end_reason="over"
                )

    def _sweep(self, gpu: str, spot: bool) -> None:
        try:
            answer = self.market.search(Query(gpus=(gpu,), spot=spot))
        except ProviderError as error:
            self.history.record_failure(
                "vastai", lane="sweep", gpu=gpu, spot=spot, at=self.market.now, error=str(error)
            )
        else:
            self.history.record(answer, lane="sweep", gpu=gpu, spot=spot)

    def _keep_hunt(self, query: Query, answer: Answer | ProviderError, now: datetime) -> None:
        gpu = query.gpus[0] if len(query.gpus) == 1 else ""
        if isinstance(answer, ProviderError):
            self.history.record_failure("vastai", lane="hunt", gpu=gpu, spot=query.spot, at=now, error=str(answer))
        else:
            self.history.record(answer, lane="hunt", gpu=gpu, spot=query.spot)

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        return None

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        self.evaluator.begun.append(Started(launch, watch, tuple(candidates)))
        at = launch.intended_at
        self.launch_repository.transition(launch, LaunchState.RUNNING, "runs", at, running_at=at, instance_id="i")


def live(daemon: Daemon, watch: Watch) -> list[Reported]:
    """Return decisions that differ from the previous one, or that rented something."""
    found: list[Reported] = []
    for decision, begun in daemon.evaluator.decided:
        if decision.watch == watch.name:
            _note(found, decision, begun)
    return found


def replayed(
    database: Database, setting: ReplaySettings, until: datetime, watches: Sequence[Watch] = WATCHES
) -> Mapping[str, list[Reported]]:
    """Return the same from the store's data."""
    market_history = read_market_history(database, MarketFilter(gpus=GPUS), NOON - timedelta(days=1), until)
    players = [
        (watch, find_candidates(watch, market_history, setting.commissions, REFERENCE_DISK_GB)) for watch in watches
    ]
    courses, _ = replay(players, market_history, setting)
    found: dict[str, list[Reported]] = {}
    for watch_replay in courses:
        mine = found[watch_replay.watch.name] = []
        for step in watch_replay.steps:
            decision = Decision(
                watch=watch_replay.watch.name,
                reason=step.reason,
                decided_at=step.at,
                matches=(step.best,) if step.best else (),
                memory=WatchMemory(),
            )
            _note(mine, decision, tuple(launch.machine_id for launch, _ in step.begun))
    return found


def _note(found: list[Reported], decision: Decision, begun: tuple[str | None, ...]) -> None:
    best = decision.best
    who = None if best is None else f"{best.offer.machine_id} spot" if best.offer.spot else best.offer.machine_id
    price = best.price.price_microusd_hour if best else None
    now = ((decision.decided_at - NOON).total_seconds(), decision.reason.value, who, price, begun)
    if decision.fires or begun or not found or found[-1][1:4] != now[1:4]:
        found.append(now)


SETTING = ReplaySettings(
    commissions={"vastai": TWENTY}, budget=BUDGET, max_age=MAX_AGE, reference_disk_gb=REFERENCE_DISK_GB
)


def compared(
    database: Database, market: Market, watches: Sequence[Watch], seed: int = 0
) -> Mapping[str, list[Reported]]:
    """Return what the replay decided; it is what the daemon decided."""
    daemon, waits = Daemon(database, market, watches), random.Random(seed)
    now = NOON
    for _ in range(60):
        daemon.round(now)
        now += timedelta(seconds=waits.choice([60, 120, 300, 900]))
    found = replayed(database, SETTING, now, watches)
    for watch in watches:
        # in the first minute, on an empty market, the daemon has not hunted yet
        ours, theirs = found[watch.name], live(daemon, watch)
        assert [reported for reported in ours if reported[0] >= 60] == [
            reported for reported in theirs if reported[0] >= 60
        ]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_recorded_run_replays_to_the_same_decisions(database: Database, seed: int) -> None:
    found = compared(database, Market(seed), WATCHES, seed)
    begun = [reported for reported in found["rents"] if reported[4]]
    reasons = {reported[1] for reported in found["alerts"] + found["held"]}
    assert len(begun) >= 3
    assert reasons >= {"first_match", "nothing_new", "no_offer", "outside_window"}, "it was worth comparing"


@pytest.mark.parametrize("watch", [SPOT_FIRST, RENTS_FIRST], ids=["alerts", "rents"])
def test_a_watch_with_spot_first_replays_to_the_same_decisions(database: Database, watch: Watch) -> None:
    """Its wait, the admission during it, and what it takes after it."""
    found = compared(database, Market(0, fails=0), (watch,))[watch.name]
    assert {reported[1] for reported in found} >= {"waits_for_spot", "first_match"}


def test_what_a_store_learns_later_changes_nothing_before(database: Database) -> None:
    daemon, waits = Daemon(database, Market(7)), random.Random(7)
    now, then = NOON, {}
    for number in range(45):
        daemon.round(now)
        now += timedelta(seconds=waits.choice([60, 300, 900]))
        if number in {10, 29}:
            then[now] = replayed(database, SETTING, now)  # as the store was at that moment
    whole = replayed(database, SETTING, now)
    assert any(reported[4] for reported in whole["rents"])
    for moment, known in then.items():
        cut_s = (moment - NOON).total_seconds()
        before = {name: [reported for reported in steps if reported[0] < cut_s] for name, steps in whole.items()}
        assert known == before
        assert replayed(database, SETTING, moment) == before, "nor does reading less of it"
