"""Parse deadlines as people write them: Sunday, tomorrow, a date, a time, a duration. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from gpuwatch.domain.setup.durations import parse_duration

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_END_OF_DAY = time(23, 59)
_EXPECTED = 'expected a day such as "Sunday" or "tomorrow", a date, a time such as 2026-12-01T08:00, or a duration "2d"'


def deadline_from(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The deadline in UTC. A day means its end, 23:59 in `zone`; a weekday means the next one, today included.

    Raises:
        ValueError: the text is invalid, or the time is past.
    """
    word = text.strip().lower()
    found = _named_day(word, now.astimezone(zone).date())
    moment = None if found is None else datetime.combine(found, _END_OF_DAY, zone)
    if moment is None:
        moment = _written(text.strip(), now, zone)
    if moment <= now:
        raise ValueError(f"{text!r} is past")
    return moment.astimezone(UTC)


def _named_day(word: str, today: date) -> date | None:
    if word in {"today", "tomorrow"}:
        return today + timedelta(days=word == "tomorrow")
    fitting = [number for number, name in enumerate(_DAYS) if len(word) >= 3 and name.startswith(word)]
    return today + timedelta(days=(fitting[0] - today.weekday()) % 7) if len(fitting) == 1 else None


def _written(text: str, now: datetime, zone: tzinfo) -> datetime:
    try:
        if len(text) == len("2026-12-01"):
            return datetime.combine(date.fromisoformat(text), _END_OF_DAY, zone)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.replace(tzinfo=zone)
    except ValueError:
        pass
    try:
        return now + timedelta(seconds=parse_duration(text))
    except ValueError:
        raise ValueError(f"{text!r}: {_EXPECTED}") from None
