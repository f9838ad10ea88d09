"""A day of hunts under a row quota: nothing starves, and a pause of gpuwatch's own is never the provider's silence."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.history.answer_recorder import AnswerRecorder
from gpuwatch.engine.history.sweep import Sweeper
from gpuwatch.engine.market.drift_detector import DriftDetector
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.market.known_prices import PricesOnSale
from gpuwatch.engine.market.query_planner import QueryPlanner
from gpuwatch.engine.market.row_budget import HUNT_ROWS, matched_pace_s
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.provider_worker import ProviderWorker
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import AlertKind, Answer, ProviderSettings, Query
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import an_answer
from tests.engine.watches.test_evaluator import Bench
from tests.engine.watches.test_hunt import TWENTY
from tests.engine.watches.test_provider_worker import CountingHistory

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
DAY_S = 86_400
SWEEP_ROWS = 60
PAUSED = LaunchRefusal(RefusalReason.PAUSED, "renting is paused")


class DayHistory(CountingHistory):
    """Counts the rows of each UTC day."""

    def record(self, answer: Answer, *, lane: str, gpu: str, spot: bool) -> object:
        day = answer.observed_at.date()
        self.by_day[day] = self.by_day.get(day, 0) + answer.rows
        return None

    def __init__(self) -> None:
        super().__init__()
        self.by_day: dict[object, int] = {}

    def rows_used(self, provider: str, now: datetime) -> int:
        return self.by_day.get(now.date(), 0)


class FullMarket:
    """Every query finds as many offers as it may show; it can fall silent."""

    name = "vastai"

    def __init__(self, world: DayWorld) -> None:
        self._world = world
        self.is_down = False
        self.asked: list[tuple[datetime, Query]] = []

    def search(self, query: Query) -> Answer:
        now = self._world.now
        self.asked.append((now, query))
        if self.is_down:
            raise ProviderDown("vastai: HTTP 502")
        rows = query.limit or SWEEP_ROWS
        offers = [self._offer(query, number, now) for number in range(rows)]
        return msgspec.structs.replace(an_answer(*offers, at=now), complete_to_usd_hour=1.0)

    def _offer(self, query: Query, number: int, now: datetime) -> Offer:
        gpu = query.gpus[number % len(query.gpus)]
        return an_offer(
            provider="vastai",
            gpu=gpu,
            quoted_usd_hour=1.0,
            observed_at=now,
            machine_id=str(number),
            offer_id=str(number),
        )


class DayWorld:
    """One provider's worker, its tasks run in virtual time."""

    def __init__(self, watches: Sequence[Watch], rows_per_day: int, refusal: LaunchRefusal | None, plans: bool) -> None:
        self.now = MIDNIGHT
        self.bench = Bench(*watches, refusal=refusal)
        self.market = FullMarket(self)
        self.history = DayHistory()
        ids = (f"i{n}" for n in itertools.count())
        monitor = HealthMonitor("vastai", self.bench.uow_factory, lambda: next(ids), lambda: self.now.timestamp())  # noqa: PLW0108 it moves
        prices = PricesOnSale(8.0) if plans else None
        drift = DriftDetector("vastai", self.bench.uow_factory, lambda: next(ids))
        recorder = AnswerRecorder("vastai", self.history, monitor, drift, prices=prices)
        stopping = threading.Event()
        planner = QueryPlanner(prices) if prices is not None else None
        evaluator = self.bench.evaluator
        self.worker = ProviderWorker(
            ProviderSettings(name="vastai", base_url="http://127.0.0.1", rows_per_day=rows_per_day),
            self.history,
            monitor,
            recorder,
            lambda: self.now,
            hunter=Hunter(self.market, watches, TWENTY, evaluator, recorder.record_hunt, stopping, planner=planner),
            sweeper=Sweeper(
                self.market, [(watch.gpu_names[0], False) for watch in watches], recorder.record_sweep, stopping
            ),
        )

    def live(self, seconds: int) -> None:
        """Run the tasks as the scheduler does."""
        until = self.now + timedelta(seconds=seconds)
        every_s = round(self.worker.hunt_every_s)
        for tick in itertools.count():
            if self.now >= until:
                return
            if tick * 3 % every_s == 0:
                self.worker.hunt()
            if tick % 5 == 0:
                self.worker.sweep_if_due()
                self.worker.check_health()
            self.now += timedelta(seconds=3)

    def alerts(self, *kinds: AlertKind) -> list[str]:
        return [alert.headline for alert, _ in self.bench.uow_factory.alerts if alert.kind in kinds]

    def longest_pause_s(self, gpu: str) -> float:
        times = [at for at, query in self.market.asked if gpu in query.gpus and query.limit is not None]
        return max((after - before).total_seconds() for before, after in itertools.pairwise([*times, self.now]))


