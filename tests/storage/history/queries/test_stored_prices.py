"""The price history read from the store equals the store at every moment."""

from __future__ import annotations

from datetime import timedelta
from itertools import dropwhile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory, OfferInterval
from gpuwatch.domain.history.price_series import series_of
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.queries.stored_prices import market_at, read_covering_polls, read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.history.recording.test_history_recorder_model import Poll, a_poll, emptied, reported
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines, on_demand, price_track

ALL = MarketFilter()
NOON_S = int(NOON.timestamp())
fresh_each_time = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def history(database: Database) -> SqlHistoryRecorder:
    return SqlHistoryRecorder(database)


def history_until(database: Database, second: int, since_s: int = -10, **scope: Any) -> MarketHistory:
    return read_market_history(
        database, MarketFilter(**scope), NOON + timedelta(seconds=since_s), NOON + timedelta(seconds=second)
    )


def intervals(market_history: MarketHistory) -> list[tuple[str, int, int, int | None]]:
    """(machine, from, seen, gone), seconds after noon."""
    return [
        (
            market_history.listings[interval.listing].identity.machine_id,
            interval.from_s - NOON_S,
            interval.seen_s - NOON_S,
            None if interval.ended_s is None else interval.ended_s - NOON_S,
        )
        for interval in market_history.intervals
    ]


def standing(market_history: MarketHistory, second: int) -> dict[tuple[str, str], int]:
    """Return (machine, GPU) → listed price at a moment, from the history."""
    at_s = NOON_S + second
    return {
        (who.machine_id, who.gpu): interval.listed_microusd_hour(8)
        for interval in market_history.intervals
        if interval.from_s <= at_s and (interval.ended_s is None or at_s < interval.ended_s)
        for who in [market_history.listings[interval.listing].identity]
    }


def stored(database: Database, second: int) -> dict[tuple[str, str], int]:
    offers = market_at(database, NOON + timedelta(seconds=second))
    return {(offer.identity.machine_id, offer.identity.gpu): offer.listed_microusd_hour() for offer in offers}


@pytest.mark.slow
@fresh_each_time
@given(story=st.lists(a_poll(), min_size=1, max_size=12))
def test_a_history_says_of_each_moment_what_the_store_says(database: Database, story: list[Poll]) -> None:
    emptied(database)
    moments = sorted({0, *(second for second, _ in reported(database, story))})
    market_history = history_until(database, moments[-1] + 100)
    for second in {*moments, *(second - 1 for second in moments[1:]), moments[-1] + 99}:
        assert standing(market_history, second) == stored(database, second)
    now = NOON + timedelta(seconds=moments[-1])
    assert market_at(database, now, is_now=True) == market_at(database, now)


@pytest.mark.slow
@fresh_each_time
@given(story=st.lists(a_poll(), min_size=2, max_size=12), share=st.floats(0, 1))
def test_a_history_that_is_cut_off_knows_nothing_of_later(
    sqlite_database: Database, story: list[Poll], share: float
) -> None:
    emptied(sqlite_database)
    ends = [second for second, _ in reported(sqlite_database, story)]
    until = 1 + int(ends[-1] * share)
    whole, part = history_until(sqlite_database, ends[-1] + 100), history_until(sqlite_database, until)
    assert {
        (part.listings[interval.listing].identity, interval.from_s, interval.ended_s) for interval in part.intervals
    } == {
        (whole.listings[interval.listing].identity, interval.from_s, interval.ended_s)
        for interval in whole.before(NOON_S + until).intervals
    }
    assert list(part.polls) == list(whole.before(NOON_S + until).polls)


@pytest.mark.slow
@fresh_each_time
@given(story=st.lists(a_poll(), min_size=1, max_size=12))
def test_the_lows_of_the_hours_are_those_of_the_history(sqlite_database: Database, story: list[Poll]) -> None:
    """Only one GPU is selected, by sweeps: in a history, a poll of one beside another counts for both."""
    emptied(sqlite_database)
    sweeps = [
        Poll(poll.wait_s, "sweep", poll.gpu, poll.market, Completeness.COMPLETE, None, poll.restart) for poll in story
    ]
    last = [second for second, _ in reported(sqlite_database, sweeps)][-1]
    until = NOON + timedelta(seconds=last + 1)
    market_history = read_market_history(sqlite_database, MarketFilter(gpus=("H100 SXM",), spot=False), NOON, until)
    made = series_of(market_history, lambda listing, interval: interval.listed_microusd_hour(8))
    points = price_track(sqlite_database, on_demand("H100 SXM"), NOON, until)
    if market_history.listings:
        points = list(dropwhile(lambda point: not point.polled, points))
        assert made.starts_at(0) == points[0].starts_at
        pairs = list(zip(zip(made.lows, made.polled, strict=True), points, strict=False))
        assert [low for low, _ in pairs] == [(point.min_microusd, point.polled) for _, point in pairs]
        assert not any(point.polled for point in points[len(pairs) :])


