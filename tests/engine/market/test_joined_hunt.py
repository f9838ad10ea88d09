"""Watches that share queries see what their own would have shown, and no truncated page leads to a decision."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from statistics import mean

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.search_query import joined
from gpuwatch.domain.watches.query_plan import Demand, PollingLimits, QueryPlan
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.known_prices import PricesOnSale
from gpuwatch.engine.market.query_planner import QueryPlanner
from gpuwatch.engine.market.watch_search import PAGE_ROWS, queries_for
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import ProviderDown, ProviderError, RateLimited
from gpuwatch.ports import Answer, Query
from tests.builders import a_watch
from tests.drawn import examples
from tests.engine.market.cut_market import CutMarket, machine
from tests.engine.uow_fakes import ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import Bench
from tests.engine.watches.test_hunt import Clock

TWENTY = Commission("0.20")  # as `Bench` has it
LIMITS = PollingLimits(poll_every_s=30.0, search_interval_s=6.0)
GPUS = [f"GPU {n}" for n in range(12)]


def watch(gpu: str, usd: float, name: str | None = None) -> Watch:
    """A watch whose listed ceiling is `usd`."""
    return a_watch(
        name=name or gpu, gpu=(gpu,), gpu_names=(gpu,), max_price_usd_gpu_hour=Decimal(str(usd)) * Decimal("1.2")
    )


def on_sale(gpu: str, number: int, usd: float) -> Offer:
    return machine(number, 1, usd, gpu=gpu, gpu_family=gpu, gpu_wire=gpu)


class World:
    """A hunt with a planner that has read the market once."""

    def __init__(self, market: CutMarket | ScriptedMarket, watches: Sequence[Watch], read: Sequence[Offer]) -> None:
        self.bench, self.clock, self.market = Bench(*watches), Clock(), market
        self.prices = PricesOnSale(8.0)
        for gpu in {name for one in watches for name in one.gpu_names}:
            self.prices.learn(Query(gpus=(gpu,)), an_answer(*(offer for offer in read if offer.gpu == gpu)))
        self.kept: list[tuple[Query, Answer | ProviderError]] = []

        def keep(query: Query, answer: Answer | ProviderError, _now: object) -> None:
            self.kept.append((query, answer))
            if isinstance(answer, Answer):
                self.prices.learn(query, answer)

        planner = QueryPlanner(self.prices)
        self.hunter = Hunter(market, watches, TWENTY, self.bench.evaluator, keep, threading.Event(), planner=planner)

    def round(self, after_s: float = 0.0) -> None:
        self.clock.now += timedelta(seconds=after_s)
        self.hunter.run_round(self.clock, 30.0, 30.0, LIMITS)

    @property
    def alerted(self) -> set[str]:
        return {alert.watch for alert, _ in self.bench.uow_factory.alerts if alert.watch is not None}


def test_twelve_watches_need_few_searches_and_each_gets_its_own_alert() -> None:
    dear = [on_sale(gpu, number, 9.0) for number, gpu in enumerate(GPUS)]
    market = CutMarket([*dear, on_sale("GPU 3", 100, 0.9), on_sale("GPU 7", 101, 1.05)], PAGE_ROWS)
    world = World(market, [watch(gpu, 1.0) for gpu in GPUS], dear)
    world.round()
    assert len(market.asked) <= 5
    assert sorted(gpu for query in market.asked for gpu in query.gpus) == sorted(GPUS)
    assert world.alerted == {"GPU 3"}


def test_a_cut_page_is_split_before_anything_is_decided_on_it() -> None:
    """Forty machines of GPU 0 appeared between two limits: the page of the joined query has nothing of GPU 1."""
    many = [on_sale("GPU 0", 200 + number, 1.2) for number in range(40)]
    market = CutMarket([*many, on_sale("GPU 11", 100, 1.5)], 20)
    world = World(market, [watch("GPU 0", 1.0), *(watch(gpu, 1.6) for gpu in GPUS[1:])], [])
    world.round()
    assert len(market.asked[0].gpus) > 1
    assert world.alerted == {"GPU 11"}
    cut = [answer for query, answer in world.kept if isinstance(answer, Answer) and answer.rows == 20]
    assert cut, "the cut page counts as rows"
    market.asked.clear()
    world.round(31.0)
    assert all("GPU 0" not in query.gpus or query.gpus == ("GPU 0",) for query in market.asked), (
        "it is not joined again"
    )


def test_a_failing_search_is_no_data_for_every_watch_of_the_question() -> None:
    world = World(ScriptedMarket(ProviderDown("vastai: HTTP 502")), [watch(gpu, 1.0) for gpu in GPUS], [])
    world.round()
    assert all(isinstance(answer, ProviderDown) for _, answer in world.kept)
    assert sum(len(query.gpus) for query, _ in world.kept) == len(GPUS)
    assert world.alerted == set()


def test_a_refusal_ends_the_round_and_the_next_begins_with_what_is_left() -> None:
    market = ScriptedMarket(an_answer(), RateLimited("too often", 5.0), an_answer())
    world = World(market, [watch(gpu, 1.0) for gpu in GPUS], [])
    world.round()
    asked = [query.gpus for query in market.asked]
    assert len(asked) == 2
    world.round(6.0)
    assert not set(market.asked[2].gpus) & set(asked[0])


def test_one_watch_alone_is_polled_as_before() -> None:
    market = ScriptedMarket(an_answer())
    world = World(market, [watch("GPU 0", 1.0)], [])
    assert not world.hunter.is_planned
    world.round()
    assert market.asked == list(queries_for(watch("GPU 0", 1.0), TWENTY))


offers = st.lists(
    st.tuples(st.sampled_from(GPUS[:4]), st.floats(0.2, 3.0), st.sampled_from((1, 2, 4)), st.sampled_from((0.9, 0.99))),
    max_size=30,
)
watches = st.lists(
    st.tuples(
        st.lists(st.sampled_from(GPUS[:4]), min_size=1, max_size=2, unique=True),
        st.floats(0.3, 2.0),
        st.sampled_from((1, 2)),
        st.sampled_from((2, 4)),
        st.sampled_from((None, True)),
        st.sampled_from((None, 0.95)),
        st.sampled_from((1.0, 1.2)),
    ),
    min_size=2,
    max_size=5,
)


@given(offers, watches)
@settings(max_examples=examples(60), deadline=None)
def test_every_watch_sees_in_a_joined_answer_what_its_own_would_have_shown(
    market: list[tuple[str, float, int, float]],
    wanted: list[tuple[list[str], float, int, int, bool | None, float | None, float]],
) -> None:
    listed = [
        machine(number, count, usd, gpu=gpu, gpu_family=gpu, gpu_wire=gpu, reliability=share)
        for number, (gpu, usd, count, share) in enumerate(market)
    ]
    every = [
        a_watch(
            name=f"watch {number}",
            gpu=tuple(gpus),
            gpu_names=tuple(gpus),
            max_price_usd_gpu_hour=Decimal(f"{usd:.4f}"),
            gpu_count_min=least,
            gpu_count_max=most,
            verified=verified,
            min_reliability=share,
            rearm=rearm,
        )
        for number, (gpus, usd, least, most, verified, share, rearm) in enumerate(wanted)
    ]
    seller, bench = CutMarket(listed, PAGE_ROWS), Bench(*every)
    own = {one.name: queries_for(one, TWENTY)[0] for one in every}
    at = Clock().now
    together = bench.evaluator.observe(every, seller.search(joined(list(own.values()), PAGE_ROWS)), at)
    for one in every:
        answer = seller.search(queries_for(one, TWENTY, None)[0])
        assert bench.evaluator.observe([one], answer, at)[one.name] == together[one.name]


def test_what_an_answer_does_not_show_is_gone_up_to_the_price_that_it_is_complete_to() -> None:
    prices = PricesOnSale(8.0)
    query = Query(gpus=("GPU 0",), count_max=1, max_listed_usd_hour=1.0, limit=10)
    prices.learn(query, an_answer())
    assert prices.expected_rows()(query) is None, "nothing is known above that limit"
    prices.learn(Query(gpus=("GPU 0",)), an_answer(on_sale("GPU 0", 1, 0.9), on_sale("GPU 0", 2, 2.0)))
    assert prices.expected_rows()(query) == 1
    prices.learn(query, an_answer())
    assert prices.expected_rows()(query) == 0
    assert prices.expected_rows()(Query(gpus=("GPU 0",))) == pytest.approx(1)


def test_what_a_sweep_has_read_is_joined_at_once() -> None:
    market = CutMarket([], PAGE_ROWS)
    world = World(market, [watch(gpu, 1.0) for gpu in GPUS], [])
    world.prices = PricesOnSale(8.0)
    planner = QueryPlanner(world.prices)
    world.hunter = Hunter(
        market, world.bench.watches, TWENTY, world.bench.evaluator, lambda *_: None, threading.Event(), planner=planner
    )
    world.round()
    assert len(market.asked) == len(GPUS), "nothing is known yet"
    for gpu in GPUS:
        world.prices.learn(Query(gpus=(gpu,)), an_answer())
    world.round(31.0)
    assert len(market.asked) <= len(GPUS) + 5


def asked_in_half_an_hour(world: World) -> dict[str, int]:
    """Return how often each GPU was queried, at a turn every six seconds."""

    search = world.market.search

    def slow_search(query: Query) -> Answer:
        world.clock.now += timedelta(seconds=6)
        return search(query)

    world.market.search = slow_search  # type: ignore[method-assign]
    until = world.clock.now + timedelta(minutes=30)
    while world.clock.now < until:
        world.round(after_s=1.0)
    return {gpu: sum(gpu in query.gpus for query in world.market.asked) for gpu in GPUS}


def test_a_watch_whose_limit_is_nearly_reached_is_asked_for_more_often_and_starves_nobody() -> None:
    """Page-filling offers between the limits keep the queries separate, so that turns are scarce."""
    crowd = [on_sale(gpu, 1000 * n + k, 1.0 + n / 2 + 0.3) for n, gpu in enumerate(GPUS) for k in range(40)]
    near = on_sale("GPU 5", 99, 3.52)
    watches = [watch(gpu, 1.0 + n / 2) for n, gpu in enumerate(GPUS)]
    asked = asked_in_half_an_hour(World(CutMarket([*crowd, near], PAGE_ROWS), watches, [*crowd, near]))
    others = [count for gpu, count in asked.items() if gpu != "GPU 5"]
    assert asked["GPU 5"] > max(*others, 1.2 * mean(others))
    assert min(others) >= 0.5 * sum(asked.values()) / len(GPUS)


def test_a_watch_whose_deadline_is_close_is_asked_for_more_often() -> None:
    crowd = [on_sale(gpu, 1000 * n + k, 1.0 + n / 2 + 0.3) for n, gpu in enumerate(GPUS) for k in range(40)]
    world = World(CutMarket(crowd, PAGE_ROWS), [watch(gpu, 1.0 + n / 2) for n, gpu in enumerate(GPUS)], crowd)
    planner = QueryPlanner(
        world.prices, deadline=lambda one, now: now + timedelta(minutes=10) if one.name == "GPU 5" else None
    )
    world.hunter = Hunter(
        world.market,
        world.bench.watches,
        TWENTY,
        world.bench.evaluator,
        lambda *_: None,
        threading.Event(),
        planner=planner,
    )
    asked = asked_in_half_an_hour(world)
    others = [count for gpu, count in asked.items() if gpu != "GPU 5"]
    assert asked["GPU 5"] > max(*others, 1.2 * mean(others))


def test_a_plan_is_kept_until_something_that_it_rests_on_has_changed() -> None:
    """Planning takes longer than the rest of an idle hunt."""
    offers = [on_sale(gpu, number, 9.0) for number, gpu in enumerate(GPUS)]
    world = World(CutMarket(offers, PAGE_ROWS), [watch(gpu, 1.0) for gpu in GPUS], offers)
    planner, demands = QueryPlanner(world.prices), [Demand(query=Query(gpus=(gpu,)), watches=(gpu,)) for gpu in GPUS]
    limits = msgspec.structs.replace(LIMITS, rows_per_s=0.1)
    first = planner.plan(demands, limits, world.clock.now)

    def planned(after_s: float, limits: PollingLimits = limits) -> QueryPlan:
        return planner.plan(demands, limits, world.clock.now + timedelta(seconds=after_s))

    assert planned(59) is first
    assert planned(3600) is first, "the same is on sale, and the same is allowed"
    assert planned(3600, msgspec.structs.replace(limits, rows_per_s=0.101)) is first, "a hundredth is no change"
    fewer = planned(3600, msgspec.structs.replace(limits, rows_per_s=0.05))
    assert fewer is not first
    world.prices.learn(Query(gpus=("GPU 0",)), an_answer(offers[0]))
    assert planned(7300, msgspec.structs.replace(limits, rows_per_s=0.05)) is fewer, "an answer that shows nothing new"
    world.prices.learn(Query(gpus=("GPU 0",)), an_answer(on_sale("GPU 0", 0, 1.0)))
    assert planned(3630, msgspec.structs.replace(limits, rows_per_s=0.05)) is fewer, "it is not a minute old"
    assert planned(7300, msgspec.structs.replace(limits, rows_per_s=0.05)) is not fewer
