"""A request for approval is one message, whatever becomes of it: answered, refused, expired, failed, restarted."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import msgspec
import pytest
from sqlalchemy import select

from gpuwatch.domain.launches.launch import Intent, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Approval
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.ports import Answer
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_admission import reserve
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_match
from tests.engine.uow_fakes import NOON, an_answer, evaluate
from tests.engine.watches.test_evaluator import ASKS, Bench, h100


def answered(*offers: Offer, at: datetime) -> Answer:
    return an_answer(*(msgspec.structs.replace(offer, observed_at=at) for offer in offers), at=at)


class Asking:
    """A watch that asks, over a real store; `restart` keeps nothing but the store."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.bench = Bench(ASKS)
        self.ids = ("".join(letters) for letters in itertools.product("abcdefghij", repeat=12))
        self.seconds = 0
        self.restart()

    def restart(self) -> None:
        self.evaluator = Evaluator(
            SqlDecisionStore(self.database),
            self.bench.evaluator._rules,
            self.bench.executor,
            self.bench.slots,
            lambda: next(self.ids),
        )

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    def sees(self, *offers: Offer, polls: int = 1) -> None:
        for _ in range(polls):
            self.seconds += 30
            evaluate(self.evaluator, (ASKS,), answered(*offers, at=self.now), False, self.now)

    @property
    def headlines(self) -> list[str]:
        with self.database.read() as connection:
            return list(connection.execute(select(alerts.c.headline).order_by(alerts.c.created_at_ms)).scalars())

    def asks(self) -> list[Approval]:
        return SqlApprovalRepository(self.database).recent(self.now)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_approved_quote_that_is_gone_while_another_request_is_open_is_no_alert_per_poll(
    database: Database, restarts: bool
) -> None:
    """One message for each request, whatever becomes of it."""
    world = Asking(database)
    other, cheaper = h100(3.0, machine_id="1"), h100(2.0, machine_id="2")
    world.sees(other)
    world.sees(other, cheaper)
    assert len(world.headlines) == 2
    newest = world.asks()[0]
    assert newest.match.offer.machine_id == "2"
    assert SqlApprovalRepository(database).mark_refused(newest.approval_id, "no longer offered", world.now)
    for _ in range(5):
        world.sees(other, polls=10)
        if restarts:
            world.restart()
    assert len(world.headlines) == len(world.asks()) == 2


def test_an_answer_from_before_the_refusal_asks_for_nothing_again(database: Database) -> None:
    """It was under way when the approval found that the quote is gone, and may show that very quote."""
    world = Asking(database)
    other, cheaper = h100(3.0, machine_id="1"), h100(2.0, machine_id="2")
    world.sees(other)
    world.sees(other, cheaper)
    late = answered(other, cheaper, at=world.now + timedelta(seconds=1))
    refused_at = world.now + timedelta(seconds=2)
    assert SqlApprovalRepository(database).mark_refused(world.asks()[0].approval_id, "no longer offered", refused_at)
    evaluate(world.evaluator, (ASKS,), late, False, world.now + timedelta(seconds=3))
    assert len(world.headlines) == len(world.asks()) == 2
    world.sees(other, cheaper)  # it is offered again, at the time of a later poll
    assert len(world.headlines) == len(world.asks()) == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_each_request_is_one_message_when_it_is_refused_denied_or_expires(database: Database, restarts: bool) -> None:
    world = Asking(database)
    repository = SqlApprovalRepository(database)
    world.sees(h100(3.0, machine_id="1"), polls=10)
    repository.mark_refused(world.asks()[0].approval_id, "it now costs more", world.now)
    if restarts:
        world.restart()
    world.sees(h100(3.0, machine_id="1"), polls=10)
    assert len(world.headlines) == len(world.asks()) == 2  # it was approved: asked again, once
    repository.deny(world.asks()[0].approval_id, "", world.now)
    if restarts:
        world.restart()
    world.sees(h100(3.0, machine_id="1"), polls=240 * 3)  # every request is over
    assert len(world.headlines) == len(world.asks()) == 2


def test_what_could_not_be_asked_is_said_once_for_a_firing_and_asked_after_a_restart(database: Database) -> None:
    world = Asking(database)
    blocker = msgspec.structs.replace(ASKS, action=Action.LAUNCH)
    holder = Intent(watch=blocker, match=a_match(), launch_id="z" * 12, dry_run=False)
    with database.write() as connection:
        assert not isinstance(reserve(connection, holder, Budget(), NOON), LaunchRefusal)
    world.sees(h100(3.0, machine_id="1"), polls=10)
    world.restart()
    world.sees(h100(3.0, machine_id="1"), polls=10)
    assert (len(world.headlines), world.asks()) == (1, [])
    launches = SqlLaunchRepository(database)
    (launch,) = launches.alive()
    launches.transition(launch, LaunchState.FAILED, "a test", world.now, ended_at=world.now, end_reason="not sent")
    world.restart()
    world.sees(h100(3.0, machine_id="1"), polls=10)
    assert (len(world.headlines), len(world.asks())) == (2, 1)
