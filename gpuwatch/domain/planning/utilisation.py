"""What an hour of real work costs: the price divided by how much of the GPU is used. Pure."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import msgspec

LOW_UTILISATION_PERCENT = 70.0  # under it: find what the GPU waits for
GOOD_UTILISATION_PERCENT = 90.0  # under it: something is left


class UtilisationVerdict(StrEnum):
    """What to think of a use."""

    BOTTLENECK = "bottleneck"
    WASTEFUL = "wasteful"
    GOOD = "good"


class UtilisedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price at a use."""

    percent: float
    useful_usd_hour: Decimal | None  # of an hour of real work; None: nothing works
    idle_usd_hour: Decimal  # of each hour that is paid, what buys no work
    verdict: UtilisationVerdict


def useful_usd_hour(usd_hour: Decimal, percent: float) -> Decimal | None:
    """Price ÷ use; None: nothing works, at any price.

    Args:
        percent: 0 to 100.
    """
    return usd_hour * 100 / Decimal(repr(percent)) if percent > 0 else None


def price_at_utilisation(
    usd_hour: Decimal, percent: float, low: float = LOW_UTILISATION_PERCENT, good: float = GOOD_UTILISATION_PERCENT
) -> UtilisedPrice:
    """A price at a use, judged by two thresholds."""
    share = Decimal(repr(min(percent, 100.0))) / 100
    return UtilisedPrice(
        percent=percent,
        useful_usd_hour=useful_usd_hour(usd_hour, percent),
        idle_usd_hour=usd_hour * (1 - share),
        verdict=UtilisationVerdict.BOTTLENECK
        if percent < low
        else UtilisationVerdict.WASTEFUL
        if percent < good
        else UtilisationVerdict.GOOD,
    )
