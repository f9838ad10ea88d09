"""The audit of machines: how busy each GPU was, what its idle hours cost, and which smaller card would do. Pure.

A smaller card does the same work if it holds the peak of the memory, and if the GPU would not be busier than the upper
threshold on it. How much longer its kernels take is the larger ratio of the two data sheets' figures, 16-bit arithmetic
and memory bandwidth: the roofline (Williams et al., 2009), whose slower roof cannot be exceeded. That the work keeps
its share of either is assumed; a pilot on the smaller card proves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.plan.buy import UtilisationVerdict, UtilisedPrice, price_at_utilisation, utilisation_verdict
from gpuwatch.domain.plan.machines.gpu_reading import GpuReading
from gpuwatch.domain.plan.memory_need import RESERVE
from gpuwatch.domain.plan.roofline import has_fast_link, lacks_bf16

_MIB_A_GIB: Final = 1024.0
_PART: Final = 0.7  # under this share of a card's memory, AMD's driver shows a part of it; NVIDIA's shows whole cards
LEAST_SAMPLES: Final = 5  # below it, a peak of memory or use may well have been missed (assumed)


class MachineReading(msgspec.Struct, frozen=True, kw_only=True):
    """One machine at one moment. `error`: why it could not be read, one line; None: it was."""

    host: str
    at: datetime
    gpus: tuple[GpuReading, ...] = ()
    error: str | None = None


class SmallerCard(msgspec.Struct, frozen=True, kw_only=True):
    """A smaller card for the work of a GPU.

    Attributes:
        percent: how busy it would be.
        usd_gpu_hour: its lowest price on the market; None: unknown.
    """

    gpu: GpuSpecs
    percent: float
    usd_gpu_hour: Decimal | None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU over all readings.

    Attributes:
        gpu: canonical name, or the driver's if the catalogue lacks it.
        specs: None: the catalogue lacks it, its name does not identify the card, or it is a part of one.
        part: its share of the card: a die of an MI250X is 0.5.
        samples: readings with a utilisation.
        percent: mean of these; None: not measured.
        peak_percent: the highest of these.
        peak_mib: the most memory in use.
        usd_gpu_hour: its price; None: unknown.
        is_own_price: stated by the owner; False: the market's lowest of that GPU.
        smaller: smaller cards for its work, cheapest first, cards without a price last.
    """

    host: str
    index: int
    gpu: str
    specs: GpuSpecs | None
    samples: int
    percent: float | None
    peak_percent: float | None
    peak_mib: float | None
    total_mib: float | None
    is_split: bool
    part: float = 1.0
    usd_gpu_hour: Decimal | None = None
    is_own_price: bool = False
    verdict: UtilisationVerdict | None = None
    priced: UtilisedPrice | None = None
    smaller: tuple[SmallerCard, ...] = ()


class Thresholds(msgspec.Struct, frozen=True):
    """Utilisation in percent: under `low` something holds the GPU up, from `good` on it is well used."""

    low: float
    good: float


def gpu_uses(
    readings: Iterable[MachineReading],
    own_prices: Mapping[str, Decimal],
    market_prices: Mapping[str, Decimal],
    thresholds: Thresholds,
) -> list[GpuUse]:
    """Sum up the readings of each GPU, in the order of hosts and GPUs.

    Args:
        own_prices: host → USD per GPU-hour, as the owner states it.
        market_prices: GPU → lowest USD per GPU-hour.
    """
    series: dict[tuple[str, int], list[GpuReading]] = {}
    counts: dict[str, int] = {}
    for reading in readings:
        for index, gpu in enumerate(reading.gpus):
            series.setdefault((reading.host, index), []).append(gpu)
        counts[reading.host] = max(counts.get(reading.host, 0), len(reading.gpus))
    return [
        _priced(_use(host, index, found), own_prices.get(host), market_prices, thresholds, counts[host])
        for (host, index), found in series.items()
    ]


