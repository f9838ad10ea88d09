"""The cost of an hour of useful work: the price divided by the GPU utilisation."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import msgspec

LOW_UTILISATION_PERCENT = 70.0  # below it: find out what the GPU is waiting for
GOOD_UTILISATION_PERCENT = 90.0  # below it: some capacity is unused
UTILISATION_METHOD_TEXT = "price ÷ use"


class UtilisationVerdict(StrEnum):
    """The rating of a utilisation."""

    BOTTLENECK = "bottleneck"
    WASTEFUL = "wasteful"
    GOOD = "good"


class UtilisedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price at a utilisation."""

    percent: float
    useful_usd_hour: Decimal | None  # per hour of useful work; None: no work is done
    idle_usd_hour: Decimal  # share of each paid hour without work
    verdict: UtilisationVerdict


def useful_usd_hour(usd_hour: Decimal, percent: float) -> Decimal | None:
    """Price ÷ utilisation; None: no work is done.

    Args:
        percent: 0 to 100.
    """
    return usd_hour * 100 / Decimal(repr(percent)) if percent > 0 else None


def price_at_utilisation(
    usd_hour: Decimal, percent: float, low: float = LOW_UTILISATION_PERCENT, good: float = GOOD_UTILISATION_PERCENT
) -> UtilisedPrice:
    """A price at a utilisation, rated by two thresholds."""
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
