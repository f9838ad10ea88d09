"""Which class of GPU fits a task: large enough, fast enough, at the lowest cost. Pure.

Inference reads the weights once per token, so memory bandwidth bounds the time per token; training is bound by
arithmetic (the roofline model, Williams et al. 2009). So training is ranked by dollars per TFLOP-hour, inference by
hourly price among the classes that hold the model and are fast enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_comparison import MarketPrice, PriceFloors
from gpuwatch.domain.plan.job_hours import BANDWIDTH_REACHED
from gpuwatch.domain.plan.memory_need import GIB_GB, cards_for
from gpuwatch.domain.plan.roofline import card_specs_of
from gpuwatch.domain.plan.throughput import JobSpeed

FIT_METHOD_TEXT: Final = (
    "per class the cheapest offer that holds the task with 10 % of each card left free; ms/token: by published "
    "measurements, as in plan job; for --vram by what is read at the bandwidth that they reach; TFLOPS: dense 16-bit"
)
_NO_BF16 = frozenset({"Volta", "Turing"})
_DROPPED = frozenset({"Kepler", "Maxwell"})  # no longer supported by CUDA 12 and 13


class GpuTask(StrEnum):
    """What the GPU is for."""

    TRAINING = "training"
    INFERENCE = "inference"
    ANY = "any"


class LatencyClass(StrEnum):
    """The acceptable time until the next token of one stream."""

    REALTIME = "realtime"
    INTERACTIVE = "interactive"
    BATCH = "batch"


TOKEN_S: Final[Mapping[LatencyClass, float | None]] = MappingProxyType(
    {
        LatencyClass.REALTIME: 0.02,  # 50 tokens a second: speech, agents that wait for each other
        LatencyClass.INTERACTIVE: 0.1,  # 10 tokens a second: faster than a person reads
        LatencyClass.BATCH: None,
    }
)


class CostMeasure(StrEnum):
    """The measure of "cheapest"."""

    HOUR = "hour"
    MEMORY = "memory"
    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"


class PricedClass(msgspec.Struct, frozen=True, kw_only=True):
    """One or more GPUs at an hourly price, commission included. `high_usd_hour`: the upper end of a range."""

    gpu: str
    cards: int
    usd_hour: Decimal
    high_usd_hour: Decimal | None = None
    provider: str | None = None
    spot: bool = False
    listed: bool = False  # from a price list, which is never implausibly cheap
    reliability: float | None = None
    memory_gib: float | None = None  # of one card, as the offer states it
    any_number: bool = False  # the price per card applies to any number

    def of(self, cards: int) -> PricedClass:
        """The price of this many cards, if it is available."""
        if not self.any_number:
            return self
        high = None if self.high_usd_hour is None else self.high_usd_hour * cards
        return msgspec.structs.replace(self, cards=cards, usd_hour=self.usd_hour * cards, high_usd_hour=high)


class TaskNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements of a task."""

    task: GpuTask = GpuTask.ANY
    vram_gb: float = 0.0  # total memory that the task uses
    read_gb: float | None = None  # the part that is read per token; None: all
    token_s: float | None = None  # maximum time per token, in the best case: the real speed must be measured
    speed: JobSpeed | None = None  # for a named model; None: computed from the memory read per token
    reached: FigureRange = BANDWIDTH_REACHED  # share of the data sheet's bandwidth
    any_link: bool = False  # several cards do not need NVLink between them
    max_cards: int = 8


class ClassChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest offer of a class that fits."""

    gpu: GpuSpecs  # if the name does not identify the card, the weakest figures
    priced: PricedClass
    needed: int  # cards that the task requires
    offers: int  # number of fitting offers of this class
    token_s: FigureRange | None  # time per token of one sequence; None: no inference, or unknown
    too_cheap: bool = False  # implausible, as are all fitting offers of this class

    @property
    def usd_hour(self) -> Decimal:
        """The price of the whole offer; the middle of a range."""
        high = self.priced.high_usd_hour
        return self.priced.usd_hour if high is None else (self.priced.usd_hour + high) / 2

    def per(self, by: CostMeasure) -> Decimal | None:
        """Dollars per hour, or per GB, TFLOP or TB/s and hour; None: not on the data sheet."""
        if by is CostMeasure.HOUR:
            return self.usd_hour
        unit = {
            CostMeasure.MEMORY: self.gpu.memory_gib * GIB_GB,
            CostMeasure.COMPUTE: self.gpu.fp16_tflops,
            CostMeasure.BANDWIDTH: None if self.gpu.bandwidth_gb_s is None else self.gpu.bandwidth_gb_s / 1000,
        }[by]
        return self.usd_hour / (Decimal(repr(unit)) * self.priced.cards) if unit else None


class RankedClasses(msgspec.Struct, frozen=True, kw_only=True):
    """The fitting classes, best first, and why the others do not fit."""

    choices: tuple[ClassChoice, ...]
    left_out: Mapping[str, tuple[str, ...]]  # reason → GPUs
    by: CostMeasure

    def best(self, by: CostMeasure) -> ClassChoice | None:
        """The cheapest class by another measure, preferring plausible prices."""
        known = [(value, choice) for choice in self.choices if (value := choice.per(by)) is not None]
        return min(known, key=lambda pair: (pair[1].too_cheap, pair[0]))[1] if known else None


def default_measure(task: GpuTask) -> CostMeasure:
    """Training is measured by compute, all other tasks by the hour."""
    return CostMeasure.COMPUTE if task is GpuTask.TRAINING else CostMeasure.HOUR


def floors_of(prices: Iterable[PricedClass]) -> PriceFloors:
    """The price below which an offer is implausibly cheap."""
    return PriceFloors(_market_price(price) for price in prices if not price.listed)


def is_too_cheap(one: PricedClass, floors: PriceFloors) -> bool:
    """Is it far below the other prices of its GPU?"""
    return not one.listed and floors.is_too_cheap(_market_price(one))


def _market_price(one: PricedClass) -> MarketPrice:
    specs = card_specs_of(one.gpu)
    return MarketPrice(one.gpu, specs.family if specs else one.gpu, one.spot, float(one.usd_hour / one.cards))


def rank_classes(
    needs: TaskNeeds,
    priced: Iterable[PricedClass],
    by: CostMeasure | None = None,
    floors: PriceFloors | None = None,
) -> RankedClasses:
    """For each class the cheapest fitting offer per hour; classes are sorted by `by`, implausible prices last.

    Args:
        floors: None: all prices are plausible.
    """
    wanted = by or default_measure(needs.task)
    classes: dict[str, list[PricedClass]] = {}
    for one in priced:
        classes.setdefault(one.gpu, []).append(one)
    found: list[ClassChoice] = []
    left_out: dict[str, list[str]] = {}
    for name, offers in sorted(classes.items()):
        got = _choice(needs, card_specs_of(name), offers, floors or PriceFloors(()))
        if isinstance(got, ClassChoice):
            found.append(got)
        else:
            left_out.setdefault(got, []).append(name)
    found.sort(
        key=lambda choice: (
            choice.too_cheap,
            choice.per(wanted) is None,
            choice.per(wanted) or 0,
            choice.usd_hour,
            choice.gpu.name,
        )
    )
    return RankedClasses(
        choices=tuple(found), left_out={why: tuple(names) for why, names in left_out.items()}, by=wanted
    )


def _choice(
    needs: TaskNeeds, gpu: GpuSpecs | None, offers: Sequence[PricedClass], floors: PriceFloors
) -> ClassChoice | str:
    """The cheapest fitting offer, or why none fits."""
    if gpu is None:
        return "not in our data sheets"
    if needs.task is not GpuTask.ANY and gpu.architecture in _DROPPED:
        return "too old for current CUDA"
    if needs.task is GpuTask.TRAINING and not gpu.has_tensor_cores:
        return "no Tensor cores"
    needed = cards_needed(needs, gpu)
    if needed is None:
        return "bandwidth unknown" if gpu.bandwidth_gb_s is None else "does not hold it"
    if needed > needs.max_cards:
        return f"more than {needs.max_cards} cards"
    if needs.task is GpuTask.TRAINING and needed > 1 and not (gpu.nvlink or needs.any_link):
        return "several cards without NVLink"
    fitting = [one for offer in offers if needed <= (one := offer.of(needed)).cards <= needs.max_cards]
    if not fitting:
        return "no offer with that many cards"
    cheapest = min(fitting, key=lambda one: (is_too_cheap(one, floors), one.usd_hour, one.cards))
    return ClassChoice(
        gpu=gpu,
        priced=cheapest,
        needed=needed,
        offers=len(fitting),
        token_s=token_time_s(needs, gpu, cheapest.cards),
        too_cheap=is_too_cheap(cheapest, floors),
    )


def cards_needed(needs: TaskNeeds, gpu: GpuSpecs) -> int | None:
    """The number of cards that hold the task and are fast enough; None: no number is enough, or it is unknown."""
    held = max(1, cards_for(needs.vram_gb, gpu.memory_gib)) if needs.vram_gb else 1
    if needs.vram_gb and not cards_for(needs.vram_gb, gpu.memory_gib):
        return None
    if needs.token_s is None:
        return held
    if token_time_s(needs, gpu, 1) is None:
        return None
    return next(
        (cards for cards in range(held, needs.max_cards + 1) if _is_quick(needs, gpu, cards)), needs.max_cards + 1
    )


def _is_quick(needs: TaskNeeds, gpu: GpuSpecs, cards: int) -> bool:
    found = token_time_s(needs, gpu, cards)
    return found is not None and needs.token_s is not None and round(found.low, 9) <= needs.token_s


def token_time_s(needs: TaskNeeds, gpu: GpuSpecs, cards: int) -> FigureRange | None:
    """Best and worst time per token of one sequence. None: no inference, or unknown.

    For a named model from the published measurements; otherwise the memory read at the reached bandwidth, with the
    cards in parallel.
    """
    if needs.task is not GpuTask.INFERENCE:
        return None
    if needs.speed is not None:
        found = needs.speed.on(gpu.name, cards)
        if found is None:
            return None
        batch, span = needs.speed.task.batch, found.tokens_per_s
        return FigureRange(batch / span.high, batch / span.low)
    read = needs.vram_gb if needs.read_gb is None else needs.read_gb
    if gpu.bandwidth_gb_s is None or not read:
        return None
    each_s = read / (gpu.bandwidth_gb_s * cards)
    return FigureRange(each_s / needs.reached.high, each_s / needs.reached.low)


def remarks(needs: TaskNeeds, gpu: GpuSpecs) -> list[str]:
    """Remarks on a card besides its price."""
    found = ["FP16 only, no BF16"] if needs.task is GpuTask.TRAINING and gpu.architecture in _NO_BF16 else []
    if gpu.nvlink:
        found.append("NVLink")
    if gpu.name not in gpu_specs():
        found.append("card not specified: the weakest counts")
    return found


def price_ratio(one: PricedClass, other: PricedClass) -> tuple[Decimal, Decimal]:
    """The price ratio of two GPUs: low to low, high to high; the lower ratio first."""
    low = (one.usd_hour / one.cards) / (other.usd_hour / other.cards)
    dear, dear_other = one.high_usd_hour or one.usd_hour, other.high_usd_hour or other.usd_hour
    high = (dear / one.cards) / (dear_other / other.cards)
    return min(low, high), max(low, high)
