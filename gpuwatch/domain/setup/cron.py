"""Times that recur, as cron writes them: `0 2 * * 6` is every Saturday at 02:00 of local time. Pure.

Five fields: minute, hour, day of month, month, weekday (0 and 7 are Sunday); lists, ranges, steps and English names.
Where both days are restricted, either is enough; a field that begins with `*` restricts nothing beyond its step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

import msgspec

EXPECTED_CRON = 'expected five fields as in cron, such as "0 2 * * 6" for Saturdays at 02:00, or "@daily"'
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_TERM = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/([0-9]{1,3}))?", re.ASCII)
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_MAX = 8 * 366 + 31  # from a 29 February to the next one around 2100
_MINUTE = timedelta(minutes=1)


class _CronField(msgspec.Struct, frozen=True):
    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("weekday", 0, 7, _WEEKDAYS),
)


class CronSchedule(msgspec.Struct, frozen=True):
    """The times of a schedule, in local time.

    Attributes:
        weekdays: 0 is Sunday.
        either_day: whether a day of the month or a weekday is enough; otherwise both must fit.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def includes(self, day: date) -> bool:
        """Whether it has times on this day."""
        if day.month not in self.months:
            return False
        fits = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return any(fits) if self.either_day else all(fits)


def parse_cron(text: str) -> CronSchedule:
    """Parse a schedule. Raises ValueError: it is invalid, or never comes, in one line."""
    parts = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(EXPECTED_CRON)
    minutes, hours, days, months, weekdays = (_values(part, one) for part, one in zip(parts, _FIELDS, strict=True))
    schedule = CronSchedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    if not schedule.either_day and min(days) > max(_LONGEST_MONTH[month - 1] for month in months):
        raise ValueError(f"never comes: no day {min(days)} in these months; correct the day of month or the month")
    return schedule


def _values(text: str, one: _CronField) -> set[int]:
    values: set[int] = set()
    for term in text.lower().split(","):
        values |= _term(term, one)
    return values


def _term(term: str, one: _CronField) -> set[int]:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ValueError(f"{one.what} {term!r}: {EXPECTED_CRON}")
    star, first, last, step = found.groups()
    if step is not None and (not int(step) or (last is None and not star)):
        raise ValueError(
            f"{one.what} {term!r}: expected a step of 1 or more after * or a range, such as */15 or 9-17/2"
        )
    if star:
        low, high = one.low, one.high - (one.high == 7)  # the seventh weekday is the first again
    else:
        low = _number(first, one)
        high = low if last is None else _number(last, one)
        high += 7 * (one.high == 7 and high == 0 < low)  # fri-sun
    if high < low:
        raise ValueError(f"{one.what} {term!r}: expected a range from a lower to a higher value, or a list")
    return set(range(low, high + 1, int(step or 1)))


def _number(text: str, one: _CronField) -> int:
    if text in one.names:
        return one.names.index(text) + one.low
    if not text.isdigit() or len(text) > 2 or not one.low <= int(text) <= one.high:
        names = f" or {one.names[0]} to {one.names[-1]}" if one.names else ""
        raise ValueError(f"{one.what} {text!r}: expected {one.low} to {one.high}{names}")
    return int(text)


def next_after(schedule: CronSchedule, at: datetime, zone: tzinfo) -> datetime:
    """The first time of a schedule after a moment, in UTC.

    Each local time comes once: one that the clocks skip in spring comes at the first minute after the gap, one that
    they repeat in autumn comes the first time only.
    """
    for wall in _walls_after(schedule, at.astimezone(zone).replace(tzinfo=None)):
        moment = _moment(wall, zone)
        if moment > at:
            return moment
    raise ValueError("the schedule never comes")  # refused by parse_cron


def _walls_after(schedule: CronSchedule, wall: datetime) -> Iterator[datetime]:
    day = wall.date()
    for _ in range(_DAYS_MAX):
        if schedule.includes(day):
            for hour in schedule.hours:
                for minute in schedule.minutes:
                    found = datetime.combine(day, time(hour, minute))
                    if found > wall:
                        yield found
        day += timedelta(days=1)


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    """The moment of a local time, in UTC; of one that does not exist, the first minute after the gap."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    before, after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), moment  # around the change of the clocks
    offset = after.astimezone(zone).utcoffset()
    while after - before > _MINUTE:
        middle = before + (after - before) // (2 * _MINUTE) * _MINUTE
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
