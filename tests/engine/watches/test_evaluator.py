"""From an answer to its results, in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from datetime import timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from sqlalchemy import func, select

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import unanswered
from gpuwatch.ports import AlertKind, Completeness
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, FakeExecutor, MemoryUnitOfWork, Started, an_answer, evaluate
from tests.outbox import new_alerts

WATCH = a_watch(name="h100", gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("3.60"))
RENTS = msgspec.structs.replace(WATCH, action=Action.LAUNCH, launch=LaunchSpec())


def h100(listed: float = 3.0, **changes: object) -> Offer:
    return an_offer(provider="vastai", gpu="H100 SXM", quoted_usd_hour=listed, observed_at=NOON, **changes)


class Bench:
    """An evaluator over a unit of work in memory."""

    def __init__(
        self,
        *watches: Watch,
        dry_run: bool = False,
        refusal: LaunchRefusal | None = None,
        providers: Sequence[str] = ("vastai",),
        stored: MemoryUnitOfWork | None = None,
        emptied: Collection[str] = (),
    ) -> None:
        self.uow_factory = stored or MemoryUnitOfWork(refusal)
        self.executor = FakeExecutor()
        self.slots = LaunchSlots()
        ids = (f"id{n:010d}" for n in itertools.count())
        rules = EvaluationRules(
            commissions={"vastai": Commission("0.20")},
            budget=Budget(),
            dry_run=dry_run,
            zone=ZoneInfo("UTC"),
            expected_views={watch.name: frozenset((name, False) for name in providers) for watch in watches},
            max_age=timedelta(minutes=2),
            links={},
            emptied=emptied,
        )
        self.evaluator = Evaluator(self.uow_factory, rules, self.executor, self.slots, lambda: next(ids))
        self.watches = watches

    @property
    def started(self) -> list[Started]:
        return self.executor.started

    def sees(
        self, *offers: Offer, after_s: float = 0, completeness: Completeness = Completeness.COMPLETE
    ) -> DecisionReason:
        at = NOON + timedelta(seconds=after_s)
        answer = an_answer(*offers, at=at, completeness=completeness)
        return evaluate(self.evaluator, self.watches, answer, False, at)[0].reason


def test_three_dollars_listed_fires_at_three_sixty_and_a_cent_more_does_not() -> None:
    assert Bench(WATCH).sees(h100(3.00)) is DecisionReason.FIRST_MATCH
    assert Bench(WATCH).sees(h100(3.01)) is DecisionReason.NO_OFFER


def test_a_firing_watch_is_reported_once_and_remembered_in_the_same_transaction() -> None:
    bench = Bench(WATCH)
    bench.sees(h100())
    bench.sees(h100(), after_s=30)
    assert len(bench.uow_factory.alerts) == 1
    assert bench.uow_factory.remembered["h100"].fired_at == NOON


def test_a_quiet_poll_writes_nothing() -> None:
    bench = Bench(WATCH)
    for second in range(5):
        bench.sees(h100(9.0), after_s=second * 30)
    before = bench.uow_factory.transactions
    bench.sees(h100(9.0), after_s=300)
    assert bench.uow_factory.transactions == before


def test_a_watch_that_launches_reserves_and_starts_what_it_reserved() -> None:
    bench = Bench(RENTS)
    bench.sees(h100(machine_id="1"), h100(2.5, machine_id="2"))
    assert [start.launch.launch_id for start in bench.started] == [bench.uow_factory.launches[0].launch_id]
    assert [match.offer.machine_id for match in bench.started[0].candidates] == ["2", "1"]


@pytest.mark.parametrize(
    ("launch", "most"),
    [(LaunchSpec(max_active=3, max_total=1), 1), (LaunchSpec(max_active=2, max_total=9), 2)],
)
def test_a_watch_reserves_as_many_at_once_as_both_its_limits_allow(launch: LaunchSpec, most: int) -> None:
    bench = Bench(msgspec.structs.replace(RENTS, launch=launch))
    bench.sees(*(h100(machine_id=str(n), offer_id=str(n)) for n in range(4)))
    assert len(bench.uow_factory.launches) == len(bench.started) == most


def test_a_watch_that_alerts_never_reserves() -> None:
    bench = Bench(WATCH)
    bench.sees(h100())
    assert bench.uow_factory.launches == []


def test_a_refused_launch_says_why_in_the_alert() -> None:
    bench = Bench(
        RENTS, refusal=LaunchRefusal(RefusalReason.MAX_ACTIVE, "active launches of watch 'h100': 1 (max_active = 1)")
    )
    bench.sees(h100())
    assert bench.started == []
    assert "max_active = 1" in bench.uow_factory.alerts[0][0].did


def test_an_alert_of_a_rent_names_what_helps_with_this_very_launch() -> None:
    bench, dry = Bench(RENTS), Bench(RENTS, dry_run=True)
    bench.sees(h100())
    assert (
        f"End it: gpuwatch launches stop {bench.started[0].launch.launch_id}" in bench.uow_factory.alerts[0][0].can_do
    )
    dry.sees(h100())
    assert dry.uow_factory.alerts[0][0].can_do[0] == "To rent for real, end the dry run (dry_run = false)"


@pytest.mark.parametrize(
    ("refusal", "help_"),
    [
        (
            LaunchRefusal(RefusalReason.PAUSED, "renting is paused until you resume it"),
            "Resume renting: gpuwatch watches resume",
        ),
        (
            LaunchRefusal(RefusalReason.PAUSED, "renting by watch 'h100' is paused", of_watch=True),
            "Resume renting: gpuwatch watches resume h100",
        ),
        (LaunchRefusal(RefusalReason.BREAKER, "3 launches failed"), "See what failed: gpuwatch launches"),
        (
            LaunchRefusal(RefusalReason.MACHINE_FAILED, "all failed"),
            "See blocked machines and clear them: gpuwatch providers machines",
        ),
        (
            LaunchRefusal(RefusalReason.MAX_USD_HOUR, "budget"),
            "See launches and their cost: gpuwatch launches",
        ),
    ],
)
def test_an_alert_of_a_refused_rent_says_what_helps_against_that(refusal: LaunchRefusal, help_: str) -> None:
    bench = Bench(RENTS, refusal=refusal)
    bench.sees(h100())
    reported = bench.uow_factory.alerts[0][0].can_do
    assert reported[0] == help_
    assert not any("gpuwatch launches stop" in line for line in reported), "nothing was begun that could be stopped"


def test_the_last_launch_of_a_day_is_reported_although_the_watch_does_not_fire_again() -> None:
    bench = Bench(RENTS)
    bench.sees(h100())
    bench.uow_factory.refusal = LaunchRefusal(RefusalReason.MAX_PER_DAY, "launches of watch 'h100' today: 3")
    bench.sees(h100(), after_s=30)
    alert, _ = bench.uow_factory.alerts[-1]
    assert alert.kind is AlertKind.REFUSED
    assert "no more launches today" in alert.headline
    assert "launches of watch 'h100' today: 3" in alert.why


def test_a_live_watch_tries_again_while_the_offer_stands_a_dry_run_does_not() -> None:
    live, dry = Bench(RENTS), Bench(RENTS, dry_run=True)
    for bench in (live, dry):
        bench.sees(h100())
        bench.sees(h100(), after_s=30)
    assert len(live.started) == 2  # the unique slot in the store decides whether there is room
    assert len(dry.started) == 1


def test_no_answer_is_no_data_and_never_no_offer() -> None:
    bench = Bench(WATCH)
    observed = unanswered(bench.watches, NOON)
    (decision,) = bench.evaluator.evaluate(bench.watches, "vastai", False, observed, NOON)
    assert decision.reason is DecisionReason.NO_DATA


def test_an_incomplete_answer_without_a_match_proves_nothing() -> None:
    assert Bench(WATCH).sees(h100(9.0), completeness=Completeness.PARTIAL) is DecisionReason.NO_DATA


def test_an_incomplete_answer_with_a_match_is_a_match() -> None:
    assert Bench(WATCH).sees(h100(), completeness=Completeness.TRUNCATED) is DecisionReason.FIRST_MATCH


def test_what_was_not_ready_is_followed_by_the_true_reason_once() -> None:
    """After a provisional "still being looked up" an owner would wait for hours for a rent that the budget forbids."""
    bench = Bench(
        RENTS, refusal=LaunchRefusal(RefusalReason.MAX_USD_HOUR, "[budget] max_usd_hour = 1 does not allow it")
    )
    lines = [
        "its launches are being looked up",
        "the balance of $1.00 is too little",
        "the balance of $0.99 is too little",
    ]
    for second, line in enumerate(lines):
        bench.executor.why = lambda provider, price, line=line: line  # type: ignore[misc]
        bench.sees(h100(), after_s=second)
    bench.executor.why = lambda provider, price: None
    bench.sees(h100(), after_s=10)
    bench.sees(h100(), after_s=11)
    assert [alert.did for alert, *_ in bench.uow_factory.alerts] == [
        "Not rented: its launches are being looked up.",
        "Not rented: the balance of $1.00 is too little.",
        "Not rented: [budget] max_usd_hour = 1 does not allow it.",
    ]


def test_nothing_is_rented_where_launches_are_not_reconciled_yet() -> None:
    bench = Bench(RENTS)
    bench.executor.why = lambda provider, price: "its launches are being looked up"
    bench.sees(h100())
    assert bench.started == []
    assert "looked up" in bench.uow_factory.alerts[0][0].did


def test_what_was_reported_as_not_rented_is_reported_when_it_is_rented_after_all() -> None:
    bench = Bench(RENTS)
    why = ["it is being looked up"]
    bench.executor.why = lambda provider, price: why[0] if why else None
    bench.sees(h100())
    why.clear()
    bench.sees(h100(), after_s=30)
    first, second = (alert.did for alert, _ in bench.uow_factory.alerts)
    assert first.startswith("Not rented: ")
    assert second == f"Renting it now: launch {bench.started[0].launch.launch_id}."


def test_an_offer_where_nothing_can_be_rented_now_stands_before_no_other_and_is_never_fallen_back_on() -> None:
    """A provider without a key, or one that was not checked yet, is only reported."""
    for cheap, dear in (("elsewhere", "vastai"), ("vastai", "elsewhere")):
        bench = Bench(RENTS)
        rules = msgspec.structs.replace(
            bench.evaluator._rules,
            commissions={"vastai": Commission("0.20"), "elsewhere": Commission("0")},
            expected_views={"h100": frozenset({("vastai", False), ("elsewhere", False)})},
        )
        bench.executor.why = lambda provider, price: None if provider == "vastai" else f"there is no key for {provider}"
        ids = (f"id{n:010d}" for n in itertools.count())
        bench.evaluator = Evaluator(bench.uow_factory, rules, bench.executor, bench.slots, lambda: next(ids))  # noqa: B023
        at = NOON
        offers = [an_offer(provider=cheap, quoted_usd_hour=1.0), an_offer(provider=dear, quoted_usd_hour=2.0)]
        for offer in sorted(offers, key=lambda offer: offer.provider == "vastai"):
            evaluate(bench.evaluator, [RENTS], an_answer(offer, at=at, provider=offer.provider), False, at)
        assert {start.launch.provider for start in bench.started} == {"vastai"}
        assert {match.offer.provider for start in bench.started for match in start.candidates} == {"vastai"}


def test_a_round_over_two_rental_types_is_one_miss_not_two() -> None:
    bench = Bench(WATCH)
    both = {WATCH.name: frozenset({("vastai", False), ("vastai", True)})}
    evaluator = Evaluator(
        bench.uow_factory,
        msgspec.structs.replace(bench.evaluator._rules, expected_views=both),
        bench.executor,
        bench.slots,
        lambda: "x" * 12,
    )
    evaluate(evaluator, (WATCH,), an_answer(h100()), False, NOON)

    def round_without_offers(after_s: float) -> None:
        at = NOON + timedelta(seconds=after_s)
        for spot in (False, True):
            evaluate(evaluator, (WATCH,), an_answer(at=at), spot, at)

    round_without_offers(30)
    assert bench.uow_factory.remembered["h100"].fired_at is not None
    round_without_offers(60)
    assert bench.uow_factory.remembered["h100"].fired_at is None


def test_many_offers_are_decided_on_just_as_few_are() -> None:
    watches = [msgspec.structs.replace(WATCH, name=f"w{n}") for n in range(60)]
    bench = Bench(*watches)
    many = [h100(2.0 + n / 100, machine_id=str(n), offer_id=str(n)) for n in range(200)]
    for after_s in (0, 30):
        at = NOON + timedelta(seconds=after_s)
        decisions = evaluate(bench.evaluator, watches, an_answer(*many, at=at), False, at)
        assert {len(decision.matches) for decision in decisions} == {101}
        assert {decision.best.offer.machine_id for decision in decisions if decision.best} == {"0"}


# --- approvals --------------------------------------------------------------------------------------------------------

ASKS = msgspec.structs.replace(WATCH, action=Action.ASK, launch=LaunchSpec(approve_within_s=7200.0))


def test_a_watch_that_asks_puts_one_question_with_its_alert_and_starts_nothing() -> None:
    bench = Bench(ASKS)
    bench.sees(h100(machine_id="1"), h100(2.5, machine_id="2"))
    bench.sees(h100(machine_id="1"), h100(2.5, machine_id="2"), after_s=30)
    (ask,), ((alert, _),) = bench.uow_factory.asks, bench.uow_factory.alerts
    assert (ask.match.offer.machine_id, ask.deadline) == ("2", NOON + timedelta(hours=2))
    assert f"Rent it: gpuwatch approvals approve {ask.approval_id}" in alert.can_do
    assert f"Reject it: gpuwatch approvals deny {ask.approval_id}" in alert.can_do
    assert dict(alert.facts)["Quote"] == "$3.00/h, or less; open until 2026-11-21 14:00 UTC"
    assert (bench.started, bench.uow_factory.launches) == ([], [])


def test_what_cannot_be_rented_is_reported_and_not_asked() -> None:
    bench = Bench(
        ASKS, refusal=LaunchRefusal(RefusalReason.MAX_ACTIVE, "active launches of watch 'h100': 1 (max_active = 1)")
    )
    bench.sees(h100())
    ((alert, _),) = bench.uow_factory.alerts
    assert bench.uow_factory.asks == []
    assert "Not asked: active launches of watch 'h100': 1" in alert.did
    assert not any("approve" in line for line in alert.can_do)


def test_what_could_not_be_asked_is_reported_once_and_asked_when_it_can_be() -> None:
    bench = Bench(
        ASKS, refusal=LaunchRefusal(RefusalReason.MAX_ACTIVE, "active launches of watch 'h100': 1 (max_active = 1)")
    )
    bench.sees(h100())
    bench.sees(h100(), after_s=30)
    assert len(bench.uow_factory.alerts) == 1
    bench.uow_factory.refusal = None
    bench.sees(h100(), after_s=60)
    bench.sees(h100(), after_s=90)
    assert (len(bench.uow_factory.alerts), len(bench.uow_factory.asks)) == (2, 1)


def test_an_approval_that_met_a_higher_price_is_followed_by_a_new_question() -> None:
    bench = Bench(ASKS)
    bench.sees(h100())
    bench.uow_factory.left_open = True
    bench.sees(h100(), after_s=30)
    assert len(bench.uow_factory.asks) == 2


def test_a_dry_run_says_that_an_approval_rents_nothing() -> None:
    bench = Bench(ASKS, dry_run=True)
    bench.sees(h100())
    assert "dry_run" in bench.uow_factory.alerts[0][0].did


def test_with_a_real_store_the_question_and_its_alert_are_one_transaction(database: Database) -> None:
    """Alerted or denied, requested again or not: according to the rows."""
    bench = Bench(ASKS)
    ids = (f"{n:c<12}".replace("0", "a") for n in "abcdefghijklm")
    evaluator = Evaluator(
        SqlDecisionStore(database), bench.evaluator._rules, bench.executor, bench.slots, lambda: next(ids)
    )
    evaluate(evaluator, (ASKS,), an_answer(h100(machine_id="1")), False, NOON)
    (ask,) = SqlApprovalRepository(database).recent(NOON)
    (alert,) = new_alerts(database)
    assert f"Rent it: gpuwatch approvals approve {ask.approval_id}" in alert.can_do
    assert SqlApprovalRepository(database).deny(ask.approval_id, "", NOON)
    later = NOON + timedelta(seconds=30)
    evaluate(evaluator, (ASKS,), an_answer(h100(2.0, machine_id="1"), at=later), False, later)  # cheaper, and denied
    assert len(SqlApprovalRepository(database).recent(later)) == 1
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(alerts)).scalar_one() == 1


def test_an_empty_answer_of_a_provider_whose_answers_became_empty_is_no_data() -> None:
    """So it re-arms no watch, which would fire anew when the offers are back."""
    bench = Bench(WATCH, emptied={"vastai"})
    assert bench.sees(h100()) is DecisionReason.FIRST_MATCH
    for number in range(1, 5):
        assert bench.sees(after_s=30 * number) is DecisionReason.NO_DATA
    assert bench.sees(h100(), after_s=150) is DecisionReason.NOTHING_NEW
