"""The axes of large charts: where their ticks are, with labels in the configured zone and the reader's language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gpuwatch.app.reader_text import day, reader_clock, weekday

_HOUR = timedelta(hours=1)
_LEVELS = (1, 2, 5, 10)  # with 2.5, a cent more or less would not be seen on a label
_MOST_TICKS = 8
_STEPS_H = (1 / 60, 5 / 60, 0.25, 1, 3, 6, 24, 96, 336)


def time_ticks(start: datetime, end: datetime) -> list[tuple[int, str]]:
    """Where the time axis has ticks, in seconds since 1970, with labels: hours, days of the week, or days."""
    zone, span = reader_clock().zone, end - start
    step = next((h * _HOUR for h in _STEPS_H if span / (h * _HOUR) <= _MOST_TICKS), _STEPS_H[-1] * _HOUR)
    local = start.astimezone(zone).replace(tzinfo=None)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    local = midnight + (local - midnight) // step * step
    ticks = []
    while (at := local.replace(tzinfo=zone).astimezone(UTC)) <= end:
        if at >= start:
            ticks.append((int(at.timestamp()), _label(local, step / _HOUR)))
        local += step
    return ticks


def _label(local: datetime, step_h: float) -> str:
    if step_h > 24:
        return day(local)
    return f"{weekday(local)} {local.day}" if step_h == 24 or not (local.hour or local.minute) else f"{local:%H:%M}"


def value_ticks(values: Sequence[float]) -> tuple[tuple[float, float], list[float]]:
    """The range of an axis that shows these values with some room, and the round values on it."""
    low, high = min(values), max(values)
    room = (high - low) * 0.12 or high * 0.1 or 1.0
    low, high = max(0.0, low - room), high + room
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = size * next(level for level in _LEVELS if level * size >= rough)
    first = math.ceil(low / step)
    return (low, high), [round(number * step, 6) for number in range(first, math.floor(high / step) + 1)]
