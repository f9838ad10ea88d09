"""Axes of SVG charts: where data lies on the drawing, and round figures and times along it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from math import ceil, floor, log10
from typing import Final, NamedTuple

from gpuwatch.app.history.svg_style import label, text_width
from gpuwatch.domain.market.figure_text import day_text, month_text

WIDTH: Final = 900
HEIGHT: Final = 320
LEFT: Final = 64
RIGHT: Final = 14
TOP: Final = 30  # the key stands above
BOTTOM: Final = 26
_TIMES: Final = 7  # ticks of time at most
_FIGURES: Final = 6
_HOUR_STEPS: Final = (1, 2, 3, 6, 12)
_DAY_STEPS: Final = (1, 2, 7, 14)
_MONTH_STEPS: Final = (1, 3, 6, 12, 24, 60, 120)
_MONDAY: Final = date(2024, 1, 1).toordinal()


class Tick(NamedTuple):
    """A figure or a moment with its text."""

    at: float  # seconds since 1970, for moments
    text: str


class ChartSize(NamedTuple):
    """Units of a chart with axes; its texts have 12."""

    width: int = WIDTH
    height: int = HEIGHT


LARGE: Final = ChartSize()
COMPACT: Final = ChartSize(560, 300)  # its texts can be read on a phone, where a picture is as wide as the window


class Plane:
    """Maps data to the drawing. Widens an empty range."""

    def __init__(self, xs: Iterable[float], ys: Iterable[float], size: ChartSize = LARGE) -> None:
        self.size = size
        x, y = list(xs), list(ys)
        self.x0, self.x1 = min(x), max(x) if max(x) > min(x) else min(x) + 1
        padding = (max(y) - min(y)) * 0.06 or abs(max(y)) * 0.1 or 1.0
        self.y0, self.y1 = min(y) - padding, max(y) + padding

    def x(self, value: float) -> float:
        """Units from the left."""
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (self.size.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Units from above."""
        return TOP + (self.y1 - value) / (self.y1 - self.y0) * (self.size.height - BOTTOM - TOP)

    def axes(self, x_ticks: Iterable[Tick], y_text: Callable[[float, int], str]) -> Iterator[str]:
        """Lines across with their figures, and texts below.

        Args:
            y_text: figure and its digits after the point → text.
        """
        for tick in figure_ticks(self.y0, self.y1, y_text):
            at = self.y(tick.at)
            yield f'<line class="a-grid" x1="{LEFT}" x2="{self.size.width - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            yield label(LEFT - 8, at + 4, tick.text, "end")
        end = 0.0
        for tick in x_ticks:
            at, half = self.x(tick.at), text_width(tick.text) / 2
            at = min(max(at, half), self.size.width - half)
            if at - half >= end:
                yield label(at, self.size.height - 6, tick.text, "middle")
                end = at + half + 8


def figure_ticks(low: float, high: float, text: Callable[[float, int], str]) -> list[Tick]:
    """Round figures within a range."""
    rough = (high - low) / _FIGURES
    size = 10.0 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    digits = max(0, -floor(log10(step) + 1e-9) + (abs(step / 10 ** floor(log10(step) + 1e-9) - 2.5) < 1e-6))
    first = ceil(low / step - 1e-9)
    return [Tick(number * step, text(number * step, digits)) for number in range(first, floor(high / step + 1e-9) + 1)]


def dollars_tick(value: float, digits: int) -> str:
    """`$1.50`: never fewer digits than cents."""
    return f"${value:,.{max(2, digits)}f}"


def plain_tick(value: float, digits: int) -> str:
    """`0.5`."""
    return f"{value:,.{digits}f}"


def time_ticks(since_s: float, until_s: float, zone: tzinfo | None) -> list[Tick]:
    """Hours, days or months of the zone's clock within a range; a day's first moment carries the day."""
    ticks = next(found for found in _time_scales(since_s, until_s, zone or UTC) if len(found) <= _TIMES)
    if ticks:
        return ticks
    first = datetime.fromtimestamp(since_s, zone or UTC)
    return [Tick(since_s, f"{day_text(first)} {first:%H:%M}")]


def _time_scales(since_s: float, until_s: float, zone: tzinfo) -> Iterator[list[Tick]]:
    first = datetime.fromtimestamp(since_s, zone).date()
    days = (datetime.fromtimestamp(until_s, zone).date() - first).days + 1

    def inside(moments: Iterable[tuple[datetime, str]]) -> list[Tick]:
        found = {at.timestamp(): text for at, text in moments}
        return [Tick(at_s, text) for at_s, text in found.items() if since_s <= at_s <= until_s]

    if days <= _TIMES:
        for step in _HOUR_STEPS:
            yield _with_day(inside(_hours(first, days, step, zone)), zone)
    for step in _DAY_STEPS:
        yield inside(_days(first, days, step, zone))
    for step in _MONTH_STEPS:
        yield inside(_months(first, days, step, zone))
    yield []


def _hours(first: date, days: int, step: int, zone: tzinfo) -> Iterator[tuple[datetime, str]]:
    for day in range(days):
        on = first + timedelta(days=day)
        for hour in range(0, 24, step):
            yield (
                datetime(on.year, on.month, on.day, hour, tzinfo=zone),
                day_text(on) if hour == 0 else f"{hour:02}:00",
            )


def _days(first: date, days: int, step: int, zone: tzinfo) -> Iterator[tuple[datetime, str]]:
    for number in range(first.toordinal(), first.toordinal() + days):
        if (number - _MONDAY) % step == 0:
            on = date.fromordinal(number)
            yield datetime(on.year, on.month, on.day, tzinfo=zone), day_text(on)


def _months(first: date, days: int, step: int, zone: tzinfo) -> Iterator[tuple[datetime, str]]:
    start = first.year * 12 + first.month - 1
    for number in range(start, start + days // 28 + 2):
        if number % step == 0:
            year, month = divmod(number, 12)
            yield datetime(year, month + 1, 1, tzinfo=zone), f"{month_text(date(year, month + 1, 1))} {year}"


def _with_day(ticks: list[Tick], zone: tzinfo) -> list[Tick]:
    """The first tick names its day, too: a range of some hours may hold no midnight."""
    if not ticks or not ticks[0].text.endswith(":00"):
        return ticks
    first = ticks[0]
    return [Tick(first.at, f"{day_text(datetime.fromtimestamp(first.at, zone))} {first.text}"), *ticks[1:]]
