"""One provider's part of the daemon: rows are planned, sweeps survive a restart, a store that is full stops nothing."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from gpuwatch.engine.hunt import Hunter
from gpuwatch.engine.novelty import Novelty
from gpuwatch.engine.sight import Watchman
from gpuwatch.engine.station import Station
from gpuwatch.engine.sweep import Sweeper
from gpuwatch.errors import ProviderDown, StoreError
from gpuwatch.ports import Alert, AlertKind, Answer, ProviderSettings, Query
from tests.builders import changed
from tests.engine.desk_fakes import NOON, MemoryDesk, ScriptedMarket, an_answer
from tests.engine.test_evaluate import WATCH, Bench, h100
from tests.engine.test_hunt import TWENTY

SETTINGS = ProviderSettings(name="vastai", base_url="http://127.0.0.1", sweep_every_s=600.0)


class CountingHistory:
    """Counts rows; full on demand."""

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
    """A station with a hunt and a sweep over a scripted market."""

    def __init__(
        self, history: CountingHistory, swept_at: datetime | None = None, settings: ProviderSettings = SETTINGS
    ) -> None:
        self.now = NOON
        self.bench = Bench(WATCH)
        self.market = ScriptedMarket(an_answer(h100()))
        desk: MemoryDesk = self.bench.desk
        watchman = Watchman("vastai", desk, ("telegram",), lambda: "x", NOON)
        novelty = Novelty("vastai", desk, ("telegram",), lambda: "y")
        self.station = Station(settings, history, watchman, novelty, lambda: self.now)
        stopping = threading.Event()
        hunter = Hunter(self.market, (WATCH,), TWENTY, self.bench.evaluator, self.station.keep_hunt, stopping)
        sweeper = Sweeper(self.market, (("H100 SXM", False),), self.station.keep_sweep, stopping)
        self.station.man(hunter, sweeper, swept_at)

    def told(self) -> list[AlertKind]:
        alerts: list[tuple[Alert, tuple[str, ...]]] = self.bench.desk.alerts
        return [alert.kind for alert, _ in alerts]


def test_a_restart_does_not_cost_a_sweep() -> None:
    unrationed = changed(SETTINGS, rows_per_day=0)
    post = Post(CountingHistory(), swept_at=NOON - timedelta(seconds=300), settings=unrationed)
    assert not post.station.sweep_if_due()
    post.now += timedelta(seconds=300)
    assert post.station.sweep_if_due()


def test_spent_rows_ask_nothing_and_are_told_once() -> None:
    post = Post(CountingHistory(used=20_000))
    post.station.hunt()
    post.now += timedelta(seconds=60)
    post.station.hunt()
    assert not post.station.sweep_if_due()
    assert post.market.asked == []
    assert post.told() == [AlertKind.BLIND]


def test_the_next_day_has_its_rows_again() -> None:
    history = CountingHistory(used=20_000)
    post = Post(history)
    post.station.hunt()
    history.used, post.now = 0, NOON + timedelta(hours=12)
    post.station.hunt()
    assert len(post.market.asked) == 1


def test_a_full_disk_loses_prices_and_not_the_hunt(caplog: pytest.LogCaptureFixture) -> None:
    history = CountingHistory()
    history.full = True
    post = Post(history)
    post.station.hunt()
    assert post.told() == [AlertKind.OFFER]
    assert "not kept" in caplog.text
    assert post.station.finished_beats == 1


def test_where_nothing_is_asked_silence_is_no_blindness() -> None:
    """A provider may be enabled while every watch names another one."""
    post = Post(CountingHistory())
    sweeper = Sweeper(post.market, (), post.station.keep_sweep, threading.Event())
    post.station.man(None, sweeper)
    post.now += timedelta(hours=12)
    post.station.look_after_sight()
    assert post.told() == []


def test_what_is_only_swept_is_blind_after_three_sweeps_and_not_after_three_hunts() -> None:
    post = Post(CountingHistory(), settings=changed(SETTINGS, rows_per_day=0))
    post.station.keep_sweep("H100 SXM", False, ProviderDown("vastai: 502"), NOON)
    post.station.man(None, post.station.sweeper)
    for minutes, told in ((5, []), (31, []), (33, [AlertKind.BLIND])):
        post.now = NOON + timedelta(minutes=minutes)
        post.station.look_after_sight()
        assert post.told() == told


def test_an_answer_for_which_nobody_was_asked_is_no_sight() -> None:
    """A provider that is down must not look alive because one of the questions needs no request."""
    post = Post(CountingHistory(), settings=changed(SETTINGS, rows_per_day=0))
    unasked = changed(an_answer(), searches=0)
    for seconds in range(0, 200, 10):
        post.now = NOON + timedelta(seconds=seconds)
        post.station.keep_hunt(Query(gpus=("H100 SXM",)), ProviderDown("vastai: 502"), post.now)
        post.station.keep_sweep("H100", False, unasked, post.now)
        post.station.look_after_sight()
    assert post.told() == [AlertKind.BLIND]


def test_where_every_question_needs_no_request_there_is_no_blindness() -> None:
    """A spot watch at a provider without spot."""
    history = CountingHistory()
    post = Post(history, settings=changed(SETTINGS, rows_per_day=0))
    for minutes in range(60):
        post.now = NOON + timedelta(minutes=minutes)
        post.station.keep_hunt(Query(spot=True), changed(an_answer(), searches=0), post.now)
        post.station.look_after_sight()
    assert (post.told(), history.kept) == ([], 0)
