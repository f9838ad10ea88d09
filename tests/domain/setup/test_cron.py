"""Schedules as cron writes them, against a second implementation, and across changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.domain.setup.cron import next_after, parse_cron
from gpuwatch.testing.suite import case
from tests.drawn import examples

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
ZONES = [BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kolkata")]


def times(text: str, at: datetime, zone: ZoneInfo, count: int = 4) -> list[datetime]:
    """Return the next times, in UTC."""
    found = []
    for _ in range(count):
        at = next_after(parse_cron(text), at, zone)
        found.append(at)
    return found


def local(text: str, begin: str, zone: ZoneInfo, count: int = 3) -> list[str]:
    """Return the next times after a local one, as a clock on the wall and its distance from UTC show them."""
    at = datetime.fromisoformat(begin).replace(tzinfo=zone)
    return [one.astimezone(zone).isoformat(timespec="minutes") for one in times(text, at, zone, count)]


def field(low: int, high: int, names: str = "") -> st.SearchStrategy[str]:
    """A field of a schedule: terms with ranges and steps, or names."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(lambda two: (min(two), max(two)))
    step = st.integers(1, high)
    terms = [value.map(str), pair.map(lambda two: f"{two[0]}-{two[1]}")]
    terms.append(
        st.tuples(pair, step).map(
            lambda one: f"{one[0][0]}-{one[0][1]}/{one[1]}" if one[0][0] < one[0][1] else str(one[0][0])
        )
    )
    terms += [st.sampled_from(names.split())] if names else []
    listed = st.lists(st.one_of(terms), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), step.map(lambda every: f"*/{every}"), listed)


MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec JAN Dec"
DAYS = "sun mon tue wed thu fri sat SUN Mon"
SCHEDULES = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12, MONTHS), field(0, 7, DAYS)).map(" ".join)
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2032, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(SCHEDULES, MOMENTS)
@example("0 2 * * 6", datetime(2026, 11, 29, tzinfo=UTC))
@example("0 0 13 * 5", datetime(2026, 11, 29, tzinfo=UTC))  # day of month OR weekday
@example("0 0 */2 * 1", datetime(2026, 11, 29, tzinfo=UTC))  # a star with a step restricts by its step alone
@example("0 0 * * */5", datetime(2026, 11, 29, tzinfo=UTC))
@example("5-55/7 0,12 1-28/9 feb-jun 5-7", datetime(2026, 11, 29, tzinfo=UTC))
@settings(max_examples=examples(150), deadline=None)
def test_the_times_are_those_of_a_second_implementation(text: str, at: datetime) -> None:
    others = CronSim(text, at)
    assert times(text, at, ZoneInfo("UTC")) == [next(others) for _ in range(4)]


FIXED = st.tuples(
    st.integers(0, 59), st.integers(0, 23), st.sampled_from(("* * *", "* * 0", "25-31 3,10 *", "* 4,10,11 7"))
)


@given(FIXED, MOMENTS, st.sampled_from(ZONES))
@example((30, 2, "* * *"), datetime(2027, 3, 27, 12, tzinfo=UTC), BERLIN)
@example((30, 2, "* * *"), datetime(2026, 10, 24, 12, tzinfo=UTC), BERLIN)
@example((30, 1, "* * *"), datetime(2026, 11, 1, 5, 45, tzinfo=UTC), NEW_YORK)
@settings(max_examples=examples(80), deadline=None)
def test_the_clocks_change_as_for_cron_of_debian(fixed: tuple[int, int, str], at: datetime, zone: ZoneInfo) -> None:
    minute, hour, days = fixed
    text = f"{minute} {hour} {days}"
    others = CronSim(text, at.astimezone(zone))
    # between both passes of a repeated hour the other one, which knows the wall clock alone, repeats what is past
    expected = [one for one in (next(others).astimezone(UTC) for _ in range(5)) if one > at][:4]
    assert times(text, at, zone) == expected


