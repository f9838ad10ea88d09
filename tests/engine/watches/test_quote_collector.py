"""Missing quotes for a decision are requested at once, and the decision is made when their time is over."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

import pytest

from gpuwatch.engine.watches.gather import QuoteRequest
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.quote_collector import QuoteCollector
from tests.engine.watches.test_gather import Race, SlowRace
from tests.process.daemon_child import wait_for


class Collected:
    """A collector that serves a gather window on its own thread, with the window's clock."""

    def __init__(self, race: Race, **hunters: Hunter) -> None:
        self.run_early: list[str] = []
        self.race = race
        self.collector = QuoteCollector(
            race.gathering,
            race.evaluator,
            hunters,
            self.run_early.append,
            clock=lambda: race.now,
            monotonic=self._seconds,
        )
        self._thread = threading.Thread(target=self.collector.run)

    def _seconds(self) -> float:
        return self.race.now.timestamp()

    def __enter__(self) -> Collected:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.race.gathering.end()
        self._thread.join(30)
        assert not self._thread.is_alive(), "it serves after the end"


def test_who_is_missing_is_polled_ahead_of_its_time() -> None:
    hunter = SlowRace().hunter
    with Collected(Race("runpod", "vastai", gather_s=60.0), runpod=hunter) as collected:
        collected.race.sees("vastai", 2.669)
        wait_for(lambda: collected.run_early)
    assert collected.run_early == ["hunt runpod"]


def test_a_slow_provider_is_asked_for_its_best_offer_alone() -> None:
    race = SlowRace()
    with Collected(race, runpod=race.hunter) as collected:
        race.sees("vastai", 2.669)
        wait_for(race.rented)
    assert [(one.count_min, one.count_max) for one in race.market.asked[1:]] == [(1, 1)]
    assert (race.rented()[0][0], collected.run_early) == ("runpod", [])


def test_the_decision_is_made_when_the_window_is_over_though_nobody_answered() -> None:
    race = Race("runpod", "vastai", gather_s=0.02)
    with Collected(race):
        race.sees("vastai", 2.669)
        assert race.rented() == []
        wait_for(lambda: race.after(0.02).rented())
    assert race.rented() == [("vastai", ["vastai"])]


def test_a_provider_that_was_not_asked_yet_is_not_polled_ahead_of_its_first_round() -> None:
    race, hunter = Race("aws", "runpod", "vastai", gather_s=60.0), SlowRace().hunter
    race.gathering.starts("runpod")
    with Collected(race, runpod=hunter, vastai=hunter) as collected:
        race.sees("aws", 2.669)
        wait_for(lambda: collected.run_early)
    assert collected.run_early == ["hunt vastai"], "requests are served in the order of the names"


def test_a_decision_that_cannot_be_stored_is_left_to_the_next_poll(caplog: pytest.LogCaptureFixture) -> None:
    race = Race("runpod", "vastai")
    race.sees("vastai", 2.669)
    race.store.full = True
    race.after(3)
    assert Collected(race).collector.decide() == 3.0
    assert caplog.messages == ["cannot store a decision: the disk is full"]
    race.store.full = False
    race.sees("vastai", 2.669)
    race.after(3).wake()
    assert race.rented() == [("vastai", ["vastai"])]


def test_a_defect_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    def defect() -> datetime:
        raise RuntimeError("a defect")

    race = Race("runpod", "vastai")
    collector = QuoteCollector(race.gathering, race.evaluator, {}, lambda task: None, defect, lambda: 0.0)
    assert collector.decide() == 3.0
    assert "a defect" in caplog.text


def test_nothing_is_decided_after_the_end_even_if_the_window_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    race = Race("runpod", "vastai", gather_s=0.02)
    collector = Collected(race).collector
    race.sees("vastai", 2.669)
    served = race.gathering.next_requests

    def ends_meanwhile(within_s: float) -> Sequence[QuoteRequest]:
        if requests := served(0.0):
            return requests
        race.after(1.0)
        race.gathering.end()
        return ()

    monkeypatch.setattr(race.gathering, "next_requests", ends_meanwhile)
    collector.run()
    assert race.rented() == []
