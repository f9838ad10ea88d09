"""Lambda's offers: instance types × the regions that have capacity for them now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, usd_hour, whole, word

PROVIDER: Final = "lambda"
_GB_PER_GIB: Final = 1.073741824
_MAX_SIZE_GIB: Final = 100_000.0  # GiB: a larger size is in another unit
_NAME: Final = re.compile(r"gpu_(\d{1,3})x_([a-z0-9_]{1,40})")
_TYPE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,23}")  # an offer id is type, slash and region: at most 64 characters
_SIZE: Final = re.compile(r"(\d{1,4}) ?GB\b")
_FORM_FACTOR: Final = re.compile(r"\b(SXM|PCIe)")
_INTERCONNECT: Final = {"SXM": "NVLink", "PCIe": "PCIe"}
# For names that are ambiguous without a description: 8× is SXM; 1×, 2× and 4× are PCIe.
_BY_NAME: Final = {"rtx6000": "Quadro RTX 6000", "v100_n": "Tesla V100"}
_A100: Final = ("A100-PCIE-40GB", "A100-SXM4-40GB")
_COUNTRIES: Final = {
    "USA": "US", "United States": "US", "Germany": "DE", "Italy": "IT", "India": "IN", "Japan": "JP", "Israel": "IL",
    "Australia": "AU",
}  # fmt: skip
_ROW: Final = frozenset({"instance_type", "regions_with_capacity_available"})
_TYPE: Final = frozenset({"name", "description", "gpu_description", "price_cents_per_hour", "architecture", "specs"})


class LambdaInstanceType(MachineType, frozen=True, kw_only=True):
    """One parsed instance type."""

    name: str
    usd_hour: float
    cpu_arch: str | None
    terms: OfferTerms


def fetch_types(client: ApiClient) -> tuple[ParseResult, datetime]:
    """Fetch Lambda's types, wherever there is capacity. Raises ProviderError."""
    value, now = client.get("/instance-types"), client.tools.now()
    return parse_types(value, now), now


def parse_types(value: object, observed_at: datetime) -> ParseResult:
    """Parse the offers of `GET /instance-types`: one per type and region that has it now.

    Raises:
        PayloadChanged: it is not a map of types, or none of them is usable.
    """
    types = at(value, "data")
    if not isinstance(types, dict) or not types:
        raise PayloadChanged("lambda: the answer is not a map of instance types")
    return read_types(types.values(), PROVIDER, partial(_read, observed_at=observed_at), observed_at)


def parse_type(row: object) -> LambdaInstanceType | None:
    """Parse one `instance_type`, of the catalogue or of an instance; None: it has no GPU.

    Raises:
        RowSkipped: it is not a type, or its numbers are malformed.
    """
    if not isinstance(row, dict):
        raise RowSkipped("no instance type")
    count = whole(at(row, "specs", "gpus"), 0, 1_000)
    if count is None:
        raise RowSkipped("no number of GPUs")
    if not count:
        return None
    name, cents = row.get("name"), number(row.get("price_cents_per_hour"))
    price = None if cents is None else usd_hour(cents / 100)
    if not isinstance(name, str) or not _TYPE_NAME.fullmatch(name):
        raise RowSkipped("no name")
    if price is None:
        raise RowSkipped("no usable price")
    return _build_type(row, name, count, price)


def _build_type(row: Mapping[str, Any], name: str, count: int, price: float) -> LambdaInstanceType:
    name_match = _NAME.fullmatch(name)
    if name_match is not None and int(name_match[1]) != count:
        raise RowSkipped("its name and its specs tell different numbers of GPUs")
    wire = _gpu_wire(row, name, count)
    memory_size, form_factor = _SIZE.search(wire), _FORM_FACTOR.search(wire)
    memory_gib = number(memory_size[1], 1) if memory_size else None
    gpu = catalog().resolve(wire, memory_gib)
    return LambdaInstanceType(
        name=name,
        gpu=gpu,
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gib,
        usd_hour=price,
        cpu_arch=word(row.get("architecture"), 20),
        vcpu=number(at(row, "specs", "vcpus"), 1, _MAX_SIZE_GIB),
        ram_gib=number(at(row, "specs", "memory_gib"), 1, _MAX_SIZE_GIB),
        disk_gb=_gib_to_gb(number(at(row, "specs", "storage_gib"), 1, _MAX_SIZE_GIB * 100)),
        terms=OfferTerms(
            instance_type=name,
            fungible=True,
            interconnect=_INTERCONNECT[form_factor[1]] if form_factor else None,
            multi_node=False,  # the API does not offer clusters of several machines
            tax_included=False,
            note=gpu.reason,
        ),
    )


def _gpu_wire(row: Mapping[str, Any], name: str, count: int) -> str:
    """Return the GPU that Lambda describes: if description and name disagree, the description is right."""
    description = word(row.get("gpu_description"), 80)
    if description is not None:
        return description
    description = word(row.get("description"), 80)
    if description is not None:
        return re.sub(r"^\d{1,3}x ", "", description)
    model = re.sub(r"^gpu_\d{1,3}x_", "", name)
    return _A100[count == 8] if model == "a100" else _BY_NAME.get(model, model)


def _read(row: object, result: ParseResult, observed_at: datetime) -> bool:
    kind, regions = at(row, "instance_type"), at(row, "regions_with_capacity_available")
    found = parse_type(kind)
    if not isinstance(regions, list):
        raise RowSkipped("no list of regions")  # not the same as an empty list
    if isinstance(row, dict) and isinstance(kind, dict):
        result.check_drift(row, _ROW, _ROW)
        result.check_drift(kind, _TYPE, _TYPE - {"architecture"})
    if found is not None:
        result.offers += [_offer(found, region, observed_at) for region in regions if _is_region(region, result)]
    return found is not None


def _is_region(region: object, result: ParseResult) -> bool:
    name = at(region, "name")
    if isinstance(name, str) and _REGION.fullmatch(name):
        return True
    result.skip("no name of a region")
    return False


def _offer(kind: LambdaInstanceType, region: Mapping[str, Any], observed_at: datetime) -> Offer:
    offer_id = f"{kind.name}/{region['name']}"
    return kind.offer(
        provider=PROVIDER,
        offer_id=offer_id,
        machine_id=offer_id,
        usd_hour=kind.usd_hour,
        terms=kind.terms,
        observed_at=observed_at,
        region=region["name"],
        country=_country(region),
        cpu_arch=kind.cpu_arch,
    )


def _country(region: Mapping[str, Any]) -> str | None:
    place = word(region.get("description")) or ""
    country = _COUNTRIES.get(place.rpartition(",")[2].strip())
    return country or ("US" if region["name"].startswith("us-") else None)


def _gib_to_gb(gib: float | None) -> float | None:
    return None if gib is None else round(gib * _GB_PER_GIB, 1)
