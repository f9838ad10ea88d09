"""Money: what an offer costs, in whole micro-dollars, and money as text for people and as numbers for JSON. Pure.

A quote becomes a price with the requested disk and the commission, rounded half-even once, at the very end. The
arithmetic uses floats, which are exact to about 1e-9 micro-dollars here. If a result is so close to a tie that a float
might round the wrong way, it is computed again in exact fractions. Decimal for every offer of every poll would cost
five times as much as parsing.

Texts: only this module rounds dollars for display, and it alone spells them: "$12.50", "$1.48/h", "$1.48/GPU-h".
Prices (per hour) show two to four decimals, in a column of a table three; amounts (costs, budgets, balances) show
cents; both round half-even.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

import msgspec

from gpuwatch.domain.market.offer import PLAIN_TERMS, Offer, priced_units
from gpuwatch.language import mark_text, translate

MICRO = 1_000_000
REFERENCE_DISK_GB = 8  # source: vast.ai quotes this disk if none is requested (vastai docs, read 2026-08)
HOURS_A_MONTH = 720  # source: vast.ai bills storage per GB and month of 720 h (docs, read 2026-08)
MAX_USD_HOUR = 10_000.0  # nothing on offer costs more; a larger number is an error
_TIE_MARGIN = 1e-3  # micro-dollars around a tie within which exact fractions are used
_FLOATS_TO = 1e11  # micro-dollars up to which a float is more precise than that margin

_EXACT = Context(prec=400)  # providers send numbers up to 1e300
_MOST_DECIMALS = 6  # a micro-dollar
_WHOLE_FROM_USD = 10  # estimates below have cents
_PER_HOUR, _PER_GPU_HOUR = mark_text("/h"), mark_text("/GPU-h")


class CommissionMode(StrEnum):
    """How a commission relates to the listed price."""

    ON_TOP = "on_top"  # price = listed × (1 + rate)
    INCLUDED = "included"  # the rate is inside the listed price: price = listed
    FROM_OFFER = "from_offer"  # each offer has its own rate; `rate` is for offers without one


class Commission(msgspec.Struct, frozen=True):
    """How a listed price becomes an effective price: a commission rate, and the billed time.

    `rate_text` keeps the decimal number as written by the owner.
    """

    rate_text: str = "0"
    mode: CommissionMode = CommissionMode.ON_TOP
    min_billing_s: float = 0.0  # the minimum that is billed for a launch
    billing_step_s: float = 0.0  # length of one billing step; 0: billed to the millisecond

    @property
    def rate(self) -> Decimal:
        """The fraction, exact: 0.20 is 20 %."""
        return Decimal(self.rate_text)

    def on_top_rate(self, fee_rate: float | None) -> Decimal:
        """Return what is added to a listed price, given the offer's own fee (None or negative: no fee)."""
        if self.mode is CommissionMode.INCLUDED:
            return Decimal(0)
        if self.mode is CommissionMode.FROM_OFFER and fee_rate is not None and fee_rate >= 0:
            return Decimal(repr(fee_rate))
        return self.rate


class OfferPrice(msgspec.Struct, frozen=True, gc=False):
    """The price of an offer with a given disk, in whole micro-dollars an hour for the whole offer.

    `price_microusd_hour` is what is compared and shown. It may contain the traffic of one launch, which is billed by
    the GB and not by the hour; `rent_microusd_hour` is what the hour is billed.
    """

    listed_microusd_hour: int
    price_microusd_hour: int
    commission_rate: float
    min_billing_s: float = 0.0
    billing_step_s: float = 0.0
    traffic_microusd_hour: int = 0  # part of the price

    @property
    def rent_microusd_hour(self) -> int:
        """The price without traffic: what launches, budgets and the provider's list of instances count with."""
        return self.price_microusd_hour - self.traffic_microusd_hour

    def with_traffic(self, microusd_hour: int) -> OfferPrice:
        """Return the price with this much traffic in it."""
        price, added = self.rent_microusd_hour + microusd_hour, microusd_hour
        return msgspec.structs.replace(self, price_microusd_hour=price, traffic_microusd_hour=added)

    def gpu_price_usd_hour(self, gpu_count: int) -> Decimal:
        """US dollars per GPU-hour for display, or per hour of a machine without GPUs.

        Thresholds are compared for the whole offer.
        """
        return usd(self.price_microusd_hour) / priced_units(gpu_count)


