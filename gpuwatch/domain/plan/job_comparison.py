"""Compares offers, and hardware at a stated price, by the cost of a whole job on them. Pure.

Implausibly cheap prices are ranked apart: far below the others of the same GPU, a price is often a mistake, a trap, or
a machine that fails. It is judged by the whole market: which offers can run the job does not change the normal price of
a GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from statistics import quantiles
from typing import Final, NamedTuple

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, OfferPrice, microusd
from gpuwatch.domain.market.offer import Offer, OfferKind, is_slice
from gpuwatch.domain.plan.figures import FigureRange, GpuAllocation, exactly, parse_gpu_config
from gpuwatch.domain.plan.job_hours import JobSpec
from gpuwatch.domain.plan.job_total import JobBill, JobCost, JobTraffic, PricedGpus, cost_on, priced_gpus_of
from gpuwatch.domain.plan.roofline import card_specs_of, joined_cards, mixed_warning, peak_flops
from gpuwatch.domain.setup.durations import HOUR_S

TOO_CHEAP: Final = 0.5  # share of the lower quartile
TOO_CHEAP_TEXT: Final = (
    "too cheap: under half of the lower quartile of that GPU's prices; a mistake, a trap, or a failing machine "
    "(any_price includes it)"
)
_LEAST_OFFERS: Final = 5  # needed for a quartile

LIKELY = 0.5  # chance to finish, below which an offer is ranked last

_FORM = re.compile(
    r"(?P<gpus>[^@]+?)\s*@\s*\$?(?P<usd>[0-9]{1,6}(?:\.[0-9]{1,9})?)"
    r"(?:\s+(?:for\s+)?(?P<low>[0-9.]{1,12})(?:h?-(?P<high>[0-9.]{1,12}))?\s*h(?:ours)?)?",
    re.IGNORECASE,
)
_MINUTES = re.compile(r".*\s(?P<minutes>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*m(?:in|inutes)?", re.IGNORECASE)
_EXPECTED = 'expected cards at a price per GPU-hour, such as "4x A100 @ 1.20" or "4x A100 @ 1.20 for 72h"'


class MarketPrice(NamedTuple):
    """A price per GPU-hour, in any common unit."""

    gpu: str
    family: str
    spot: bool
    gpu_hour: float


_Key = Callable[[MarketPrice], tuple[tuple[str, bool], float | None]]


class PriceFloors:
    """Compares a price with the lower quartile of its GPU; with few offers, of its family, then of all GPUs per FLOP/s.

    The median is unsuitable: clouds sell the same card with many processors at several times the price.
    """

    def __init__(self, market: Iterable[MarketPrice]) -> None:
        seen = list(market)
        self._floors = [(key, _group_floors(seen, key)) for key in (_by_gpu, _by_family, _by_compute)]

    def is_too_cheap(self, one: MarketPrice) -> bool:
        """Is it below the floor of the nearest group that has enough offers?"""
        for key, least in self._floors:
            group, value = key(one)
            if group in least and value is not None:
                return value < least[group]
        return False


def _group_floors(seen: Iterable[MarketPrice], key: _Key) -> dict[tuple[str, bool], float]:
    groups: dict[tuple[str, bool], list[float]] = {}
    for price in seen:
        group, value = key(price)
        if value is not None:
            groups.setdefault(group, []).append(value)
    enough = {group: found for group, found in groups.items() if len(found) >= _LEAST_OFFERS}
    return {group: quantiles(found, n=4, method="inclusive")[0] * TOO_CHEAP for group, found in enough.items()}


def _by_gpu(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    return (one.gpu, one.spot), one.gpu_hour


def _by_family(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    return (one.family, one.spot), one.gpu_hour


def _by_compute(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    flops = peak_flops(one.gpu, fp8=False)
    return ("", one.spot), one.gpu_hour / flops if flops else None


# --- offers -----------------------------------------------------------------------------------------------------------


class JobOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer with the cost of the job on it.

    Attributes:
        too_cheap: far below the other offers of its GPU: a mistake, a trap, or a machine that fails.
        chance: probability that the machine runs to the end of the job (or of a checkpoint interval); None: unknown.
    """

    offer: Offer
    price: OfferPrice
    cost: JobCost
    too_cheap: bool = False
    chance: float | None = None

    @property
    def is_unlikely(self) -> bool:
        """Is the machine more likely to fail than to finish the job?"""
        return self.chance is not None and self.chance < LIKELY

    @property
    def is_doubtful(self) -> bool:
        """Is it ranked after the others?"""
        return self.too_cheap or self.is_unlikely