def _use(host: str, index: int, found: Sequence[GpuReading]) -> GpuUse:
    percents = [one.percent for one in found if one.percent is not None]
    used = [one.used_mib for one in found if one.used_mib is not None]
    total = found[-1].total_mib
    name = catalog().resolve(found[-1].name, None if total is None else total / _MIB_A_GIB)
    part = part_of_card(name.name, total)
    return GpuUse(
        host=host,
        index=index,
        gpu=name.name,
        specs=gpu_specs().get(name.name) if name.known and name.certain and part == 1.0 else None,
        part=part,
        samples=len(percents),
        percent=sum(percents) / len(percents) if percents else None,
        peak_percent=max(percents, default=None),
        peak_mib=max(used, default=None),
        total_mib=total,
        is_split=any(one.is_split for one in found),
    )


def _priced(
    use: GpuUse, own: Decimal | None, market: Mapping[str, Decimal], thresholds: Thresholds, count: int
) -> GpuUse:
    price = market_price(use.gpu, use.part, market) if own is None else own
    return msgspec.structs.replace(
        use,
        usd_gpu_hour=price,
        is_own_price=own is not None,
        verdict=None if use.percent is None else utilisation_verdict(use.percent, thresholds.low, thresholds.good),
        priced=None
        if price is None or use.percent is None
        else price_at_utilisation(price, use.percent, thresholds.low, thresholds.good),
        smaller=tuple(smaller_cards(use, market, thresholds.good, count)),
    )


def part_of_card(name: str, total_mib: float | None) -> float:
    """The share of its card that AMD's driver shows as one GPU: a die of an MI250X, a partition of an MI300X."""
    specs = gpu_specs().get(name)
    if specs is None or specs.vendor != "amd" or total_mib is None:
        return 1.0
    share = total_mib / _MIB_A_GIB / specs.memory_gib
    return share if share < _PART else 1.0


def market_price(name: str, part: float, prices: Mapping[str, Decimal]) -> Decimal | None:
    """The lowest price of a GPU, USD per hour: a part of a card costs its share."""
    whole = prices.get(name)
    return whole if whole is None or part == 1.0 else whole * Decimal(str(part))


def smaller_cards(
    use: GpuUse, market_prices: Mapping[str, Decimal], most_percent: float, count: int
) -> list[SmallerCard]:
    """Cards with less memory that hold the peak and stay at or under `most_percent`; none if anything is unknown.

    Args:
        count: GPUs of the machine: several that share a fast link are not replaced by cards without one.
    """
    own = use.specs
    if own is None or use.percent is None or use.peak_mib is None or not use.peak_mib:
        return []
    found = []
    for card in gpu_specs().values():
        slower = _times_slower(own, card)
        if slower is None or card.memory_gib >= own.memory_gib or not _replaces(own, card, count):
            continue
        percent = use.percent * max(slower, 1.0)
        if use.peak_mib / _MIB_A_GIB <= card.memory_gib * (1 - RESERVE) and percent <= most_percent:
            found.append(SmallerCard(gpu=card, percent=percent, usd_gpu_hour=market_prices.get(card.name)))
    return sorted(found, key=_rank)


def _replaces(own: GpuSpecs, card: GpuSpecs, count: int) -> bool:
    """Whether it runs the same programs: the maker's, in the same number formats, over a link as fast."""
    if card.vendor != own.vendor or not card.has_tensor_cores:
        return False
    if lacks_bf16(card.name) and not lacks_bf16(own.name):
        return False
    if own.datacenter_card and card.datacenter_card is False:  # a licence and a chassis may exclude it
        return False
    return count == 1 or not has_fast_link(own) or has_fast_link(card)


def _times_slower(own: GpuSpecs, card: GpuSpecs) -> float | None:
    if not (own.fp16_tflops and card.fp16_tflops and own.bandwidth_gb_s and card.bandwidth_gb_s):
        return None
    return max(own.fp16_tflops / card.fp16_tflops, own.bandwidth_gb_s / card.bandwidth_gb_s)


def _rank(card: SmallerCard) -> tuple[bool, Decimal, float, str]:
    return card.usd_gpu_hour is None, card.usd_gpu_hour or Decimal(0), card.gpu.memory_gib, card.gpu.name
