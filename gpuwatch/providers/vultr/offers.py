"""Vultr's offers: plans with whole GPUs × the places that have them in stock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.fan_out import query_all
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, unknown_name
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word
from gpuwatch.providers.vultr.client import PROVIDER, all_rows
from gpuwatch.providers.vultr.dedicated_plans import DEDICATED_PLANS

_TYPES: Final = ("vcg", "vdm")  # Cloud GPU: parts and whole GPUs; Dedicated Metal: whole GPUs
_DEDICATED: Final = "vdm"
_PLACES_TTL_S: Final = 3600.0
_PLAN: Final = re.compile(r"vcg-[a-z0-9-]{1,40}")
_PLACE: Final = re.compile(r"[a-z]{3,8}")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_MEMORY_GB: Final = {"A100": 80.0}  # source: gpuhunt; the name alone is ambiguous
_WITHOUT_GPU: Final = ("none", "")
_MIB: Final = 1024.0
_MEMORY_TOLERANCE: Final = 0.1  # of a card's memory: 80 GB may be stated as 79
Stock = Mapping[tuple[str, str], frozenset[str]]  # (type, place) → plans that can be ordered there


class VultrPlan(MachineType, frozen=True, kw_only=True):
    """One parsed plan. Prices are of the whole machine, including its disk; `usd_hours`: places with another price."""

    name: str
    type: str
    usd_hour: float
    usd_hours: Mapping[str, float]
    places: tuple[str, ...]

    def price_at(self, place: str) -> float:
        """Return USD an hour in one place."""
        return self.usd_hours.get(place, self.usd_hour)


class PlanReader:
    """Fetches plans, places and stock; caches places for an hour, and the last plans for the launcher."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._regions: TtlCache[list[Any]] = TtlCache(_PLACES_TTL_S, monotonic)
        self._plans: dict[str, VultrPlan] = {}

    def plan(self, name: str) -> VultrPlan | None:
        """Return the plan as last read; None: not read."""
        return self._plans.get(name)

    def fetch(self, client: ApiClient) -> tuple[ParseResult, datetime]:
        """Return Vultr's plans wherever they are in stock. Raises ProviderError."""
        rows = all_rows(client, "/plans", "plans", {"type": "all"})
        result, plans = parse_plans(rows, client.tools.now())
        regions = self._regions.get(lambda: all_rows(client, "/regions", "regions", kind="places"))
        self._plans = {plan.name: plan for plan in plans}
        stock = self._stock(client, _stock_queries(plans, regions), result)
        now, countries = client.tools.now(), parse_countries(regions)
        for plan in plans:
            result.offers += offers_of(plan, stock, countries, now)
        return result, now

    def _stock(
        self, client: ApiClient, places: list[tuple[str, str]], result: ParseResult
    ) -> dict[tuple[str, str], frozenset[str]]:
        """Return the plans in stock by type and place; a place without an answer makes the result partial."""
        queries = {f"{kind} {place}": partial(_free_plans, client, kind, place) for kind, place in places}
        found: dict[tuple[str, str], frozenset[str]] = {}
        errors: list[ProviderError] = []
        for key, answer in zip(places, query_all(queries, client.tools.stop), strict=True):
            if isinstance(answer, ProviderError):
                result.note_missing(f"the stock of {key[1]}: {answer}")
                errors.append(answer)
            else:
                found[key] = answer
        if errors and not found:
            raise errors[0]
        result.searches = 1 + len(places)
        return found


def _stock_queries(plans: list[VultrPlan], regions: list[Any]) -> list[tuple[str, str]]:
    """Return the pairs of type and place to request. A dedicated plan names no places, so all are requested."""
    every_place = [row["id"] for row in objects(regions) if isinstance(row.get("id"), str)]
    found = set[tuple[str, str]]()
    for plan in plans:
        places = [*plan.places, *every_place] if plan.type == _DEDICATED else plan.places
        found.update((plan.type, place) for place in places if _PLACE.fullmatch(place))
    return sorted(found)


def _free_plans(client: ApiClient, kind: str, place: str) -> frozenset[str]:
    names = at(client.get(f"/regions/{place}/availability", {"type": kind}, kind="stock"), "available_plans")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadChanged(f"{PROVIDER}: the answer has no available plans")
    return frozenset(names)


def parse_countries(rows: list[Any]) -> dict[str, str]:
    """Return place → country, as far as it is stated."""
    pairs = [(row.get("id"), row.get("country")) for row in objects(rows)]
    return {
        place: name
        for place, name in pairs
        if isinstance(place, str) and isinstance(name, str) and _COUNTRY.fullmatch(name)
    }


def parse_plans(rows: list[Any], now: datetime | None = None) -> tuple[ParseResult, list[VultrPlan]]:
    """Parse the plans with whole GPUs that are not announced to end by `now`, and count what was skipped.

    Raises:
        PayloadChanged: none of them is readable, or the list is empty: it contains sold-out plans, too.
    """
    plans: list[VultrPlan] = []
    return read_types(rows, PROVIDER, partial(_read, plans=plans), now), plans


