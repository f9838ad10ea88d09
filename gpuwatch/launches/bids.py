"""What is bid for an interruptible instance. Whole micro-dollars, listed, GPUs alone.

An owner thinks in `max_price`: USD per GPU-hour, with disk and commission. A marketplace thinks in its own price of
the GPUs. The way from the one to the other is here, rounded down, so that a maximum is never exceeded.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from gpuwatch.launches.instance import Instance
from gpuwatch.launches.launch import Launch
from gpuwatch.market.pricing import MICRO, microusd, threshold_microusd
from gpuwatch.watches.watch import BidSpec


def bid_ceiling(launch: Launch, bid: BidSpec) -> int:
    """The most that may be bid: `bid.max` without commission and disk."""
    rate = Fraction(Decimal(repr(launch.promised.commission_rate)))
    listed = threshold_microusd(bid.max_usd_gpu_hour, launch.gpu_count) / (1 + rate)
    return max(0, int(listed // 1) - launch.disk_microusd_hour)


def next_bid(launch: Launch, instance: Instance, bid: BidSpec | None) -> int | None:
    """What to bid now that it was outbid; None: nothing more, or the bid is high enough and only has to win."""
    if bid is None:
        return None
    ceiling, now = bid_ceiling(launch, bid), launch.bid_microusd_hour or _microusd(instance.bid_usd_hour) or 0
    least = _microusd(instance.min_bid_usd_hour)
    if least is not None and now >= least:
        return None
    step = round(Fraction(bid.step_usd_gpu_hour) * launch.gpu_count * MICRO)
    wanted = min(ceiling, max(least or 0, now + max(step, 1)))
    return wanted if wanted > now and wanted >= (least or 0) else None


def _microusd(usd: float | None) -> int | None:
    return None if usd is None else microusd(repr(usd))
