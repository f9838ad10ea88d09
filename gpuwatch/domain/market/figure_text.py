"""Figures as text for people: counts, numbers, percentages and lengths of time. Money: `money`."""

from __future__ import annotations

import math
from datetime import date
from typing import Final

from gpuwatch.language import mark_text, translate

UNKNOWN: Final = "–"
_MONTHS: Final = (
    mark_text("Jan"), mark_text("Feb"), mark_text("Mar"), mark_text("Apr"), mark_text("May"), mark_text("Jun"),
    mark_text("Jul"), mark_text("Aug"), mark_text("Sep"), mark_text("Oct"), mark_text("Nov"), mark_text("Dec"),
)  # fmt: skip


def month_text(on: date) -> str:
    """A month, short: "Nov"."""
    return translate(_MONTHS[on.month - 1])


def day_text(on: date) -> str:
    """A day of a year: "4 Nov"."""
    return translate("{day} {month}").format(day=on.day, month=month_text(on))


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A number of things: "1 period", "1,200 periods".

    Args:
        plural: if it is not the noun and an s.
    """
    return f"{count:,} {noun if abs(count) == 1 else plural or noun + 's'}"


def size_text(count: int) -> str:
    """A number of bytes: "12.3 MB"."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"


def number_text(value: float | None, digits: int = 3) -> str:
    """A measured number, rounded to so many digits: 0.416667 → "0.417", 12345.6 → "12,346"; "–" if it is unknown."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if not value:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def decimal_text(value: float | None, decimals: int = 1, sign: str = "") -> str:
    """A number with so many decimals, never "-0.0"; "–" if it is unknown.

    Args:
        sign: "+" also marks numbers above zero.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value, decimals) + 0.0:{sign if round(value, decimals) else ''},.{decimals}f}"


def percent_text(share: float | None, decimals: int = 1, sign: str = "") -> str:
    """A share as percent: 0.358 → "35.8 %"; "–" if it is unknown. Arguments as `decimal_text`."""
    text = decimal_text(None if share is None else 100 * share, decimals, sign)
    return text if text == UNKNOWN else f"{text} %"


def duration_text(seconds: float) -> str:
    """A length of time in one unit, for people; `durations.format_duration` is exact."""
    if seconds < 90 * 60:
        return f"{decimal_text(seconds / 60, 0)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.1f} d"
