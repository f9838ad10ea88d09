"""Whether a row is announced to end: end of sale, deprecated, retiring, or valid until a time that has passed. Pure.

Vendors announce it in different words, and most only when it happens, so this reads the usual ones in any spelling. A
flag or a word counts at once; a time counts from then on: until that day the row is for sale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from gpuwatch.providers.toolkit.validation import number, time_from_unix

_WORDS: Final = frozenset(
    {
        "deprecated", "discontinued", "retired", "retiring", "sunset", "sunsetting", "expired", "decommissioned",
        "endofsale", "endofsales", "endoflife", "endofservice", "endofdeployment", "eol", "eos",
    }
)  # fmt: skip
_FLAGS: Final = _WORDS | {f"is{word}" for word in _WORDS}
_STATUSES: Final = frozenset(
    {"status", "state", "lifecycle", "lifecyclestatus", "lifecyclestate", "salestatus", "phase"}
)
_TIMES: Final = frozenset(
    {
        "enddate", "endsat", "effectiveenddate", "validuntil", "validto", "validthrough", "pricevaliduntil",
        "availableuntil", "expiresat", "expirydate", "expirationdate", "deprecationdate", "retirementdate",
        "sunsetdate", "discontinuationdate", "endofsaledate", "endoflifedate", "endofservicedate",
        *(f"{word}{suffix}" for word in _WORDS for suffix in ("at", "on", "date", "from")),
    }
)  # fmt: skip
_WARNINGS: Final = frozenset({"deploywarning", "warning", "notice", "announcement"})
_NAMES: Final = frozenset({"description", "displayname", "metername", "skuname", "productname", "title"})
_LISTS: Final = frozenset({"labels", "tags", "flags"})
_SAID: Final = r"deprecated|discontinued|retir(?:ed|ing)|end[- ]of[- ](?:sales?|life|service)|expired"
_ANNOUNCEMENT: Final = re.compile(rf"(?i)\b(?:{_SAID})\b")
_MARKED_NAME: Final = re.compile(rf"(?i)^\W*(?:{_SAID})\b|[-–([]\s*(?:{_SAID})\W*$")  # "NC6s v3 - Expired"
_NO: Final = frozenset({"", "false", "no", "none", "null", "0", "active", "n"})
_TEXT_LENGTH: Final = 300


def is_ending(row: object, now: datetime | None) -> bool:
    """Return whether a row is no longer for sale, by any of its fields and of the objects directly in it.

    Args:
        row: an object of an answer; anything else announces nothing.
        now: aware, UTC; None: times are not compared.
    """
    return _announces_any(row, now) or (
        isinstance(row, Mapping) and any(_announces_any(value, now) for value in row.values())
    )


def marks_an_end(name: object) -> bool:
    """Return whether a name carries the mark of an end: "NC6s v3 - Expired", "1x A100 (deprecated)"."""
    return isinstance(name, str) and _MARKED_NAME.search(name[:_TEXT_LENGTH]) is not None


def _announces_any(row: object, now: datetime | None) -> bool:
    return isinstance(row, Mapping) and any(_announces(_folded(str(key)), value, now) for key, value in row.items())


def _announces(name: str, value: Any, now: datetime | None) -> bool:
    if name in _FLAGS:
        until = _time(value)
        return now is not None and until <= now if until is not None else _is_set(value)
    if name in _TIMES:
        until = _time(value)
        return now is not None and until is not None and until <= now
    if isinstance(value, list):
        return name in _LISTS and any(_is_end_label(label) for label in value)
    if not isinstance(value, str):
        return False
    if name in _STATUSES:
        return _folded(value) in _WORDS
    return marks_an_end(value) if name in _NAMES else name in _WARNINGS and _announcement_in(value)


def _is_end_label(label: object) -> bool:
    texts = label.values() if isinstance(label, Mapping) else [label]
    return any(isinstance(text, str) and _folded(text) in _WORDS for text in texts)


def _announcement_in(text: str) -> bool:
    return _ANNOUNCEMENT.search(text[:_TEXT_LENGTH]) is not None


def _folded(text: str) -> str:
    return "".join(filter(str.isalnum, text[:60])).lower()


def _is_set(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().casefold() not in _NO)


def _time(value: Any) -> datetime | None:
    """Return the time in a field: a date, a time with or without its zone (UTC then), seconds or milliseconds."""
    if isinstance(value, bool) or value is None:
        return None
    seconds = number(value, 1e8)
    if seconds is not None:
        return time_from_unix(seconds / 1000 if seconds > 1e11 else seconds)
    try:
        found = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None
    if found is None:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
