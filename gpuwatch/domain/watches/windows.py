"""Windows of local time in which a watch may fire: `22:00-08:00`, `Mon-Fri 09:00-18:00`, `Sat-Sun`. Pure.

A window follows the wall clock. It belongs to the day on which it opens: `Fri 22:00-08:00` reaches into Saturday.
Minutes that do not exist when the clock is put forward are in no window. When it is put back, a window that contains
the repeated minutes is open both times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

import msgspec

_EXPECTED = 'a window such as "22:00-08:00", "Mon-Fri 09:00-18:00" or "Sat-Sun"'
_ALL_DAYS = frozenset(range(7))
_DAY_MINUTES = 24 * 60
_DAY_PATTERN = (
    "("
    + "|".join(
        "".join(f"[{letter}{letter.upper()}]" for letter in day) + "[a-zA-Z]*"
        for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    )
    + ")"
)
_TIME_PATTERN = r"([01]?[0-9]|2[0-4]):[0-5][0-9]"
# For JSON Schema: the usual spellings, as far as a pattern can match them; `parse_window` accepts more.
WINDOW_PATTERN = rf"^\s*({_DAY_PATTERN}( ?[-–,] ?{_DAY_PATTERN})*)?\s*({_TIME_PATTERN} ?[-–] ?{_TIME_PATTERN})?\s*$"
_FORM: Final = r"(?P<days>[a-z]+(?: ?[-,] ?[a-z]+)*)? ?(?:(\d{1,2}):(\d{2}) ?- ?(\d{1,2}):(\d{2}))?"


class Window(msgspec.Struct, frozen=True):
    """Minutes of the local day in [start, end); an end at or before its start lies on the next day."""

    days: frozenset[int]  # days on which it opens; 0 is Monday
    start_minute: int = 0
    end_minute: int = _DAY_MINUTES

    def holds(self, weekday: int, minute: int) -> bool:
        """Return whether this minute of this weekday is inside."""
        if self.start_minute < self.end_minute:
            return weekday in self.days and self.start_minute <= minute < self.end_minute
        if minute >= self.start_minute:
            return weekday in self.days
        return minute < self.end_minute and (weekday - 1) % 7 in self.days


@lru_cache(maxsize=1024)
def parse_window(text: str) -> Window:
    """Parse a window. Raises ValueError: the text is not a window; the message states what was expected."""
    found = re.fullmatch(_FORM, " ".join(text.lower().replace("–", "-").split()))
    if found is None or not any(found.groups()):
        raise ValueError(f"expected {_EXPECTED}")
    days = _days(found["days"]) if found["days"] else _ALL_DAYS
    if found[2] is None:
        return Window(days)
    start, end = _minute(found[2], found[3]), _minute(found[4], found[5])
    if start in {end, _DAY_MINUTES}:
        raise ValueError(f"expected {_EXPECTED}; this one is never open")
    return Window(days, start, end)


def is_open(windows: Iterable[Window | str], now: datetime, zone: tzinfo | str = UTC) -> bool:
    """Return whether a watch with these windows may fire now. Without windows: always.

    Args:
        now: aware.
        zone: of the windows: a name such as "Europe/Berlin" or a tzinfo.
    """
    parsed = [parse_window(window) if isinstance(window, str) else window for window in windows]
    if not parsed:
        return True
    local = now.astimezone(_zone(zone) if isinstance(zone, str) else zone)
    minute = local.hour * 60 + local.minute
    return any(window.holds(local.weekday(), minute) for window in parsed)


def opens_at(windows: Iterable[Window | str], now: datetime, zone: tzinfo | str = UTC) -> datetime:
    """Return when one of these windows is open next: now, if one is. The arguments are those of `is_open`."""
    parsed = [parse_window(window) if isinstance(window, str) else window for window in windows]
    place = _zone(zone) if isinstance(zone, str) else zone
    if is_open(parsed, now, place):
        return now
    midnight = now.astimezone(place).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    starts = (
        (midnight + timedelta(days=day, minutes=window.start_minute)).replace(tzinfo=place).astimezone(UTC)
        for day in range(9)  # a window whose minute the clock skips opens a week later
        for window in parsed
    )
    return min((start for start in starts if start > now and is_open(parsed, start, place)), default=now)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - most runs of `check` need no time zone

    return ZoneInfo(name)


def _minute(hour: str, minute: str) -> int:
    total = int(hour) * 60 + int(minute)
    if int(minute) > 59 or total > _DAY_MINUTES:
        raise ValueError(f"expected {_EXPECTED}; {hour}:{minute} is not a time of day")
    return total


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, *rest = (_day(word) for word in part.split("-"))
        if len(rest) > 1:
            raise ValueError(f"expected {_EXPECTED}")
        days.update((first + i) % 7 for i in range((rest[0] - first) % 7 + 1 if rest else 1))
    return frozenset(days)


def _day(word: str) -> int:
    if len(word) >= 3:
        for number, day in enumerate(("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")):
            if day.startswith(word):
                return number
    raise ValueError(f"expected {_EXPECTED}; {word!r} is not a day of the week")
