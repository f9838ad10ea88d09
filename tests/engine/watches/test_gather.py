"""Quotes of all providers of a renting watch are compared for a moment; no provider is waited for longer."""

from __future__ import annotations

import itertools
import threading
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import QuoteGathering, unanswered
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.provider_worker import FIRST_LIST_S, READY_S, FirstRequestGate
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import Answer, Query
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, FakeExecutor, MemoryUnitOfWork, an_answer, evaluate

RENTS = a_watch(
    name="h100",
    gpu_names=("H100 SXM",),
    max_price_usd_gpu_hour=Decimal("3.60"),
    action=Action.LAUNCH,
    launch=LaunchSpec(),
)
THREE = ("lambda", "runpod", "vastai")
NEVER = float("inf")


class Race:
    """A watch over several providers whose answers arrive when the test says so."""

    def __init__(self, *providers: str, watch: Watch = RENTS, gather_s: float = 3.0, **rules: Any) -> None:
        self.watch, self.now = watch, NOON
        self.store, self.executor = MemoryUnitOfWork(), FakeExecutor()
        ids = (f"id{n:010d}" for n in itertools.count())
        plain = EvaluationRules(
            commissions={},
            budget=Budget(),
            dry_run=False,
            zone=ZoneInfo("UTC"),
            expected_views={watch.name: frozenset((name, False) for name in providers)},
            max_age=timedelta(minutes=2),
            links={},
        )
        self.gathering = QuoteGathering(timedelta(seconds=gather_s))
        self.slots = LaunchSlots()
        self.evaluator = Evaluator(
            self.store,
            msgspec.structs.replace(plain, **rules),
            self.executor,
            self.slots,
            lambda: next(ids),
            self.gathering,
        )

    def after(self, seconds: float) -> Race:
        self.now += timedelta(seconds=seconds)
        return self

    def sees(self, provider: str, *prices: float) -> DecisionReason:
        offers = [
            an_offer(provider=provider, offer_id=f"{provider}-{n}", quoted_usd_hour=price, observed_at=self.now)
            for n, price in enumerate(prices)
        ]
        answer = an_answer(*offers, at=self.now, provider=provider)
        return evaluate(self.evaluator, (self.watch,), answer, False, self.now)[0].reason

    def fails(self, provider: str) -> None:
        watches = (self.watch,)
        self.evaluator.evaluate(watches, provider, False, unanswered(watches, self.now), self.now)

    def wake(self) -> float:
        """Decide due watches; return after how many seconds others are due."""
        return self.evaluator.decide_gathered(self.now)

    def asked(self) -> list[str]:
        """Return the providers to query since the last call."""
        found: list[str] = []
        while requests := self.gathering.next_requests(0.0):
            found += [request.provider for request in requests]
        return found

    def rented(self) -> list[tuple[str, list[str]]]:
        return [(one.launch.provider, [m.offer.provider for m in one.candidates]) for one in self.executor.started]


def test_the_cheapest_of_three_wins_though_another_answered_first() -> None:
    race = Race(*THREE)
    race.sees("vastai", 2.669)
    assert (race.rented(), race.asked(), race.gathering.next_due_s(race.now)) == ([], ["lambda", "runpod"], 3.0)
    race.after(0.4).sees("lambda", 2.4)
    assert race.rented() == []
    race.after(0.4).sees("runpod", 1.99)
    assert race.rented() == [("runpod", ["runpod", "lambda", "vastai"])], "decided as soon as all have answered"


def test_a_provider_that_hangs_delays_nothing_beyond_the_window() -> None:
    race = Race(*THREE)
    race.sees("vastai", 2.669)
    race.after(0.4).sees("runpod", 1.99)
    race.after(2.5).wake()
    assert race.rented() == [], "not before the window is over"
    race.after(0.1).wake()
    assert race.rented() == [("runpod", ["runpod", "vastai"])]


def test_without_a_timer_the_next_answer_ends_the_window() -> None:
    race = Race(*THREE)
    race.sees("vastai", 2.669)
    race.after(10).sees("vastai", 2.669)
    assert race.rented() == [("vastai", ["vastai"])]


def test_a_failure_is_an_answer() -> None:
    race = Race(*THREE)
    race.sees("vastai", 2.669)
    race.after(0.2).fails("lambda")
    race.after(0.2).sees("runpod")
    assert race.rented() == [("vastai", ["vastai"])]


def test_quotes_younger_than_the_window_need_no_waiting() -> None:
    race = Race(*THREE)
    for name in ("lambda", "runpod"):
        race.sees(name, 9.0)
    race.after(2.9).sees("vastai", 2.669)
    assert race.rented() == [("vastai", ["vastai"])]


@pytest.mark.parametrize(
    ("providers", "changes"),
    [
        (("vastai",), {}),
        (("vastai", "azure"), {"unable": UnavailableProviders(no_launcher={"azure"})}),
        (("vastai", "runpod"), {"unable": UnavailableProviders(no_key={"runpod"})}),
    ],
)
def test_who_rents_at_one_provider_never_waits(providers: tuple[str, ...], changes: dict[str, Any]) -> None:
    race = Race(*providers, **changes)
    race.sees("vastai", 2.669)
    assert (race.rented(), race.asked()) == ([("vastai", ["vastai"])], [])
    assert race.wake() == NEVER


