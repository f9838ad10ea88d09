"""Builds an offer from an instance type in a zone and its price; raises RowSkipped for a placeholder. Pure.

`live`: AWS states that this account may rent the type in this zone now. AWS does not say in advance whether there is
capacity at this minute; a request without capacity is refused at once and costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.providers.aws.capacity_blocks import CapacityBlock
from gpuwatch.providers.aws.instance_types import InstanceType
from gpuwatch.providers.aws.prices import ListPrice, SpotPrice
from gpuwatch.providers.toolkit.list_prices import is_plausible
from gpuwatch.providers.toolkit.post_processing import RowSkipped

DISK_GB: Final = 100.0  # in a quote: AWS's images for GPUs need up to 80
_ID: Final = re.compile(r"([a-z0-9-]{4,25})/([a-z0-9-]{4,30})/([a-z0-9.-]{3,30})/(spot|on-demand)")
_CAPACITY_NOTE: Final = "capacity not proven: AWS tells it only to an order, and a refused one costs nothing"
_NO_DISK_NOTE: Final = "the price of its disk (EBS) is not known and not included"

# source: AWS's list of regions, 2026-11
_COUNTRY: Final = {
    "us": "US", "ca": "CA", "sa-east-1": "BR", "mx": "MX", "af": "ZA", "il": "IL", "me-south-1": "BH",
    "me-central-1": "AE", "eu-central-1": "DE", "eu-central-2": "CH", "eu-west-1": "IE", "eu-west-2": "GB",
    "eu-west-3": "FR", "eu-north-1": "SE", "eu-south-1": "IT", "eu-south-2": "ES", "ap-east-1": "HK",
    "ap-east-2": "TW", "ap-northeast-1": "JP", "ap-northeast-2": "KR", "ap-northeast-3": "JP", "ap-south-1": "IN",
    "ap-south-2": "IN", "ap-southeast-1": "SG", "ap-southeast-2": "AU", "ap-southeast-3": "ID",
    "ap-southeast-4": "AU", "ap-southeast-5": "MY", "ap-southeast-6": "NZ", "ap-southeast-7": "TH",
}  # fmt: skip


class RegionZones(NamedTuple):
    """One region, its zones (name → id), and when they were read."""

    region: str
    zones: Mapping[str, str]
    observed_at: datetime


class OfferId(NamedTuple):
    """The parts of an offer id: all that an order needs."""

    region: str
    zone: str
    type: str
    spot: bool


def offer_id(parts: OfferId) -> str:
    """The id as text: "us-east-1/us-east-1a/p5.48xlarge/spot"."""
    return f"{parts.region}/{parts.zone}/{parts.type}/{'spot' if parts.spot else 'on-demand'}"


def parse_offer_id(text: str) -> OfferId | None:
    """Parse an offer id; None: it is not an id of AWS."""
    match = _ID.fullmatch(text)
    return None if match is None else OfferId(match[1], match[2], match[3], match[4] == "spot")


def country_of(region: str) -> str | None:
    """The country of the region, ISO 3166 alpha-2."""
    return _COUNTRY.get(region) or _COUNTRY.get(region.partition("-")[0])


def on_demand_offer(
    place: RegionZones, zone: str, machine: InstanceType, price: ListPrice, disk_usd: float | None
) -> Offer:
    """Build the offer of a type at its list price in one zone. `disk_usd`: per GB and month."""
    return _offer(place, zone, machine, price, disk_usd, spot=False, quoted_usd_hour=price.usd_hour)


def spot_offer(
    place: RegionZones,
    zone: str,
    machine: InstanceType,
    price: SpotPrice,
    size: ListPrice | None,
    disk_usd: float | None,
) -> Offer:
    """Build the offer of a type at its spot price in one zone. The minimum bid is the spot price; nobody pays a bid."""
    spot_usd_hour = price.usd_hour
    return _offer(
        place, zone, machine, size, disk_usd, spot=True, quoted_usd_hour=spot_usd_hour, min_bid_usd_hour=spot_usd_hour
    )


def with_score(offer: Offer, score: int | None) -> Offer:
    """Add AWS's placement score of the zone to an offer."""
    return offer if score is None else replace(offer, terms=replace(offer.terms, placement_score=score))


def block_offer(
    place: RegionZones, machine: InstanceType, block: CapacityBlock, size: ListPrice | None, disk_usd: float | None
) -> Offer:
    """Build the offer of a capacity block, per hour. It is not live and its id is not orderable: nobody can rent it."""
    offer = _offer(place, block.zone, machine, size, disk_usd, spot=False, quoted_usd_hour=block.usd_hour)
    return replace(
        offer,
        offer_id=f"{place.region}/{block.zone}/{machine.name}/block/{block.id}",
        machine_id=f"{offer.machine_id}/block",
        kind=OfferKind.LISTED,
        terms=replace(offer.terms, prepaid=True, min_billing_s=block.hours * 3600.0, quota=None, note=block.note),
    )


def machine_id(zones: Mapping[str, str], zone: str, machine_type: str) -> str:
    """Return an id that stays the same from poll to poll: the zone's id, the same for every account, and the type."""
    return f"{zones.get(zone, zone)}/{machine_type}"


def _offer(  # noqa: PLR0913 - two of them are the offer's own
    place: RegionZones,
    zone: str,
    machine: InstanceType,
    size: ListPrice | None,
    disk_usd: float | None,
    *,
    spot: bool,
    quoted_usd_hour: float,
    **other_fields: Any,
) -> Offer:
    if not is_plausible(quoted_usd_hour, machine.count * machine.fraction):
        raise RowSkipped("a placeholder: nobody would ask this price")
    disk_gb = DISK_GB if disk_usd is not None else 0.0
    gpu = machine.gpu
    return Offer(
        provider="aws",
        offer_id=offer_id(OfferId(place.region, zone, machine.name, spot)),
        machine_id=machine_id(place.zones, zone, machine.name),
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=machine.gpu_wire,
        gpu_known=gpu.known,
        gpu_count=machine.count,
        gpu_memory_gib=machine.sold_memory_gib,
        spot=spot,
        quoted_usd_hour=quoted_usd_hour + (disk_usd or 0.0) * disk_gb / HOURS_A_MONTH,
        quoted_disk_gb=disk_gb,
        disk_usd_gb_month=disk_usd,
        observed_at=place.observed_at,
        region=place.region,
        country=country_of(place.region),
        datacenter=True,
        vcpu=None if size is None else size.vcpu,
        ram_gib=None if size is None else size.ram_gib,
        cpu_arch=machine.arch,
        kind=OfferKind.LIVE,
        terms=_terms(place.region, zone, machine, spot=spot, priced_disk=disk_usd is not None),
        **other_fields,
    )


def _terms(region: str, zone: str, machine: InstanceType, *, spot: bool, priced_disk: bool) -> OfferTerms:
    return OfferTerms(
        instance_type=machine.name,
        zone=zone,
        quota=f"{region} {_quota_family(machine.name)} {'spot' if spot else 'on demand'}",
        fungible=True,
        gpu_fraction=machine.fraction,
        interconnect=machine.interconnect,
        multi_node=machine.multi_node,
        note=_CAPACITY_NOTE if priced_disk else f"{_CAPACITY_NOTE}; {_NO_DISK_NOTE}",
    )


def _quota_family(machine_type: str) -> str:
    """Return the letters before the generation: EC2 counts vCPUs by region, family ("P instances") and rental type."""
    letters = re.match(r"[a-z]+", machine_type)
    return letters[0].upper() if letters else machine_type