@given(SCHEDULES, MOMENTS, st.sampled_from(ZONES))
@settings(max_examples=examples(40), deadline=None)
def test_times_rise_and_begin_after_the_moment(text: str, at: datetime, zone: ZoneInfo) -> None:
    assert all(one < two for one, two in pairwise([at, *times(text, at, zone)]))


def test_a_time_that_the_clocks_skip_comes_at_the_first_minute_after_the_gap() -> None:
    spring = local("30 2 * * *", "2027-03-27T03:00", BERLIN)
    assert spring == ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00", "2027-03-30T02:30+02:00"]
    spring = local("15 2 * * *", "2027-03-13T03:00", NEW_YORK)
    assert spring == ["2027-03-14T03:00-04:00", "2027-03-15T02:15-04:00", "2027-03-16T02:15-04:00"]


def test_several_times_in_a_gap_come_once() -> None:
    spring = local("*/20 2,3 * * *", "2027-03-28T01:30", BERLIN, 4)
    assert spring == [f"2027-03-28T03:{minute}+02:00" for minute in ("00", "20", "40")] + ["2027-03-29T02:00+02:00"]


def test_a_time_that_the_clocks_repeat_comes_once() -> None:
    autumn = local("30 2 * * *", "2026-10-24T03:00", BERLIN)
    assert autumn == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00", "2026-10-27T02:30+01:00"]
    autumn = local("30 1 * * *", "2026-10-31T03:00", NEW_YORK)
    assert autumn == ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00", "2026-11-03T01:30-05:00"]


def test_between_both_passes_of_an_hour_the_first_counts() -> None:
    second_pass = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    assert times("30 2 * * *", second_pass, BERLIN, 1) == [datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]
    assert times("30 * * * *", second_pass, BERLIN, 1) == [datetime(2026, 10, 25, 2, 30, tzinfo=UTC)]


def test_nicknames_and_leap_days() -> None:
    at = datetime(2096, 3, 1, tzinfo=UTC)
    assert times("0 0 29 2 *", at, ZoneInfo("UTC"), 1) == [datetime(2104, 2, 29, tzinfo=UTC)]
    for nickname, text in (("@daily", "0 0 * * *"), ("@Weekly", "0 0 * * 0"), ("@hourly", "0 * * * *")):
        with case(nickname):
            assert parse_cron(nickname) == parse_cron(text)


def test_names_may_span_the_end_of_the_week() -> None:
    assert parse_cron("0 0 * * fri-sun") == parse_cron("0 0 * * 0,5,6") == parse_cron("0 0 * * 5-7")


def test_what_is_no_schedule_says_in_one_line_what_is_wrong() -> None:
    wrong = {
        "0 2 * *": "expected five fields",
        "": "expected five fields",
        "@reboot": "expected five fields",
        "60 2 * * *": "minute '60': expected 0 to 59",
        "0 24 * * *": "hour '24': expected 0 to 23",
        "0 0 0 * *": "day of month '0': expected 1 to 31",
        "0 0 * foo *": "month 'foo': expected 1 to 12 or jan to dec",
        "0 0 * * 8": "weekday '8': expected 0 to 7 or sun to sat",
        "0 0 5-3 * *": "expected a range from a lower to a higher",
        "*/0 * * * *": "expected a step of 1 or more",
        "5/10 * * * *": "expected a step of 1 or more",
        "0 0 ² * *": "expected five fields",
        "0 0 1,,2 * *": "expected five fields",
        "0 0 30 2 *": "never comes: no day 30",
        "0 0 31 4,6,9,11 *": "never comes: no day 31",
    }
    for text, said in wrong.items():
        with case(text), pytest.raises(ValueError, match=said) as error:
            parse_cron(text)
        assert "\n" not in str(error.value)


def test_a_day_that_never_comes_is_no_fault_beside_a_weekday() -> None:
    at = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert times("0 0 30 2 1", at, ZoneInfo("UTC"), 1) == [datetime(2027, 2, 1, tzinfo=UTC)]
    assert times("0 0 30 2 1", at + timedelta(days=100), ZoneInfo("UTC"), 1) == [datetime(2028, 2, 7, tzinfo=UTC)]
