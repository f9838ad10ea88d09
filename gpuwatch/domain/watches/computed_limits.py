"""Limits of a watch that are computed: of bids, by the cost of its job, and in clauses that few watches use. Pure.

- Bids for an interruptible instance: the owner sets `max_price` in USD per GPU-hour, with disk and commission; a
  marketplace expects a price for the GPUs only. The conversion rounds down, so that a maximum is never exceeded.
- `max_job_cost` instead of `max_price`: the cost of the watch's job on an offer, and the price limits that follow.
- `RARE_CLAUSES`: prices by speed and memory, conditions as text, reputation, and limits from the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

import msgspec

from gpuwatch.domain.market.money import (
    MICRO,
    Commission,
    OfferPrice,
    disk_usd_hour,
    microusd,
    price_of,
    price_text,
    threshold_microusd,
    usd,
)
from gpuwatch.domain.market.offer import Identity, ListedOffer, Offer, OfferKind, priced_units
from gpuwatch.domain.market.outbid_risk import DAY_S, RISK_DAYS, OutbidRisk, RecordedBid, outbid_risk
from gpuwatch.domain.plan.job_total import JobCost, JobTraffic, PricedGpus, cost_on, priced_gpus_of
from gpuwatch.domain.plan.roofline import card_specs_of
from gpuwatch.domain.watches.launch_spec import BidSpec
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE, machine_record_of, reputation
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_job_schema import usd_per_hour

LEAST_BID_USD = 0.001  # source: vastai.md §6
FAR = 1.0  # the distance of a clause without a measure


class Failure(msgspec.Struct, frozen=True):
    """A clause that an offer does not satisfy. `off` is relative: 0.06 is 6 % too expensive, 1.0 is simply not met."""

    clause: str
    text: str
    off: float = FAR


class Quoted(Protocol):
    """An offer with its price."""

    @property
    def offer(self) -> Offer:
        """The offer."""

    @property
    def price(self) -> OfferPrice:
        """Its price."""


Clause = Callable[[Watch, Offer, OfferPrice, datetime], Failure | None]


def quoted_bid_usd_hour(offer: Offer) -> float:
    """Return an offer's quote as a bid: without its disk, at least the minimum bid, rounded up."""
    bid = max(offer.quoted_usd_hour - disk_usd_hour(offer), offer.min_bid_usd_hour or 0.0, LEAST_BID_USD)
    return math.ceil(bid * MICRO - 1e-3) / MICRO


def first_bid_usd_hour(offer: Offer, bid: BidSpec | None, commission_rate: float) -> float:
    """Return the first bid: the quote, or with `bid` one step above the minimum, to outbid the next bidder."""
    quoted = quoted_bid_usd_hour(offer)
    if bid is None:
        return quoted
    step = float(bid.step_usd_gpu_hour) * priced_units(offer.gpu_count)
    wanted = max(quoted, (offer.min_bid_usd_hour or quoted) + step)
    ceiling = bid_ceiling_microusd(bid, offer.gpu_count, commission_rate, round(disk_usd_hour(offer) * MICRO)) / MICRO
    return max(quoted, min(wanted, ceiling))


def takes_bids(offer: Offer) -> bool:
    """Whether somebody who bids more gets its machine, as its provider stated just now."""
    return offer.spot and offer.min_bid_usd_hour is not None


def outbid_risks(
    quotes: Iterable[Quoted],
    watch: Watch | None,
    now: datetime,
    recorded: Callable[[Collection[Identity], int, int], Mapping[Identity, Sequence[RecordedBid]]],
) -> dict[Identity, OutbidRisk]:
    """Return what the first bid for each offer met at its machine.

    Args:
        watch: its bid; None: the quote.
        recorded: returns the bids of machines in a span of seconds since 1970.
    """
    spec = None if watch is None or watch.launch is None else watch.launch.bid
    bids = {
        one.offer.identity: microusd(repr(first_bid_usd_hour(one.offer, spec, one.price.commission_rate)))
        for one in quotes
    }
    until_s = int(now.timestamp())
    known = recorded(list(bids), until_s - RISK_DAYS * DAY_S, until_s) if bids else {}
    return {machine: outbid_risk(known.get(machine, ()), bid, until_s) for machine, bid in bids.items()}


def bid_ceiling_microusd(bid: BidSpec, gpu_count: int, commission_rate: float, disk_microusd: int) -> int:
    """Return the highest allowed bid in micro-dollars: `bid.max` without commission and disk."""
    most = Fraction(threshold_microusd(bid.max_usd_gpu_hour, gpu_count))
    return bid_for_price(most, commission_rate, disk_microusd)


