"""Durations and times as people write and read them, and text from the environment. Pure.

A duration is `90s`, `15m`, `6h`, `2d` or `1h30m`. Text from the environment represents a number, a switch or JSON,
depending on its key. This module loads no library: commands that answer at once import it.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final

HOUR_S: Final = 3600
DAY_S: Final = 86_400
EXPECTED_DURATION: Final = "a duration such as 90s, 15m, 6h, 2d or 1h30m"
MAX_S = 3650 * 86_400.0  # ten years: anything longer is a typo
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PARTS = [rf"[0-9]{{1,12}}(\.[0-9]{{1,6}})?[{unit}{unit.upper()}]" for unit in _UNITS]
# For JSON Schema: what `parse_duration` accepts, in any case and with surrounding blanks. It names each first part,
# because programs that make up matching texts try hundreds of times with a lookahead for "one part at least".
DURATION_PATTERN = (
    r"^\s*("
    + "|".join(part + "".join(f"({later})?" for later in _PARTS[n:]) for n, part in enumerate(_PARTS, start=1))
    + r")\s*$"
)
# the same without zero durations, such as "0s"
POSITIVE_DURATION_PATTERN = DURATION_PATTERN.replace("^", r"^(?![0.dhmsDHMS\s]*$)")
_FORM = "".join(rf"(?:(?P<{unit}>[0-9]{{1,12}}(?:\.[0-9]{{1,6}})?){unit})?" for unit in _UNITS)

EXPECTED_JSON: Final = 'expected JSON, such as ["a", "b"] or {"key": 1}'


def parse_duration(text: str) -> float:
    """Return seconds. Raises ValueError: the text is not a duration; the message says what was expected."""
    found = re.fullmatch(_FORM, text.strip().lower())
    if found is None or found.lastgroup is None:
        raise ValueError(f"expected {EXPECTED_DURATION}")
    seconds = sum(float(found[unit]) * size for unit, size in _UNITS.items() if found[unit])
    if seconds > MAX_S:
        raise ValueError("expected a duration of at most 3650d")
    return seconds


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` parses to the same value, to the millisecond: 5400 → `1h30m`.

    Infinity is `forever`, where a setting accepts that.
    """
    if seconds == math.inf:
        return "forever"
    left_ms = round(seconds * 1000)
    if left_ms <= 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m"):
        count, left_ms = divmod(left_ms, round(_UNITS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    if left_ms:
        parts.append(f"{left_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def is_recent(moment: datetime, now: datetime, span: timedelta) -> bool:
    """Return whether a noted time is less than a span away from now, before or after it.

    If the clock was set back, noted times lie in the future: they must not count as recent until the old time returns.
    """
    return abs(now - moment) < span


def format_moment(at: datetime, zone: tzinfo = UTC) -> str:
    """Format a time for a person, with its time zone."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


class EnvText(str):
    """Text from the environment, not yet converted to the type of its key."""

    __slots__ = ()


def plain_json(text: str) -> Any:
    """Parse JSON with exact numbers.

    Raises:
        ValueError: the text is not JSON; the message states what was expected and never quotes the text.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        raise ValueError(EXPECTED_JSON) from None
