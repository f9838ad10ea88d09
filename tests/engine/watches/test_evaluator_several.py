"""Watches over several providers: each at its own pace, with only some at which gpuwatch can rent."""

from __future__ import annotations

import itertools
from datetime import timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, FakeExecutor, MemoryUnitOfWork, Started, an_answer, evaluate

WATCH = a_watch(name="h100", gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("3.60"))
RENTS = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec())
ASKS = msgspec.structs.replace(WATCH, action=Action.ASK, launch=LaunchSpec())


class Several:
    """A watch over several providers, each with its own pace."""

    def __init__(self, watch: Watch, poll_minutes: dict[str, float], dry_run: bool = False, **rules: Any) -> None:
        self.uow_factory, self.watch, self.at = MemoryUnitOfWork(), watch, NOON
        self.executor = FakeExecutor()
        ids = (f"id{n:010d}" for n in itertools.count())
        ages = {name: timedelta(minutes=3 * minutes) for name, minutes in poll_minutes.items()}
        plain = EvaluationRules(
            commissions={},
            budget=Budget(),
            dry_run=dry_run,
            zone=ZoneInfo("UTC"),
            expected_views={watch.name: frozenset((name, False) for name in poll_minutes)},
            max_age=max(ages.values()),
            max_ages=ages,
            links={},
        )
        rules_ = msgspec.structs.replace(plain, **rules)
        self.evaluator = Evaluator(self.uow_factory, rules_, self.executor, LaunchSlots(), lambda: next(ids))

    @property
    def started(self) -> list[Started]:
        return self.executor.started

    def sees(self, provider: str, *prices: float, minutes: float = 0, **changes: Any) -> DecisionReason:
        self.at += timedelta(minutes=minutes)
        offers = [
            an_offer(
                provider=provider, offer_id=f"{provider}-{n}", quoted_usd_hour=price, observed_at=self.at, **changes
            )
            for n, price in enumerate(prices)
        ]
        answer = an_answer(*offers, at=self.at, provider=provider)
        return evaluate(self.evaluator, (self.watch,), answer, False, self.at)[0].reason

    def did(self) -> list[str]:
        return [alert.did for alert, _ in self.uow_factory.alerts]


QUICK_AND_SLOW = {"vastai": 0.5, "azure": 360.0}


def test_the_pace_of_a_slow_provider_keeps_no_view_of_a_quick_one_fresh() -> None:
    world = Several(WATCH, QUICK_AND_SLOW)
    world.sees("vastai", 9.0)
    world.sees("azure", 9.0)
    assert world.sees("azure", 9.0, minutes=30) is DecisionReason.NO_DATA, "vastai has been silent for half an hour"


def test_a_list_price_of_this_morning_still_counts_and_holds_nothing_up() -> None:
    world = Several(WATCH, QUICK_AND_SLOW)
    world.sees("azure", 9.0)
    world.sees("vastai", 2.0, minutes=300)
    assert [world.sees("vastai", 9.0, minutes=0.5) for _ in range(2)] == [DecisionReason.NO_OFFER] * 2
    assert world.uow_factory.remembered["h100"].fired_at is None, "armed again after two rounds of the quick one"


def test_a_quick_provider_alone_is_no_round_where_the_others_are_as_quick() -> None:
    world = Several(WATCH, {"vastai": 0.5, "runpod": 0.5})
    world.sees("runpod", 9.0)
    world.sees("vastai", 2.0)
    assert [world.sees("vastai", 9.0, minutes=0.1) for _ in range(3)] == [DecisionReason.NO_OFFER] * 3
    assert world.uow_factory.remembered["h100"].fired_at == NOON, "runpod was not polled again: no miss was counted"


def test_a_cheaper_offer_where_gpuwatch_cannot_rent_is_passed_over_and_named() -> None:
    unable = UnavailableProviders(no_launcher={"azure"}, no_key={"runpod"})
    world = Several(RENTS, {"azure": 0.5, "runpod": 0.5, "vastai": 0.5}, unable=unable)
    for name, price in (("azure", 1.0), ("runpod", 2.0), ("vastai", 3.0)):
        world.sees(name, price)
    (start,) = world.started
    assert (start.launch.provider, [m.offer.provider for m in start.candidates]) == ("vastai", ["vastai"])
    assert world.did()[0] == "Not rented: gpuwatch cannot rent at azure."
    assert world.did()[-1] == (
        f"Renting it now: launch {start.launch.launch_id}. "
        "A cheaper offer was skipped: gpuwatch cannot rent at azure; there is no key for runpod."
    )
    rented, _ = world.uow_factory.alerts[-1]
    assert rented.headline == "h100: H100 SXM × 1 at $3.00/GPU-h", "headed by what is rented"
    assert [line.provider for line in rented.offers] == ["vastai", "azure", "runpod"]


def test_a_dry_run_names_what_it_would_rent_and_never_what_it_could_not() -> None:
    world = Several(
        RENTS, {"azure": 0.5, "vastai": 0.5}, dry_run=True, unable=UnavailableProviders(no_launcher={"azure"})
    )
    world.sees("azure", 1.0)
    assert world.started == []
    world = Several(
        RENTS, {"azure": 0.5, "vastai": 0.5}, dry_run=True, unable=UnavailableProviders(no_key={"vastai", "azure"})
    )
    world.sees("vastai", 1.0)
    assert world.did() == ["Dry run: gpuwatch would rent it now (dry_run = true)."], (
        "without any key it shows what a key would do"
    )


def test_a_question_is_never_about_what_cannot_be_rented() -> None:
    world = Several(ASKS, {"azure": 0.5, "vastai": 0.5}, unable=UnavailableProviders(no_launcher={"azure"}))
    world.sees("azure", 1.0)
    assert world.did() == ["Not asked: gpuwatch cannot rent at azure."]
    world.sees("vastai", 3.0)
    (ask,) = world.uow_factory.asks
    assert ask.match.offer.provider == "vastai"


def test_a_list_price_is_reported_by_a_watch_that_alerts_and_rented_by_none() -> None:
    listed = {"kind": OfferKind.LISTED}
    assert Several(WATCH, {"azure": 360.0}).sees("azure", 1.0, **listed) is DecisionReason.FIRST_MATCH
    assert Several(RENTS, {"azure": 360.0}).sees("azure", 1.0, **listed) is DecisionReason.NO_OFFER
    assert Several(ASKS, {"azure": 360.0}).sees("azure", 1.0, **listed) is DecisionReason.NO_OFFER