class Feasibility(StrEnum):
    """Whether a job stays within a limit, in the best and in the worst case."""

    FEASIBLE = "feasible"
    UNCERTAIN = "uncertain"
    NOT_FEASIBLE = "not feasible"


def feasibility(cost: JobCost, max_usd: float | None, within_s: float | None = None) -> Feasibility:
    """Check a job against limits of cost and time (None: no limit): met at worst, only at best, or not at all."""
    if _is_within(cost.high, max_usd, within_s):
        return Feasibility.FEASIBLE
    return Feasibility.UNCERTAIN if _is_within(cost.low, max_usd, within_s) else Feasibility.NOT_FEASIBLE


def _is_within(bill: JobBill, max_usd: float | None, within_s: float | None) -> bool:
    if max_usd is not None and bill.microusd > max_usd * MICRO:
        return False
    return within_s is None or bill.hours * HOUR_S <= within_s * (1 + 1e-9)


class JobRanking(msgspec.Struct, frozen=True, kw_only=True):
    """Offers by cost of the job in the worst case, cheapest first, doubtful offers last.

    `refused`: the number of unsuitable offers by reason. `late`: those that are in time only in the best case.
    """

    placed: tuple[JobOffer, ...]
    refused: tuple[tuple[str, int], ...] = ()  # most frequent first
    late: tuple[JobOffer, ...] = ()

    @property
    def seen(self) -> int:
        """Number of offers considered."""
        return len(self.placed) + sum(count for _, count in self.refused)


def rank_offers(
    job: JobSpec,
    offers: Sequence[tuple[Offer, OfferPrice]],
    traffic: JobTraffic,
    disk_gb: float | None = None,
    *,
    any_price: bool = False,
) -> JobRanking:
    """Rank the offers that can do the job, and count the reasons against the others.

    Args:
        any_price: treat all prices as plausible.
    """
    placed, late, refused = [], [], Counter[str]()
    floors = PriceFloors(()) if any_price else _floors_of_market(offers)
    untimed = msgspec.structs.replace(job, within_s=None)
    for offer, price in offers:
        cost = _cost(untimed, offer, price, traffic, disk_gb)
        if isinstance(cost, str):
            refused[cost] += 1
            continue
        found = JobOffer(
            offer=offer,
            price=price,
            cost=cost,
            too_cheap=offer.kind is not OfferKind.LISTED and floors.is_too_cheap(_market_price(offer, price)),
            chance=_chance(job, offer, cost),
        )
        in_time = feasibility(cost, None, job.within_s)
        if in_time is Feasibility.FEASIBLE:
            placed.append(found)
            continue
        may = "may take" if in_time is Feasibility.UNCERTAIN else "takes"
        refused[f"it {may} longer than {(job.within_s or 0) / HOUR_S:,.4g} h"] += 1
        if in_time is Feasibility.UNCERTAIN:
            late.append(found)
    placed.sort(key=_rank)
    return JobRanking(placed=tuple(placed), refused=tuple(refused.most_common()), late=tuple(sorted(late, key=_rank)))


