"""The GPUs of each instance type, types without any, and the offers of a type in a zone at a price. Pure.

EC2's names for GPUs are short and ambiguous (`A100` for 40 and 80 GB), and its answers have changed, so the table takes
precedence. Types that are missing from it are read from `DescribeInstanceTypes`.
`live`: AWS states that this account may rent the type in this zone now. AWS does not say in advance whether there is
capacity at this minute; a request without capacity is refused at once and costs nothing.
source: AWS's instance type pages and the type data of `DescribeInstanceTypes`, read 2026-11; g4ad and p3 from memory
of older pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from gpuwatch.domain.market.gpu_names import NO_GPU_NAME, GpuName, catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import NO_GPU, Offer, OfferKind, OfferTerms
from gpuwatch.ports import Query
from gpuwatch.providers.toolkit.list_prices import is_plausible
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, whole, word

_MIB: Final = 1024.0
_NVLINK, _PCIE = "NVLink", "PCIe"


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """One instance type. `memory_mib`: of one GPU, or of the slice, as EC2 states."""

    name: str  # "p5.48xlarge"
    gpu_wire: str  # EC2's name of the GPU
    spelling: str  # the catalogue's spelling of the GPU
    count: int  # 0: no GPU
    memory_mib: float
    fraction: float = 1.0  # less than 1: a slice of one GPU
    arch: str = "x86_64"  # or "arm64"
    interconnect: str | None = None
    multi_node: bool = False

    @property
    def gpu(self) -> GpuName:
        """The GPU in the catalogue; a slice has the name of its card."""
        if not self.count:
            return NO_GPU_NAME
        return catalog().resolve(self.spelling, self.memory_gib if self.fraction == 1.0 else None)

    @property
    def memory_gib(self) -> float:
        """The reported memory: a "24 GB" card has 22.4."""
        return self.memory_mib / _MIB

    @property
    def sold_memory_gib(self) -> float | None:
        """The memory as sellers state it; None: no GPU."""
        if not self.count:
            return None
        if self.fraction < 1.0:
            return self.memory_gib
        return catalog().sold_memory_gib(self.gpu.name, self.memory_gib)


# family, EC2's name of the GPU, its spelling, MiB, link between several GPUs, {GPUs: sizes}
_TYPES_BY_FAMILY: Final[tuple[tuple[str, str, str, float, str, Mapping[int, str]], ...]] = (
    ("p6-b300", "B300", "B300 SXM", 275_040, _NVLINK, {8: "48xlarge"}),
    ("p6-b200", "B200", "B200 SXM", 183_359, _NVLINK, {8: "48xlarge"}),
    ("p5en", "H200", "H200 SXM", 144_384, _NVLINK, {8: "48xlarge"}),
    ("p5e", "H200", "H200 SXM", 144_384, _NVLINK, {8: "48xlarge"}),
    ("p5", "H100", "H100 SXM", 81_920, _NVLINK, {8: "48xlarge", 1: "4xlarge"}),
    ("p4de", "A100", "A100 SXM 80GB", 81_920, _NVLINK, {8: "24xlarge"}),
    ("p4d", "A100", "A100 SXM 40GB", 40_960, _NVLINK, {8: "24xlarge"}),
    ("p3dn", "V100", "V100 SXM2 32GB", 32_768, _NVLINK, {8: "24xlarge"}),
    ("p3", "V100", "V100 SXM2 16GB", 16_384, _NVLINK, {1: "2xlarge", 4: "8xlarge", 8: "16xlarge"}),
    ("g7e", "RTX PRO Server 6000", "RTX PRO 6000 Server", 98_304, _PCIE,
     {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"}),
    ("g7", "RTX PRO 4500", "RTX PRO 4500", 32_768, _PCIE,
     {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"}),
    ("g6e", "L40S", "L40S", 45_776, _PCIE,
     {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"}),
    ("g6", "L4", "L4", 22_888, _PCIE,
     {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"}),
    ("gr6", "L4", "L4", 22_888, _PCIE, {1: "4xlarge 8xlarge"}),
    ("g5", "A10G", "A10G", 22_888, _PCIE,
     {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"}),
    ("g4dn", "T4", "T4", 16_384, _PCIE, {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge", 8: "metal"}),
    ("g4ad", "Radeon Pro V520", "Radeon Pro V520", 8_192, _PCIE,
     {1: "xlarge 2xlarge 4xlarge", 2: "8xlarge", 4: "16xlarge"}),
)  # fmt: skip

_OTHER_TYPES: Final = (
    *(InstanceType(name=f"g5g.{size}", gpu_wire="T4g", spelling="T4G", count=1, memory_mib=16_384, arch="arm64")
      for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge")),
    *(InstanceType(name=f"g5g.{size}", gpu_wire="T4g", spelling="T4G", count=2, memory_mib=16_384, arch="arm64",
              interconnect=_PCIE)
      for size in ("16xlarge", "metal")),
    InstanceType(name="g6f.large", gpu_wire="L4", spelling="L4", count=1, memory_mib=2_861, fraction=1 / 8),
    InstanceType(name="g6f.xlarge", gpu_wire="L4", spelling="L4", count=1, memory_mib=2_861, fraction=1 / 8),
    InstanceType(name="g6f.2xlarge", gpu_wire="L4", spelling="L4", count=1, memory_mib=5_722, fraction=1 / 4),
    InstanceType(name="g6f.4xlarge", gpu_wire="L4", spelling="L4", count=1, memory_mib=11_444, fraction=1 / 2),
    InstanceType(name="gr6f.4xlarge", gpu_wire="L4", spelling="L4", count=1, memory_mib=11_444, fraction=1 / 2),
    # one of the 18 machines of a rack that is one NVLink domain
    InstanceType(name="p6e-gb200.36xlarge", gpu_wire="GB200", spelling="GB200", count=4, memory_mib=189_440,
            arch="arm64", interconnect=_NVLINK, multi_node=True),
)  # fmt: skip


# Types without GPUs that are searched, of hundreds: the compute, general and memory families of both makers of x86, of
# two generations. assumed: for preparing data these are enough. source: as above; list prices have their sizes
_CPU_FAMILIES: Final = ("c6a", "m6a", "r6a", "c7a", "m7a", "r7a", "c7i", "m7i", "r7i")
_CPU_SIZES: Final = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge")


@cache
def table() -> Mapping[str, InstanceType]:
    """Return every instance type of the table, with GPUs."""
    return {machine.name: machine for machine in (*_whole_gpu_types(), *_OTHER_TYPES)}


@cache
def cpu_table() -> Mapping[str, InstanceType]:
    """Return the instance types without GPUs."""
    names = (f"{family}.{size}" for family in _CPU_FAMILIES for size in _CPU_SIZES)
    return {name: InstanceType(name=name, gpu_wire=NO_GPU, spelling=NO_GPU, count=0, memory_mib=0.0) for name in names}


def known_type(name: str) -> InstanceType | None:
    """Return an instance type of either table; None: it is in neither."""
    return table().get(name) or cpu_table().get(name)


def matches_query(machine: InstanceType, query: Query) -> bool:
    """Return whether a query matches this type."""
    return (
        machine.count >= query.count_min
        and (query.count_max is None or machine.count <= query.count_max)
        and (not query.gpus or machine.gpu.name in query.gpus)
    )


def _whole_gpu_types() -> Iterator[InstanceType]:
    for family, gpu_wire, spelling, mib, link, sizes in _TYPES_BY_FAMILY:
        for count, names in sizes.items():
            for size in names.split():
                yield InstanceType(
                    name=f"{family}.{size}",
                    gpu_wire=gpu_wire,
                    spelling=spelling,
                    count=count,
                    memory_mib=mib,
                    interconnect=link if count > 1 else None,
                )


def parse_instance_type(row: Mapping[str, Any]) -> InstanceType | None:
    """Parse an instance type of `DescribeInstanceTypes`; None: it has no GPU, or a malformed description.

    A slice has `Count` 0 and a `GpuPartitionSize`.
    """
    name, gpus = word(row.get("InstanceType"), 40), objects(at(row, "GpuInfo", "Gpus"))
    if name is None or len(gpus) != 1:
        return None
    gpu_wire, memory_mib = word(gpus[0].get("Name"), 60), number(at(gpus[0], "MemoryInfo", "SizeInMiB"), 1.0, 1e8)
    count, fraction = whole(gpus[0].get("Count"), 0, 64), number(gpus[0].get("GpuPartitionSize"), 0.001, 1.0)
    if gpu_wire is None or memory_mib is None or count is None or (count == 0 and fraction is None):
        return None
    usages = row.get("SupportedUsageClasses")
    if isinstance(usages, list) and not {"on-demand", "spot"} & {usage for usage in usages if isinstance(usage, str)}:
        return None  # sold as capacity blocks only
    architectures = at(row, "ProcessorInfo", "SupportedArchitectures")
    is_arm = isinstance(architectures, list) and "arm64" in architectures
    return InstanceType(
        name=name,
        gpu_wire=gpu_wire,
        spelling=_spelling(name, gpu_wire, memory_mib / _MIB),
        count=count or 1,
        memory_mib=memory_mib,
        fraction=1.0 if count else fraction or 1.0,
        arch="arm64" if is_arm else "x86_64",
    )


def _spelling(machine_type: str, gpu_wire: str, memory_gib: float) -> str:
    """Return the spelling, with SXM for the p families: their GPUs have sockets, though EC2 does not say so."""
    sxm_name = f"{gpu_wire} SXM"
    return sxm_name if machine_type.startswith("p") and catalog().resolve(sxm_name, memory_gib).known else gpu_wire


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


class ListPrice(msgspec.Struct, frozen=True):
    """A price of an instance type in one region, and its size."""

    usd_hour: float
    vcpu: float | None = None
    ram_gib: float | None = None


class SpotKey(NamedTuple):
    """The scope of a spot price."""

    type: str
    zone: str


class SpotPrice(msgspec.Struct, frozen=True):
    """The spot price of a type in a zone, valid since `since`."""

    usd_hour: float
    since: datetime


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


def machine_id(zones: Mapping[str, str], zone: str, machine_type: str) -> str:
    """Return an id that stays the same from poll to poll: the zone's id, the same for every account, and the type."""
    return f"{zones.get(zone, zone)}/{machine_type}"


