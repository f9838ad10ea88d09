"""Compute bids for an interruptible instance. A bid is a listed price for the GPUs alone.

The owner sets `max_price` in USD per GPU-hour, with disk and commission. A marketplace expects a price for the GPUs
only. This module converts the first into the second and rounds down, so that a maximum is never exceeded.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import MICRO, disk_usd_hour, threshold_microusd
from gpuwatch.domain.watches.watch import BidSpec

LEAST_BID_USD = 0.001  # source: vastai.md §6


def quoted_bid_usd_hour(offer: Offer) -> float:
    """Return an offer's quote as a bid: without its disk, at least the minimum bid, rounded up."""
    bid = max(offer.quoted_usd_hour - disk_usd_hour(offer), offer.min_bid_usd_hour or 0.0, LEAST_BID_USD)
    return math.ceil(bid * MICRO - 1e-3) / MICRO


def first_bid_usd_hour(offer: Offer, bid: BidSpec | None, commission_rate: float) -> float:
    """Return the first bid: the quote, or with `bid` one step above the minimum, to outbid the next bidder."""
    quoted = quoted_bid_usd_hour(offer)
    if bid is None:
        return quoted
    step = float(bid.step_usd_gpu_hour) * offer.gpu_count
    wanted = max(quoted, (offer.min_bid_usd_hour or quoted) + step)
    ceiling = bid_ceiling_microusd(bid, offer.gpu_count, commission_rate, round(disk_usd_hour(offer) * MICRO)) / MICRO
    return max(quoted, min(wanted, ceiling))


def bid_ceiling_microusd(bid: BidSpec, gpu_count: int, commission_rate: float, disk_microusd: int) -> int:
    """Return the highest allowed bid in micro-dollars: `bid.max` without commission and disk."""
    most = Fraction(threshold_microusd(bid.max_usd_gpu_hour, gpu_count))
    return bid_for_price(most, commission_rate, disk_microusd)


def bid_for_price(most_microusd: Fraction, commission_rate: float, disk_microusd: int) -> int:
    """Return the bid whose total, with commission and disk, is at most this much."""
    listed = most_microusd / (1 + Fraction(repr(commission_rate)))
    return max(0, int(listed // 1) - disk_microusd)
