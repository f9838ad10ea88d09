"""Rows make a history, and a history makes rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.market_history import CompletePoll, MarketHistory, OfferInterval
from gpuwatch.domain.history.price_rows import SAW_NOTHING_MICROUSD, PriceRow
from gpuwatch.domain.history.row_conversion import PollScope, history_of_rows, price_rows_of
from gpuwatch.domain.market.offer import OfferKind
from tests.builders import a_price_row

GPUS = ("H100 SXM", "A100 SXM 80GB")


def a_row(
    at_s: int, key: str = "1", usd: int = 100, gpu: str = GPUS[0], spot: bool = False, **more: object
) -> PriceRow:
    return a_price_row(1_700_000_000 + at_s, key, gpu_wire=gpu, spot=spot, listed_microusd_hour=usd, **more)


def a_look(at_s: int, gpu: str = "", spot: bool = False, bound: int = 0) -> PriceRow:
    return a_row(at_s, "", bound, gpu, spot)


def intervals(market_history: MarketHistory) -> list[tuple[str, int, int, int | None, int]]:
    """(machine, from, seen, gone, price), seconds after the start."""
    start = 1_700_000_000
    return [
        (
            market_history.listings[interval.listing].identity.machine_id,
            interval.from_s - start,
            interval.seen_s - start,
            None if interval.ended_s is None else interval.ended_s - start,
            interval.machine_microusd_hour,
        )
        for interval in market_history.intervals
    ]


def looks_in(rows: Iterable[PriceRow]) -> dict[PollScope, set[CompletePoll]]:
    found: dict[PollScope, set[CompletePoll]] = {}
    for row in rows:
        scope = ((row.provider, OfferKind.LIVE), row.gpu_wire, row.spot)
        found.setdefault(scope, set()).add(CompletePoll(row.at_s, row.listed_microusd_hour or None))
    return found


def looks_of_each_gpu(market_history: MarketHistory) -> dict[PollScope, set[CompletePoll]]:
    gpus = {listing.gpu for listing in market_history.listings}
    return looks_in(a_look(poll.at_s - 1_700_000_000, gpu, poll.spot) for poll in market_history.polls for gpu in gpus)


def polled(market_history: MarketHistory) -> set[tuple[int, str, bool, bool]]:
    """The statement of each poll about the GPUs on offer: a poll of all GPUs covers each one."""
    gpus = {listing.gpu for listing in market_history.listings}
    return {
        (poll.at_s, gpu, poll.spot, poll.answered)
        for poll in market_history.polls
        for gpu in gpus & {poll.gpu or gpu for gpu in gpus}
    }


def test_a_moment_without_a_row_is_a_moment_without_the_offer() -> None:
    market_history = history_of_rows(
        [a_row(0, "a"), a_row(0, "b"), a_row(10, "b"), a_row(20, "a"), a_row(20, "b")], "x"
    )
    assert intervals(market_history) == [("a", 0, 0, 10, 100), ("b", 0, 20, None, 100), ("a", 20, 20, None, 100)]


def test_a_new_price_ends_the_old_one() -> None:
    market_history = history_of_rows([a_row(0), a_row(10, usd=90), a_row(20, usd=90)], "x")
    assert intervals(market_history) == [("1", 0, 0, 10, 100), ("1", 10, 20, None, 90)]


def test_of_one_offer_twice_the_cheaper_price_counts() -> None:
    assert intervals(history_of_rows([a_row(0, usd=100), a_row(0, usd=90), a_row(0, usd=95)], "x")) == [
        ("1", 0, 0, None, 90)
    ]


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [a_row(0), a_row(10), a_row(20, usd=90), a_row(30, "b")]
    assert intervals(history_of_rows(rows, "x")) == intervals(history_of_rows(rows[::-1], "x"))


def test_each_provider_has_looks_of_its_own() -> None:
    market_history = history_of_rows([a_row(0), a_row(5, provider="runpod"), a_row(10)], "x")
    assert [(poll.at_s - 1_700_000_000, poll.provider) for poll in market_history.polls] == [
        (0, "vastai"), (5, "runpod"), (10, "vastai"),
    ]  # fmt: skip
    assert ("1", 0, 10, None, 100) in intervals(market_history)


def test_nobody_looked_for_spot_before_the_first_spot_row() -> None:
    market_history = history_of_rows([a_row(0), a_row(10), a_row(10, spot=True), a_row(20)], "x")
    assert [poll.at_s - 1_700_000_000 for poll in market_history.polls if poll.spot] == [10, 20]
    assert ("1", 10, 10, 20, 100) in intervals(market_history)


def test_a_file_may_say_itself_when_somebody_looked() -> None:
    rows = [a_look(0, GPUS[0]), a_row(0), a_row(10), a_look(20, GPUS[0])]
    market_history = history_of_rows(rows, "x")
    assert intervals(market_history) == [("1", 0, 10, 20, 100)]
    assert [(poll.at_s - 1_700_000_000, poll.gpu) for poll in market_history.polls] == [(0, GPUS[0]), (20, GPUS[0])]


def test_a_look_up_to_a_price_ends_nothing_dearer() -> None:
    rows = [a_look(0), a_row(0, "cheap", 50), a_row(0, "dear", 200), a_look(10, bound=100), a_look(20)]
    market_history = history_of_rows(rows, "x")
    assert intervals(market_history) == [("cheap", 0, 0, 10, 50), ("dear", 0, 0, 20, 200)]
    assert [poll.answered for poll in market_history.polls] == [True, False, True]


def test_list_prices_lie_apart_from_live_ones_of_the_same_name() -> None:
    market_history = history_of_rows([a_row(0), a_row(0, usd=50, kind=OfferKind.LISTED), a_row(10)], "x")
    both = zip(market_history.listings, intervals(market_history), strict=True)
    assert {(listing.kind, interval[4]) for listing, interval in both} == {
        (OfferKind.LIVE, 100), (OfferKind.LISTED, 50),
    }  # fmt: skip


def test_no_rows_are_an_empty_history() -> None:
    assert history_of_rows([], "x").intervals == []


ROWS = st.lists(
    st.builds(
        a_row,
        st.integers(0, 8),
        st.sampled_from("abc"),
        st.sampled_from([100, 200]),
        st.sampled_from(GPUS),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)
LOOKS = st.lists(
    st.builds(a_look, st.integers(0, 8), st.sampled_from(["", *GPUS]), st.booleans(), st.sampled_from([0, 0, 150])),
    max_size=12,
)


@given(rows=ROWS, looks=LOOKS)
def test_the_rows_of_a_history_make_the_history_again(rows: list[PriceRow], looks: list[PriceRow]) -> None:
    market_history = history_of_rows([*looks, *rows], "x")
    known = looks_in(looks) if looks else looks_of_each_gpu(market_history)
    again = history_of_rows(price_rows_of(market_history, known, 0, {}, 8.0), "x")
    assert Counter(intervals(again)) == Counter(intervals(market_history))
    assert polled(again) == polled(market_history)


@given(rows=ROWS)
def test_looks_that_the_rows_say_already_have_no_row(rows: list[PriceRow]) -> None:
    market_history = history_of_rows(rows, "x")
    known = looks_of_each_gpu(market_history)
    assert not any(row.is_poll for row in price_rows_of(market_history, known, 0, {}, 8.0))


@pytest.mark.parametrize("gpu", ["", GPUS[0]])
def test_an_empty_look_has_a_row(gpu: str) -> None:
    looks = [a_look(second, gpu) for second in (0, 10, 20)]
    market_history = history_of_rows([*looks, a_row(0), a_row(20)], "x")
    rows = list(price_rows_of(market_history, looks_in(looks), 0, {}, 8.0))
    assert [row.at_s - 1_700_000_000 for row in rows if row.is_poll] == [0, 10, 20]
    assert intervals(history_of_rows(rows, "x")) == [("1", 0, 0, 10, 100), ("1", 20, 20, None, 100)]


def test_observations_without_any_look_are_marked_as_such() -> None:
    alone = MarketHistory(
        listings=history_of_rows([a_row(0)], "x").listings,
        intervals=[OfferInterval(0, 1_700_000_000, 1_700_000_000, None, 100, None)],
        polls=[],
        source="x",
    )
    rows = list(price_rows_of(alone, {}, 0, {}, 8.0))
    assert [(row.is_poll, row.listed_microusd_hour) for row in rows] == [(True, SAW_NOTHING_MICROUSD), (False, 100)]
    assert list(history_of_rows(rows, "x").polls) == []
