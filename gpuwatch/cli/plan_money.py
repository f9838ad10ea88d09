"""Money, percentages and GPUs as the planner's options take them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from gpuwatch.errors import UsageError

_MOST = Decimal(10**9)


def usd(flag: str, text: str, *, zero: bool = False) -> Decimal:
    """Dollars, exact as written. Raises UsageError."""
    try:
        found = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not (0 <= found <= _MOST) or (not found and not zero):
        raise UsageError(f"{flag} {text!r}: expected USD{' from 0 on' if zero else ' above 0'}, such as 3.50")
    return found


def percents(flag: str, text: str, most: int = 100) -> tuple[Decimal, ...]:
    """One percentage or two, "40-60"; "none" and "" are none. Raises UsageError."""
    if text.strip().lower() in {"", "none", "0"}:
        return ()
    try:
        found = tuple(Decimal(part.strip().removesuffix("%")) for part in text.split("-"))
    except InvalidOperation:
        found = ()
    if not 1 <= len(found) <= 2 or not all(one.is_finite() and 0 <= one < most for one in found):
        raise UsageError(f"{flag} {text!r}: expected percent under {most}, such as 40 or 40-60, or none")
    return tuple(sorted(set(found)))
