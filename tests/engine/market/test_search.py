"""A truncated answer proves nothing: the search continues, once, and every answer is read once."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.match import match_of, price_for
from gpuwatch.engine.launches.renting.requoter import Requoter
from gpuwatch.engine.market.watch_search import find_offer, search_complete
from gpuwatch.ports import Answer, Completeness, Query
from tests.builders import an_offer
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import WATCH, h100

WANTED, OTHER = an_offer(machine_id="1"), an_offer(machine_id="2")
CUT = an_answer(OTHER, completeness=Completeness.TRUNCATED)
PAGE = Query(limit=64)


def machines(answer: Answer) -> list[str | None]:
    return [offer.machine_id for offer in answer.offers]


def test_a_cut_answer_without_the_offer_is_read_to_its_end() -> None:
    market = ScriptedMarket(CUT, an_answer(OTHER, WANTED))
    assert find_offer(market.search, PAGE, WANTED.identity)[1] == WANTED
    assert [query.limit for query in market.asked] == [64, None]


def test_a_cut_answer_with_the_offer_is_enough() -> None:
    market = ScriptedMarket(CUT)
    assert find_offer(market.search, PAGE, OTHER.identity) == (CUT, OTHER)
    assert len(market.asked) == 1


@pytest.mark.parametrize(
    ("query", "completeness"),
    [(PAGE, Completeness.COMPLETE), (PAGE, Completeness.PARTIAL), (Query(), Completeness.TRUNCATED)],
)
def test_where_nothing_more_can_be_read_one_search_is_all(query: Query, completeness: Completeness) -> None:
    market = ScriptedMarket(an_answer(OTHER, completeness=completeness))
    assert find_offer(market.search, query, WANTED.identity)[1] is None
    assert len(market.asked) == 1


def test_each_answer_is_read_once() -> None:
    seen: list[list[str | None]] = []
    market = ScriptedMarket(CUT, an_answer(OTHER, WANTED))
    search_complete(market.search, PAGE, lambda answer: seen.append(machines(answer)))
    assert seen == [["2"], ["2", "1"]]


def test_a_candidate_beyond_the_cut_page_is_priced_again_and_not_given_up() -> None:
    old = msgspec.structs.replace(h100(2.5, machine_id="1"), observed_at=NOON - timedelta(minutes=5))
    market = ScriptedMarket(
        an_answer(h100(2.0, machine_id="2"), completeness=Completeness.TRUNCATED), an_answer(h100(2.6, machine_id="1"))
    )
    requoter = Requoter(market, Commission("0.20"), WATCH, lambda: NOON)
    match = requoter.requote(match_of(WATCH, old, price_for(WATCH, old, {})))
    assert match is not None
    assert match.offer.quoted_usd_hour == 2.6
