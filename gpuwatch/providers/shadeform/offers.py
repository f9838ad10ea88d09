"""Shadeform's offers: instance types of many clouds × the regions and rental types that each is available in now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.market.spellings import socket_of
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, unknown_name
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
_RENTAL_TYPES: Final = {"on_demand": False, "spot": True, None: False}  # an entry without one is on demand
_NOT_BY_THE_HOUR: Final = frozenset({"reserved", "reservation", "committed", "cluster"})
_SPOT_NOTE: Final = "gpuwatch cannot order spot at Shadeform: its API documents no way"
_OWN_PRICE_SHARES: Final = (0.06, 5.0)  # of the type's price: anything else is a price in another unit
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
    return read_types(types, PROVIDER, partial(_read, observed_at=observed_at), observed_at)


def hardware_of(configuration: object, names: Sequence[object] = ()) -> Hardware:
    """Parse the hardware of a configuration. Ignores the same fields at the top level of older answers.

    Args:
        names: of the type, at Shadeform and at the cloud. Some types are marked as PCIe although a name says SXM: the
            card then stays open.

    Raises:
        RowSkipped: it has no GPU, or no GPU count.
    """
    wire, count = word(at(configuration, "gpu_type"), 80), whole(at(configuration, "num_gpus"), 1, 1_000)
    if wire is None:
        raise RowSkipped("no GPU")
    if count is None:
        raise RowSkipped("no number of GPUs")
    memory_gib = number(at(configuration, "vram_per_gpu_in_gb"), 1, 5_000)
    socket, sockets = word(at(configuration, "interconnect"), 20), _sockets([wire, *names])
    link = _INTERCONNECTS.get(socket_of(socket) or "") if set(sockets) <= {socket_of(socket), "nvl"} else None
    spelling = wire if not sockets or socket_of(wire) else f"{wire} {sockets[0]}"
    return Hardware(
        gpu=catalog().resolve(spelling, memory_gib, sockets[1] if len(sockets) > 1 else socket),
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gib,
        interconnect="NVLink" if at(configuration, "nvlink") is True else link,
        vcpu=number(at(configuration, "vcpus"), 1, _MAX_GB),
        ram_gib=number(at(configuration, "memory_in_gb"), 1, _MAX_GB),
        disk_gb=number(at(configuration, "storage_in_gb"), 1, _MAX_GB),
    )


def _sockets(names: Iterable[object]) -> list[str]:
    """Return the different sockets that names state: "A100_80G_sxm4x8" is "sxm"."""
    found = (socket_of(_COUNT.sub("", name)) for name in names if isinstance(name, str))
    return list(dict.fromkeys(socket for socket in found if socket is not None))


def _read(row: object, result: ParseResult, observed_at: datetime) -> None:
    kind = _parse_type(row)
    regions = at(row, "availability")
    if not isinstance(regions, list):
        raise RowSkipped("no list of regions")
    available = (one for one in regions if _is_available(one, result) and not is_ending(one, observed_at))
    offers = [offer for region in available if (offer := _offer(kind, region, result, observed_at)) is not None]
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
    hardware = hardware_of(at(row, "configuration"), [name, at(row, "cloud_instance_type")])
    count_in_name = _COUNT.search(name)
    if count_in_name is not None and int(count_in_name[1]) != hardware.gpu_count:
        raise RowSkipped("its name and its configuration tell different numbers of GPUs")
    return ShadeformInstanceType(
        cloud=cloud,
        name=name,
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


def _offer(
    kind: ShadeformInstanceType, region: Mapping[str, Any], result: ParseResult, observed_at: datetime
) -> Offer | None:
    """Build the offer of one entry of `availability`: a region and a rental type; None: it is not for sale by the hour.

    Spot needs a price of its own: the type's price is on demand. On demand, a region's own price counts before the
    type's.
    """
    place, rental_type = f"{kind.cloud}/{kind.name}/{region['region']}", region.get("rental_type")
    spot = _RENTAL_TYPES.get(rental_type) if isinstance(rental_type, str | None) else None
    if spot is None:
        if rental_type not in _NOT_BY_THE_HOUR:
            result.skip(str(unknown_name("a rental type that is not known", rental_type)))
        return None
    price = kind.usd_hour
    if (own := region.get("hourly_price")) is not None or spot:
        own_price = _own_price(own, kind.usd_hour)
        if own_price is None:
            result.skip("spot without a price of its own" if spot else "a region's price that is not understood")
            return None
        price = own_price
    rental: dict[str, Any] = {
        "offer_id": f"{place}/{price * 100:.10g}",
        "terms": kind.terms,
    }  # the price limits the order
    if spot:
        notes = "; ".join(filter(None, (kind.terms.note, _SPOT_NOTE)))
        terms = msgspec.structs.replace(kind.terms, note=notes)
        rental = {"offer_id": f"{place}/spot", "terms": terms, "spot": True, "kind": OfferKind.LISTED}
    return kind.hardware.offer(
        provider=PROVIDER,
        machine_id=place,
        usd_hour=price,
        observed_at=observed_at,
        region=region["region"],
        country=_country(region),
        **rental,
    )


def _own_price(value: object, type_usd_hour: float) -> float | None:
    """Return a region's own price in dollars; None: unusable.

    Its unit is not documented: cents like the type's, or dollars as in public answers. Whichever is near the price of
    the type is meant; both never are, because they differ by a factor of 100.
    """
    found, (low, high) = number(value, 0.0), _OWN_PRICE_SHARES
    prices = [] if found is None else [usd_hour(found / 100), usd_hour(found)]
    return next((one for one in prices if one is not None and low <= one / type_usd_hour <= high), None)


def _country(region: Mapping[str, Any]) -> str | None:
    """Return the two letters at the start of "US, Kansas City, KS"; does not guess other forms."""
    found = _COUNTRY.match(word(region.get("display_name")) or "")
    return None if found is None else _ISO.get(found[1], found[1])
