"""TensorDock's locations and hosts as offers, each a sum of GPUs, vCPUs, memory and the minimum disk.

One catalogue of all places serves every query. A missing rate is not zero: the price is then unknown, and the row is
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.create import GPU, ID_LENGTH, MIN_DISK_GB, PLACE, OfferKey, country_of, gpu_of
from gpuwatch.providers.tensordock.error_mapping import NAME, accepted_value
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, usd_hour, whole, word

GPUS_MAX: Final = 64  # of one machine; more is implausible
_RAM_STEP_GB: Final = 8
_TERMS: Final = OfferTerms(
    fungible=True,
    tax_included=False,
    least_disk_gb=MIN_DISK_GB,
    note="often not there: of 31 launches that one team counted (2026-02) 5 were good",
)
_HOST_TERMS: Final = msgspec.structs.replace(_TERMS, fungible=False)  # avoid a host that failed
_LOCATION: Final = frozenset({"id", "city", "stateprovince", "country", "tier", "gpus"})
_GPU: Final = frozenset(
    {"v0Name", "displayName", "max_count", "price_per_hr", "resources", "pricing", "network_features"}
)
_HOST: Final = frozenset(
    {"id", "location_id", "engine", "uptime_percentage", "available_resources", "pricing", "location"}
)


class ResourcesPerGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Return the vCPUs and memory per GPU: as in the settings, limited by what the host has."""

    vcpu_per_gpu: float = 8.0
    ram_gb_per_gpu: float = 32.0


class _UnitPrices(msgspec.Struct, frozen=True):
    """US dollars an hour: of one GPU, one vCPU, one GB of memory, one GB of disk."""

    gpu: float
    vcpu: float
    ram_gb: float
    disk_gb: float


class _Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum of a machine; infinite: unknown. The last two are per GPU of the machine."""

    vcpu: float
    ram_gb: float
    disk_gb: float
    vcpu_per_gpu_max: float = float("inf")
    ram_gb_per_gpu_max: float = float("inf")


class _GpuStock(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU model at one place."""

    is_host: bool
    gpu: str
    display_name: str | None
    count: int
    rates: _UnitPrices
    capacity: _Capacity


def parse_locations(value: Any, per_gpu: ResourcesPerGpu, observed_at: datetime) -> ParseResult:
    """Parse `GET /locations`: for each GPU model of each location one offer for 1, 2, … GPUs.

    An empty list makes the answer partial: it is also what an account without a deposit gets.

    Raises:
        PayloadChanged: it contains no list of locations.
    """
    result, rows = ParseResult(), _rows(value, "locations")
    if not rows:
        result.note_missing("no place is listed: TensorDock lists none to an account without a deposit")
    for row in rows:
        result.rows += 1
        with result.counting_skips():
            place = _place(row, row.get("id"), row, observed_at)
            result.check_drift(row, _LOCATION, frozenset({"id", "gpus"}))
            for gpu in [] if is_ending(row, observed_at) else _gpus(row.get("gpus")):
                _add_offers(result, gpu, place, per_gpu)
    return result


def parse_hostnodes(value: Any, per_gpu: ResourcesPerGpu, observed_at: datetime) -> ParseResult:
    """Parse `GET /hostnodes`: each offer is one known machine. An empty list makes the answer partial, as above.

    Raises:
        PayloadChanged: it contains no list of hosts.
    """
    result, rows = ParseResult(), _rows(value, "hostnodes")
    if not rows:
        result.note_missing("no host is listed: an account without a deposit may see none")
    for row in rows:
        result.rows += 1
        with result.counting_skips():
            result.check_drift(row, _HOST, frozenset({"id", "available_resources"}))
            resources = _resources(row)
            place = _place(row, row.get("id"), at(row, "location") or {}, observed_at) | _host(row, resources)
            is_reachable = {
                "port_forwarding_available": bool(place["ports"]) if "available_ports" in resources else None
            }
            shared = {"resources": resources, "pricing": row.get("pricing"), "network_features": is_reachable}
            for gpu in [] if is_ending(row, observed_at) else _gpus(resources.get("gpus")):
                _add_offers(
                    result, {**shared, **gpu, "max_count": gpu.get("availableCount")}, place, per_gpu, is_host=True
                )
    return result


def _rows(value: Any, name: str) -> list[Any]:
    rows = at(value, "data", name)
    if rows is None:  # one source saw it without the envelope
        rows = at(value, name)
    if not isinstance(rows, list):
        raise PayloadChanged(f"{NAME}: the answer has no list of {name}")
    return [row if isinstance(row, dict) else {} for row in rows]