def test_zero_seconds_is_the_first_that_answers() -> None:
    race = Race(*THREE, gather_s=0.0)
    race.sees("vastai", 2.669)
    assert race.rented() == [("vastai", ["vastai"])]


def test_an_alert_waits_for_nobody() -> None:
    watch = msgspec.structs.replace(RENTS, action=Action.ALERT, launch=None)
    race = Race(*THREE, watch=watch)
    assert race.sees("vastai", 2.669) is DecisionReason.FIRST_MATCH
    assert len(race.store.alerts) == 1


def test_an_old_quote_stands_behind_a_young_one_and_is_still_a_candidate() -> None:
    race = Race("runpod", "vastai")
    race.slots.hold("h100")  # so that nothing waits at the first poll
    race.sees("runpod", 2.0)
    race.executor.started.clear()
    race.slots.free("h100")
    race.after(30).sees("vastai", 2.669)
    race.after(3).wake()
    assert race.rented() == [("vastai", ["vastai", "runpod"])]


def test_what_is_gone_before_the_window_closes_is_not_rented() -> None:
    race = Race("runpod", "vastai")
    race.sees("vastai", 2.669)
    race.after(1).sees("vastai")
    race.after(2).wake()
    assert race.rented() == []
    race.after(5).sees("vastai", 2.5)
    assert race.asked() == ["runpod", "runpod"], "a new window"


def test_the_launch_says_what_was_compared() -> None:
    race = Race(*THREE)
    race.sees("vastai", 2.669)
    race.after(0.4).sees("runpod", 1.99)
    race.after(2.6).wake()
    (intent,) = race.store.intents
    assert intent.compared == ("compared: runpod $1.99/GPU-h, vastai $2.669/GPU-h; no answer within 3 s: lambda")


# --- a daemon that has just started ----------------------------------------------------------------------------------


def test_a_provider_that_was_never_asked_is_waited_for_from_its_first_question() -> None:
    race = Race("runpod", "vastai")
    race.gathering.starts("runpod")
    race.sees("vastai", 2.669)
    assert race.after(4).wake() == 0.25
    assert race.rented() == [], "runpod had no chance to answer"
    race.gathering.started("runpod", race.now)
    race.after(2.5).sees("vastai", 2.669)
    assert race.rented() == []
    race.after(0.4).sees("runpod", 1.99)
    assert race.rented() == [("runpod", ["runpod", "vastai"])]


def test_its_first_question_is_waited_for_no_longer_than_any_other() -> None:
    race = Race("runpod", "vastai")
    race.gathering.starts("runpod")
    race.sees("vastai", 2.669)
    race.gathering.started("runpod", race.after(1).now)
    assert race.after(2.9).wake() == pytest.approx(0.1)
    assert race.rented() == []
    race.after(0.1).wake()
    assert race.rented() == [("vastai", ["vastai"])]


def test_a_provider_that_shows_no_sign_of_life_is_not_waited_for_after_the_start() -> None:
    race = Race("runpod", "vastai")
    race.gathering.starts("runpod")
    race.sees("vastai", 2.669)
    race.gathering.started("runpod", None)
    race.after(3).wake()
    assert race.rented() == [("vastai", ["vastai"])]


class Start:
    """A provider after a start, whose instances and prerequisites are known this many seconds later."""

    def __init__(
        self, *, alive_s: float = NEVER, listed_s: float = NEVER, checked_s: float = NEVER, rents: bool = True
    ) -> None:
        self.now_s = 100.0
        self.first = FirstRequestGate(
            started_s=100.0,
            is_listed=lambda: self.now_s >= 100.0 + listed_s,
            is_checked=lambda: self.now_s >= 100.0 + checked_s,
            is_alive=lambda: self.now_s >= 100.0 + min(alive_s, listed_s),
            rents=lambda: rents,
        )

    def asked_after(self) -> tuple[float, bool]:
        """Return the seconds until its first query, and whether renting there was possible then."""
        while not self.first.is_due(self.now_s):
            self.now_s += 0.25
        return self.now_s - 100.0, self.first.is_ready()


@pytest.mark.parametrize(
    ("start", "asked_after"),
    [
        (Start(listed_s=0.0, checked_s=0.0), (0.0, True)),
        (Start(listed_s=2.0, checked_s=5.25), (5.25, True)),  # a second an answer
        (Start(alive_s=2.0, listed_s=6.0, checked_s=10.5), (10.5, True)),  # two
        (Start(alive_s=2.0), (READY_S, False)),
        (Start(listed_s=2.0), (READY_S, False)),
        (Start(), (FIRST_LIST_S, False)),
        (Start(checked_s=1.0), (FIRST_LIST_S, False)),
        (Start(listed_s=2.0, rents=False), (FIRST_LIST_S, False)),  # an alert needs no prerequisites
    ],
)
def test_a_provider_that_is_slow_to_get_ready_is_waited_for_and_one_that_hangs_is_not(
    start: Start, asked_after: tuple[float, bool]
) -> None:
    assert start.asked_after() == asked_after


