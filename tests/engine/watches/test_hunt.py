"""The hunt queries little, cheapest first, and does not trust truncated answers."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.engine.market.row_budget import HUNT_ROWS
from gpuwatch.engine.market.watch_search import queries_for
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import ProviderDown, RateLimited
from gpuwatch.ports import Answer, Completeness, Query
from tests.builders import a_watch
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import WATCH, Bench, h100

TWENTY = Commission("0.20")


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def hunter(market: ScriptedMarket, bench: Bench, kept: list[object] | None = None) -> Hunter:
    kept = [] if kept is None else kept

    def keep(query: Query, answer: object, now: datetime) -> None:
        kept.append(answer)

    return Hunter(market, bench.watches, TWENTY, bench.evaluator, keep, threading.Event())


def test_the_ceiling_is_the_listed_price_with_the_commission_taken_off() -> None:
    (query,) = queries_for(WATCH, TWENTY)
    assert abs((query.max_listed_usd_hour or 0) - 3.0) < 1e-5
    assert query.limit == HUNT_ROWS


def test_a_watch_for_any_rental_type_asks_twice() -> None:
    both = msgspec.structs.replace(WATCH, spot=SpotPolicy.ANY)
    assert [query.spot for query in queries_for(both, TWENTY)] == [False, True]


def test_watches_that_ask_the_same_share_a_search() -> None:
    bench = Bench(WATCH, msgspec.structs.replace(WATCH, name="twin"))
    market = ScriptedMarket(an_answer(h100()))
    hunter(market, bench).run_round(Clock(), 30.0, 30.0)
    assert len(market.asked) == 1
    assert [alert.watch for alert, _ in bench.uow_factory.alerts] == ["h100", "twin"]


def test_a_page_cut_before_any_match_is_read_on() -> None:
    cut = an_answer(h100(reliability=0.1), completeness=Completeness.TRUNCATED, complete_to=3.0)
    bench = Bench(msgspec.structs.replace(WATCH, min_reliability=0.9))
    market = ScriptedMarket(cut, an_answer(h100(reliability=0.1), h100(reliability=0.99, machine_id="9")))
    hunter(market, bench).run_round(Clock(), 30.0, 30.0)
    assert [query.limit for query in market.asked] == [HUNT_ROWS, None]
    assert len(bench.uow_factory.alerts) == 1


def test_a_failing_provider_is_kept_as_a_gap() -> None:
    kept: list[object] = []
    bench = Bench(WATCH)
    hunter(ScriptedMarket(ProviderDown("no route")), bench, kept).run_round(Clock(), 30.0, 30.0)
    assert isinstance(kept[0], ProviderDown)
    assert bench.uow_factory.alerts == []


def test_a_matched_watch_is_asked_as_the_row_plan_allows() -> None:
    bench, clock = Bench(WATCH), Clock()
    market = ScriptedMarket(an_answer(h100()))
    hunt = hunter(market, bench)
    for _ in range(4):
        hunt.run_round(clock, 30.0, 120.0)
        clock.now += timedelta(seconds=30)
    assert len(market.asked) == 1
    clock.now += timedelta(seconds=30)
    hunt.run_round(clock, 30.0, 120.0)
    assert len(market.asked) == 2


def test_a_clock_that_steps_back_silences_nothing() -> None:
    bench, clock = Bench(WATCH), Clock()
    market = ScriptedMarket(an_answer())
    hunt = hunter(market, bench)
    hunt.run_round(clock, 30.0, 30.0)
    clock.now -= timedelta(hours=1)
    hunt.run_round(clock, 30.0, 30.0)
    assert len(market.asked) == 2


def test_the_answer_is_decided_on_before_it_is_kept() -> None:
    order: list[str] = []
    bench = Bench(WATCH)

    def keep(query: Query, answer: Answer | object, now: datetime) -> None:
        order.append(f"kept after {len(bench.uow_factory.alerts)} alert")

    market = ScriptedMarket(an_answer(h100()))
    Hunter(market, (WATCH,), TWENTY, bench.evaluator, keep, threading.Event()).run_round(Clock(), 30.0, 30.0)
    assert order == ["kept after 1 alert"]


def test_a_watch_on_several_gpus_asks_for_all_of_them_at_once() -> None:
    watch = a_watch(gpu_names=("H100 SXM", "H100 PCIe"), max_price_usd_gpu_hour=Decimal(3))
    assert queries_for(watch, TWENTY)[0].gpus == ("H100 SXM", "H100 PCIe")


def three_watches() -> Bench:
    return Bench(*(msgspec.structs.replace(WATCH, name=gpu, gpu_names=(gpu,)) for gpu in ("A10", "H100 SXM", "L4")))


def test_a_refusal_ends_the_round_and_the_next_begins_with_those_that_were_left() -> None:
    market = ScriptedMarket(an_answer(), RateLimited("too often", 5.0), an_answer())
    one, clock = hunter(market, three_watches()), Clock()
    one.run_round(clock, 30.0, 30.0)
    assert [query.gpus for query in market.asked] == [("A10",), ("H100 SXM",)]
    clock.now += timedelta(seconds=30)
    one.run_round(clock, 30.0, 30.0)
    assert [query.gpus for query in market.asked[2:]] == [("L4",), ("A10",), ("H100 SXM",)]


def test_a_query_that_was_not_sent_comes_first_as_soon_as_it_may() -> None:
    held = RateLimited("too often", 5.0)
    held.was_sent = False
    market = ScriptedMarket(an_answer(), held, an_answer())
    one, clock = hunter(market, three_watches()), Clock()
    one.run_round(clock, 30.0, 30.0)
    clock.now += timedelta(seconds=1)
    one.run_round(clock, 30.0, 30.0)
    assert [query.gpus for query in market.asked[2:]] == [("H100 SXM",), ("L4",)]


def test_offers_without_a_country_that_a_region_filter_leaves_out_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, clock = Bench(msgspec.structs.replace(WATCH, regions=("EU",))), Clock()
    nowhere = [h100(machine_id=str(n), region="zone 5", country=None) for n in range(3)]
    hunt = hunter(ScriptedMarket(an_answer(*nowhere)), bench)
    for _ in range(2):
        hunt.run_round(clock, 30.0, 30.0)
        clock.now += timedelta(seconds=30)
    assert bench.uow_factory.alerts == []
    (line,) = [record.getMessage() for record in caplog.records if "country" in record.getMessage()]
    assert line.startswith("watch h100: offers at vastai state no country")
    assert "3" in line
