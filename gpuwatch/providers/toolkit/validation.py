"""Reads untrusted JSON: every value is hostile until it has passed these functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.money import MAX_USD_HOUR, MICRO
from gpuwatch.domain.market.offer import MAX_TEXT_LENGTH, clean
from gpuwatch.errors import PayloadChanged

# Not JSON, or a wrong type; invalid UTF-8 in a text; 200,000 nested lists.
_NEXT_PAGE_FIELDS: Final = ("hasMore", "has_more", "page_token")
_TOTAL_FIELDS: Final = ("total", "totalCount", "total_count", "count")
_MAX_UNIX_S: Final = 32_503_680_000.0  # the year 3000: a larger time is in another unit
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_json(body: bytes, name: str) -> Any:
    """Return the JSON of a 2xx answer. Raises PayloadChanged."""
    try:
        return msgspec.json.decode(body)
    except UNREADABLE as error:
        raise PayloadChanged(f"{name}: the answer is not JSON") from error


def number(value: object, least: float | None = None, most: float = 1e15) -> float | None:
    """Return a finite number, also from a text; None for anything else, and outside `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(found) or found > most or (least is not None and found < least):
        return None
    return found


def whole(value: object, least: int = 0, most: int = 10_000_000) -> int | None:
    """Return a whole number within bounds; None for anything else."""
    found = number(value, least, most)
    return int(found) if found is not None and found == int(found) else None


def usd_hour(value: object) -> float | None:
    """Return a plausible price of an offer, a micro-dollar or more, in US dollars an hour; None for anything else."""
    return number(value, 1 / MICRO, MAX_USD_HOUR)


def word(value: object, max_length: int = MAX_TEXT_LENGTH) -> str | None:
    """Return a text fit to be stored: cleaned, cut, not empty; None for anything else."""
    if not isinstance(value, str):
        return None
    return clean(value, max_length).strip() or None


def matched(value: object, form: re.Pattern[str]) -> str | None:
    """Return a text of this form, as it is; None for anything else. For names that gpuwatch sends back."""
    return value if isinstance(value, str) and form.fullmatch(value) else None


def parse_utc(value: object) -> datetime | None:
    """Return the time that a text states, in UTC; None for anything else, and without a time zone."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def time_from_unix(seconds: float | None) -> datetime | None:
    """Return the time so many seconds after 1970; None: no number, or in another unit."""
    return datetime.fromtimestamp(seconds, UTC) if seconds and 0 < seconds < _MAX_UNIX_S else None


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list, without its other entries; empty for anything that is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def at(value: object, *path: str) -> Any:
    """Return the value at a path of keys; None if one is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def require_complete_list(value: object, rows: int, name: str) -> None:
    """Reject a partial list: it is documented to have no pages, but may get them some day.

    Args:
        value: the object that contains the list.
        rows: the number of rows received.

    Raises:
        PayloadChanged: there are more rows.
    """
    if not isinstance(value, dict):
        return
    more = any(value[key] for key in value if key.lower().startswith("next") or key in _NEXT_PAGE_FIELDS)
    if more or any((whole(value.get(key)) or 0) > rows for key in _TOTAL_FIELDS):
        raise PayloadChanged(f"{name}: the list of instances is incomplete: it has more pages")