class _Factor:
    """A factor of prices, exact and as a float."""

    def __init__(self, exact: Decimal) -> None:
        self.exact = exact
        self.rounded = float(exact)


_ONE = _Factor(Decimal(1))


def usd(microusd: int) -> Decimal:
    """Return whole micro-dollars as exact dollars."""
    return Decimal(microusd) / MICRO


def microusd(amount: Decimal | int | str) -> int:
    """Return dollars as whole micro-dollars, rounded half-even."""
    return round(Fraction(Decimal(amount)) * MICRO)


def disk_microusd_hour(disk_microusd_gb_month: int | None, disk_gb: float) -> int:
    """Return the hourly price of a disk of this size."""
    if not disk_microusd_gb_month or not math.isfinite(disk_gb):
        return 0
    return round(disk_microusd_gb_month * disk_gb / HOURS_A_MONTH)


def disk_usd_hour(offer: Offer) -> float:
    """Return the listed price of the quoted disk; 0 if it has no price of its own."""
    return (offer.disk_usd_gb_month or 0.0) * offer.quoted_disk_gb / HOURS_A_MONTH


def price_of(offer: Offer, disk_gb: float | None, commission: Commission) -> OfferPrice:
    """Return listed and effective price of an offer with the requested disk.

    Args:
        disk_gb: None, or the size that the quote already includes: the quote is used unchanged. It is also used if
            removing the surplus disk would leave nothing, because then the quote does not include that disk. A disk
            below the provider's minimum is priced as the minimum, which is what is rented.
    """
    factor, rate = _factor_and_rate(commission, offer.fee_rate)
    listed = _listed_microusd(offer, disk_gb, _ONE)
    price = listed if not rate else _listed_microusd(offer, disk_gb, factor)
    least_s = commission.min_billing_s
    if offer.terms is not PLAIN_TERMS:
        least_s = max(least_s, offer.terms.min_billing_s or 0.0)
    return OfferPrice(listed, price, rate, least_s, commission.billing_step_s)


