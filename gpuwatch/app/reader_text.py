"""Figures and times as text, in the language of the reader and in the configured zone: on a page, in a chat.

Times are relative to the moment of the request: `use_clock` sets it, and the zone, for all texts of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.figure_text import UNKNOWN, day_text, percent_text
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.language import translate as _

NBSP = "\N{NO-BREAK SPACE}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_THIS_WEEK = timedelta(days=6)


class ReaderClock(msgspec.Struct, frozen=True):
    """The configured zone, and the moment of the request."""

    zone: ZoneInfo
    now: datetime


_CLOCK: ContextVar[ReaderClock | None] = ContextVar("reader_clock", default=None)


@contextmanager
def use_clock(zone: str, now: datetime) -> Iterator[None]:
    """Within the block, texts are in this zone, and relative to this moment."""
    token = _CLOCK.set(ReaderClock(ZoneInfo(zone), now))
    try:
        yield
    finally:
        _CLOCK.reset(token)


def reader_clock() -> ReaderClock:
    """Return the zone and the moment of this request; outside of one: UTC, now."""
    return _CLOCK.get() or ReaderClock(ZoneInfo("UTC"), real_now())


def as_datetime(at: datetime | str) -> datetime:
    """Return a time, also from RFC 3339, in the configured zone."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(reader_clock().zone)


def with_unit(text: str) -> str:
    """Keep a figure and its unit on one line."""
    return text.replace(" ", NBSP)


def percent(share: float | None) -> str:
    """A share in whole percent: 0.224 → "22 %"; "–": unknown."""
    return with_unit(percent_text(share, 0))


def span(seconds: float | None) -> str:
    """A duration for a person: 45 s, 12 min, 3 h 05 min, 8 h, 2 d 4 h; "–": unknown."""
    if seconds is None:
        return UNKNOWN
    whole_s = max(0, round(seconds))
    if whole_s < 2 * _MINUTE:
        return with_unit(_("{seconds} s").format(seconds=whole_s))
    if whole_s < 2 * _HOUR:
        return with_unit(_("{minutes} min").format(minutes=whole_s // _MINUTE))
    if whole_s < 2 * _DAY:
        hours, minutes = divmod(whole_s // _MINUTE, 60)
        text = _("{hours} h {minutes} min") if minutes else _("{hours} h")
        return with_unit(text.format(hours=hours, minutes=f"{minutes:02d}"))
    return with_unit(_("{days} d {hours} h").format(days=whole_s // _DAY, hours=whole_s % _DAY // _HOUR))


def setting_span(text: str) -> str:
    """A duration of a setting for a person: "90m" → "90 min"; any other text stays: "never", "0.2s"."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return text
    return span(seconds) if seconds >= 1 else text


def distance(price_microusd: float, limit_microusd: float) -> str:
    """How far a price is from its limit: "22 % under limit", "33 % over limit", "at the limit"."""
    share = price_microusd / limit_microusd - 1 if limit_microusd else 0.0
    if not share:
        return _("at the limit")
    size = percent(abs(share)) if round(100 * abs(share)) else with_unit("<1 %")
    return (_("{percent} under limit") if share < 0 else _("{percent} over limit")).format(percent=size)


def weekday(at: datetime) -> str:
    """Its weekday, short."""
    names = (_("Mon"), _("Tue"), _("Wed"), _("Thu"), _("Fri"), _("Sat"), _("Sun"))
    return names[at.weekday()]


def day(at: datetime) -> str:
    """A day: "24 Nov"."""
    return with_unit(day_text(at))


def clock_text(at: datetime | str | None) -> str:
    """A time: today "08:24", within a week "Fri 12:40", else "24 Nov", with the year if it is another; "–": none."""
    if at is None:
        return UNKNOWN
    local, now = as_datetime(at), reader_clock().now.astimezone(reader_clock().zone)
    if local.date() == now.date():
        return f"{local:%H:%M}"
    if abs(local.date() - now.date()) <= _THIS_WEEK:
        return with_unit(_("{weekday} {clock}").format(weekday=weekday(local), clock=f"{local:%H:%M}"))
    return day(local) if abs(local - now) < timedelta(days=300) else with_unit(f"{day(local)} {local.year}")


def moment_text(at: datetime | str | None) -> str:
    """A time as `clock_text`; less than an hour ago: "4 min ago"."""
    if at is None:
        return UNKNOWN
    passed_s = (reader_clock().now - as_datetime(at)).total_seconds()
    if not 0 <= passed_s < _HOUR:
        return clock_text(at)
    return with_unit(_("{time} ago").format(time=span(passed_s)))


def exact_text(at: datetime | str) -> str:
    """The whole time with its zone: "Sat 28 Nov 2026, 08:24:03 CET"."""
    local = as_datetime(at)
    return _("{weekday} {day} {year}, {clock}").format(
        weekday=weekday(local), day=day(local), year=local.year, clock=f"{local:%H:%M:%S %Z}"
    )