def test_an_offer_that_stays_is_one_spell(database: Database, history: SqlHistoryRecorder) -> None:
    for after_s in (0, 60, 120):
        history.record(an_answer(an_offer(), after_s=after_s), lane="sweep")
    assert intervals(history_until(database, 200)) == [("m1", 0, 120, None)]


def test_what_a_later_look_ended_has_not_ended_before_it(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    history.record(an_answer(after_s=20_000), lane="sweep")
    assert intervals(history_until(database, 15_000)) == [("m1", 0, 0, None)]
    assert intervals(history_until(database, 20_001)) == [("m1", 0, 0, 20_000)]


def test_what_was_gone_before_the_stretch_is_not_in_it(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    history.record(an_answer(an_offer("b"), after_s=60), lane="sweep")
    assert intervals(history_until(database, 200, since_s=60)) == [("b", 0, 60, None)]
    assert intervals(history_until(database, 200, since_s=59)) == [("a", 0, 0, 60), ("b", 0, 60, None)]


def test_a_gpu_that_was_looked_for_and_never_seen_is_no_gap(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(), lane="sweep", gpu="H200 SXM")
    history.record(an_answer(an_offer(), after_s=60), lane="sweep", gpu="H100 SXM")
    market_history = history_until(database, 200, gpus=("H200 SXM",))
    assert [(poll.gpu, poll.answered) for poll in market_history.polls] == [("H200 SXM", True)]
    assert series_of(market_history, lambda listing, interval: 1).lows[0] is None
    assert series_of(market_history, lambda listing, interval: 1).polled[0]


def test_a_failed_look_is_reported_and_answered_nothing(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer()), lane="sweep")
    history.record_failure("vastai", lane="sweep", at=NOON + timedelta(seconds=60), error="500")
    assert [(poll.answered, poll.failed) for poll in history_until(database, 200).polls] == [
        (True, False),
        (False, True),
    ]


def test_hunts_end_nothing_and_are_no_look_of_an_export(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    history.record(an_answer(an_offer("c"), after_s=30), lane="hunt", gpu="H100 SXM")
    assert intervals(history_until(database, 200)) == [("a", 0, 0, None), ("b", 0, 0, None), ("c", 30, 30, None)]
    looks = read_covering_polls(database, ALL, NOON, NOON + timedelta(hours=1))
    assert [(one.at_s, gpu) for (_, gpu, _), polls in looks.items() for one in polls] == [(NOON_S, "")]


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({}, {"live", "spot", "pair", "a100"}),
        ({"provider": "vastai"}, {"live", "spot", "pair", "a100"}),
        ({"provider": "vastai:listed"}, {"listed"}),
        ({"provider": "runpod"}, set()),
        ({"spot": True}, {"spot"}),
        ({"gpu_count_min": 2}, {"pair"}),
        ({"gpu_count_max": 1, "spot": False}, {"live", "a100"}),
        ({"gpus": ("H100",)}, {"live", "spot", "pair"}),
        ({"gpus": ("A100 SXM 80GB",)}, {"a100"}),
    ],
)
def test_a_history_holds_what_was_asked_for(
    database: Database, history: SqlHistoryRecorder, scope: dict[str, Any], found: set[str]
) -> None:
    offers = [
        an_offer("live"),
        an_offer("pair", gpu_count=2),
        an_offer("a100", gpu="A100 SXM 80GB", gpu_family="A100"),
        an_offer("listed", kind=OfferKind.LISTED),
    ]
    history.record(an_answer(*offers), lane="sweep")
    history.record(an_answer(an_offer("spot", spot=True)), lane="sweep", spot=True)
    market_history = history_until(database, 100, **scope)
    assert {listing.identity.machine_id for listing in market_history.listings} == found


def test_facts_and_money_come_through(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("m", 4.0, gpu_count=2)), lane="sweep")
    market_history = history_until(database, 10)
    (listing,), (interval,) = market_history.listings, market_history.intervals
    assert (listing.region, listing.country, listing.reliability, listing.gpu_memory_gib) == (
        "Texas, US", "US", 0.99, 80.0,
    )  # fmt: skip
    assert isinstance(interval, OfferInterval)
    assert interval.listed_microusd_hour(8) / listing.gpu_count == 2_000_000
    assert machines(market_at(database, NOON)) == {"m": 4_000_000}
