"""What watches decide is stored when it changes, and no more often."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.domain.watches.decide import Decision, DecisionReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.decision_log import MAX_AN_HOUR, DecisionLog
from gpuwatch.engine.watches.evaluator import EvaluationRules, Evaluator
from gpuwatch.errors import StoreError
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, FakeExecutor, MemoryPage, MemoryUnitOfWork, an_answer

ALERTS = a_watch(name="alerts")
RENTS = a_watch(name="rents", action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0))


class World:
    """An evaluator over a store in memory; each poll is a minute after the last one."""

    def __init__(self, store: MemoryUnitOfWork | None = None) -> None:
        self.store = store or MemoryUnitOfWork()
        self.now = NOON
        ids = iter(f"{number:012d}" for number in range(10_000))
        rules = EvaluationRules(
            commissions={},
            budget=Budget(),
            dry_run=False,
            zone=ZoneInfo("UTC"),
            expected_views={name: frozenset({("vastai", False)}) for name in ("alerts", "rents")},
            max_age=timedelta(minutes=2),
            links={},
        )
        self.evaluator = Evaluator(self.store, rules, FakeExecutor(), LaunchSlots(), lambda: next(ids))

    def poll(self, watch: object, *offers: object) -> None:
        self.now += timedelta(minutes=1)
        answer = an_answer(*offers, at=self.now)  # type: ignore[arg-type]
        observed = self.evaluator.observe([watch], answer, self.now)  # type: ignore[list-item]
        self.evaluator.evaluate([watch], "vastai", False, observed, self.now)  # type: ignore[list-item]

    @property
    def reasons(self) -> list[str]:
        return [decision.reason for _, decision in self.store.decisions]


def test_only_changes_are_stored_and_a_steady_watch_opens_no_transaction() -> None:
    world = World()
    for _ in range(3):
        world.poll(ALERTS)
    before = world.store.transactions
    world.poll(ALERTS)
    assert world.store.transactions == before
    for _ in range(3):
        world.poll(ALERTS, an_offer())
    assert world.reasons == ["no_offer", "first_match", "nothing_new"]
    assert [one.at for _, one in world.store.decisions] == [NOON + timedelta(minutes=n) for n in (1, 5, 6)]


def test_a_refusal_is_stored_with_its_sentence_and_a_figure_alone_is_no_news() -> None:
    world = World()
    for left in ("$1.20", "$1.10", "$1.00"):
        world.store.refusal = LaunchRefusal(RefusalReason.MAX_USD_DAY, f"the daily budget has {left} left")
        world.poll(RENTS, an_offer())
    world.store.refusal = None
    world.poll(RENTS, an_offer())
    assert [(one.reason, one.text) for _, one in world.store.decisions] == [
        ("max_usd_day", "the daily budget has $1.20 left"), ("rented", "")
    ]  # fmt: skip
    assert world.store.decisions[0][1].limit_microusd_gpu_hour == round(float(RENTS.max_price_usd_gpu_hour) * 1e6)


def test_another_process_goes_on_where_the_last_one_stopped() -> None:
    store = MemoryUnitOfWork()
    World(store).poll(ALERTS)
    World(store).poll(ALERTS)
    assert len(store.decisions) == 1


def test_what_is_not_stored_is_stored_with_the_next_decision() -> None:
    world = World()
    world.store.full = True
    with pytest.raises(StoreError):
        world.poll(ALERTS)
    world.store.full = False
    world.poll(ALERTS)
    assert world.reasons == ["no_offer"]


def test_one_that_changes_all_the_time_is_bounded_and_its_last_state_is_stored_once_there_is_room() -> None:
    log, page = DecisionLog({}), MemoryPage(MemoryUnitOfWork())

    def decided(reason: DecisionReason, seconds: int) -> None:
        decision = Decision(watch="alerts", reason=reason, decided_at=NOON + timedelta(seconds=seconds))
        log.begin(ALERTS, decision)
        log.store(page, ALERTS)  # type: ignore[arg-type]
        log.committed([ALERTS])

    for second in range(600):
        decided(DecisionReason.NO_OFFER if second % 2 else DecisionReason.NO_DATA, second)
    assert len(page.decisions) == MAX_AN_HOUR
    last = Decision(watch="alerts", reason=DecisionReason.HOLDING, decided_at=NOON + timedelta(minutes=50))
    assert not log.is_news(ALERTS, last)  # no transaction for what cannot be stored
    decided(DecisionReason.HOLDING, 3601)
    assert page.decisions[-1][1].reason == "holding"


def test_a_jobs_watch_is_not_recorded() -> None:
    job = a_watch(name="job:a#1")
    decision = Decision(watch=job.name, reason=DecisionReason.NO_OFFER, decided_at=NOON)
    assert job.purpose.job is not None
    assert not DecisionLog({}).is_news(job, decision)


def test_the_same_reason_with_another_sentence_is_news() -> None:
    one = PastDecision(at=NOON, reason="not_ready", text="the key is rejected")
    assert not one.is_as(PastDecision(at=NOON, reason="not_ready", text="the balance is $3"))