def test_a_cheaper_provider_wins_though_its_prerequisites_took_longer_than_the_first_list_may() -> None:
    race, start = Race("runpod", "vastai"), Start(listed_s=2.0, checked_s=7.0)
    race.gathering.starts("runpod")
    race.sees("vastai", 2.669)
    asked_s, is_ready = start.asked_after()
    race.after(asked_s).wake()
    assert (race.rented(), is_ready) == ([], True)
    race.gathering.started("runpod", race.now)
    race.after(2).sees("runpod", 1.99)
    assert race.rented() == [("runpod", ["runpod", "vastai"])]


# --- a provider whose complete answer takes longer than the window ----------------------------------------------------


class SlowMarket:
    """One request for each number of GPUs, a second each: eight of them take eight seconds."""

    name = "runpod"

    def __init__(self, race: Race) -> None:
        self.race = race
        self.usd_gpu_hour = 1.99
        self.asked: list[Query] = []
        self.is_down = False

    def search(self, query: Query) -> Answer:
        self.asked.append(query)
        if self.is_down:
            raise ProviderDown("runpod: no answer")
        began, counts = self.race.now, range(query.count_min, (query.count_max or 8) + 1)
        self.race.after(len(counts))
        answer = an_answer(*(self.offer(count, began) for count in counts), at=began, provider=self.name)
        return msgspec.structs.replace(answer, elapsed_s=float(len(counts)))

    def offer(self, count: int, at: datetime) -> Offer:
        return an_offer(
            provider=self.name,
            offer_id=f"h100-{count}",
            gpu_count=count,
            quoted_usd_hour=self.usd_gpu_hour * count,
            observed_at=at,
        )


class SlowRace(Race):
    """A watch for 1 to 8 GPUs at vast.ai and at such a provider, which was polled a while ago."""

    def __init__(self) -> None:
        watch = msgspec.structs.replace(RENTS, gpu_count_max=8)
        super().__init__("runpod", "vastai", watch=watch)
        self.market = SlowMarket(self)
        self.hunter = Hunter(self.market, (watch,), Commission(), self.evaluator, lambda *_: None, threading.Event())
        self.slots.hold(watch.name)  # nothing is rented while it is polled for the first time
        self.hunter.run_round(lambda: self.now, 30.0, 30.0)
        self.executor.started.clear()
        self.slots.free(watch.name)
        self.after(20)

    def ask(self) -> bool:
        """Query missing providers, like the service."""
        return self.hunter.poll_best_offer(self.watch.name, 3.0, lambda: self.now)


def test_a_slow_provider_is_asked_for_its_best_offer_alone() -> None:
    race = SlowRace()
    race.sees("vastai", 2.669)
    assert (race.rented(), race.asked()) == ([], ["runpod"])
    assert race.ask()
    assert [(one.count_min, one.count_max, one.gpus) for one in race.market.asked[1:]] == [(1, 1, ("H100 SXM",))]
    (launch,) = race.executor.started
    assert (launch.launch.provider, launch.launch.offer_id) == ("runpod", "h100-1")
    others = [match.offer.offer_id for match in launch.candidates]
    assert others[1].startswith("vastai"), "what it was not asked for again stands behind what is young"
    assert sorted(others[2:]) == [f"h100-{count}" for count in range(2, 9)]


def test_its_best_offer_may_have_become_dearer_meanwhile() -> None:
    race = SlowRace()
    race.market.usd_gpu_hour = 3.0
    race.sees("vastai", 2.669)
    race.ask()
    assert race.rented()[0][0] == "vastai"


def test_a_slow_provider_that_fails_is_not_waited_for_beyond_the_window() -> None:
    race = SlowRace()
    race.sees("vastai", 2.669)
    race.market.is_down = True
    assert race.ask()
    assert race.rented() == []
    race.after(3).wake()
    assert race.rented()[0][0] == "vastai"


def test_a_quick_provider_is_asked_its_whole_question() -> None:
    race = SlowRace()
    assert not race.hunter.poll_best_offer(race.watch.name, 60.0, lambda: race.now)
    assert not race.hunter.poll_best_offer("another", 3.0, lambda: race.now)


def test_an_answer_that_took_long_is_as_young_as_its_arrival() -> None:
    race = SlowRace()
    race.sees("vastai", 2.669)
    race.hunter.poll_soon(race.watch.name)
    race.hunter.run_round(lambda: race.now, 0.0, 0.0)
    assert race.rented()[0][0] == "runpod"


def test_what_an_adapter_had_kept_is_no_young_answer() -> None:
    """It arrived at once, but is four seconds old: it does not show a price that fell since."""
    race = Race("runpod", "vastai")
    race.sees("vastai", 2.669)
    kept = an_answer(at=race.now - timedelta(seconds=4), provider="runpod")
    evaluate(race.evaluator, (race.watch,), kept, False, race.after(0.1).now)
    assert race.rented() == []
    race.after(1).sees("runpod", 1.99)
    assert race.rented()[0][0] == "runpod"