def parse_plan(row: Mapping[str, Any]) -> VultrPlan | None:
    """Parse one plan; None: no whole GPU, or not orderable on demand. Raises RowSkipped: unreadable."""
    name, kind, places = row.get("id"), row.get("type"), row.get("locations")
    if row.get("deploy_ondemand") is False or not _has_gpus(row):
        return None  # without on demand, `hourly_cost` is no price that anybody can get
    if not isinstance(name, str) or not _PLAN.fullmatch(name):
        raise RowSkipped("no name")
    if not isinstance(places, list):
        raise RowSkipped("no list of places")
    hardware = _hardware(row, name)
    if hardware is None:
        return None
    price = usd_hour(row.get("hourly_cost"))
    if price is None:
        raise RowSkipped("no usable price")
    ram_mib = number(row.get("ram"), 1, 1e9)
    return VultrPlan(
        name=name,
        type=str(kind),
        gpu=hardware.gpu,
        gpu_wire=hardware.gpu_wire,
        gpu_count=hardware.gpu_count,
        gpu_memory_gib=hardware.gpu_memory_gib,
        usd_hour=price,
        usd_hours=_prices_by_place(row.get("location_cost")),
        places=tuple(place for place in places if isinstance(place, str) and _PLACE.fullmatch(place)),
        vcpu=number(row.get("vcpu_count"), 1, 10_000),
        ram_gib=None if ram_mib is None else round(ram_mib / _MIB, 1),
        disk_gb=number(row.get("disk"), 1, 1e7),
    )


def _has_gpus(row: Mapping[str, Any]) -> bool:
    """Whether the type is one with GPUs. Raises RowSkipped: it is a new one, and the plan has GPUs."""
    kind = row.get("type")
    if kind is None:
        raise RowSkipped("no type of the plan")
    if kind in _TYPES:
        return True
    if word(row.get("gpu_type")) is None and str(row.get("gpu_brand") or "").casefold() in _WITHOUT_GPU:
        return False
    raise unknown_name("a plan with GPUs of a type that is not known", kind)


def _hardware(row: Mapping[str, Any], name: str) -> MachineType | None:
    """Return the GPUs of a plan; None: a part of one. Raises RowSkipped.

    A plan that states its GPUs is read from its fields, a dedicated one by its name: it has no such fields.
    """
    wire = word(row.get("gpu_type"), 60)
    if wire is not None:
        return _stated_hardware(row, wire)
    if row.get("type") != _DEDICATED:
        raise RowSkipped("no name of its GPU")
    known = DEDICATED_PLANS.get(name)
    if known is None:
        raise unknown_name("a dedicated plan of an unknown configuration", name)
    gpu = catalog().resolve(known.gpu, known.memory_gb)
    return MachineType(gpu=gpu, gpu_wire=known.gpu, gpu_count=known.gpus, gpu_memory_gib=known.memory_gb)


def _stated_hardware(row: Mapping[str, Any], wire: str) -> MachineType | None:
    model, total_gb = wire.partition("_")[2] or wire, number(row.get("gpu_vram_gb"), 1, 100_000)
    if total_gb is None:
        raise RowSkipped("no memory of its GPUs")
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
    memory_gib = round(total_gb / count, 1)
    gpu = catalog().resolve(model, memory_gib)
    return MachineType(gpu=gpu, gpu_wire=wire, gpu_count=count, gpu_memory_gib=memory_gib)


def _prices_by_place(value: object) -> dict[str, float]:
    """Return place → price, for places with a special price; `[]`: none has one. Raises RowSkipped: unreadable."""
    if not isinstance(value, dict) and value not in (None, []):
        raise RowSkipped("places' own prices that cannot be read")
    found: dict[str, float] = {}
    for place, cost in value.items() if isinstance(value, dict) else ():
        price = usd_hour(at(cost, "hourly_cost"))
        if price is None:
            raise RowSkipped("a place's own price that cannot be read")
        found[str(place)] = price
    return found


def _read(row: object, _result: ParseResult, plans: list[VultrPlan]) -> bool:
    if not isinstance(row, dict):
        raise RowSkipped("no plan")
    if (plan := parse_plan(row)) is None:
        return False
    plans.append(plan)
    return True


def offers_of(plan: VultrPlan, stock: Stock, countries: Mapping[str, str], observed_at: datetime) -> Iterator[Offer]:
    """Yield one offer per place of a plan with stock."""
    terms = OfferTerms(
        instance_type=plan.name, fungible=True, multi_node=False, tax_included=False, note=plan.gpu.reason
    )
    for kind, place in sorted(stock):
        if kind == plan.type and plan.name in stock[kind, place]:
            yield plan.offer(
                provider=PROVIDER,
                offer_id=f"{plan.name}/{place}",
                machine_id=f"{plan.name}/{place}",
                usd_hour=plan.price_at(place),
                terms=terms,
                observed_at=observed_at,
                region=place,
                country=countries.get(place),
            )
