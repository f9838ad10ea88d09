"""A checklist before renting: through the evaluator, an approval and its answer, with the real store."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.life.owner_decisions import checklist_refusal, unticked
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, ChecklistPolicy, Watch
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.renting_blocks import SqlChecklistRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.side_tables import alert as alerts
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.engine.uow_fakes import FakeExecutor, Started, an_answer, evaluate

SPEC = LaunchSpec(max_runtime_s=3600.0, approve_within_s=7200.0)
RENTS = a_watch(action=Action.LAUNCH, launch=SPEC, require=("dry_epoch", "my own words"))
ITEMS = st.lists(st.sampled_from(["dry_epoch", "amp", "lora", "Ünïcode; 'quoted'"]), max_size=6).map(tuple)


class Bench:
    """An evaluator over the real store."""

    def __init__(self, store: Database, watch: Watch, dry_run: bool = False) -> None:
        self.store, self.watch = store, watch
        self.executor = FakeExecutor()
        ids = (f"id{n:010d}".translate(str.maketrans("0189", "abcd")) for n in itertools.count(2))
        rules = EvaluationRules(
            commissions={"vastai": Commission("0.20")},
            budget=Budget(),
            dry_run=dry_run,
            zone=ZoneInfo("UTC"),
            expected_views={watch.name: frozenset({("vastai", False)})},
            max_age=timedelta(hours=2),
            links={},
        )
        self.evaluator = Evaluator(SqlDecisionStore(store), rules, self.executor, LaunchSlots(), lambda: next(ids))
        self.clock = itertools.count()

    @property
    def started(self) -> list[Started]:
        return self.executor.started

    def look(self) -> None:
        at = NOON + timedelta(seconds=30 * next(self.clock))
        offer = an_offer(observed_at=at)
        evaluate(self.evaluator, [self.watch], an_answer(offer, at=at), False, at)

    def tick(self, *items: str) -> None:
        SqlChecklistRepository(self.store).tick(self.watch.name, items, "", NOON)

    def reported(self) -> list[dict[str, Any]]:
        with self.store.read() as connection:
            rows = connection.execute(select(alerts.c.body).order_by(alerts.c.created_at_ms, alerts.c.alert_id))
            return [json.loads(row.body) for row in rows]


def test_a_watch_that_blocks_rents_nothing_and_says_what_is_missing(database: Database) -> None:
    bench = Bench(database, RENTS)
    bench.look()
    bench.look()
    assert bench.started == []
    (alert,) = bench.reported()
    assert alert["did"] == "Not rented: 2 of 2 items of its checklist are not ticked."
    assert alert["can_do"][0] == "Tick completed items: gpuwatch watches checklist tick h100 ITEM"
    assert not bench.evaluator.may_rent_more(RENTS)  # for days, perhaps: at full pace the day's rows would be gone


def test_the_last_tick_lets_it_rent_at_the_next_look(database: Database) -> None:
    bench = Bench(database, RENTS)
    bench.look()
    bench.tick("dry_epoch")
    bench.look()
    assert bench.started == []
    bench.tick("my own words")
    bench.look()
    assert len(bench.started) == 1
    assert "Not ticked" not in bench.reported()[-1]["did"]


def test_a_watch_that_warns_rents_and_says_what_is_missing(database: Database) -> None:
    bench = Bench(database, changed(RENTS, require_policy=ChecklistPolicy.WARN))
    bench.tick("dry_epoch")
    bench.look()
    assert len(bench.started) == 1
    assert bench.reported()[0]["did"].endswith("Not ticked in the checklist: my own words.")


def test_a_dry_run_is_held_back_as_the_real_one_would_be(database: Database) -> None:
    bench = Bench(database, RENTS, dry_run=True)
    bench.look()
    assert "items of its checklist are not ticked" in bench.reported()[0]["did"]


def test_a_watch_that_only_alerts_reminds_its_owner(database: Database) -> None:
    bench = Bench(database, changed(RENTS, action=Action.ALERT, launch=None))
    bench.look()
    assert bench.reported()[0]["did"].endswith("Not ticked in the checklist: dry_epoch, my own words.")


def test_a_watch_that_asks_does_not_ask_before_all_is_ticked_and_then_asks_once(database: Database) -> None:
    bench = Bench(database, changed(RENTS, action=Action.ASK))
    bench.look()
    bench.look()
    assert [alert["did"][:9] for alert in bench.reported()] == ["Not asked"]
    bench.tick("dry_epoch", "my own words")
    bench.look()
    bench.look()
    assert [alert["did"][:9] for alert in bench.reported()] == ["Not asked", "It awaits"]


def test_a_watch_that_asks_and_warns_says_it_in_the_question(database: Database) -> None:
    bench = Bench(database, changed(RENTS, action=Action.ASK, require_policy=ChecklistPolicy.WARN))
    bench.look()
    assert bench.reported()[0]["did"].endswith("Not ticked in the checklist: dry_epoch, my own words.")


def test_what_was_unticked_after_the_question_refuses_the_approval_and_leaves_it_open(database: Database) -> None:
    watch = changed(RENTS, action=Action.ASK)
    book = SqlChecklistRepository(database)
    book.tick(watch.name, watch.require, "", NOON)
    intent = Intent(watch=watch, match=a_match(), launch_id="quotedabcdef", dry_run=False)
    with SqlDecisionStore(database).open() as uow:
        uow.request_approval(intent, Budget(), NOON + timedelta(hours=1), NOON, True)
    assert book.untick(watch.name, ["dry_epoch", "never ticked"]) == ["dry_epoch"]
    asks = SqlApprovalRepository(database)
    got = asks.approve("quotedabcdef", intent, Budget(), NOON)
    assert isinstance(got, LaunchRefusal)
    assert got.reason is RefusalReason.CHECKLIST
    book.tick(watch.name, ["dry_epoch"], "", NOON)
    assert isinstance(asks.approve("quotedabcdef", intent, Budget(), NOON), Launch)


def test_ticks_keep_their_day_and_their_words_and_are_of_one_watch(database: Database) -> None:
    book = SqlChecklistRepository(database)
    book.tick("a", ["amp", "lora"], "run\x00 \x1b[31m7", NOON)
    book.tick("a", ["amp"], "", NOON + timedelta(days=1))
    assert [(tick.item, tick.at, tick.words) for tick in book.load("a")] == [
        ("lora", NOON, "run� �[31m7"),
        ("amp", NOON + timedelta(days=1), None),
    ]
    assert book.load("b") == []


@given(ITEMS, ITEMS, st.sampled_from(list(ChecklistPolicy)))
def test_it_is_refused_exactly_if_it_blocks_and_something_is_missing(
    require: tuple[str, ...], ticked: tuple[str, ...], policy: ChecklistPolicy
) -> None:
    watch = changed(RENTS, require=require, require_policy=policy)
    missing = unticked(watch, ticked)
    assert set(missing) == set(require) - set(ticked)
    assert len(missing) == len(set(missing))
    refused = checklist_refusal(watch, ticked)
    assert (refused is not None) == (policy is ChecklistPolicy.BLOCK and bool(missing))


@pytest.mark.parametrize(("count", "end"), [(5, "item 4"), (7, "item 4 and 2 more")])
def test_a_long_list_is_cut_in_what_is_reported(count: int, end: str) -> None:
    watch = changed(RENTS, require=tuple(f"item {n}" for n in range(count)))
    refused = checklist_refusal(watch, ())
    assert refused is not None
    assert f"{end}; see" in refused.text