def bid_for_price(most_microusd: Fraction, commission_rate: float, disk_microusd: int) -> int:
    """Return the bid whose total, with commission and disk, is at most this much."""
    listed = most_microusd / (1 + Fraction(repr(commission_rate)))
    return max(0, int(listed // 1) - disk_microusd)


def traffic_microusd_hour(watch: Watch, offer: ListedOffer) -> int:
    """Return the part of the price that is the watch's traffic, in micro-dollars an hour for the whole offer."""
    traffic = watch.traffic
    return 0 if traffic is None else traffic.microusd_hour(offer)


def traffic_note(price: OfferPrice, gpu_count: int) -> str:
    """Return how much of a GPU price is traffic, as an addition to it: " (traffic 0.10 of it)"; empty: nothing."""
    traffic = usd(price.traffic_microusd_hour) / priced_units(gpu_count)
    return f" (traffic {price_text(traffic)} of it)" if traffic else ""


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
    return min(most, threshold_microusd(usd_per_hour(watch.max_job_cost_usd, found.high.hours), 1))


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


def _limit_per_unit(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    limits = (
        ("usd_per_tflop_hour", watch.max_usd_tflop_hour, _tflops(offer)),
        ("usd_per_gib_hour", watch.max_usd_gib_hour, offer.gpu_memory_gib),
    )
    found = (_per_unit(clause, most, units, offer, price) for clause, most, units in limits if most is not None)
    return next(filter(None, found), None)


def _tflops(offer: Offer) -> float | None:
    specs = card_specs_of(offer.gpu)
    return None if specs is None else specs.fp16_tflops


def _per_unit(clause: str, most: Decimal, units: float | None, offer: Offer, price: OfferPrice) -> Failure | None:
    if not units:
        return Failure(clause, f"{clause}: unknown for {offer.gpu}")
    all_units = Decimal(repr(units)) * priced_units(offer.gpu_count)
    if price.price_microusd_hour <= most * all_units * MICRO:
        return None
    is_ = usd(price.price_microusd_hour) / all_units
    return Failure(clause, f"{clause}: {is_:.4g} > {most:f}", float(is_ / most) - 1 if most else FAR)


def _conditions(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    from gpuwatch.domain.watches.expression import holds, parse, why_not  # noqa: PLC0415 - few watches have one

    if watch.when is not None and not holds(parse(watch.when), offer, price):
        return Failure("when", f"when: {why_not(parse(watch.when), offer, price)}")
    conditions = [parse(text) for text in watch.any_of]
    if not conditions or any(holds(condition, offer, price) for condition in conditions):
        return None
    return Failure("any", f"any: {', and '.join(why_not(condition, offer, price) for condition in conditions)}")


def _reputation(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    least = watch.min_reputation
    if least is None:
        return None
    is_ = reputation(offer.reliability, machine_record_of(offer, watch.records))
    if is_ >= least:
        return None
    text = f"min_reputation: {is_:.3f} < {least:g} ({reputation_basis(watch, offer)})"
    return Failure("min_reputation", text, 1 - is_ / least)


def reputation_basis(watch: Watch, offer: Offer) -> str:
    """The data behind the reputation of an offer's machine."""
    record, shown = machine_record_of(offer, watch.records), offer.reliability
    said = "unknown" if shown is None else f"{shown:.4g}"
    return f"reliability {said}; your launches there: {record.good} succeeded, {record.bad} failed"


def _past(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    """`new_low`, `drop_by` and `percentile`, if the current limits are known."""
    if watch.past is None:
        return None
    if offer.kind is not OfferKind.LIVE:  # kinds of price are never mixed, and the limits are based on live prices
        clause = NEW_LOW if watch.new_low_s is not None else DROP_BY if watch.drop_by is not None else PERCENTILE
        return Failure(clause, f"{clause}: it is a list price, and only live prices are compared")
    # the GPU price as stored in the history: with a disk of that size, and with the offer's commission
    as_stored = price_of(offer, watch.past.disk_gb, Commission(repr(price.commission_rate)))
    is_ = as_stored.price_microusd_hour / priced_units(offer.gpu_count)
    limit = watch.past.unmet(offer, is_)
    if limit is None:
        return None
    if limit.microusd_gpu_hour is None:
        return Failure(limit.clause, f"{limit.clause}: {limit.basis}")
    text = f"{limit.clause}: ${price_text(usd(round(is_)), most=6)} is not {limit.how} {limit.basis}"
    return Failure(limit.clause, text, max(0.0, is_ / limit.microusd_gpu_hour - 1))


# clause → the fields of a watch of which one must be set for it to have an effect
RARE_CLAUSES: Mapping[Clause, tuple[str, ...]] = {
    _reputation: ("min_reputation",),
    _limit_per_unit: ("max_usd_tflop_hour", "max_usd_gib_hour"),
    _conditions: ("when", "any_of"),
    _past: ("past",),
}