def offer_in_zone(  # noqa: PLR0913 - the last two are named
    place: RegionZones,
    zone: str,
    machine: InstanceType,
    price: ListPrice,
    disk_usd: float | None,
    *,
    spot: bool = False,
    score: int | None = None,
) -> Offer:
    """Build the offer of a type at its price in one zone. As spot, the price is the minimum bid; nobody pays a bid.

    Args:
        disk_usd: per GB and month; None: unknown.
        score: AWS's placement score of the zone.

    Raises:
        RowSkipped: the price is a placeholder.
    """
    if not is_plausible(price.usd_hour, machine.count * machine.fraction):
        raise RowSkipped("a placeholder: nobody would ask this price")
    disk_gb = DISK_GB if disk_usd is not None else 0.0
    gpu, rental = machine.gpu, "spot" if spot else "on demand"
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
        quoted_usd_hour=price.usd_hour + (disk_usd or 0.0) * disk_gb / HOURS_A_MONTH,
        quoted_disk_gb=disk_gb,
        disk_usd_gb_month=disk_usd,
        min_bid_usd_hour=price.usd_hour if spot else None,
        observed_at=place.observed_at,
        region=place.region,
        country=country_of(place.region),
        datacenter=True,
        vcpu=price.vcpu,
        ram_gib=price.ram_gib,
        cpu_arch=machine.arch,
        kind=OfferKind.LIVE,
        terms=OfferTerms(
            instance_type=machine.name,
            zone=zone,
            quota=f"{place.region} {_quota_family(machine.name)} {rental}",
            fungible=True,
            gpu_fraction=machine.fraction,
            interconnect=machine.interconnect,
            multi_node=machine.multi_node,
            placement_score=score,
            note=_CAPACITY_NOTE if disk_usd is not None else f"{_CAPACITY_NOTE}; {_NO_DISK_NOTE}",
        ),
    )


def _quota_family(machine_type: str) -> str:
    """Return the letters before the generation: EC2 counts vCPUs by region, family ("P instances") and rental type.

    Families without GPUs share one quota, "Standard".
    """
    letters = re.match(r"[a-z]+", machine_type)
    if machine_type in cpu_table():
        return "Standard"
    return letters[0].upper() if letters else machine_type