def _chance(job: JobSpec, offer: Offer, cost: JobCost) -> float | None:
    """Reliability counts as the probability to run for a day (assumed); at most the work since a checkpoint is lost."""
    if offer.reliability is None:
        return None
    hours = cost.high.hours if job.checkpoint_s is None else min(cost.high.hours, job.checkpoint_s / HOUR_S)
    return float(max(offer.reliability, 0.0) ** (hours / 24))


def _rank(one: JobOffer) -> tuple[bool, int, int, str, str]:
    return one.is_doubtful, one.cost.microusd, one.cost.low.microusd, one.offer.provider, one.offer.offer_id


def _floors_of_market(offers: Iterable[tuple[Offer, OfferPrice]]) -> PriceFloors:
    """The floors of the rentable offers, whether the job fits them or not. Price lists do not count."""
    return PriceFloors(
        _market_price(offer, price)
        for offer, price in offers
        if offer.kind is OfferKind.LIVE and offer.rentable and not offer.terms.prepaid and not is_slice(offer)
    )


def _market_price(offer: Offer, price: OfferPrice) -> MarketPrice:
    return MarketPrice(offer.gpu, offer.gpu_family, offer.spot, price.price_microusd_hour / offer.gpu_count)


def _cost(job: JobSpec, offer: Offer, price: OfferPrice, traffic: JobTraffic, disk_gb: float | None) -> JobCost | str:
    if is_slice(offer):
        return "slices of a GPU"
    if offer.kind is OfferKind.HISTORY or not offer.rentable:
        return "not for rent now"
    if offer.terms.prepaid:
        return "prepaid for a term"
    if disk_gb is not None and offer.disk_free_gb is not None and offer.disk_free_gb < disk_gb:
        return f"less than {disk_gb:g} GB of free disk"
    cost = cost_on(job, priced_gpus_of(offer, price, disk_gb), traffic)
    until = offer.available_until
    if until is not None and isinstance(cost, JobCost) and _ends_after(offer.observed_at, cost, until):
        return "the host reclaims the machine before the job ends"
    return cost


def _ends_after(begins: datetime, cost: JobCost, until: datetime) -> bool:
    return begins + timedelta(hours=cost.high.hours) > until


# --- hardware named by the owner --------------------------------------------------------------------------------------


class PlannedHardware(msgspec.Struct, frozen=True, kw_only=True):
    """Cards at a price per GPU-hour. `hours` None: computed from the job."""

    text: str
    on: GpuAllocation
    usd_gpu_hour: Decimal
    hours: FigureRange | None = None
    kinds: tuple[str, ...] = ()  # of cards that work together, slowest first; empty: one kind

    @property
    def warning(self) -> str | None:
        """What cards of several kinds cost their owner; None: they are of one kind."""
        return mixed_warning(self.text, self.count, self.kinds[0]) if self.kinds else None

    @property
    def count(self) -> int:
        """The number of cards; 1 if not given."""
        return self.on.count or 1


class HardwareExtras(msgspec.Struct, frozen=True, kw_only=True):
    """Properties that an offer would state, the same for all candidates."""

    commission: Decimal = Decimal(0)
    spot: bool = False
    disk_usd_hour: Decimal = Decimal(0)
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    min_billing_s: float = 0.0


