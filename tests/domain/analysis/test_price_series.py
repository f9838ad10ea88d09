"""Summaries of prices over time, compared with the simplest model: the offers of each minute."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.analysis.market_history import ListedOffer, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.analysis.price_periods import price_periods_of, time_under
from gpuwatch.domain.analysis.price_series import (
    HOUR_S,
    PeriodLength,
    PriceSeries,
    cut_series,
    hours_by_period,
    hours_under,
    lowest_before,
    percentile_rank,
    unobserved_gaps,
)
from gpuwatch.domain.market.offer import Identity

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
START_S = int(START.timestamp())
MINUTE_S = 60
LASTS_MIN = 180  # validity of a poll


def a_series(*lows: int | None, polled: list[bool] | None = None) -> PriceSeries:
    return PriceSeries(
        first_hour=START_S // HOUR_S, lows=lows, polled=polled or [low is not None for low in lows], source="a test"
    )


def hour_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) // HOUR_S


def test_days_are_local_and_may_have_23_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    spans = list(
        hours_by_period(hour_of("2026-03-28T00:00+01:00"), hour_of("2026-03-31T00:00+02:00"), PeriodLength.DAY, berlin)
    )
    assert [len(hours) for hours in spans] == [24, 23, 24]


def test_weeks_begin_on_monday() -> None:
    first, after = hour_of("2026-03-06T00:00Z"), hour_of("2026-03-17T00:00Z")
    spans = list(hours_by_period(first, after, PeriodLength.WEEK, UTC))
    assert [len(hours) // 24 for hours in spans] == [3, 7, 1]
    assert [len(hours) for hours in hours_by_period(first, after, PeriodLength.HOUR, UTC)] == [1] * (after - first)


def test_a_gap_lies_between_looks() -> None:
    series = a_series(
        None, 1, None, None, 2, None, 3, None, polled=[False, True, False, False, True, True, True, False]
    )
    (gap,) = unobserved_gaps(series)
    assert (gap.starts_at.hour, gap.hours) == (14, 2)


def test_hours_without_a_look_count_neither_way() -> None:
    share = hours_under(a_series(1, 2, None, None, 3, polled=[True, True, True, False, True]), 2)
    assert (share.under_s, share.known_s, share.share) == (2 * HOUR_S, 4 * HOUR_S, 0.5)
    assert hours_under(a_series(None, polled=[False]), 2).share is None


def test_the_price_before_is_that_of_the_hour_or_of_the_one_beside_it() -> None:
    series = a_series(1, 2, None, 4, None, None, 7, polled=[True, True, False, True, True, False, True])
    at = {hours: lowest_before(series, datetime(2026, 3, 2, 18, 59, tzinfo=UTC), hours) for hours in range(8)}
    assert at == {0: 7, 1: None, 2: None, 3: 4, 4: 2, 5: 2, 6: 1, 7: 1}
    assert lowest_before(series, START, 24) is None


@pytest.mark.slow
@given(lows=st.lists(st.integers(1, 9), min_size=1), price=st.integers(0, 10))
def test_the_percentile_is_that_of_the_textbooks(lows: list[int], price: int) -> None:
    stats = import_module("scipy.stats")  # not above: 60 MB in workers that never use it
    found = percentile_rank(a_series(*lows, None), price)
    assert found == pytest.approx(stats.percentileofscore(lows, price, kind="mean") / 100)


def test_nothing_has_no_percentile() -> None:
    assert percentile_rank(a_series(None, None), 3) is None
    assert cut_series(a_series(1, 2, 3), START_S // HOUR_S + 2).lows == (3,)
    assert cut_series(a_series(1, 2, 3), START_S // HOUR_S + 9).lows == ()
    assert cut_series(a_series(1, 2, 3), 0, START_S // HOUR_S + 2).lows == (1, 2)
    assert cut_series(a_series(1, 2, 3), 0, START_S // HOUR_S - 2).lows == ()


Looks = list[tuple[int, dict[int, int]]]  # minutes after the start → offer → price


@st.composite
def some_looks(draw: st.DrawFn) -> Looks:
    gaps = draw(st.lists(st.sampled_from([10, 45, 60, 200, 700]), min_size=1, max_size=8))
    market = st.dictionaries(st.integers(0, 3), st.integers(1, 5).map(lambda price: price * 100_000))
    found, at = [], 0
    for gap in gaps:
        found.append((at, draw(market)))
        at += gap
    return found


def a_history(looks: Looks) -> MarketHistory:
    intervals = []
    for offer in range(4):
        standing: OfferInterval | None = None
        for at, prices in looks:
            at_s = START_S + at * MINUTE_S
            if standing and prices.get(offer) == standing.machine_microusd_hour:
                standing = standing._replace(seen_s=at_s)
                continue
            if standing:
                intervals.append(standing._replace(delisted_s=at_s))
            standing = OfferInterval(offer, at_s, at_s, None, prices[offer], None) if offer in prices else None
        intervals += [standing] if standing else []
    return MarketHistory(
        listings=tuple(
            ListedOffer(identity=Identity("vastai", str(n), "H100 SXM", 1, False), gpu_family="H100", offer_id=str(n))
            for n in range(4)
        ),
        intervals=sorted(intervals, key=lambda interval: (interval.from_s, interval.listing)),
        polls=[MarketPoll(START_S + at * MINUTE_S, "vastai", "", False, True) for at, _ in looks],
        source="a test",
    )


def by_minute(looks: Looks) -> list[dict[int, int] | None]:
    """The offers of each minute; None: no poll covers it."""
    found: list[dict[int, int] | None] = []
    for minute in range(looks[-1][0] + LASTS_MIN):
        at, prices = next((at, prices) for at, prices in reversed(looks) if at <= minute)
        found.append(prices if minute - at < LASTS_MIN else None)
    return found


def listed(_: int, interval: OfferInterval) -> float:
    return interval.machine_microusd_hour


def priced(_: int, interval: OfferInterval) -> float:
    return interval.machine_microusd_hour * 1.2


@given(looks=some_looks(), every=st.sampled_from(list(PeriodLength)))
def test_a_track_is_what_the_minutes_say(looks: Looks, every: PeriodLength) -> None:
    minutes = by_minute(looks)
    track = price_periods_of(a_history(looks), listed, priced, every, UTC, START_S + 10**6)
    at = 0
    for point in track.points:
        mine, at = minutes[at : at + point.hours * 60], at + point.hours * 60
        hours = [mine[first : first + 60] for first in range(0, len(mine), 60)]
        prices = sorted(price for minute in mine for price in (minute or {}).values())
        assert point.known_hours == sum(any(minute is not None for minute in hour) for hour in hours)
        assert point.polled == (point.known_hours > 0)
        assert point.offers == max(len({offer for minute in hour for offer in minute or {}}) for hour in hours)
        if not prices:
            assert point.min_microusd is None
            continue
        quarters = [prices[-(-len(prices) * k // 4) - 1] for k in (1, 2, 3)]
        assert [point.min_microusd, point.q1_microusd, point.median_microusd, point.q3_microusd] == [
            prices[0],
            *quarters,
        ]
        assert point.min_with_commission_microusd == round(prices[0] * 1.2)
        assert point.q3_with_commission_microusd == round(quarters[2] * 1.2)
    assert at >= len(minutes)


@given(looks=some_looks(), limit=st.integers(1, 5))
def test_time_under_a_price_is_what_the_minutes_say(looks: Looks, limit: int) -> None:
    known = [minute for minute in by_minute(looks) if minute is not None]
    under = [minute for minute in known if min(minute.values(), default=10**9) <= limit * 100_000]
    share = time_under(a_history(looks), limit * 100_000, listed, START_S + 10**6)
    assert (share.under_s, share.known_s) == (len(under) * MINUTE_S, len(known) * MINUTE_S)


def test_nothing_is_known_from_the_end_on() -> None:
    market_history = a_history([(0, {0: 100_000}), (60, {0: 100_000})])
    assert time_under(market_history, 100_000, listed, START_S + 90 * MINUTE_S).known_s == 90 * MINUTE_S


def test_an_empty_history_has_no_points() -> None:
    empty = MarketHistory(listings=(), intervals=[], polls=[], source="a test")
    assert price_periods_of(empty, listed, priced, PeriodLength.DAY, UTC, START_S).points == []
    assert time_under(empty, 1.0, listed, START_S).share is None


def test_a_look_at_one_market_vouches_for_no_other() -> None:
    listings = tuple(
        ListedOffer(identity=Identity(provider, "1", "H100 SXM", 1, spot), gpu_family="H100", offer_id="1")
        for provider, spot in (("vastai", False), ("lambda", False), ("vastai", True))
    )
    hours = range(6)
    polls = [MarketPoll(START_S, provider, "", spot, True) for provider, spot in (("vastai", True), ("lambda", False))]
    polls += [MarketPoll(START_S + hour * HOUR_S, "vastai", "H100 SXM", False, True) for hour in hours]
    polls += [MarketPoll(START_S + hour * HOUR_S, "vastai", "A100 SXM", True, True) for hour in hours]
    market_history = MarketHistory(
        listings=listings,
        intervals=[OfferInterval(number, START_S, START_S, None, (3 - number) * 100_000, None) for number in range(3)],
        polls=sorted(polls),
        source="a test",
    )
    found = price_periods_of(market_history, listed, priced, PeriodLength.HOUR, UTC, START_S + 6 * HOUR_S).points
    assert [point.offers for point in found] == [3, 3, 3, 1, 1, 1]
    assert [point.min_microusd for point in found] == [100_000] * 3 + [300_000] * 3
    assert time_under(market_history, 200_000, listed, START_S + 6 * HOUR_S).under_s == 3 * HOUR_S


def test_an_answer_in_part_vouches_for_nothing() -> None:
    whole = a_history([(0, {0: 100_000})])
    broken = [MarketPoll(START_S + hour * HOUR_S, "vastai", "", False, False) for hour in (2, 4)]
    hunt = MarketPoll(START_S + 2 * HOUR_S, "vastai", "", False, True, "hunt")
    market_history = MarketHistory(
        listings=whole.listings, intervals=whole.intervals, polls=[*whole.polls, *broken, hunt], source="a test"
    )
    assert time_under(market_history, 100_000, listed, START_S + 9 * HOUR_S).known_s == 3 * HOUR_S
