"""What an hour of real work costs: the price divided by how much of the GPU is used. Pure."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import msgspec

LOW_PERCENT = 70.0  # under it: find what the GPU waits for
GOOD_PERCENT = 90.0  # under it: something is left


class Verdict(StrEnum):
    """What to think of a use."""

    BOTTLENECK = "bottleneck"
    WASTEFUL = "wasteful"
    GOOD = "good"


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """A price at a use."""

    percent: float
    useful_usd_hour: Decimal | None  # of an hour of real work; None: nothing works
    idle_usd_hour: Decimal  # of each hour that is paid, what buys no work
    verdict: Verdict


def useful_usd_hour(usd_hour: Decimal, percent: float) -> Decimal | None:
    """Price ÷ use; None: nothing works, at any price.

    Args:
        percent: 0 to 100.
    """
    return usd_hour * 100 / Decimal(repr(percent)) if percent > 0 else None


def used(usd_hour: Decimal, percent: float, low: float = LOW_PERCENT, good: float = GOOD_PERCENT) -> Used:
    """A price at a use, judged by two thresholds."""
    share = Decimal(repr(min(percent, 100.0))) / 100
    return Used(
        percent=percent,
        useful_usd_hour=useful_usd_hour(usd_hour, percent),
        idle_usd_hour=usd_hour * (1 - share),
        verdict=Verdict.BOTTLENECK if percent < low else Verdict.WASTEFUL if percent < good else Verdict.GOOD,
    )