@lru_cache(maxsize=4096)  # the same few thresholds for every offer of every poll
def threshold_microusd(max_price_usd_gpu_hour: Decimal, gpu_count: int) -> int:
    """Return the highest whole-offer price at or under a GPU price: floor(max_price × GPUs), exact.

    Of a machine without GPUs, the limit is that of the machine.
    """
    return int(Fraction(max_price_usd_gpu_hour) * priced_units(gpu_count) * MICRO // 1)


def listed_ceiling_usd(max_price_usd_gpu_hour: Decimal, gpu_count: int, commission: Commission) -> Decimal:
    """Return a listed price that no matching offer exceeds, for the marketplace's own filter; it has a small margin.

    With `from_offer` the listed price itself is the bound, because a fee only makes an offer more expensive.
    """
    rate = commission.rate if commission.mode is CommissionMode.ON_TOP else Decimal(0)
    return max_price_usd_gpu_hour * priced_units(gpu_count) / (1 + rate) + Decimal("0.000001")


def least_price_microusd(listed_usd_hour: float, commission: Commission) -> int:
    """Return an effective price that no offer listed at this price or above falls below; the inverse of the ceiling."""
    rate = commission.rate if commission.mode is CommissionMode.ON_TOP else Decimal(0)
    return round(Fraction(Decimal(repr(listed_usd_hour))) * Fraction(1 + rate) * MICRO)


@lru_cache(maxsize=256)  # the same commission for every offer of a poll
def _factor_and_rate(commission: Commission, fee_rate: float | None) -> tuple[_Factor, float]:
    """Return price ÷ listed price, and the rate that is shown."""
    rate = commission.on_top_rate(fee_rate)
    return _Factor(1 + rate), float(rate)


def _listed_microusd(offer: Offer, disk_gb: float | None, factor: _Factor) -> int:
    quoted, extra_gb = offer.quoted_usd_hour, 0.0
    rate = offer.disk_usd_gb_month
    if disk_gb is not None and rate:
        disk_gb = max(disk_gb, offer.terms.least_disk_gb)
        extra_gb = disk_gb - offer.quoted_disk_gb
    listed = quoted + (rate or 0.0) * extra_gb / HOURS_A_MONTH
    if listed <= 0:
        listed, extra_gb = quoted, 0.0
    near = listed * MICRO * factor.rounded
    if near < _FLOATS_TO and abs(near % 1 - 0.5) > _TIE_MARGIN:
        return round(near)
    total = Fraction(Decimal(repr(quoted)))
    if extra_gb and rate:
        disks = Fraction(Decimal(repr(disk_gb))) - Fraction(Decimal(repr(offer.quoted_disk_gb)))
        total += Fraction(Decimal(repr(rate))) * disks / HOURS_A_MONTH
    return round(total * MICRO * Fraction(factor.exact))


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


def per_hour(usd: Decimal | float, *, least: int = 2, most: int = 4) -> str:
    """The price of a machine: "$1.48/h". Arguments as `price_text`."""
    return f"${price_text(usd, least=least, most=most)}{translate(_PER_HOUR)}"


def per_gpu_hour(usd: Decimal | float, *, least: int = 2, most: int = 4) -> str:
    """A GPU price: "$1.48/GPU-h". Arguments as `price_text`."""
    return f"${price_text(usd, least=least, most=most)}{translate(_PER_GPU_HOUR)}"


def per_unit_hour(usd: Decimal | float, gpu_count: int, *, least: int = 2, most: int = 4) -> str:
    """The price by which an offer is compared: of a GPU, or of a machine without GPUs. Arguments as `price_text`."""
    return (per_gpu_hour if gpu_count else per_hour)(usd, least=least, most=most)


def rate_text(microusd: float, against: float | None = None) -> str:
    """A rate on a page: "$1.48", "$0.626": two decimals from one dollar, three below.

    Args:
        against: the rate beside it, such as a limit: if both would look alike, both show four decimals or more, so
            that no rounding moves a price across its limit.
    """
    rate = Decimal(microusd) / MICRO
    decimals = _rate_decimals(rate)
    if against is not None and against != microusd:
        other = Decimal(against) / MICRO
        while decimals < _MOST_DECIMALS and _rounded(rate, decimals) == _rounded(
            other, _rate_decimals(other, decimals)
        ):
            decimals = max(4, decimals + 1)
    return f"${_rounded(rate, decimals):,f}"


def hourly_text(microusd: float) -> str:
    """What a machine costs, on a page: "$0.626/h". Decimals as `rate_text`."""
    return f"{rate_text(microusd)}{translate(_PER_HOUR)}"


def gpu_hourly_text(microusd: float) -> str:
    """A GPU price on a page: "$0.626/GPU-h". Decimals as `rate_text`."""
    return f"{rate_text(microusd)}{translate(_PER_GPU_HOUR)}"


def unit_hourly_text(microusd: float, gpu_count: int) -> str:
    """The price by which an offer is compared, on a page: of a GPU, or of a machine without GPUs."""
    return (gpu_hourly_text if gpu_count else hourly_text)(microusd)


def _rate_decimals(rate: Decimal, least: int = 0) -> int:
    return max(least, 2 if abs(rate) >= 1 else 3)


def dollars_change(microusd: int) -> str:
    """A difference of amounts with its sign: "+$0.71", "−$3.17"."""
    sign = "−" if microusd < 0 else "+" if microusd > 0 else ""
    return f"{sign}{dollars(abs(usd(microusd)))}"


def whole_dollars(microusd: int) -> str:
    """An estimate in whole dollars: "$36"; below ten dollars in cents."""
    amount = usd(microusd)
    return f"${_rounded(amount, 0):,f}" if abs(amount) >= _WHOLE_FROM_USD else dollars(amount)


def dollar_range(low_microusd: int, high_microusd: int) -> str:
    """An estimate between two amounts: "$11–18"."""
    low, high = whole_dollars(low_microusd), whole_dollars(high_microusd)
    return low if low == high else f"{low}–{high[1:]}"


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
    exact = Decimal(usd) or Decimal(0)  # not -0
    return exact.quantize(Decimal(1).scaleb(-decimals), rounding, _EXACT) if exact.is_finite() else exact
