"""Vultr's plans, with whole GPUs or without any: parsed, and the offers of a plan where it is in stock. Pure.

source: as the adapter's; of plans without GPUs, a list of 2025-12-18 that a public repository shows with every field.
Bare metal uses other requests and is not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import NO_GPU, Offer
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_cloud import COUNTRY
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, stated, unknown_name
from gpuwatch.providers.toolkit.validation import at, matched, number, objects, usd_hour, whole, word
from gpuwatch.providers.vultr import PROVIDER

_CLOUD, _DEDICATED = "vcg", "vdm"  # Cloud GPU: parts and whole GPUs; Dedicated Metal: whole GPUs
_CPU_TYPES: Final = ("vc2", "vdc", "vhf", "vhp", "voc", "vx1")  # machines without GPUs
_NO_HARDWARE: Final = {"gpu_wire": NO_GPU, "gpu_count": 0, "gpu_memory_gib": None}
_ANY_TYPE: Final = ""  # of stock: without a type, a place answers for all. source: the vendor's command line, 2025-11
_NO_IPV4: Final = "-v6"  # of a plan's name: its machines have no address that an order could reach
_PLAN: Final = re.compile(r"v[a-z0-9]{2}-[a-z0-9.-]{1,40}")
_PLACE: Final = re.compile(r"[a-z]{3,8}")
OFFER_ID: Final = re.compile(rf"({_PLAN.pattern})/({_PLACE.pattern})")
_MEMORY_GB: Final = {"A100": 80.0}  # source: gpuhunt; the name alone is ambiguous
_MEMORY_TOLERANCE: Final = 0.1  # of a card's memory: 80 GB may be stated as 79
# The model, number and GB of one GPU of the plans of type `vdm`, which state no GPU. The memory in a name is that of
# all GPUs, but does not prove their number: `vcg-mi325x-252c-2872g-1536vram` has 8 GPUs according to one public reader
# and 6 according to another, so it is not here.
# source: two public readers of the list (gpuhunt, sc-crawler), read 2026-11; they agree on every plan here
DEDICATED_PLANS: Final[Mapping[str, tuple[str, int, float]]] = {
    "vcg-a16-6c-64g-16vram": ("A16", 1, 16.0),
    "vcg-a16-96c-878g-256vram": ("A16", 16, 16.0),
    "vcg-a16-96c-960g-256vram": ("A16", 16, 16.0),
    "vcg-a40-24c-120g-48vram": ("A40", 1, 48.0),
    "vcg-a40-96c-480g-192vram": ("A40", 4, 48.0),
    "vcg-a100-12c-120g-80vram": ("A100", 1, 80.0),
    "vcg-a100-96c-896g-320vram": ("A100", 4, 80.0),
    "vcg-a100-96c-960g-640vram": ("A100", 8, 80.0),
    "vcg-h100-216c-1914gb-640vram": ("H100", 8, 80.0),
    "vcg-b200-248c-2826g-1536vram": ("B200", 8, 192.0),
    "vcg-mi355x-252c-2872g-2304vram": ("MI355X", 8, 288.0),
}
Stock = Mapping[tuple[str, str], frozenset[str]]  # (type, place) → plans that can be ordered there


class VultrPlan(MachineType, frozen=True, kw_only=True):
    """One parsed plan. Prices are of the whole machine, including its disk; `usd_hours`: places with another price."""

    name: str
    type: str
    usd_hour: float
    usd_hours: Mapping[str, float]
    places: tuple[str, ...]

    @property
    def is_cpu(self) -> bool:
        """Whether its machines have no GPU."""
        return self.gpu_count == 0

    def price_at(self, place: str) -> float:
        """Return USD an hour in one place."""
        return self.usd_hours.get(place, self.usd_hour)


def stock_queries(plans: list[VultrPlan], regions: list[Any]) -> list[tuple[str, str]]:
    """Return the pairs of type and place to request. A dedicated plan names no places, so all are requested."""
    every_place = [row["id"] for row in objects(regions) if isinstance(row.get("id"), str)]
    found = set[tuple[str, str]]()
    for plan in plans:
        places = [*plan.places, *every_place] if plan.type == _DEDICATED else plan.places
        kind = _ANY_TYPE if plan.is_cpu else plan.type  # of these there are many types, in every place
        found.update((kind, place) for place in places if _PLACE.fullmatch(place))
    return sorted(found)


def countries_of(rows: list[Any]) -> dict[str, str]:
    """Return place → country, as far as it is stated."""
    return {str(row.get("id")): found for row in objects(rows) if (found := matched(row.get("country"), COUNTRY))}


def parse_plans(
    rows: list[Any], now: datetime | None = None, *, cpu: bool = False
) -> tuple[ParseResult, list[VultrPlan]]:
    """Parse the plans with whole GPUs, and those without any, that are not announced to end by `now`.

    Args:
        cpu: skipped rows are counted of plans without GPUs; else of those with GPUs.

    Raises:
        PayloadChanged: none of the counted plans is readable, or the list is empty: it contains sold-out plans, too.
    """
    plans: list[VultrPlan] = []

    def read(row: Any, _result: ParseResult) -> bool:
        try:
            plan = parse_plan(row)
        except RowSkipped:
            if _is_other_sort(row, cpu=cpu):
                return False
            raise
        plans.extend([plan] if plan else [])
        return plan is not None and plan.is_cpu is cpu

    return read_types(rows, PROVIDER, read, now), plans


def parse_plan(row: object) -> VultrPlan | None:
    """Parse one plan; None: a part of a GPU, or not orderable on demand. Raises RowSkipped: unreadable."""
    if not isinstance(row, dict):
        raise RowSkipped("no plan")
    if row.get("deploy_ondemand") is False:
        return None  # without on demand, `hourly_cost` is no price that anybody can get
    if not (has_gpus := _has_gpus(row)) and not _is_for_rent(row):
        return None
    name = stated(matched(row.get("id"), _PLAN), "no name")
    if not isinstance(places := row.get("locations"), list):
        raise RowSkipped("no list of places")
    if (hardware := _hardware(row, name) if has_gpus else _NO_HARDWARE) is None:
        return None
    ram_mib = number(row.get("ram"), 1, 1e9)
    return VultrPlan.of(
        **hardware,
        name=name,
        type=str(row.get("type")),
        usd_hour=stated(usd_hour(row.get("hourly_cost")), "no usable price"),
        usd_hours=_prices_by_place(row.get("location_cost")),
        places=tuple(place for place in places if matched(place, _PLACE)),
        vcpu=number(row.get("vcpu_count"), 1, 10_000),
        ram_gib=None if ram_mib is None else round(ram_mib / 1024, 1),
        disk_gb=number(row.get("disk"), 1, 1e7),
    )


def _has_gpus(row: Mapping[str, Any]) -> bool:
    """Whether the type is one with GPUs. Raises RowSkipped: it is a new one, and the plan has GPUs."""
    kind = stated(row.get("type"), "no type of the plan")
    if kind in (_CLOUD, _DEDICATED):
        return True
    if _states_no_gpu(row):
        return False
    raise unknown_name("a plan with GPUs of a type that is not known", kind)


def _states_no_gpu(row: Mapping[str, Any]) -> bool:
    return word(row.get("gpu_type")) is None and str(row.get("gpu_brand") or "").casefold() in ("none", "")


def _is_other_sort(row: object, *, cpu: bool) -> bool:
    """Whether a row is surely none of those that are wanted: with GPUs, or (`cpu`) without any."""
    if not isinstance(row, dict):
        return False
    kind = row.get("type")
    return kind in (_CLOUD, _DEDICATED) if cpu else kind in _CPU_TYPES and _states_no_gpu(row)


def _is_for_rent(row: Mapping[str, Any]) -> bool:
    """Whether an order of this plan without GPUs alone is enough: not of a free one, or of one without a disk."""
    is_known = row.get("type") in _CPU_TYPES and not str(row.get("id")).endswith(_NO_IPV4)
    return is_known and row.get("disk") != 0 and row.get("hourly_cost") != 0


def _hardware(row: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the GPUs of a plan as fields of its type; None: a part of one. Raises RowSkipped.

    A plan that states its GPUs is read from its fields, a dedicated one by its name: it has no such fields.
    """
    wire = word(row.get("gpu_type"), 60)
    if wire is not None:
        return _stated_hardware(row, wire)
    if row.get("type") != _DEDICATED:
        raise RowSkipped("no name of its GPU")
    if name not in DEDICATED_PLANS:
        raise unknown_name("a dedicated plan of an unknown configuration", name)
    gpu, count, memory_gb = DEDICATED_PLANS[name]
    return _gpus(gpu, gpu, count, memory_gb)


