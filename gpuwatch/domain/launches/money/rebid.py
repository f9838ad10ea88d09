"""The next bid for an instance that was outbid, in micro-dollars an hour, listed, for the GPUs only.

Separate from `bids`, because it needs `Launch`, which imports `bids`.
"""

from __future__ import annotations

from fractions import Fraction

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.pricing import MICRO, microusd
from gpuwatch.domain.watches.bids import bid_ceiling_microusd, bid_for_price
from gpuwatch.domain.watches.watch import BidSpec


def next_bid(launch: Launch, instance: Instance, bid: BidSpec | None) -> int | None:
    """Return the next bid after being outbid; None: do not bid more, or the bid is high enough and only has to win."""
    if bid is None:
        return None
    ceiling = admitted_bid_ceiling(launch, bid)
    now = launch.bid_microusd_hour or _microusd(instance.bid_usd_hour) or 0
    least = _microusd(instance.min_bid_usd_hour)
    if least is not None and now >= least:
        return None
    step = round(Fraction(bid.step_usd_gpu_hour) * launch.gpu_count * MICRO)
    wanted = min(ceiling, max(least or 0, now + max(step, 1)))
    return wanted if wanted > now and wanted >= (least or 0) else None


def admitted_bid_ceiling(launch: Launch, bid: BidSpec) -> int:
    """Return the highest allowed bid in micro-dollars: `bid.max` without commission and disk.

    Never more than at the launch's admission: no budget covers a `bid.max` that was raised later.
    """
    rate, disk = launch.promised.commission_rate, launch.disk_microusd_hour
    admitted = bid_for_price(Fraction(launch.bound_microusd_hour), rate, disk)
    return min(admitted, bid_ceiling_microusd(bid, launch.gpu_count, rate, disk))


def _microusd(usd: float | None) -> int | None:
    return None if usd is None else microusd(repr(usd))