def watches_of(count: int, action: Action = Action.ALERT) -> list[Watch]:
    return [
        a_watch(
            name=f"w{n}", gpu=(f"GPU {n}",), gpu_names=(f"GPU {n}",), action=action,
            max_price_usd_gpu_hour=Decimal("3.60"), launch=None if action is Action.ALERT else LaunchSpec(),
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("plans", [False, True], ids=["alone", "joined"])
@pytest.mark.parametrize("refusal", [None, PAUSED], ids=["alert", "paused"])
def test_with_the_default_quota_none_of_eight_matching_watches_starves(
    refusal: LaunchRefusal | None, plans: bool
) -> None:
    """Whether they only alert, or may not rent what they want: no answer becomes older than `max_ages` allows."""
    watches = watches_of(8, Action.ALERT if refusal is None else Action.LAUNCH)
    world = DayWorld(watches, 20_000, refusal, plans)
    world.live(DAY_S - 60)
    assert world.history.by_day[MIDNIGHT.date()] <= 20_000
    assert not world.worker.plan(world.now).spent
    assert max(world.longest_pause_s(watch.gpu_names[0]) for watch in watches) < 3 * matched_pace_s(20_000, 8)
    assert sum(query.limit is None for _, query in world.market.asked) >= 8 * 6, "the history is read on"
    assert world.alerts(AlertKind.BLIND, AlertKind.RECOVERED, AlertKind.DAEMON) == []


@pytest.mark.parametrize("action", [Action.ALERT, Action.LAUNCH])
def test_a_small_quota_is_no_silence_of_the_provider(action: Action) -> None:
    world = DayWorld(watches_of(1, action), 250, None if action is Action.ALERT else PAUSED, plans=False)
    world.live(DAY_S - 60)
    assert world.alerts(AlertKind.BLIND, AlertKind.RECOVERED, AlertKind.DAEMON) == []
    assert world.history.by_day[MIDNIGHT.date()] <= 250
    assert world.longest_pause_s("GPU 0") < 3 * matched_pace_s(250, 1)


def test_a_small_quota_hides_no_silence_of_the_provider() -> None:
    world = DayWorld(watches_of(1), 250, None, plans=False)
    world.live(3600)
    world.market.is_down = True
    world.live(round(matched_pace_s(250, 1)))
    assert len(world.alerts(AlertKind.BLIND)) == 1
    world.market.is_down = False
    world.live(300)
    assert len(world.alerts(AlertKind.RECOVERED)) == 1


def test_one_failure_in_a_long_pause_is_no_blindness() -> None:
    world = DayWorld(watches_of(1), 250, None, plans=False)
    world.live(60)
    until = matched_pace_s(250, 1)
    world.market.is_down = True
    while len(world.market.asked) < 2:
        world.live(30)
    world.market.is_down = False
    world.live(300)
    assert world.alerts(AlertKind.BLIND) == []
    assert len(world.market.asked) >= 3, "a failure costs no rows, so it is tried again at once"
    assert until > 3600


def test_used_rows_are_reported_as_gpuwatch_s_own_pause_once_a_day() -> None:
    world = DayWorld(watches_of(1), 250, None, plans=False)
    world.history.by_day[MIDNIGHT.date()] = 250
    world.live(7200)
    assert world.market.asked == []
    assert world.alerts(AlertKind.BLIND) == []
    (headline,) = world.alerts(AlertKind.DAEMON)
    assert headline == "gpuwatch does not poll vastai until 2026-11-22 00:00 UTC: the day's rows are used up"
    assert all(health.blind_since is None for health in world.worker.health_monitor.lanes.values())
    world.now = MIDNIGHT + timedelta(days=1)
    world.live(60)
    assert len(world.market.asked) >= 1


def test_a_watch_that_is_about_to_rent_is_polled_at_full_pace_while_rows_last() -> None:
    world = DayWorld(watches_of(1, Action.LAUNCH), 20_000, PAUSED, plans=False)
    world.live(3600)
    hunts = [query for _, query in world.market.asked if query.limit == HUNT_ROWS]
    assert len(hunts) == pytest.approx(120, abs=2)
