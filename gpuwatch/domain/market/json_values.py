"""Conversion of values to JSON; money is in `money.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import overload


@overload
def rfc3339(moment: datetime) -> str: ...
@overload
def rfc3339(moment: datetime | None) -> str | None: ...
def rfc3339(moment: datetime | None) -> str | None:
    """A time in UTC with `Z`, to the second."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def number(amount: Decimal | float | int | None) -> float | None:
    """Money or a measure as a JSON number."""
    return None if amount is None else float(amount)
