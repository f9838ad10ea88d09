"""Windows of local time, correct across midnight and on days when the clocks change."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.watches.windows import Window, is_open, parse_window
from tests.drawn import examples

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _open_minutes(window: str, zone: str, first: str, last: str) -> int:
    """Minutes of real time in [first, last) UTC in which a window is open."""
    now, count = utc(first), 0
    while now < utc(last):
        count += is_open([window], now, zone)
        now += timedelta(minutes=1)
    return count


def test_no_window_at_all_is_always_open() -> None:
    assert is_open([], utc("2026-11-21T03:00"))


def test_several_windows_are_open_when_one_is() -> None:
    windows = ["22:00-08:00", "Sat-Sun"]
    assert is_open(windows, utc("2026-11-21T12:00"))  # a Saturday
    assert not is_open(windows, utc("2026-11-20T12:00"))
    assert is_open(windows, utc("2026-11-20T23:00"))


def test_a_window_opens_at_its_first_minute_and_is_shut_at_its_end() -> None:
    windows = ["Mon-Fri 09:00-18:00"]
    monday = "2026-11-23T"
    opens = [is_open(windows, utc(monday + at)) for at in ("08:59:59", "09:00", "17:59:59", "18:00")]
    assert opens == [False, True, True, False]


def test_a_night_that_opens_on_friday_reaches_into_saturday() -> None:
    windows = ["Fri 22:00-08:00"]
    times = ["2026-11-20T07:59", "2026-11-20T22:00", "2026-11-21T07:59", "2026-11-21T08:00", "2026-11-21T22:00"]
    assert [is_open(windows, utc(at)) for at in times] == [False, True, True, False, False]


def test_a_night_that_opens_on_sunday_reaches_into_monday() -> None:
    assert is_open(["Sun 22:00-08:00"], utc("2026-11-23T03:00"))
    assert not is_open(["Sun 22:00-08:00"], utc("2026-11-22T03:00"))


def test_a_window_is_read_off_the_wall_clock_of_its_zone() -> None:
    at = utc("2026-11-20T21:30")  # 22:30 in Berlin
    assert is_open(["22:00-08:00"], at, BERLIN)
    assert not is_open(["22:00-08:00"], at)


def test_a_zone_may_be_a_name_or_a_tzinfo() -> None:
    at = utc("2026-11-20T21:30")
    assert is_open(["22:00-23:00"], at, ZoneInfo(BERLIN)) is is_open(["22:00-23:00"], at, BERLIN) is True


@pytest.mark.parametrize(
    ("zone", "window", "first", "last", "minutes"),
    [
        (BERLIN, "22:00-08:00", "2026-03-28T12:00", "2026-03-29T12:00", 540),  # the night of 29 March has 9 hours
        (BERLIN, "22:00-08:00", "2026-10-24T12:00", "2026-10-25T12:00", 660),  # that of 25 October 11
        (NEW_YORK, "22:00-08:00", "2026-03-07T17:00", "2026-03-08T17:00", 540),
        (NEW_YORK, "22:00-08:00", "2026-10-31T17:00", "2026-11-01T17:00", 660),
        (BERLIN, "02:00-03:00", "2026-03-28T23:00", "2026-03-29T22:00", 0),  # an hour that does not exist
        (BERLIN, "02:00-03:00", "2026-10-24T22:00", "2026-10-25T23:00", 120),  # one that comes twice
        (NEW_YORK, "01:00-02:00", "2026-11-01T04:00", "2026-11-02T05:00", 120),
        (BERLIN, "Sun", "2026-03-28T12:00", "2026-03-30T12:00", 23 * 60),
        (BERLIN, "Sun", "2026-10-24T12:00", "2026-10-26T12:00", 25 * 60),
        (BERLIN, "09:00-18:00", "2026-03-29T00:00", "2026-03-30T00:00", 540),  # by day nothing changes
    ],
)
def test_windows_on_the_days_when_the_clock_is_changed(
    zone: str, window: str, first: str, last: str, minutes: int
) -> None:
    assert _open_minutes(window, zone, first, last) == minutes


def test_in_spring_the_night_ends_at_eight_by_the_new_clock() -> None:
    """08:00 CEST is 06:00 UTC."""
    assert is_open(["22:00-08:00"], utc("2026-03-29T05:59"), BERLIN)
    assert not is_open(["22:00-08:00"], utc("2026-03-29T06:00"), BERLIN)


@pytest.mark.parametrize(
    ("text", "days", "start", "end"),
    [
        ("22:00-08:00", "0123456", 1320, 480),
        ("Sat-Sun", "56", 0, 1440),
        ("Mon-Fri 09:00-18:00", "01234", 540, 1080),
        ("Fri-Mon", "4560", 0, 1440),
        ("mon,WED , Friday 8:00-9:30", "024", 480, 570),
        ("Sat–Sun 00:00–24:00", "56", 0, 1440),
        ("Tue 22:00-00:00", "1", 1320, 0),
        ("  Sun   10:00 - 11:00 ", "6", 600, 660),
    ],
)
def test_a_window_is_days_and_hours_either_may_be_left_out(text: str, days: str, start: int, end: int) -> None:
    assert parse_window(text) == Window(frozenset(map(int, days)), start, end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "always",
        "Foo",
        "Mo 09:00-18:00",
        "25:00-26:00",
        "09:60-10:00",
        "24:01-25:00",
        "09:00",
        "09:00-",
        "9-18",
        "08:00-08:00",
        "24:00-08:00",
        "Mon-Tue-Wed",
        "Mon 09:00-18:00 Tue",
        "-",
        ",",
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a window such as"):
        parse_window(text)


@settings(max_examples=examples(40))
@given(
    start=st.integers(0, 1439),
    length=st.integers(1, 1439),
    days=st.sets(st.integers(0, 6), min_size=1),
    zone=st.sampled_from([BERLIN, NEW_YORK, "UTC", "Asia/Kolkata"]),
    begin=st.integers(0, 365 * 24),
)
def test_minute_by_minute_a_window_is_what_a_naive_model_says(
    start: int, length: int, days: set[int], zone: str, begin: int
) -> None:
    """The model: a window that contains this minute and opened on this day or the day before."""
    end = (start + length) % 1440
    text = (
        f"{','.join(DAYS[day] for day in sorted(days))} {start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    )
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=begin)
    for minute in range(0, 36 * 60, 7):
        at = now + timedelta(minutes=minute)
        wall = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        midnight = wall.replace(hour=0, minute=0)
        opened = (midnight - timedelta(days=back) for back in (0, 1))
        expected = any(
            day.weekday() in days and timedelta() <= wall - day - timedelta(minutes=start) < timedelta(minutes=length)
            for day in opened
        )
        assert is_open([text], at, zone) is expected, (text, at)


def test_utc_is_utc_wherever_the_machine_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert is_open(["12:00-12:01"], utc("2026-11-21T12:00"), "UTC")
    finally:
        monkeypatch.undo()
        time.tzset()
