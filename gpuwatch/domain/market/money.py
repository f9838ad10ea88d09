"""Money as text for people and as numbers for JSON: the only module that rounds dollars for display.

Prices (per hour) show two to four decimals, amounts (costs, budgets, balances) show cents. Both round half-even, as
`pricing` does. Exact arithmetic stays in whole micro-dollars; see `pricing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

from gpuwatch.domain.market.pricing import MICRO

_EXACT = Context(prec=400)  # providers send numbers up to 1e300
_MOST_DECIMALS = 6  # a micro-dollar


def price_text(usd: Decimal | float, *, least: int = 2, most: int = 4) -> str:
    """A price without its currency sign: 3.6 → "3.60", 0.123456 → "0.1235".

    Args:
        least: decimals that are always shown; columns of a table use the same number for `least` and `most`.
        most: decimals kept; 6 shows every micro-dollar.
    """
    whole, _, fraction = format(_rounded(usd, most), "f").partition(".")
    if not fraction:
        return whole  # a provider's "infinity"
    return f"{whole}.{fraction.rstrip('0').ljust(least, '0')}"


def distinct_prices(prices: Sequence[Decimal]) -> list[str]:
    """Prices without their currency sign, in cents: four decimals only if two different ones would look alike.

    A price below half a cent would look free, so it has four decimals, too.
    """
    in_cents = [_rounded(price, 2) for price in prices]
    alike = {cents for cents, price in zip(in_cents, prices, strict=True) if not cents and price}
    for cents, price in zip(in_cents, prices, strict=True):
        if any(cents == other and price != its for other, its in zip(in_cents, prices, strict=True)):
            alike.add(cents)
    return [
        price_text(price) if cents in alike else f"{cents:f}" for cents, price in zip(in_cents, prices, strict=True)
    ]


def amount_text(usd: Decimal | float, sign: str = "", rounding: str = ROUND_HALF_EVEN) -> str:
    """An amount in cents without its currency sign: 1234.5 → "1,234.50"; less than half a cent → "<0.01".

    Args:
        sign: "+" also marks amounts above zero.
        rounding: a `decimal` rounding mode; an upper bound is rounded up.
    """
    rounded = _rounded(usd, 2, rounding)
    if usd and not rounded:
        return "<0.01" if usd > 0 else ">-0.01"
    return f"{rounded:{sign},}"


def dollars(usd: Decimal | float) -> str:
    """An amount with its currency sign: "$1,234.50", "<$0.01"."""
    text = amount_text(-usd if usd < 0 else usd)
    if text.startswith("<"):
        return f"<${text[1:]}"
    return f"-${text}" if usd < 0 and text != "0.00" else f"${text}"


def above_text(usd: Decimal, limit: Decimal) -> str:
    """Return "3.61 > 3.60": two decimals, or as many as needed to show that the first is more than the second."""
    for decimals in range(2, _MOST_DECIMALS + 1):
        if round(usd, decimals) > round(limit, decimals):
            return f"{usd:.{decimals}f} > {limit:.{decimals}f}"
    return f"{usd} > {limit}"


def _rounded(usd: Decimal | float, decimals: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    exact = Decimal(usd)
    return exact.quantize(Decimal(1).scaleb(-decimals), rounding, _EXACT) if exact.is_finite() else exact


def usd_number(microusd: int | None) -> float | None:
    """Micro-dollars as a JSON number; None stays None."""
    return None if microusd is None else microusd / MICRO
