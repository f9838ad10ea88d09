"""Summaries of prices over time, compared with the simplest model: the offers of each minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.history.price_periods import price_periods_of, time_under
from gpuwatch.domain.history.price_series import (
    PeriodLength,
    PeriodSpan,
    PriceSeries,
    cut_series,
    hours_under,
    known_until,
    lowest_before,
    percentile_rank,
    period_spans,
    series_of,
    unobserved_gaps,
)
from gpuwatch.domain.setup.durations import HOUR_S
from tests.builders import a_listing

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
        period_spans(hour_of("2026-03-28T00:00+01:00"), hour_of("2026-03-31T00:00+02:00"), PeriodLength.DAY, berlin)
    )
    assert [span.hours for span in spans] == [24, 23, 24]


@pytest.mark.parametrize(
    "name", ["Asia/Kolkata", "Australia/Adelaide", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "UTC"]
)
def test_days_begin_at_midnight_in_every_zone(name: str) -> None:
    """Also where midnight lies within an hour of UTC, or is skipped when the clock changes."""
    zone = ZoneInfo(name)
    first, after = hour_of("2026-01-01T00:00Z"), hour_of("2027-01-01T00:00Z")
    for every in (PeriodLength.DAY, PeriodLength.WEEK):
        spans = list(period_spans(first, after, every, zone))
        assert (spans[0].start_s, spans[-1].end_s) == (first * HOUR_S, after * HOUR_S)
        assert all(one.end_s == other.start_s for one, other in pairwise(spans))
        for span in spans[1:]:
            start = datetime.fromtimestamp(span.start_s, zone)
            before = datetime.fromtimestamp(span.start_s - 1, zone)
            assert before.date() == start.date() - timedelta(days=1)
            assert start.strftime("%H:%M") == "00:00" or start.utcoffset() != before.utcoffset()
            assert every is PeriodLength.DAY or start.weekday() == 0


def test_a_period_that_starts_within_an_hour_knows_its_part_of_it() -> None:
    midnight = int(datetime(2026, 3, 2, tzinfo=ZoneInfo("Asia/Kolkata")).timestamp())
    hour = midnight // HOUR_S
    span = PeriodSpan(midnight, midnight + 24 * HOUR_S)
    assert span.hours == 24
    assert span.known_hours(span.known_s(set(range(hour, hour + 25)))) == 24
    assert span.known_hours(span.known_s(set(range(hour, hour + 12)))) in {11, 12}
    assert [span.known_hours(span.known_s(polled)) for polled in ({hour}, set())] == [1, 0]


def test_weeks_begin_on_monday() -> None:
    first, after = hour_of("2026-03-06T00:00Z"), hour_of("2026-03-17T00:00Z")
    spans = list(period_spans(first, after, PeriodLength.WEEK, UTC))
    assert [span.hours // 24 for span in spans] == [3, 7, 1]
    assert [span.hours for span in period_spans(first, after, PeriodLength.HOUR, UTC)] == [1] * (after - first)


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
                intervals.append(standing._replace(ended_s=at_s))
            standing = OfferInterval(offer, at_s, at_s, None, prices[offer], None) if offer in prices else None
        intervals += [standing] if standing else []
    return MarketHistory(
        listings=tuple(a_listing(str(n)) for n in range(4)),
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
    at, is_fine = 0, every is PeriodLength.TEN_MINUTES
    for point in track.points:
        length = 10 if is_fine else point.hours * 60
        mine, at = minutes[at : at + length], at + length
        hours = [mine[first : first + 60] for first in range(0, len(mine), 60)] or [[]]
        prices = sorted(price for minute in mine for price in (minute or {}).values())
        known_hours = sum(any(minute is not None for minute in hour) for hour in hours)
        assert (point.known_hours, point.polled) == (0 if is_fine else known_hours, known_hours > 0)
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
        a_listing("1", provider=provider, spot=spot)
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


@pytest.mark.parametrize("name", ["Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide"])
def test_a_day_of_a_file_ends_at_local_midnight(name: str) -> None:
    """The price falls at midnight, which lies within an hour of UTC."""
    zone = ZoneInfo(name)
    midnight_s = int(datetime(2026, 3, 3, tzinfo=zone).timestamp())
    minutes = (midnight_s - START_S) // MINUTE_S
    history = a_history([(minutes - 60, {0: 300_000}), (minutes, {0: 100_000}), (minutes + 60, {0: 100_000})])
    track = price_periods_of(history, listed, listed, PeriodLength.DAY, zone, midnight_s + 2 * HOUR_S)
    assert [(one.min_microusd, one.q3_microusd) for one in track.points] == [(300_000, 300_000), (100_000, 100_000)]
    assert track.points[1].starts_at.timestamp() == midnight_s


def test_hours_of_a_series_begin_with_the_local_ones() -> None:
    history = a_history([(0, {0: 300_000}), (30, {0: 100_000})])
    series = series_of(history, listed, 1800)
    assert (series.starts_at(0), series.lows[0]) == (START - timedelta(minutes=30), 300_000)
    assert (series.starts_at(1), series.lows[1]) == (START + timedelta(minutes=30), 100_000)
    assert known_until(series, START + timedelta(minutes=40)).lows == [300_000, 100_000]


@pytest.mark.parametrize("minutes", [1, 59, 60, 61, 150, 500])
@pytest.mark.parametrize("offset_s", [0, 900, 1800])
def test_a_series_holds_no_hour_that_begins_after_the_end(minutes: int, offset_s: int) -> None:
    """A poll counts for three hours, but nothing is known from the end on."""
    history = a_history([(0, {0: 300_000})])
    until_s = START_S + minutes * MINUTE_S
    series = series_of(replace(history, until_s=until_s), listed, offset_s)
    assert len(series.lows) == len(series.polled)
    assert series.starts_at(len(series.lows) - 1).timestamp() < until_s
    assert series.known == min(len(series_of(history, listed, offset_s).lows), len(series.lows))
