"""The cost of a watch's job on an offer, and the resulting price limits: `max_job_cost` instead of `max_price`."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import MAX_USD_HOUR, MICRO, OfferPrice, microusd, threshold_microusd
from gpuwatch.domain.plan.job_hours import JobSpec, hours_on
from gpuwatch.domain.plan.job_total import JobCost, JobTraffic, PricedGpus, cost_on, priced_gpus_of
from gpuwatch.domain.watches.watch import Watch

_FINE = Decimal("0.000001")
_MOST_USD = Decimal(int(MAX_USD_HOUR))
_SHORTEST_H = 1e-6  # a shorter job is limited only by its own cost


def job_cost(watch: Watch, offer: Offer, price: OfferPrice) -> JobCost | str | None:
    """Return the cost of the job, or a text that states why it is unknown. None: the watch compares prices."""
    if watch.job is None or watch.max_job_cost_usd is None:
        return None
    return cost_on(watch.job, priced_gpus_of(offer, price), JobTraffic(watch.download_gb, watch.upload_gb))


def job_microusd(watch: Watch, offer: Offer, price: OfferPrice) -> int | None:
    """Return the highest cost in whole micro-dollars; None: it is unknown, or the watch compares prices."""
    found = job_cost(watch, offer, price)
    return found.microusd if isinstance(found, JobCost) else None


def most_microusd(watch: Watch) -> int:
    """Return the limit for the whole job."""
    return microusd(watch.max_job_cost_usd or Decimal(0))


def ceiling_microusd(watch: Watch, gpu: str, count: int, *, spot: bool = False) -> int:
    """Return the highest hourly price at which this many GPUs can qualify, by price and by the job's cost.

    Leaves out facts that only an offer has: network speed, traffic prices, minimum billing.
    """
    most = threshold_microusd(watch.max_price_usd_gpu_hour, count)
    if watch.job is None or watch.max_job_cost_usd is None:
        return most
    bare = msgspec.structs.replace(watch.job, memory_gb=0.0, image_gb=0.0, within_s=None)
    priced_gpus = PricedGpus(gpu=gpu, count=count, memory_gib=None, microusd_hour=MICRO, can_be_interrupted=spot)
    found = cost_on(bare, priced_gpus, JobTraffic())
    if isinstance(found, str):
        return 0
    return min(most, threshold_microusd(_per_hour(watch.max_job_cost_usd, found.high.hours), 1))


def max_job_microusd(watch: Watch, offer: Offer, price: OfferPrice) -> int | None:
    """Return the highest hourly price of this offer at which its job stays within the limit.

    None: the watch compares prices.
    """
    found = job_cost(watch, offer, price)
    if not isinstance(found, JobCost):
        return None
    bill = found.high
    left = most_microusd(watch) - bill.traffic_usd * MICRO
    return max(0, int(left / (bill.hours + bill.minimum_h)))


def most_bid_microusd(watch: Watch, offer: Offer, price: OfferPrice) -> int:
    """Return the highest total hourly price with a raised bid: up to its maximum and the job's limit. 0: no bid."""
    bid = None if watch.launch is None else watch.launch.bid
    if bid is None or not offer.spot:
        return 0
    most, dearest = threshold_microusd(bid.max_usd_gpu_hour, offer.gpu_count), max_job_microusd(watch, offer, price)
    return most if dearest is None else min(most, dearest)


def highest_usd_gpu_hour(job: JobSpec, most_usd: Decimal, gpus: Iterable[str], counts: range) -> Decimal:
    """Return a GPU price that is not exceeded by any offer on which the job's work alone stays within the limit.

    0: there is no such price.
    """
    found = (_gpu_ceiling(job, most_usd, gpu, count) for gpu in gpus for count in counts)
    highest = max((one for one in found if one is not None), default=Decimal(0))
    return min(highest, _MOST_USD).quantize(_FINE, ROUND_CEILING)


def _gpu_ceiling(job: JobSpec, most_usd: Decimal, gpu: str, count: int) -> Decimal | None:
    hours = hours_on(job, gpu, count)
    return None if isinstance(hours, str) else _per_hour(most_usd, hours.value.high, count)


def _per_hour(most_usd: Decimal, hours: float, count: int = 1) -> Decimal:
    """Add a small margin: hours are floats and the job's cost is rounded; the job's own limit is exact."""
    if hours < _SHORTEST_H:
        return _MOST_USD
    return (most_usd + _FINE) / (Decimal(hours) * count) * Decimal("1.000000001")