class ComparedHardware(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with the cost of the job on it. `break_even`: the speed relative to the first at equal cost."""

    candidate: PlannedHardware
    priced_gpus: PricedGpus
    cost: JobCost
    break_even: float
    speed: FigureRange  # estimated speed relative to the first candidate


def parse_hardware(text: str) -> PlannedHardware:
    """Parse a candidate: cards at a price, or several kinds of cards, each at its price. Raises ValueError."""
    kinds = text.split("+")
    if len(kinds) > 1:
        return _mixed(text.strip(), [_one_kind(kind) for kind in kinds])
    return _one_kind(text)


def _mixed(text: str, kinds: Sequence[PlannedHardware]) -> PlannedHardware:
    """Cards of several kinds: each step waits for the slowest of them, and each card counts as the weakest."""
    on, names = joined_cards(text, [kind.on for kind in kinds])
    count = on.count or 1
    hours = [kind.hours for kind in kinds if kind.hours is not None]
    if len(set(hours)) > 1:
        raise ValueError(f"{text!r}: the cards work together: state the hours once")
    return PlannedHardware(
        text=text,
        on=on,
        usd_gpu_hour=sum((kind.usd_gpu_hour * kind.count for kind in kinds), Decimal(0)) / count,
        hours=hours[0] if hours else None,
        kinds=names if len(names) > 1 else (),
    )


def _one_kind(text: str) -> PlannedHardware:
    found = _FORM.fullmatch(text.strip())
    if found is None or not Decimal(found["usd"]):
        minutes = _MINUTES.fullmatch(text.strip())
        hint = "" if minutes is None else f"; hours only: {float(minutes['minutes']) / 60:.3g}h"
        raise ValueError(f"{text.strip()!r}: {_EXPECTED}{hint}")
    hours = None
    if found["low"]:
        hours = _hours(found["low"], found["high"] or found["low"])
    return PlannedHardware(
        text=text.strip(), on=parse_gpu_config(found["gpus"]), usd_gpu_hour=Decimal(found["usd"]), hours=hours
    )


def compare_hardware(
    job: JobSpec, candidates: Sequence[PlannedHardware], traffic: JobTraffic, extras: HardwareExtras
) -> list[ComparedHardware]:
    """Compare candidates with the first one, in the given order. Raises ValueError: a cost cannot be computed."""
    found: list[ComparedHardware] = []
    for candidate in candidates:
        priced_gpus = priced_gpus_of_plan(candidate, job, extras)
        cost = cost_on(msgspec.structs.replace(_with_hours(job, candidate), within_s=None), priced_gpus, traffic)
        if isinstance(cost, str):
            raise ValueError(f"{candidate.text!r}: {cost}")  # noqa: TRY004 - the cost is a text that states why
        first = found[0] if found else None
        speed = exactly(1.0) if first is None else _speed(first.cost, cost)
        even = 1.0 if first is None else priced_gpus.microusd_hour / first.priced_gpus.microusd_hour
        found.append(
            ComparedHardware(candidate=candidate, priced_gpus=priced_gpus, cost=cost, break_even=even, speed=speed)
        )
    return found


def priced_gpus_of_plan(one: PlannedHardware, job: JobSpec, extras: HardwareExtras) -> PricedGpus:
    """A candidate in the form of an offer."""
    name, factor = one.on.gpus[0], 1 + extras.commission
    specs = card_specs_of(name) if one.kinds else gpu_specs().get(name)
    return PricedGpus(
        gpu=name,
        count=one.count,
        memory_gib=None if specs is None else specs.memory_gib,
        microusd_hour=microusd((one.usd_gpu_hour * one.count + extras.disk_usd_hour) * factor),
        disk_microusd_hour=float(extras.disk_usd_hour * factor * MICRO),
        can_be_interrupted=extras.spot,
        download_mbps=job.download_mbps,
        download_usd_gb=extras.download_usd_gb,
        upload_usd_gb=extras.upload_usd_gb,
        min_billing_s=extras.min_billing_s,
    )


def _with_hours(job: JobSpec, one: PlannedHardware) -> JobSpec:
    if one.hours is None:
        return job
    return msgspec.structs.replace(job, hours=one.hours, on=None, tokens=None)


def _speed(first: JobCost, other: JobCost) -> FigureRange:
    low, high = first.low.work_h / other.low.work_h, first.high.work_h / other.high.work_h
    return FigureRange(min(low, high), max(low, high))


def _hours(low: str, high: str) -> FigureRange:
    try:
        found = FigureRange(float(low), float(high))
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if not 0 < found.low <= found.high:
        raise ValueError("expected hours above 0, the lower figure first")
    return found
