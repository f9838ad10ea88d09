"""Prices and polls as columns are the same sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.market_history import MarketPoll, OfferInterval, interval_columns
from gpuwatch.domain.history.market_polls import poll_columns_of

TIMES = st.integers(0, 2**33)
INTERVALS = st.lists(
    st.builds(
        OfferInterval,
        st.integers(0, 3),
        TIMES,
        TIMES,
        st.none() | TIMES,
        st.integers(0, 2**40),
        st.none() | st.integers(0, 2**40),
    )
)


@given(INTERVALS, st.lists(st.booleans(), min_size=4, max_size=4))
def test_intervals_are_those_that_were_added(intervals: list[OfferInterval], wanted: list[bool]) -> None:
    columns = interval_columns(intervals)
    assert list(columns) == intervals
    assert [columns[place] for place in range(len(columns))] == intervals
    assert list(columns[1:]) == intervals[1:]
    assert list(columns.of_listings(wanted)) == [one for one in intervals if wanted[one.listing]]
    columns.order_by_time()
    assert list(columns) == sorted(intervals, key=lambda one: (one.from_s, one.listing))


@given(st.lists(st.builds(MarketPoll, TIMES, st.sampled_from("ab"), st.just("G"), st.booleans(), st.booleans())))
def test_polls_are_those_that_were_given(polls: list[MarketPoll]) -> None:
    polls.sort(key=lambda poll: poll.at_s)
    columns = poll_columns_of(polls)
    assert list(columns) == polls
    assert poll_columns_of(columns) is columns