def _gpus(model: str, wire: str, count: int, memory_gb: float) -> dict[str, Any]:
    gpu = catalog().resolve(model, memory_gb)
    return {"gpu": gpu, "gpu_wire": wire, "gpu_count": count, "gpu_memory_gib": memory_gb}


def _stated_hardware(row: Mapping[str, Any], wire: str) -> dict[str, Any] | None:
    model = wire.partition("_")[2] or wire
    total_gb = stated(number(row.get("gpu_vram_gb"), 1, 100_000), "no memory of its GPUs")
    card = catalog().get(catalog().resolve(model, _MEMORY_GB.get(model)).name)
    gpu_count = row.get("gpu_count")
    if isinstance(gpu_count, str) and "/" in gpu_count:  # "1/4": seen in public
        return None
    count = whole(gpu_count, 1, 1_000)
    if count is None:
        if card is None:
            raise RowSkipped("a GPU that nobody knows, and no number of them")
        if total_gb < card.memory_gib * (1 - _MEMORY_TOLERANCE):
            return None
        count = round(total_gb / card.memory_gib)
    if card is not None and abs(total_gb / count - card.memory_gib) > card.memory_gib * _MEMORY_TOLERANCE:
        raise RowSkipped("memory and number of its GPUs do not fit")
    return _gpus(model, wire, count, round(total_gb / count, 1))


def _prices_by_place(value: object) -> dict[str, float]:
    """Return place → price, for places with a special price; `[]`: none has one. Raises RowSkipped: unreadable."""
    if value in (None, []):
        return {}
    if not isinstance(value, dict):
        raise RowSkipped("places' own prices that cannot be read")
    reason = "a place's own price that cannot be read"
    return {str(place): stated(usd_hour(at(cost, "hourly_cost")), reason) for place, cost in value.items()}


def offers_of(plan: VultrPlan, stock: Stock, countries: Mapping[str, str], observed_at: datetime) -> Iterator[Offer]:
    """Yield one offer per place of a plan with stock."""
    for kind, place in sorted(stock):
        if kind in (_ANY_TYPE, plan.type) and plan.name in stock[kind, place]:
            yield plan.offer(
                provider=PROVIDER,
                offer_id=f"{plan.name}/{place}",
                usd_hour=plan.price_at(place),
                terms=plan.terms(plan.name),
                observed_at=observed_at,
                region=place,
                country=countries.get(place),
            )
