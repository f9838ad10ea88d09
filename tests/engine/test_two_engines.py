"""Two engines on one store, as two hosts have for a moment: one cause is one alert, whichever decides first."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import func, select

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.launches.renting.prerequisite_gate import PrerequisiteGate
from gpuwatch.engine.market.empty_answers import EmptyAnswers
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.errors import NoRowUnderstood, ProviderDown
from gpuwatch.ports import HUNT, SWEEP, Answer
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_watch, an_offer
from tests.engine.scripted_channels import Scripted
from tests.engine.uow_fakes import NOON, FakeExecutor, an_answer, evaluate

MATCHES = 100
WATCH = a_watch(name="h100", gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("3.60"))
IDS = (f"id{n:010d}" for n in itertools.count())


@pytest.fixture
def stores(database: Database) -> Iterator[tuple[Database, Database]]:
    with closing(open_database(database.url)) as other:
        yield database, other


def at_once(*actions: Callable[[], object]) -> None:
    """Run each in a thread of its own; all begin together."""
    barrier, errors = threading.Barrier(len(actions)), list[BaseException]()

    def run(action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def headlines(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(select(alerts.c.headline).order_by(alerts.c.created_at_ms)).scalars())


class Engine:
    """What one host decides and sends."""

    def __init__(self, database: Database, channel: Scripted, watches: Sequence[Watch] = (WATCH,)) -> None:
        rules = EvaluationRules(
            commissions={"vastai": Commission("0.20")},
            budget=Budget(),
            dry_run=True,
            zone=ZoneInfo("UTC"),
            expected_views={watch.name: frozenset({("vastai", False)}) for watch in watches},
            max_age=timedelta(minutes=2),
            links={},
        )
        self.watches = watches
        self.evaluator = Evaluator(SqlDecisionStore(database), rules, FakeExecutor(), LaunchSlots(), IDS.__next__)
        self.delivery = AlertDelivery(Outbox(database), {channel.name: channel}, jitter=lambda: 0.0, patience_s=10)

    def sees(self, answer: Answer) -> None:
        evaluate(self.evaluator, self.watches, answer, False, answer.observed_at)


def test_a_hundred_matches_that_both_see_are_a_hundred_messages(stores: tuple[Database, Database]) -> None:
    channel = Scripted("telegram")
    engines = [Engine(store, channel) for store in stores]
    for number in range(MATCHES):
        at = NOON + timedelta(minutes=number)
        offer = an_offer(provider="vastai", gpu="H100 SXM", quoted_usd_hour=3.0, observed_at=at)
        both_see(engines, an_answer(offer, at=at))
        at_once(*(partial(one.delivery.send_due, at + timedelta(seconds=1)) for one in engines))
        for second in (10, 20):  # withdrawn: the watch is armed again
            both_see(engines, an_answer(at=at + timedelta(seconds=second)))
    assert len(headlines(stores[0])) == MATCHES
    assert len(channel.sent) == MATCHES


def both_see(engines: Sequence[Engine], answer: Answer) -> None:
    at_once(*(partial(one.sees, answer) for one in engines))


def test_an_answer_from_before_the_report_of_another_does_not_arm_the_watch_again(
    stores: tuple[Database, Database],
) -> None:
    first, late = (Engine(store, Scripted("telegram")) for store in stores)
    offer = an_offer(provider="vastai", gpu="H100 SXM", quoted_usd_hour=3.0, observed_at=NOON)
    first.sees(an_answer(offer, at=NOON))
    for second in (-20, -10):  # its own answers, read late
        evaluate(late.evaluator, late.watches, an_answer(at=NOON + timedelta(seconds=second)), False, NOON)
    late.sees(an_answer(offer, at=NOON + timedelta(seconds=5)))
    first.sees(an_answer(offer, at=NOON + timedelta(seconds=6)))
    assert len(headlines(stores[0])) == 1


def test_a_provider_that_both_find_silent_is_reported_once_and_its_return_once(
    stores: tuple[Database, Database],
) -> None:
    tick_s = 0.0
    monitors = [HealthMonitor("vastai", SqlDecisionStore(one), IDS.__next__, lambda: tick_s) for one in stores]
    for round_ in range(10):
        begin = NOON + timedelta(hours=round_)
        tick_s += 3600
        for one in monitors:
            one.answered(HUNT, "h100", True, begin)
            one.failed(HUNT, "h100", ProviderDown("HTTP 502"), begin)
        tick_s += 100
        at_once(*(partial(one.check, HUNT, 30.0, begin + timedelta(seconds=100)) for one in monitors))
        back = begin + timedelta(seconds=200)
        at_once(*(partial(one.answered, HUNT, "h100", True, back) for one in monitors))
    found = headlines(stores[0])
    assert sum("is not answering" in one for one in found) == 10
    assert sum("answers again" in one for one in found) == 10


def test_a_format_that_both_cannot_read_is_reported_once(stores: tuple[Database, Database]) -> None:
    monitors = [HealthMonitor("vastai", SqlDecisionStore(one), IDS.__next__, lambda: 0.0) for one in stores]
    error = NoRowUnderstood("vastai: none of 12 rows can be used", 12, ("price field dph_total is missing",))
    at_once(*(partial(one.failed, HUNT, "h100", error, NOON) for one in monitors))
    assert len(headlines(stores[0])) == 1


def test_answers_that_both_find_empty_are_reported_once_and_their_return_once(
    stores: tuple[Database, Database],
) -> None:
    query = (SWEEP, "H100 SXM", False)
    found = [
        EmptyAnswers("vastai", SqlDecisionStore(one), SqlHolds(one), IDS.__next__, [("H100 SXM", False, 40, NOON)])
        for one in stores
    ]

    def both_note(rows: int, second: int) -> None:
        at = NOON + timedelta(seconds=second)
        at_once(*(partial(one.note, SWEEP, query, rows, at) for one in found))

    both_note(40, 10)
    for second in (30, 60, 90, 120, 150, 180):
        both_note(0, second)
    both_note(40, 210)
    assert [one.partition(" ")[2][:12] for one in headlines(stores[0])] == ["lists no off", "lists offers"]


def test_prerequisites_that_both_find_missing_are_reported_once_and_their_end_once(
    stores: tuple[Database, Database],
) -> None:
    is_met = False

    def probe() -> tuple[Sequence[Prerequisite], Sequence[str]]:
        return [Prerequisite(name=PrerequisiteName.KEY_PAIR, met=is_met, text="no key pair")], ["1"]

    def gate(store: Database) -> PrerequisiteGate:
        return PrerequisiteGate("aws", probe, SqlHolds(store), Outbox(store).enqueue, IDS.__next__)

    gates = [gate(store) for store in stores]
    for round_ in range(6):
        is_met = bool(round_ % 2)
        now: datetime = NOON + timedelta(hours=2 * round_)
        at_once(*(partial(one.run_if_due, now) for one in gates))
    with stores[0].read() as connection:
        assert connection.execute(select(func.count()).select_from(alerts)).scalar() == 6
