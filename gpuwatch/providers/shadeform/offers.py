"""Shadeform's offers: instance types of many clouds × the regions where each is available now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.domain.market.slices import gpu_fraction
from gpuwatch.domain.market.spellings import socket_of
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, usd_hour, whole, word

PROVIDER: Final = "shadeform"
ID_LENGTH: Final = 64
_MAX_GB: Final = 1_000_000.0  # GB
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,39}")
_COUNT: Final = re.compile(r"x(\d{1,3})$")
_COUNTRY: Final = re.compile(r"([A-Z]{2}),")
_ISO: Final = {"UK": "GB"}
_SELLERS: Final = {"lambdalabs": "lambda"}  # sellers that gpuwatch knows by another name
_INTERCONNECTS: Final = {"sxm": "NVLink", "pcie": "PCIe"}
_CONTAINER: Final = "a container, not a machine"
_KNOWN_FIELDS: Final = frozenset({
    "cloud", "region", "shade_instance_type", "cloud_instance_type", "configuration", "hourly_price",
    "deployment_type", "availability", "boot_time", "memory_in_gb", "storage_in_gb", "vcpus", "num_gpus", "gpu_type",
    "interconnect", "nvlink",
})  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"cloud", "shade_instance_type", "configuration", "hourly_price", "availability"})


class Hardware(MachineType, frozen=True, kw_only=True):
    """One parsed `configuration`, of a type or of an instance."""

    interconnect: str | None


class ShadeformInstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed instance type."""

    cloud: str
    name: str
    cents: str
    usd_hour: float
    hardware: Hardware
    terms: OfferTerms


def fetch_types(client: ApiClient) -> tuple[ParseResult, datetime]:
    """Fetch all types of all clouds, available or not: "nothing available" must not look like an empty answer.

    Raises:
        ProviderError: no usable answer.
    """
    value = client.get("/instances/types", {"sort": "price"})  # without `sort` the order is random
    now = client.tools.now()
    return parse_types(value, now), now


def parse_types(value: object, observed_at: datetime) -> ParseResult:
    """Parse the offers of `GET /instances/types`: one per type and region where it is available.

    Raises:
        PayloadChanged: it contains no list of types, or none of them is usable.
    """
    types = at(value, "instance_types")
    if not isinstance(types, list) or not types:
        raise PayloadChanged("shadeform: the answer is not a list of instance types")
    return read_types(types, PROVIDER, partial(_read, observed_at=observed_at))


def hardware_of(configuration: object) -> Hardware:
    """Parse the hardware of a configuration. Ignores the same fields at the top level of older answers.

    Raises:
        RowSkipped: it has no GPU, or no GPU count.
    """
    wire, count = word(at(configuration, "gpu_type"), 80), whole(at(configuration, "num_gpus"), 1, 1_000)
    if wire is None:
        raise RowSkipped("no GPU")
    if count is None:
        raise RowSkipped("no number of GPUs")
    memory_gib = number(at(configuration, "vram_per_gpu_in_gb"), 1, 5_000)
    socket = word(at(configuration, "interconnect"), 20)
    socket_in_name = socket_of(wire.replace("_", " "))  # "H100_nvl" is kept, even beside "pcie"
    return Hardware(
        gpu=catalog().resolve(wire, memory_gib, None if socket_in_name else socket),
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gib,
        interconnect="NVLink" if at(configuration, "nvlink") is True else _INTERCONNECTS.get(socket_of(socket) or ""),
        vcpu=number(at(configuration, "vcpus"), 1, _MAX_GB),
        ram_gib=number(at(configuration, "memory_in_gb"), 1, _MAX_GB),
        disk_gb=number(at(configuration, "storage_in_gb"), 1, _MAX_GB),
    )


def _read(row: object, result: ParseResult, observed_at: datetime) -> None:
    kind = _parse_type(row)
    regions = at(row, "availability")
    if not isinstance(regions, list):
        raise RowSkipped("no list of regions")
    offers = [_offer(kind, region, observed_at) for region in regions if _is_available(region, result)]
    if isinstance(row, dict):
        result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
    for offer in offers:
        if len(offer.offer_id) > ID_LENGTH:
            result.skip("a longer id than can be kept")
        else:
            result.offers.append(offer)


def _parse_type(row: object) -> ShadeformInstanceType:
    cloud, name, cents = at(row, "cloud"), at(row, "shade_instance_type"), number(at(row, "hourly_price"))
    price = None if cents is None else usd_hour(cents / 100)
    if (
        not isinstance(cloud, str)
        or not isinstance(name, str)
        or not (_NAME.fullmatch(cloud) and _NAME.fullmatch(name))
    ):
        raise RowSkipped("no cloud or type")
    if cents is None or price is None:
        raise RowSkipped("no usable price")
    hardware = hardware_of(at(row, "configuration"))
    count_in_name = _COUNT.search(name)
    if count_in_name is not None and int(count_in_name[1]) != hardware.gpu_count:
        raise RowSkipped("its name and its configuration tell different numbers of GPUs")
    return ShadeformInstanceType(
        cloud=cloud,
        name=name,
        cents=f"{cents:.10g}",
        usd_hour=price,
        hardware=hardware,
        terms=_terms(cloud, row, hardware),
    )


def _terms(cloud: str, row: object, hardware: Hardware) -> OfferTerms:
    instance_type = word(at(row, "cloud_instance_type"), 60)
    notes = (hardware.gpu.reason, _CONTAINER if at(row, "deployment_type") == "container" else None)
    return OfferTerms(
        seller=_SELLERS.get(cloud, cloud),
        instance_type=instance_type,
        fungible=True,
        gpu_fraction=min(gpu_fraction(instance_type or ""), gpu_fraction(hardware.gpu_wire)),
        interconnect=hardware.interconnect,
        multi_node=False,  # clusters of several machines have separate endpoints
        note="; ".join(filter(None, notes)) or None,
    )


def _is_available(region: object, result: ParseResult) -> bool:
    """Whether it is available there: only a plain `true` means yes."""
    name = at(region, "region")
    if not isinstance(name, str) or not _REGION.fullmatch(name):
        result.skip("no name of a region")
        return False
    return at(region, "available") is True


def _offer(kind: ShadeformInstanceType, region: Mapping[str, Any], observed_at: datetime) -> Offer:
    place = f"{kind.cloud}/{kind.name}/{region['region']}"
    return kind.hardware.offer(
        provider=PROVIDER,
        offer_id=f"{place}/{kind.cents}",  # with the price, which limits the order
        machine_id=place,
        usd_hour=kind.usd_hour,
        terms=kind.terms,
        observed_at=observed_at,
        region=region["region"],
        country=_country(region),
    )


def _country(region: Mapping[str, Any]) -> str | None:
    """Return the two letters at the start of "US, Kansas City, KS"; does not guess other forms."""
    found = _COUNTRY.match(word(region.get("display_name")) or "")
    return None if found is None else _ISO.get(found[1], found[1])
