"""Vultr's offers: plans with whole GPUs × the places that have them in stock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.fan_out import query_all
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word
from gpuwatch.providers.vultr.client import PROVIDER, all_rows

_TYPE: Final = "vcg"  # Cloud GPU
_PLACES_TTL_S: Final = 3600.0
_PLAN: Final = re.compile(r"vcg-[a-z0-9-]{1,40}")
_PLACE: Final = re.compile(r"[a-z]{3,8}")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_MEMORY_GB: Final = {"A100": 80.0}  # source: gpuhunt; the name alone is ambiguous
_MIB: Final = 1024.0
_MEMORY_TOLERANCE: Final = 0.1  # of a card's memory: 80 GB may be stated as 79


class VultrPlan(MachineType, frozen=True, kw_only=True):
    """One parsed plan. Prices are of the whole machine, including its disk; `usd_hours`: places with another price."""

    name: str
    usd_hour: float
    usd_hours: Mapping[str, float]
    places: tuple[str, ...]

    def price_at(self, place: str) -> float:
        """Return USD an hour in one place."""
        return self.usd_hours.get(place, self.usd_hour)


class PlanReader:
    """Fetches plans, countries and stock; caches countries for an hour, and the last plans for the launcher."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._countries: TtlCache[dict[str, str]] = TtlCache(_PLACES_TTL_S, monotonic)
        self._plans: dict[str, VultrPlan] = {}

    def plan(self, name: str) -> VultrPlan | None:
        """Return the plan as last read; None: not read."""
        return self._plans.get(name)

    def fetch(self, client: ApiClient) -> tuple[ParseResult, datetime]:
        """Return Vultr's plans wherever they are in stock. Raises ProviderError."""
        rows = all_rows(client, "/plans", "plans", {"type": _TYPE})
        result, plans = parse_plans(rows)
        countries = self._countries.get(lambda: parse_countries(all_rows(client, "/regions", "regions", kind="places")))
        self._plans = {plan.name: plan for plan in plans}
        places = sorted({place for plan in plans for place in plan.places})
        stock = self._stock(client, places, result)
        now = client.tools.now()
        for plan in plans:
            result.offers += offers_of(plan, stock, countries, now)
        result.searches = 1 + len(places)
        return result, now

    def _stock(self, client: ApiClient, places: list[str], result: ParseResult) -> dict[str, frozenset[str]]:
        """Return place → plans in stock there; a place without an answer makes the result partial."""
        queries = {place: partial(_free_plans, client, place) for place in places}
        found: dict[str, frozenset[str]] = {}
        errors: list[ProviderError] = []
        for place, answer in zip(places, query_all(queries, client.tools.stop), strict=True):
            if isinstance(answer, ProviderError):
                result.note_missing(f"the stock of {place}: {answer}")
                errors.append(answer)
            else:
                found[place] = answer
        if errors and not found:
            raise errors[0]
        return found


def _free_plans(client: ApiClient, place: str) -> frozenset[str]:
    names = at(client.get(f"/regions/{place}/availability", {"type": _TYPE}, kind="stock"), "available_plans")
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


def parse_plans(rows: list[Any]) -> tuple[ParseResult, list[VultrPlan]]:
    """Parse the plans with whole GPUs, and count what was skipped.

    Raises:
        PayloadChanged: none of them is readable, or the list is empty: it contains sold-out plans, too.
    """
    plans: list[VultrPlan] = []
    return read_types(rows, PROVIDER, partial(_read, plans=plans)), plans


def parse_plan(row: Mapping[str, Any]) -> VultrPlan | None:
    """Parse one plan; None: no whole GPU, or not orderable on demand. Raises RowSkipped: unreadable."""
    name, wire, places = row.get("id"), word(row.get("gpu_type"), 60), row.get("locations")
    if row.get("type") is None:
        raise RowSkipped("no type of the plan")
    if row["type"] != _TYPE or row.get("deploy_ondemand") is False:
        return None
    if not isinstance(name, str) or not _PLAN.fullmatch(name):
        raise RowSkipped("no name")
    if wire is None:
        raise RowSkipped("no name of its GPU")
    if not isinstance(places, list):
        raise RowSkipped("no list of places")
    hardware = _hardware(row, wire)
    if hardware is None:
        return None
    gpu, count, memory_gib = hardware
    price = usd_hour(row.get("hourly_cost"))
    if price is None:
        raise RowSkipped("no usable price")
    ram_mib = number(row.get("ram"), 1, 1e9)
    return VultrPlan(
        name=name,
        gpu=gpu,
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gib,
        usd_hour=price,
        usd_hours=_prices_by_place(row.get("location_cost")),
        places=tuple(place for place in places if isinstance(place, str) and _PLACE.fullmatch(place)),
        vcpu=number(row.get("vcpu_count"), 1, 10_000),
        ram_gib=None if ram_mib is None else round(ram_mib / _MIB, 1),
        disk_gb=number(row.get("disk"), 1, 1e7),
    )


def _hardware(row: Mapping[str, Any], wire: str) -> tuple[GpuName, int, float] | None:
    """Return GPU, number, and the memory of one; None: it is a fraction of one. Raises RowSkipped."""
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
    return catalog().resolve(model, memory_gib), count, memory_gib


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


def offers_of(
    plan: VultrPlan, stock: Mapping[str, frozenset[str]], countries: Mapping[str, str], observed_at: datetime
) -> Iterator[Offer]:
    """Yield one offer per place of a plan with stock."""
    terms = OfferTerms(
        instance_type=plan.name, fungible=True, multi_node=False, tax_included=False, note=plan.gpu.reason
    )
    for place in plan.places:
        if plan.name in stock.get(place, ()):
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
