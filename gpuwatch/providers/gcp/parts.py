"""Google Cloud's machine types, and their prices as a sum of parts, computed from the SKUs of its price list. Pure.

There is no price of a machine. It is GPUs × their price + vCPUs × theirs + GiB × theirs, plus the built-in local SSD.
If a part has no price in a region, the machine has none there: a host without its GPUs is not a bargain.
source: the vendor's pages of GPU machine types and of the Cloud Billing Catalog API v1, and public readers of the list,
read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import at, number, objects, parse_utc, word

SLICE: Final = "slice"  # one part contains everything for one GPU


class GcpMachine(NamedTuple):
    """One machine type. `gpus` below 1: a fraction with `memory_gib`. `accelerator`, `host`: names of parts."""

    name: str
    gpu: str
    memory_gib: float
    gpus: float
    accelerator: str
    host: str
    vcpus: int
    ram_gib: float
    ssd_gib: float = 0.0
    on_demand: bool = True


def _a2() -> list[GcpMachine]:
    high = [GcpMachine(f"a2-highgpu-{n}g", "A100 SXM 40GB", 40, n, "a100", "a2", 12 * n, 85 * n) for n in (1, 2, 4, 8)]
    mega = GcpMachine("a2-megagpu-16g", "A100 SXM 40GB", 40, 16, "a100", "a2", 96, 1360)
    ultra = [
        GcpMachine(f"a2-ultragpu-{n}g", "A100 SXM 80GB", 80, n, "a100 80gb", "a2", 12 * n, 170 * n, 375 * n)
        for n in (1, 2, 4, 8)
    ]
    return [*high, mega, *ultra]


def _a3() -> list[GcpMachine]:
    # 1g to 4g have an on-demand price, but are sold only as spot
    high = [
        GcpMachine(f"a3-highgpu-{n}g", "H100 SXM", 80, n, "h100 80gb", "a3", 26 * n, 234 * n, 750 * n, n == 8)
        for n in (1, 2, 4, 8)
    ]
    mega = GcpMachine("a3-megagpu-8g", "H100 SXM", 80, 8, "h100 80gb mega", "a3plus", 208, 1872, 6000)
    ultra = GcpMachine("a3-ultragpu-8g", "H200 SXM", 141, 8, "h200 141gb", "a3ultra", 224, 2952, 12000, False)
    return [*high, mega, ultra]


def _g2() -> list[GcpMachine]:
    gpus = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
    return [GcpMachine(f"g2-standard-{n}", "L4", 24, count, "l4", "g2", n, 4 * n) for n, count in gpus.items()]


def _g4() -> list[GcpMachine]:
    ram = {6: 22, 12: 45, 24: 90, 48: 180, 96: 360, 192: 720, 384: 1440}
    return [
        GcpMachine(f"g4-standard-{n}", "RTX PRO 6000 Server", min(2.0 * n, 96), n / 48, "rtx 6000 96gb", "g4", n, gib)
        for n, gib in ram.items()
    ]


_A4: Final = GcpMachine("a4-highgpu-8g", "B200 SXM", 180, 8, "b200", SLICE, 224, 3968, 12000, False)
MACHINES: Final = {machine.name: machine for machine in (*_a2(), *_a3(), _A4, *_g2(), *_g4())}


_HOURS_A_MONTH: Final = 730.0  # source: the vendor's own definition of a month
_MAX_USD: Final = 1000.0  # of one part per hour
_RESTRICTED: Final = re.compile(
    r"(?i)commitment|reserved|sole tenancy|custom|premium|\bdws\b|calendar mode|flex|suspended|vgpu|vws|"
    r"virtual workstation|deprecated|discontinued|end of (?:sale|life)"
)
_GPU: Final = re.compile(r"(?i)(?:spot preemptible )?(?:nvidia )?(?:tesla )?(.{2,30}?)(?: gpu)? (?:running|attached)\b")
_HOST: Final = re.compile(r"(?i)(?:spot preemptible )?([a-z]\d[a-z]{0,5}) instance (core|ram)\b")
_SLICE: Final = re.compile(r"(?i)(?:spot preemptible )?a4 nvidia (b200) \(1 gpu slice\)")
_SSD: Final = re.compile(r"(?i)ssd backed local storage\b")
_GPU_ALIASES: Final = {"h100 80gb plus": "h100 80gb mega"}
_ACCELERATORS: Final = frozenset(one.accelerator for one in MACHINES.values() if one.host != SLICE)
_HOSTS: Final = frozenset(one.host for one in MACHINES.values() if one.host != SLICE)
_UNITS: Final = {"core": "h", "gpu": "h", SLICE: "h", "ram": "GiBy.h", "ssd": "GiBy.mo"}
_SPOT: Final = re.compile(r"(?i)\b(?:spot|preemptible)\b")
_USAGES: Final = {"OnDemand": False, "Preemptible": True}


class PricedPart(NamedTuple):
    """A priced part: ("gpu", "l4"), ("core", "g2"), ("ram", "g2"), ("ssd", ""), ("slice", "b200")."""

    kind: str
    name: str


PartPrices = dict[tuple[PricedPart, str, bool], float]  # (part, region, is spot) → USD an hour for one GPU, vCPU or GiB


def read_skus(page: object, prices: PartPrices, result: ParseResult, now: datetime | None = None) -> None:
    """Add the parts of machines with GPUs on one page; ignores other SKUs.

    Args:
        now: of several prices of a SKU the newest one in force by then counts; None: the last one.
    """
    for sku in objects(at(page, "skus")):
        description, spot = word(sku.get("description")), _USAGES.get(str(at(sku, "category", "usageType")))
        part = None if description is None or spot is None else part_of(description)
        if part is None or spot is None or description is None:
            continue
        result.rows += 1
        if (_SPOT.search(description) is not None) is not spot:
            result.skip("a SKU whose description and usage name different rental types")
            continue
        price = _price(sku, part, result, now)
        regions = sku.get("serviceRegions")
        if price is None:
            continue
        for region in regions if isinstance(regions, list) else ():
            name = word(region, 40)
            if name is not None:
                prices[part, name, spot] = max(price, prices.get((part, name, spot), 0.0))  # of two, the higher price


def part_of(description: str) -> PricedPart | None:
    """Return the part of a description; None: not a part of a machine with GPUs, or not sold to everyone."""
    if _RESTRICTED.search(description):
        return None
    if found := _SLICE.match(description):
        return PricedPart(SLICE, found[1].lower())
    if _SSD.match(description):
        return PricedPart("ssd", "")
    if (found := _HOST.match(description)) and found[1].lower() in _HOSTS:
        return PricedPart(found[2].lower(), found[1].lower())
    if found := _GPU.match(description):
        name = _GPU_ALIASES.get(found[1].lower(), found[1].lower())
        return PricedPart("gpu", name) if name in _ACCELERATORS else None
    return None


def machine_price(machine: GcpMachine, region: str, spot: bool, parts: PartPrices) -> float | None:
    """Return US dollars an hour of the whole machine; None: a part has no price there."""
    total = 0.0
    for part, amount in _bill_of_parts(machine):
        price = parts.get((part, region, spot))
        if price is None:
            return None
        total += amount * price
    return total


def regions_of(parts: PartPrices) -> list[str]:
    """Return every region that has a GPU price."""
    return sorted({region for part, region, _ in parts if part.kind in {"gpu", SLICE}})


def _bill_of_parts(machine: GcpMachine) -> list[tuple[PricedPart, float]]:
    if machine.host == SLICE:
        return [(PricedPart(SLICE, machine.accelerator), machine.gpus)]
    parts = [
        (PricedPart("gpu", machine.accelerator), machine.gpus),
        (PricedPart("core", machine.host), float(machine.vcpus)),
        (PricedPart("ram", machine.host), machine.ram_gib),
    ]
    return parts + ([(PricedPart("ssd", ""), machine.ssd_gib)] if machine.ssd_gib else [])


def _price(sku: Mapping[str, Any], part: PricedPart, result: ParseResult, now: datetime | None) -> float | None:
    """Return dollars an hour of one unit: the last tier, which has no discount or free allowance.

    `pricingInfo` is a timeline in chronological order: the newest price that is in force counts.
    """
    timeline = objects(sku.get("pricingInfo"))
    begun = [one for one in timeline if now is None or (parse_utc(one.get("effectiveTime")) or now) <= now]
    expression = begun[-1].get("pricingExpression") if begun else None
    tiers = objects(at(expression, "tieredRates"))
    price = _parse_money(at(tiers[-1], "unitPrice")) if tiers else None
    if price is None:
        result.skip("a SKU without a price")
        return None
    if at(expression, "usageUnit") != _UNITS[part.kind]:
        result.skip("a SKU in another unit")
        return None
    return price / _HOURS_A_MONTH if part.kind == "ssd" else price


def _parse_money(value: object) -> float | None:
    """Parse units (text) and billionths; None: not dollars, or not a plausible price of a part."""
    currency, units = at(value, "currencyCode"), number(at(value, "units") or 0, 0.0, _MAX_USD)
    nanos = number(at(value, "nanos") or 0, 0.0, 999_999_999)
    if currency not in (None, "USD") or units is None or nanos is None:
        return None
    return units + nanos / 1e9 or None
