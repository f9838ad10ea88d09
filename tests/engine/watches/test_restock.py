"""`restock = true`: no offers, proven by complete polls, then some."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.watches.gather import unanswered
from gpuwatch.ports import Completeness
from tests.builders import a_watch
from tests.engine.uow_fakes import NOON, an_answer, evaluate
from tests.engine.watches.test_evaluator import Bench, h100

WATCH = a_watch(unlimited=True, restock=True)
EMPTY, OFFER, NO_ANSWER, CUT = "empty", "offer", "no answer", "cut"


class Shop:
    """One watch; `sees` is the next poll, half a minute later."""

    def __init__(self, bench: Bench | None = None) -> None:
        self.bench = bench or Bench(WATCH)
        self.now: datetime = NOON

    def sees(self, what: str, after: timedelta = timedelta(seconds=30), usd: float = 2.0) -> DecisionReason:
        self.now += after
        bench, offers = self.bench, [msgspec.structs.replace(h100(usd), observed_at=self.now)]
        if what == NO_ANSWER:
            observed = unanswered(bench.watches, self.now)
            return bench.evaluator.evaluate(bench.watches, "vastai", False, observed, self.now)[0].reason
        how = Completeness.TRUNCATED if what == CUT else Completeness.COMPLETE
        answer = an_answer(*(offers if what == OFFER else ()), at=self.now, completeness=how)
        return evaluate(bench.evaluator, bench.watches, answer, False, self.now)[0].reason

    def saw(self, *polls: str) -> list[DecisionReason]:
        return [self.sees(what) for what in polls]

    @property
    def alerts(self) -> int:
        return len(self.bench.uow_factory.alerts)


def test_nothing_twice_and_then_something_is_a_restock_and_is_reported_once() -> None:
    shop = Shop()
    assert shop.saw(EMPTY, EMPTY, OFFER, OFFER)[2:] == [DecisionReason.RESTOCKED, DecisionReason.NOTHING_NEW]
    assert shop.sees(OFFER, timedelta(hours=7), usd=0.5) is DecisionReason.NOTHING_NEW  # no reminder, none cheaper
    assert shop.alerts == 1
    shop.saw(EMPTY, EMPTY, OFFER)
    assert shop.alerts == 2


@pytest.mark.parametrize(
    "polls",
    [
        [OFFER],
        [OFFER, OFFER],
        [EMPTY, OFFER],
        [OFFER, EMPTY, OFFER],
        [OFFER, NO_ANSWER, NO_ANSWER, NO_ANSWER, OFFER],
        [OFFER, CUT, CUT, CUT, OFFER],
        [NO_ANSWER, NO_ANSWER, OFFER],
        [OFFER, EMPTY, NO_ANSWER, OFFER],
    ],
)
def test_what_complete_polls_did_not_prove_is_no_restock(polls: list[str]) -> None:
    shop = Shop()
    assert shop.saw(*polls)[-1] is DecisionReason.IN_STOCK
    assert shop.alerts == 0


def test_one_poll_without_an_answer_does_not_undo_the_proof() -> None:
    shop = Shop()
    assert shop.saw(EMPTY, EMPTY, NO_ANSWER, OFFER)[-1] is DecisionReason.RESTOCKED


@pytest.mark.parametrize(("gap", "fires"), [(timedelta(hours=1), True), (timedelta(hours=1, seconds=1), False)])
def test_after_a_longer_gap_in_polling_nobody_knows(gap: timedelta, fires: bool) -> None:
    shop = Shop()
    shop.saw(EMPTY, EMPTY)
    assert (shop.sees(OFFER, gap) is DecisionReason.RESTOCKED) is fires


def test_a_restart_is_a_gap() -> None:
    shop = Shop()
    shop.saw(EMPTY, EMPTY)
    again = Shop(Bench(WATCH, stored=shop.bench.uow_factory))
    assert again.sees(OFFER) is DecisionReason.IN_STOCK


def test_of_two_providers_both_must_have_shown_nothing() -> None:
    shop = Shop(Bench(WATCH, providers=("vastai", "runpod")))
    assert set(shop.saw(EMPTY, EMPTY, EMPTY)) == {DecisionReason.NO_DATA}
    assert shop.sees(OFFER) is DecisionReason.IN_STOCK


def test_what_could_not_be_stored_is_reported_at_the_next_poll() -> None:
    shop = Shop()
    shop.saw(EMPTY, EMPTY)
    shop.bench.uow_factory.full = True
    with pytest.raises(Exception, match="disk is full"):
        shop.sees(OFFER)
    shop.bench.uow_factory.full = False
    assert shop.sees(OFFER) is DecisionReason.RESTOCKED


def test_what_rents_rents_when_it_comes_back_and_not_before() -> None:
    renting = msgspec.structs.replace(WATCH, action=Action.LAUNCH, unlimited=False, launch=LaunchSpec())
    shop = Shop(Bench(renting))
    shop.sees(OFFER)
    assert shop.bench.started == []
    shop.saw(EMPTY, EMPTY, OFFER)
    assert len(shop.bench.started) == 1


@given(st.lists(st.sampled_from([EMPTY, OFFER, NO_ANSWER, CUT]), max_size=25))
def test_every_alert_comes_after_two_complete_polls_that_showed_nothing(polls: list[str]) -> None:
    shop, empties, alerts = Shop(), 0, 0
    for what in polls:
        reason = shop.sees(what)
        if what == OFFER:
            assert (reason is DecisionReason.RESTOCKED) is (empties >= 2)
        alerts += reason is DecisionReason.RESTOCKED
        empties = empties + 1 if what == EMPTY else 0 if what == OFFER else empties
    assert shop.alerts == alerts
