"""The data of the page about the whole market, compared with the answers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.domain.history.gpu_status import GpuHistory, gpu_status_of, lifetime_curve_at, median_price
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.nonparametric import kaplan_meier
from gpuwatch.domain.history.past_lows import MIN_HOURS
from gpuwatch.storage.history.queries.market_overview import read_gpu_price_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer, on_demand, price_track

NOON_S = int(NOON.timestamp())
Look = tuple[int, dict[str, float]]  # seconds after noon, machine → price

steps = st.lists(
    st.tuples(
        st.sampled_from([300, 1800, 3600, 5 * 3600, 26 * 3600]),
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0, 3.0])),
    ),
    min_size=1,
    max_size=12,
)


def in_store(database: Database, looks: Sequence[Look]) -> None:
    history = SqlHistoryRecorder(database)
    for after_s, prices in looks:
        offers = [an_offer(machine, usd, disk_usd_gb_month=None) for machine, usd in prices.items()]
        history.record(an_answer(*offers, after_s=after_s), lane="sweep")


def lives_by_hand(looks: Sequence[Look], limit: float) -> list[tuple[float, bool]]:
    """Return each run of polls that saw a machine at or under the limit, except those at the first poll."""
    found = []
    for machine in "abcd":
        under = [prices.get(machine, 99.0) <= limit for _, prices in looks]
        for at, is_under in enumerate(under):
            if is_under and at and not under[at - 1]:
                end = next((later for later in range(at, len(under)) if not under[later]), None)
                shortest = looks[(end or len(looks)) - 1][0] - looks[at][0]
                longest = looks[end][0] - looks[at - 1][0] if end is not None else shortest
                found.append(((shortest + longest) / 2, end is not None))
    return sorted(found)


def pasts(database: Database, *asked: Any) -> list[GpuHistory]:
    return list(read_gpu_price_history(database, *asked))


POLLS = ("poll", "poll_day", "poll_total")


def emptied(database: Database) -> None:
    with database.write() as connection:
        for table in (
            "hourly",
            "price_interval",
            "series",
            "segment",
            "place",
            "poll",
            "poll_day",
            "poll_total",
            "quota_day",
        ):
            connection.exec_driver_sql(f"DELETE FROM {table}")
        connection.exec_driver_sql(
            "UPDATE history_state SET version = version + 1, next_hour = NULL, packed_to_day = NULL"
        )


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, limit=st.sampled_from([1.0, 2.0, 3.0]))
def test_a_page_says_what_the_answers_said(
    database: Database, steps: list[tuple[int, dict[str, float]]], limit: float
) -> None:
    emptied(database)
    times = np.cumsum([gap for gap, _ in steps]).tolist()
    looks = [(int(at), prices) for at, (_, prices) in zip(times, steps, strict=True)]
    in_store(database, looks)
    until = NOON + timedelta(seconds=looks[-1][0] + 60)
    found = pasts(database, MarketFilter(spot=False), NOON, until, {"vastai": 1.2})
    if not any(prices for _, prices in looks):
        assert found == []
        return
    (past,) = found
    standing = gpu_status_of(past, NOON_S, round(limit * 1.2e6))
    newest = looks[-1][1]
    assert standing.polled_s == NOON_S + looks[-1][0]
    assert standing.offers == len(newest)
    assert standing.now == (round(min(newest.values()) * 1.2e6) if newest else None)
    curve = lifetime_curve_at(past.intervals, round(limit * 1.2e6), NOON_S)
    by_hand = lives_by_hand(looks, limit)
    assert curve == kaplan_meier([seconds for seconds, _ in by_hand], [ended for _, ended in by_hand])


def test_its_hours_are_those_of_a_price_track(database: Database) -> None:
    in_store(database, [(0, {"a": 2.0}), (5400, {"a": 2.0, "b": 1.5}), (7 * 3600, {}), (20 * 3600, {"c": 3.0})])
    until = NOON + timedelta(hours=22)
    (past,) = pasts(database, MarketFilter(spot=False), NOON, until, {})
    points = price_track(database, on_demand("H100 SXM"), NOON, until)
    assert list(past.series.lows) == [point.min_microusd for point in points]
    assert list(past.series.polled) == [point.polled for point in points]


def test_another_providers_old_look_is_not_now(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer("x", 0.5, provider="lambda"), provider="lambda"), lane="sweep")
    history.record(an_answer(an_offer("a", 2.0), after_s=6 * 3600), lane="sweep")
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(hours=7), {})
    standing = gpu_status_of(past, NOON_S, None)
    assert (standing.now, standing.offers) == (2_000_000, 1)


def test_at_a_moment_of_the_past_later_looks_did_not_happen(database: Database) -> None:
    in_store(database, [(0, {"a": 2.0, "b": 1.0}), (3600, {"a": 2.0, "b": 1.0}), (7200, {"a": 2.5})])
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(seconds=4000), {})
    standing = gpu_status_of(past, NOON_S, None)
    assert (standing.now, standing.offers) == (1_000_000, 2)


def test_a_price_of_several_gpus_is_shared_out(database: Database) -> None:
    pair = an_offer("a", 5.0, gpu_count=2, disk_usd_gb_month=None)
    SqlHistoryRecorder(database).record(an_answer(pair, an_offer("b", 4.0, disk_usd_gb_month=None)), lane="sweep")
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(minutes=5), {"vastai": 1.2})
    assert gpu_status_of(past, NOON_S, None).now == 3_000_000
    (past,) = pasts(database, MarketFilter(spot=False, gpu_count_max=1), NOON, NOON + timedelta(minutes=5), {})
    assert gpu_status_of(past, NOON_S, None).now == 4_000_000


def test_the_median_is_by_time_on_offer(database: Database) -> None:
    in_store(database, [(0, {"a": 1.0, "b": 3.0}), (7200, {"b": 3.0}), (9000, {"a": 2.0})])
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(minutes=165), {})
    assert median_price(past, NOON_S) == 3_000_000
    assert median_price(past, NOON_S + 9000) == 2_000_000


def test_a_gap_does_not_weigh_in_the_median(database: Database) -> None:
    in_store(database, [(0, {"a": 1.0}), (20 * 3600, {"a": 2.0}), (22 * 3600, {"a": 2.0}), (24 * 3600, {})])
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(hours=25), {})
    assert median_price(past, NOON_S) == 2_000_000  # 3 hours at 1.00 until the gap, 4 at 2.00


def test_a_price_that_stays_is_ranked_in_the_middle_although_its_hours_are_rounded(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    for hour in range(MIN_HOURS):
        offer = an_offer("a", 1.0, gpu_count=7, disk_usd_gb_month=None)  # now 0.171429, its hours 0.171428
        history.record(an_answer(offer, after_s=hour * 3600), lane="sweep")
    (past,) = pasts(database, MarketFilter(spot=False), NOON, NOON + timedelta(hours=MIN_HOURS), {"vastai": 1.2})
    assert gpu_status_of(past, NOON_S, None).percentile == 0.5
