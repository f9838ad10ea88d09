"""A day of polls as bytes: nothing is lost, and little is stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.market_polls import complete_polls, joined_polls, market_polls, poll_times
from gpuwatch.domain.history.packed_polls import (
    COMPLETENESS,
    LANES,
    PackedPoll,
    pack_polls,
    poll_columns,
    unpack_polls,
)
from gpuwatch.domain.setup.durations import DAY_S

DAY = 20_500
POLLS = st.lists(
    st.builds(
        PackedPoll,
        at_s=st.integers(DAY * DAY_S, (DAY + 1) * DAY_S - 1),
        number=st.integers(0, 2**40),
        completeness=st.sampled_from(COMPLETENESS),
        covers=st.booleans(),
        complete_to_microusd=st.none() | st.integers(0, 10**12),
        lane=st.sampled_from(LANES),
    ),
    max_size=30,
)


@given(polls=POLLS)
def test_every_poll_comes_back_by_time_and_number(polls: list[PackedPoll]) -> None:
    columns = poll_columns(polls)
    assert list(columns) == sorted(polls, key=lambda poll: poll[:2])
    assert list(unpack_polls(pack_polls(columns, DAY), DAY)) == list(columns)


@given(polls=POLLS, since=st.integers(0, DAY_S), until=st.integers(0, DAY_S))
def test_a_part_of_a_day_and_its_covering_polls(polls: list[PackedPoll], since: int, until: int) -> None:
    columns = poll_columns(polls)
    since_s, until_s = DAY * DAY_S + since, DAY * DAY_S + max(since, until)
    part = [poll for poll in columns if since_s <= poll.at_s < until_s]
    assert list(columns.between(since_s, until_s)) == part
    assert list(columns.covering()) == [poll for poll in columns if poll.covers]


@given(polls=POLLS)
def test_one_day_follows_another(polls: list[PackedPoll]) -> None:
    later = poll_columns(poll._replace(at_s=poll.at_s + DAY_S) for poll in polls)
    both = poll_columns(polls)
    both.extend(later)
    assert list(both) == [*poll_columns(polls), *later]


def test_a_lane_of_another_version_is_another_one() -> None:
    poll = PackedPoll(DAY * DAY_S, 1, "complete", False, None, "gather")
    assert [one.lane for one in poll_columns([poll])] == ["other"]


def test_a_poll_takes_a_few_bytes() -> None:
    polls = [PackedPoll(DAY * DAY_S + 7 + 187 * n, 40 * n, "complete", n % 19 == 0, None, "hunt") for n in range(460)]
    assert len(pack_polls(poll_columns(polls), DAY)) < 2 * len(polls)


@given(parts=st.lists(POLLS, min_size=1, max_size=3))
def test_columns_by_time_are_the_list_by_time(parts: list[list[PackedPoll]]) -> None:
    joined = [market_polls([("vastai", "", False, poll_columns(part))]) for part in parts]
    plain = [list(part) for part in joined]
    assert list(joined_polls(joined)) == list(joined_polls(plain))
    (first, *_), one = plain, joined[0]
    assert [one[place] for place in range(len(one))] == first
    assert list(one[1:3]) == first[1:3]
    assert list(complete_polls(one)) == [poll for poll in first if poll.proves_absence]
    assert list(poll_times(one)) == list(poll_times(first))
