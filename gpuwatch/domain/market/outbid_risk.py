"""How often a machine's lowest winning bid stood over a bid, by that machine's own recorded prices. Pure.

A recorded price of an interruptible offer, without its disk, is the lowest bid that wins it. What is not recorded is
not counted: neither as quiet nor as risky.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

DAY_S = 86_400
RISK_DAYS = 14
LEAST_WATCHED_S = DAY_S  # less says nothing: prices of bids follow the time of day


class RecordedBid(NamedTuple):
    """One price, from when to when it is known to have held, in seconds since 1970.

    `gone_s`: when the machine was first seen to be off sale at that price; None: it was not.
    """

    from_s: int
    until_s: int
    microusd_hour: int
    gone_s: int | None = None


class OutbidRisk(msgspec.Struct, frozen=True, kw_only=True):
    """What a bid would have met at one machine.

    Attributes:
        bid_microusd_hour: the bid, for the GPUs only.
        days: the period that was looked at.
        watched_s: for how long of it the machine's prices are known.
        over_s: for how long of that the lowest winning bid was higher.
        rises: how often it rose over the bid.
        away_s: for how long it was not on sale: rented on demand, which ends a bid's machine, too, or offline.
    """

    bid_microusd_hour: int
    days: int = RISK_DAYS
    watched_s: int = 0
    over_s: int = 0
    rises: int = 0
    away_s: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the history suffices."""
        return self.watched_s >= LEAST_WATCHED_S

    @property
    def over_share(self) -> float | None:
        """The share of the watched time in which the bid would have lost; None: too little is known."""
        return self.over_s / self.watched_s if self.is_known else None


def outbid_risk(prices: Iterable[RecordedBid], bid_microusd_hour: int, now_s: int) -> OutbidRisk:
    """Compare a bid with the prices of the last `RISK_DAYS`. A bid as high as the lowest winning one wins.

    Args:
        prices: of one machine, in any order.
    """
    since_s = now_s - RISK_DAYS * DAY_S
    watched_s = over_s = rises = away_s = 0
    known_to_s, was_over = since_s, True  # what is over at the beginning did not rise
    gone_s: int | None = None
    for price in sorted(prices, key=lambda one: (one.from_s, one.until_s)):
        from_s, until_s = max(price.from_s, known_to_s), min(price.until_s, now_s)
        if gone_s is not None:
            away_s += max(0, from_s - max(gone_s, since_s))
        gone_s = price.gone_s
        if until_s <= from_s:
            continue
        is_over = price.microusd_hour > bid_microusd_hour
        watched_s += until_s - from_s
        over_s += until_s - from_s if is_over else 0
        rises += is_over and not was_over
        known_to_s, was_over = until_s, is_over
    if gone_s is not None:
        away_s += max(0, now_s - max(gone_s, since_s))
    return OutbidRisk(
        bid_microusd_hour=bid_microusd_hour, watched_s=watched_s, over_s=over_s, rises=rises, away_s=away_s
    )