def _place(row: Mapping[str, Any], place_id: Any, location: Any, observed_at: datetime) -> dict[str, Any]:
    """What all offers of one place have in common."""
    if not isinstance(place_id, str) or not PLACE.fullmatch(place_id):
        raise RowSkipped("a place without a usable id")
    country, tier = word(at(location, "country"), 60), whole(at(location, "tier"), 0, 99)
    names = [word(at(location, key), 60) for key in ("city", "stateprovince")]
    return {
        "host_id": place_id,
        "region": ", ".join(name for name in names if name) or None,
        "country": country_of(country),
        "datacenter": None if tier is None or tier == 2 else tier > 2,
        "observed_at": observed_at,
    }


def _resources(host: Mapping[str, Any]) -> dict[str, Any]:
    resources = host.get("available_resources")
    if not isinstance(resources, dict):
        raise RowSkipped("a host without its resources")
    return resources


def _host(row: Mapping[str, Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return more facts of a host: its uptime, its network, its free ports."""
    uptime = number(row.get("uptime_percentage"), 0, 100)
    down, up = (
        number(at(row, "location", key), 0, 10_000) for key in ("network_speed_gbps", "network_speed_upload_gbps")
    )
    ports = resources.get("available_ports")
    return {
        "reliability": None if uptime is None else round(uptime / 100, 6),
        "download_mbps": None if not down else down * 1000,
        "upload_mbps": None if not up else up * 1000,
        "ports": len(ports) if isinstance(ports, list) else None,
    }


def _gpus(value: Any) -> list[Mapping[str, Any]]:
    """Return the GPU models of a place: documented as a list, also seen as a map by their ids."""
    if isinstance(value, dict):
        value = [{"v0Name": key} | one if isinstance(one, dict) else one for key, one in value.items()]
    if not isinstance(value, list):
        raise RowSkipped("a place without its GPUs")
    return [one if isinstance(one, dict) else {} for one in value]


def _add_offers(
    result: ParseResult, gpu: Mapping[str, Any], place: dict[str, Any], per_gpu: ResourcesPerGpu, is_host: bool = False
) -> None:
    with result.counting_skips():
        if not is_host:
            result.check_drift(gpu, _GPU, frozenset({"v0Name", "max_count", "price_per_hr"}))
        if not is_ending(gpu, place["observed_at"]):
            result.offers += _offers(_gpu_stock(gpu, is_host), place, per_gpu, _is_reachable(gpu))


def _gpu_stock(gpu: Mapping[str, Any], is_host: bool) -> _GpuStock:
    name, count = gpu.get("v0Name"), whole(gpu.get("max_count"), -1, GPUS_MAX)
    if not isinstance(name, str) or not GPU.fullmatch(name):
        raise RowSkipped("a GPU without a usable id")
    if count is None:
        raise RowSkipped("a number of GPUs that is none")
    return _GpuStock(
        is_host=is_host,
        gpu=name,
        display_name=word(gpu.get("displayName"), 80),
        count=count,
        rates=_rates(gpu) if count > 0 else _UnitPrices(0.0, 0.0, 0.0, 0.0),
        capacity=_capacity(gpu.get("resources")),
    )


def _rates(gpu: Mapping[str, Any]) -> _UnitPrices:
    price = usd_hour(gpu.get("price_per_hr"))
    if price is None:
        raise RowSkipped("a GPU without its price")
    parts = []
    for key, name in (("per_vcpu_hr", "vCPU"), ("per_gb_ram_hr", "memory"), ("per_gb_storage_hr", "disk")):
        rate = number(at(gpu, "pricing", key), 0.0, 1000.0)
        if rate is None:
            raise RowSkipped(f"the rate of {name} is missing: the price is not known")
        parts.append(rate)
    return _UnitPrices(price, *parts)


def _capacity(limits: Any) -> _Capacity:
    if limits is None:
        limits = {}

    def bound_of(*keys: str) -> float:
        values = [at(limits, key) for key in keys]
        bounds = [number(value, 0.0) for value in values if value is not None]
        if not isinstance(limits, dict) or None in bounds:
            raise RowSkipped("resources that are no numbers")
        return min((bound for bound in bounds if bound is not None), default=float("inf"))

    return _Capacity(
        vcpu=bound_of("max_vcpus", "vcpu_count"),
        ram_gb=bound_of("max_ram_gb", "ram_gb"),
        disk_gb=bound_of("max_storage_gb", "storage_gb"),
        vcpu_per_gpu_max=bound_of("max_vcpus_per_gpu"),
        ram_gb_per_gpu_max=bound_of("max_ram_per_gpu"),
    )


def _is_reachable(gpu: Mapping[str, Any]) -> bool:
    """Whether ports can be forwarded: a machine without port 22 is refused, and gpuwatch orders no address for it."""
    return at(gpu, "network_features", "port_forwarding_available") is not False


def _offers(stock: _GpuStock, place: dict[str, Any], per_gpu: ResourcesPerGpu, is_reachable: bool) -> Iterator[Offer]:
    name, memory_gb = gpu_of(stock.gpu, stock.display_name)
    terms = _HOST_TERMS if stock.is_host else _TERMS
    if not name.certain:
        terms = msgspec.structs.replace(terms, note=f"{name.reason}; {terms.note}")
    for count in range(1, stock.count + 1):
        vcpu, ram_gb = _host_resources(stock.capacity, per_gpu, count)
        if vcpu < 2 or ram_gb < _RAM_STEP_GB or stock.capacity.disk_gb < MIN_DISK_GB:
            continue  # another resource is sold out
        offer_key = OfferKey(
            place=place["host_id"], is_host=stock.is_host, gpu=stock.gpu, count=count, vcpu=vcpu, ram_gb=ram_gb
        )
        if len(offer_key.offer_id) > ID_LENGTH:
            raise RowSkipped("a GPU's id that is too long")
        yield Offer(
            provider=NAME,
            offer_id=offer_key.offer_id,
            machine_id=offer_key.machine_id,
            gpu=name.name,
            gpu_family=name.family,
            gpu_wire=word(stock.gpu) or name.name,
            gpu_known=name.known,
            gpu_count=count,
            gpu_memory_gib=memory_gb,
            spot=False,
            quoted_usd_hour=_total_usd_hour(stock.rates, offer_key),
            quoted_disk_gb=MIN_DISK_GB,
            disk_usd_gb_month=stock.rates.disk_gb * HOURS_A_MONTH,
            rentable=is_reachable,
            vcpu=float(vcpu),
            ram_gib=float(ram_gb),
            disk_free_gb=None if stock.capacity.disk_gb == float("inf") else stock.capacity.disk_gb,
            terms=terms,
            **(place if stock.is_host else place | {"host_id": None}),
        )


def _host_resources(capacity: _Capacity, per_gpu: ResourcesPerGpu, count: int) -> tuple[int, int]:
    """Return vCPUs (even) and GB of memory (in steps of 8) for this number of GPUs."""
    vcpu = min(per_gpu.vcpu_per_gpu * count, capacity.vcpu, capacity.vcpu_per_gpu_max * count, 1022)
    ram_gb = min(per_gpu.ram_gb_per_gpu * count, capacity.ram_gb, capacity.ram_gb_per_gpu_max * count, 99_992)
    return int(vcpu) // 2 * 2, int(ram_gb) // _RAM_STEP_GB * _RAM_STEP_GB


def _total_usd_hour(rates: _UnitPrices, offer_key: OfferKey) -> float:
    total = usd_hour(
        offer_key.count * rates.gpu
        + offer_key.vcpu * rates.vcpu
        + offer_key.ram_gb * rates.ram_gb
        + MIN_DISK_GB * rates.disk_gb
    )
    if total is None:
        raise RowSkipped("a price that nobody would ask")
    return total


def build_fetch(options: Mapping[str, Option]) -> Callable[[ApiClient], tuple[ParseResult, datetime]]:
    """Return the function that fetches locations (without a key), or hosts if `source = "hostnodes"`."""
    hosts = options.get("source") == "hostnodes"
    given = {name: options.get(name) for name in ResourcesPerGpu.__struct_fields__}
    per_gpu = ResourcesPerGpu(**{name: value for name, value in given.items() if isinstance(value, float | int)})
    parse = parse_hostnodes if hosts else parse_locations

    def fetch(client: ApiClient) -> tuple[ParseResult, datetime]:
        if hosts:
            client.require_key()
        reply = client.request("GET", f"/api/v2/{'hostnodes' if hosts else 'locations'}")
        now = client.tools.now()
        return parse(accepted_value(reply, now), per_gpu, now), now

    return fetch
