"""One provider's part of the daemon: rows are planned, sweeps survive a restart, a full store stops nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from gpuwatch.engine.history.answer_recorder import AnswerRecorder
from gpuwatch.engine.history.sweep import Sweeper
from gpuwatch.engine.market.drift_detector import DriftDetector
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.provider_worker import ProviderWorker
from gpuwatch.errors import NoRowUnderstood, ProviderDown, RateLimited, StoreError
from gpuwatch.ports import Alert, AlertKind, Answer, Completeness, ProviderSettings, Query, Severity
from tests.builders import changed
from tests.engine.uow_fakes import NOON, MemoryUnitOfWork, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import WATCH, Bench, h100
from tests.engine.watches.test_hunt import TWENTY

SETTINGS = ProviderSettings(name="vastai", base_url="http://127.0.0.1", sweep_every_s=600.0)


class CountingHistory:
    """Counts rows; full when the test says so."""

    def __init__(self, used: int = 0) -> None:
        self.used = used
        self.full = False
        self.kept = 0

    def record(self, answer: Answer, *, lane: str, gpu: str, spot: bool) -> object:
        if self.full:
            raise StoreError("the disk is full")
        self.kept += 1
        self.used += answer.rows
        return None

    def record_failure(self, provider: str, *, lane: str, gpu: str, spot: bool, at: datetime, error: str) -> None:
        self.kept += 1

    def rows_used(self, provider: str, now: datetime) -> int:
        return self.used


class Post:
    """A worker with a hunt and a sweep over a scripted market."""

    def __init__(
        self,
        history: CountingHistory,
        swept_at: datetime | None = None,
        settings: ProviderSettings = SETTINGS,
        hunts: bool = True,
        targets: Sequence[tuple[str, bool]] = (("H100 SXM", False),),
    ) -> None:
        self.now = NOON
        self.bench = Bench(WATCH)
        self.market = ScriptedMarket(an_answer(h100()))
        uow_factory: MemoryUnitOfWork = self.bench.uow_factory
        health_monitor = HealthMonitor("vastai", uow_factory, lambda: "x", self._tick_s)
        drift_detector = DriftDetector("vastai", uow_factory, lambda: "y")
        self.recorder = AnswerRecorder("vastai", history, health_monitor, drift_detector)
        stopping = self.stopping = threading.Event()
        hunter = Hunter(self.market, (WATCH,), TWENTY, self.bench.evaluator, self.recorder.record_hunt, stopping)
        self.worker = ProviderWorker(
            settings,
            history,
            health_monitor,
            self.recorder,
            lambda: self.now,
            hunter=hunter if hunts else None,
            sweeper=Sweeper(self.market, targets, self.recorder.record_sweep, stopping),
            swept_at=swept_at,
        )

    def _tick_s(self) -> float:
        return self.now.timestamp()

    def reported(self) -> list[AlertKind]:
        alerts: list[tuple[Alert, tuple[str, ...]]] = self.bench.uow_factory.alerts
        return [alert.kind for alert, _ in alerts]


def test_a_restart_does_not_cost_a_sweep() -> None:
    unrationed = changed(SETTINGS, rows_per_day=0)
    post = Post(CountingHistory(), swept_at=NOON - timedelta(seconds=300), settings=unrationed)
    assert not post.worker.sweep_if_due()
    post.now += timedelta(seconds=300)
    assert post.worker.sweep_if_due()


def test_answers_that_stay_partial_are_reported_with_the_reason() -> None:
    post = Post(CountingHistory())
    partial = an_answer(completeness=Completeness.PARTIAL)
    post.market.script[:] = [msgspec.structs.replace(partial, incomplete_because="it ignored the GPU names")]
    for _ in range(5):
        post.worker.hunt()
        post.now += timedelta(seconds=60)
        post.worker.check_health()
    assert post.reported() == [AlertKind.BLIND]
    (alert, _), *_ = post.bench.uow_factory.alerts
    assert "ignored the GPU names" in dict(alert.facts)["Last error"]


def test_spent_rows_ask_nothing_and_are_reported_once() -> None:
    post = Post(CountingHistory(used=20_000))
    post.worker.hunt()
    post.now += timedelta(seconds=60)
    post.worker.hunt()
    assert not post.worker.sweep_if_due()
    assert post.market.asked == []
    assert post.reported() == [AlertKind.DAEMON], "a pause of gpuwatch's own, not of the provider"


def test_a_sweep_that_was_broken_off_is_due_at_once() -> None:
    post = Post(CountingHistory(), hunts=False)
    post.market.script[:] = [RateLimited("too often", 60.0), an_answer(h100())]
    assert post.worker.sweep_if_due()
    post.now += timedelta(seconds=15)
    assert post.worker.sweep_if_due()
    post.now += timedelta(seconds=15)
    assert not post.worker.sweep_if_due()
    assert len(post.market.asked) == 2


def test_a_round_that_took_too_long_is_followed_by_the_next_at_once() -> None:
    """The scheduler would start it only at the next multiple of `poll_every`: 60 s for a round of 36."""
    post = Post(CountingHistory())
    plain = post.market.search

    def slow(query: Query) -> Answer:
        post.now += timedelta(seconds=36 if len(post.market.asked) < 2 else 12)
        steps.append(post.worker.steps)
        return plain(query)

    steps: list[int] = []
    post.market.search = slow  # type: ignore[method-assign]
    post.worker.hunt()
    assert len(post.market.asked) == 3
    assert post.worker.finished_rounds == 3
    assert steps == [1, 3, 5]  # each query is progress for the watchdog, and each round


def test_a_stop_ends_rounds_that_follow_each_other() -> None:
    post = Post(CountingHistory())

    def slow(query: Query) -> Answer:
        post.now += timedelta(seconds=36)
        post.stopping.set()
        return an_answer()

    post.market.search = slow  # type: ignore[method-assign]
    post.worker.hunt()
    assert post.worker.finished_rounds == 1


def test_what_was_not_sent_is_no_search_of_the_history() -> None:
    history = CountingHistory()
    post = Post(history)
    held = RateLimited("asked too often", 60.0)
    held.was_sent = False
    post.market.script[:] = [held]
    post.worker.hunt()
    assert history.kept == 0
    assert post.worker.health_monitor.lanes["hunt"].last_error == "asked too often"


def test_the_next_day_has_its_rows_again() -> None:
    history = CountingHistory(used=20_000)
    post = Post(history)
    post.worker.hunt()
    history.used, post.now = 0, NOON + timedelta(hours=12)
    post.worker.hunt()
    assert len(post.market.asked) == 1


def test_a_full_disk_loses_prices_and_not_the_hunt(caplog: pytest.LogCaptureFixture) -> None:
    history = CountingHistory()
    history.full = True
    post = Post(history)
    post.worker.hunt()
    assert post.reported() == [AlertKind.MATCH]
    assert "cannot store the answer" in caplog.text
    assert post.worker.finished_rounds == 1


def test_where_nothing_is_asked_silence_is_no_blindness() -> None:
    """A provider may be enabled while every watch names other ones."""
    post = Post(CountingHistory(), hunts=False, targets=())
    post.now += timedelta(hours=12)
    post.worker.check_health()
    assert post.reported() == []


def test_what_is_only_swept_is_blind_after_three_sweeps_and_not_after_three_hunts() -> None:
    post = Post(CountingHistory(), settings=changed(SETTINGS, rows_per_day=0), hunts=False)
    post.recorder.record_sweep("H100 SXM", False, ProviderDown("vastai: 502"), NOON)
    for minutes, reported in ((5, []), (31, []), (33, [AlertKind.BLIND])):
        post.now = NOON + timedelta(minutes=minutes)
        post.worker.check_health()
        assert post.reported() == reported


def test_an_answer_for_which_nobody_was_asked_is_no_sight() -> None:
    """A provider that is down must not look alive because one query needs no request."""
    post = Post(CountingHistory(), settings=changed(SETTINGS, rows_per_day=0))
    unasked = changed(an_answer(), searches=0)
    for seconds in range(0, 200, 10):
        post.now = NOON + timedelta(seconds=seconds)
        post.recorder.record_hunt(Query(gpus=("H100 SXM",)), ProviderDown("vastai: 502"), post.now)
        post.recorder.record_sweep("H100", False, unasked, post.now)
        post.worker.check_health()
    assert post.reported() == [AlertKind.BLIND]


def test_where_every_question_needs_no_request_there_is_no_blindness() -> None:
    """A spot watch at a provider without spot offers."""
    history = CountingHistory()
    post = Post(history, settings=changed(SETTINGS, rows_per_day=0))
    for minutes in range(60):
        post.now = NOON + timedelta(minutes=minutes)
        post.recorder.record_hunt(Query(spot=True), changed(an_answer(), searches=0), post.now)
        post.worker.check_health()
    assert (post.reported(), history.kept) == ([], 0)


def test_a_field_that_no_row_has_is_reported_at_once_and_anew_when_it_is_lost_again() -> None:
    """The hunts stay empty and complete meanwhile."""
    post = Post(CountingHistory())
    lost = NoRowUnderstood("vastai: none of 3 rows can be used", 3, ["price field gone: dph_total"])
    for _ in range(2):
        post.recorder.record_hunt(Query(), an_answer(), post.now)
        for _ in range(3):
            post.recorder.record_sweep("H100 SXM", False, lost, post.now)
        post.recorder.record_sweep("H100 SXM", False, an_answer(h100()), post.now)
    assert post.reported() == [AlertKind.BLIND, AlertKind.RECOVERED] * 2
    blind = [alert for alert, _ in post.bench.uow_factory.alerts if alert.kind is AlertKind.BLIND]
    assert [alert.severity for alert in blind] == [Severity.CRITICAL] * 2
    assert all("none of 3 rows can be used" in dict(alert.facts)["Last error"] for alert in blind)
    assert all(dict(alert.facts)["Changed"] == "price field gone: dph_total" for alert in blind)


def test_a_changed_format_on_both_lanes_in_usable_answers_too_is_one_alert_and_one_at_its_end() -> None:
    """The spot rows lack their price; the other rows only miss the field."""
    post = Post(CountingHistory())
    changes = ("new field: bid_floor", "price field gone: min_bid")
    lost = NoRowUnderstood("vastai: none of 3 rows can be used", 3, changes)
    for _ in range(3):
        post.recorder.record_hunt(Query(spot=True), lost, post.now)
        post.recorder.record_sweep("H100 SXM", True, lost, post.now)
        post.recorder.record_sweep("H100 SXM", False, changed(an_answer(h100()), drift=changes), post.now)
    post.recorder.record_hunt(Query(spot=True), an_answer(h100()), post.now)
    post.recorder.record_sweep("H100 SXM", True, changed(an_answer(h100()), drift=changes[:1]), post.now)
    assert post.reported() == [AlertKind.BLIND, AlertKind.RECOVERED]


def test_a_lane_without_watches_or_targets_is_blind_no_more() -> None:
    """The settings changed while it was blind."""
    post = Post(CountingHistory(), hunts=False, targets=())
    post.recorder.record_hunt(Query(), NoRowUnderstood("vastai: none of 3 rows can be used", 3), post.now)
    post.worker.check_health()
    assert post.worker.health_monitor.lanes["hunt"].blind_since is None
