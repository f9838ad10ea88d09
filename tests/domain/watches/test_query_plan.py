"""Shared queries: within turns and rows, none forgotten, none starved. Properties, then examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.search_query import ExpectedRows, Query, SalePrice, listed_usd_hour, passes_filters
from gpuwatch.domain.watches.query_plan import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    Demand,
    PollingLimits,
    QueryPlan,
    plan_queries,
    split,
)

GPUS = tuple(f"GPU {n}" for n in range(8))
COUNTS = (1, 2, 4, 8)
EXACT = 1 + 1e-6

prices = st.builds(
    SalePrice,
    gpu_count=st.sampled_from(COUNTS),
    quoted_usd_hour=st.floats(0.05, 8.0),
    disk_usd_gb_month=st.sampled_from((0.0, 0.1, 0.3)),
    verified=st.sampled_from((None, True, False)),
    reliability=st.sampled_from((None, 0.9, 0.99)),
)
markets = st.dictionaries(st.sampled_from(GPUS), st.lists(prices, max_size=40), max_size=len(GPUS)).map(
    lambda found: {(gpu, spot): rows for gpu, rows in found.items() for spot in (False, True)}
)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    least, most = sorted((draw(st.sampled_from(COUNTS)), draw(st.sampled_from(COUNTS))))
    return Query(
        gpus=tuple(draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=3, unique=True))),
        count_min=least,
        count_max=most,
        spot=draw(st.booleans()),
        disk_gb=draw(st.sampled_from((None, None, 50.0))),
        max_listed_usd_hour=draw(st.floats(0.05, 8.0)),
        verified=draw(st.sampled_from((None, None, True))),
        min_reliability=draw(st.sampled_from((None, 0.95))),
        limit=10,
    )


@st.composite
def demand_lists(draw: st.DrawFn) -> list[Demand]:
    distinct = draw(st.lists(queries(), min_size=1, max_size=14, unique=True))
    priorities = st.floats(MIN_PRIORITY, MAX_PRIORITY)
    return [
        Demand(query=query, watches=(f"watch {number}",), priority=draw(priorities))
        for number, query in enumerate(distinct)
    ]


limits_of = st.builds(
    PollingLimits,
    poll_every_s=st.sampled_from((1.0, 30.0, 300.0)),
    search_interval_s=st.sampled_from((0.0, 0.5, 6.0)),
    turns_share=st.sampled_from((0.8, 1.0)),
    rows_per_s=st.sampled_from((None, 0.0, 0.01, 0.1157, 5.0)),
)


def rows_of(market: Mapping[tuple[str, bool], Sequence[SalePrice]]) -> ExpectedRows:
    return ExpectedRows(market, 8.0)


@given(demand_lists(), markets, limits_of)
def test_every_demand_is_covered_by_one_question_that_shows_all_it_asks_for(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], limits: PollingLimits
) -> None:
    plan = plan_queries(demands, rows_of(market), limits)
    served = [one for shared_query in plan.queries for one in shared_query.demands]
    assert sorted(served, key=str) == sorted(demands, key=str)
    for shared_query in plan.queries:
        for demand in shared_query.demands:
            assert shown(market, demand.query) <= shown(market, shared_query.query)


def shown(market: Mapping[tuple[str, bool], Sequence[SalePrice]], query: Query) -> set[tuple[str, int]]:
    """Return what a marketplace would answer to a query, with or without pages."""
    disk_gb = 8.0 if query.disk_gb is None else query.disk_gb
    return {
        (gpu, number)
        for gpu in query.gpus
        for number, price in enumerate(market.get((gpu, query.spot), ()))
        if passes_filters(price, query) and listed_usd_hour(price, disk_gb) <= (query.max_listed_usd_hour or 0.0)
    }


@given(demand_lists(), markets, limits_of)
def test_a_plan_is_never_over_turns_or_rows_and_asks_nobody_more_often_than_promised(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], limits: PollingLimits
) -> None:
    queries = plan_queries(demands, rows_of(market), limits).queries
    assert sum(limits.search_interval_s / query.every_s for query in queries) <= limits.turns_share * EXACT
    if limits.rows_per_s is not None:
        assert sum(query.rows / query.every_s for query in queries) <= max(limits.rows_per_s, 1e-9) * EXACT
    assert all(query.every_s >= limits.poll_every_s for query in queries)


@given(demand_lists(), markets, limits_of)
def test_every_watch_is_asked_within_its_promise_or_the_plan_says_that_it_cannot(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], limits: PollingLimits
) -> None:
    plan = plan_queries(demands, rows_of(market), limits)
    for shared_query in plan.queries:
        kept = shared_query.every_s <= limits.poll_every_s * EXACT
        assert all((name in plan.late) is not kept for name in shared_query.watches)


@given(demand_lists(), markets, limits_of)
def test_only_what_is_known_is_joined_and_only_under_half_a_page(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], limits: PollingLimits
) -> None:
    for shared_query in plan_queries(demands, rows_of(market), limits).queries:
        if len(shared_query.demands) > 1:
            known = all((gpu, shared_query.query.spot) in market for gpu in shared_query.query.gpus)
            assert known or len({one.query.gpus for one in shared_query.demands}) == 1, "the limits of one GPU"
            assert not known or len(shown(market, shared_query.query)) <= limits.page_rows / 2
            assert {one.query.disk_gb for one in shared_query.demands} == {shared_query.query.disk_gb}


@given(demand_lists(), markets, st.sampled_from((0.5, 6.0)))
def test_nobody_starves_because_others_have_a_higher_priority(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], interval_s: float
) -> None:
    """Without a row quota: an even share of the turns, at most twice as long; known queries, at most five times."""
    limits = PollingLimits(poll_every_s=1.0, search_interval_s=interval_s)
    for shared_query in plan_queries(demands, rows_of(market), limits).queries:
        even_s = max(limits.poll_every_s, len(demands) * interval_s)
        assert shared_query.every_s <= even_s * (MAX_PRIORITY / min(1.0, shared_query.priority)) ** 0.5 * EXACT


@given(demand_lists(), markets, limits_of)
def test_joining_never_makes_the_mean_wait_longer(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]], limits: PollingLimits
) -> None:
    alone = PollingLimits(
        poll_every_s=limits.poll_every_s,
        search_interval_s=limits.search_interval_s,
        turns_share=limits.turns_share,
        rows_per_s=limits.rows_per_s,
        can_join=False,
    )
    joint, apart = (plan_queries(demands, rows_of(market), one) for one in (limits, alone))
    assert weighted_wait_s(joint) <= weighted_wait_s(apart) * EXACT


def weighted_wait_s(plan: QueryPlan) -> float:
    weights = {query: sum(demand.priority for demand in query.demands) for query in plan.queries}
    return sum(weight * one.every_s for one, weight in weights.items()) / sum(weights.values())


@given(demand_lists(), markets)
def test_the_halves_of_a_question_serve_all_of_it(
    demands: list[Demand], market: dict[tuple[str, bool], list[SalePrice]]
) -> None:
    limits = PollingLimits(poll_every_s=1.0, search_interval_s=6.0)
    for shared_query in plan_queries(demands, rows_of(market), limits).queries:
        if len(shared_query.demands) > 1:
            first, second = split(shared_query)
            assert sorted((*first.demands, *second.demands), key=str) == sorted(shared_query.demands, key=str)
            assert all(
                shown(market, one.query) <= shown(market, half.query)
                for half in (first, second)
                for one in half.demands
            )


# --- examples ---------------------------------------------------------------------------------------------------------

VASTAI = PollingLimits(poll_every_s=30.0, search_interval_s=6.0)


def demand(gpu: str, usd: float, priority: float = 1.0) -> Demand:
    query = Query(gpus=(gpu,), count_max=1, max_listed_usd_hour=usd, limit=10)
    return Demand(query=query, watches=(gpu,), priority=priority)


def twenty(usd: float = 1.0) -> list[Demand]:
    return [demand(f"GPU {n}", usd + n / 100) for n in range(20)]


def at(usd: float, offers: int = 1) -> list[SalePrice]:
    return [SalePrice(1, usd, 0.0)] * offers


def test_watches_that_fit_are_not_joined() -> None:
    plan = plan_queries(twenty()[:5], rows_of({}), VASTAI)
    assert [query.every_s for query in plan.queries] == [pytest.approx(30.0)] * 5
    assert plan.late == ()


def test_twenty_gpus_under_whose_limits_nothing_is_on_sale_are_asked_for_as_often_as_one() -> None:
    market = {(f"GPU {n}", False): at(9.0, 30) for n in range(20)}
    plan = plan_queries(twenty(), rows_of(market), VASTAI)
    assert plan.round_s == pytest.approx(30.0)
    assert len(plan.queries) <= 5
    assert plan.late == ()


def test_a_dear_gpu_is_not_joined_with_cheap_ones_that_fill_the_page() -> None:
    market = {(f"GPU {n}", False): at(2.0, 30) for n in range(20)} | {("dear", False): at(9.0)}
    plan = plan_queries([*twenty(), demand("dear", 5.0)], rows_of(market), VASTAI)
    (dear,) = [query for query in plan.queries if "dear" in query.watches]
    assert len(dear.watches) <= 2


def test_rows_are_spared_where_a_quota_counts_them() -> None:
    market = {(f"GPU {n}", False): at(1.0 + n / 100 + 0.005, 3) for n in range(20)}
    thrifty = PollingLimits(poll_every_s=30.0, search_interval_s=6.0, rows_per_s=0.05)
    free, rationed = (plan_queries(twenty(), rows_of(market), one) for one in (VASTAI, thrifty))
    assert len(free.queries) < len(rationed.queries)
    assert set(rationed.late) == {f"GPU {n}" for n in range(20)}


def test_a_query_with_a_higher_priority_is_sent_more_often() -> None:
    plan = plan_queries([*twenty(), demand("urgent", 5.0, priority=4.0)], rows_of({}), VASTAI)
    every_s = {query.watches[0]: query.every_s for query in plan.queries}
    assert every_s["urgent"] < 0.6 * every_s["GPU 1"]
    assert every_s["GPU 1"] < 2 * 21 * 6.0


def test_several_limits_for_one_gpu_are_one_query_at_the_highest() -> None:
    market = {(f"GPU {n}", False): at(9.0) for n in range(20)}
    watches = [demand(f"GPU {n % 20}", 1.0 + n / 1000) for n in range(100)]
    plan = plan_queries(watches, rows_of(market), VASTAI)
    assert len(plan.queries) <= 10
    assert max(query.query.max_listed_usd_hour or 0 for query in plan.queries) == pytest.approx(1.099)


def test_a_hundred_watches_are_planned_in_a_moment() -> None:
    counted = [0]
    known = rows_of({(f"GPU {n}", False): at(1.2, 20) for n in range(20)})

    def counting(query: Query) -> float | None:
        counted[0] += 1
        return known(query)

    plan_queries([demand(f"GPU {n % 20}", 1.0 + n / 100) for n in range(100)], counting, VASTAI)
    assert counted[0] < 20_000
