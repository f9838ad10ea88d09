"""Parses RunPod's catalogue into offers. Pure.

A GPU type has one price per GPU everywhere in a cloud. The stock differs by cloud, GPU count and data centre, and is
requested for each GPU count separately. The price does not include the disk.
source: REST v2 specification 2.0.0, pricing page (read 2026-11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferTerms, Place
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.runpod.offer_ids import (
    COMMUNITY,
    SECURE,
    PodPlacement,
    country_of,
    is_place,
    machine_id,
    offer_id,
)
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import number, objects, usd_hour, whole, word

PROVIDER: Final = "runpod"
# 0.10 $ a month per GB of container disk while it runs; RunPod's month is taken as 730 h, gpuwatch's has 720.
_RUNPOD_MONTH_H: Final = 730
DISK_USD_GB_HOUR: Final = 0.10 / _RUNPOD_MONTH_H
STOPPED_DISK_USD_GB_HOUR: Final = 0.20 / _RUNPOD_MONTH_H  # of a volume disk; the container disk is wiped
DISK_USD_GB_MONTH: Final = DISK_USD_GB_HOUR * HOURS_A_MONTH
MAX_GPUS: Final = 16  # in one pod; larger numbers are implausible
_STOCK: Final = {"LOW": True, "MEDIUM": True, "HIGH": True, "NONE": False}
_COMMUNITY_NOTE: Final = (
    "community cloud: a pod may be anywhere. RunPod lists stock in {}, but refuses most orders that name a place, as"
    " orders of a watch with `regions` do"
)
SENTINEL: Final = "unknown"  # an entry of their database that is not a GPU type
_TYPE_FIELDS: Final = frozenset({
    "id", "name", "pool", "manufacturer", "memory", "secure", "community", "price", "maxCount", "availability",
    "dataCenters", "cudaVersions",
})  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"id", "memory", "price", "availability", "secure", "community"})


class CatalogueRequest(msgspec.Struct, frozen=True):
    """The parameters of one catalogue request."""

    cloud: str
    count: int
    disk_gb: float  # included in the quoted price
    observed_at: datetime


def gpu_types(value: Any) -> list[Mapping[str, Any]]:
    """Return the types of an answer. Raises PayloadChanged, also if there are none."""
    rows = value.get("gpus") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not rows:
        raise PayloadChanged(f"{PROVIDER}: the catalogue contains no list of GPUs")
    return objects(rows) or [{}]


def max_gpus_per_pod(types: list[Mapping[str, Any]], cloud: str, gpus: Collection[str] = ()) -> int:
    """Return the largest plausible pod in a cloud with the wanted GPUs (empty: any)."""
    counts = [_max_count(one, cloud) for one in types if not gpus or _name(one) in gpus]
    return max((count for count in counts if count is not None), default=1)


def parse_catalogue(value: Any, request: CatalogueRequest) -> ParseResult:
    """Parse the offers of one cloud and one GPU count.

    Raises:
        PayloadChanged: it is not a catalogue, or none of its rows is usable.
    """
    result, usable_rows = ParseResult(), 0
    for gpu_type in gpu_types(value):
        result.rows += 1
        if gpu_type.get("id") == SENTINEL or gpu_type.get(request.cloud.lower()) is False:
            continue  # not sold in this cloud: ignore its leftover price
        if is_ending(gpu_type, request.observed_at):
            continue
        result.check_drift(gpu_type, _TYPE_FIELDS, _REQUIRED_FIELDS)
        reason = _skip_reason(gpu_type, request.cloud)
        if reason is not None:
            result.skip(reason)
            continue
        usable_rows += 1
        result.offers += _offers(gpu_type, request, result)
    require_usable_row(usable_rows, result)
    return result


def require_usable_row(usable_rows: int, result: ParseResult) -> None:
    """Reject a catalogue without a usable row: it is not a market without offers. Raises PayloadChanged."""
    if result.skipped and not usable_rows:
        raise PayloadChanged(f"{PROVIDER}: no row of the catalogue can be used: {next(iter(result.skipped))}")


def _skip_reason(one: Mapping[str, Any], cloud: str) -> str | None:
    """Return why a row is skipped; None: it is usable."""
    gpu_id, stock = word(one.get("id"), 80), one.get("availability")
    if gpu_id is None or one.get("id") != gpu_id:
        return "no id of a GPU type"
    if one.get(cloud.lower()) is not True:
        return f"{cloud.lower()} is not true or false"
    if not isinstance(stock, str) or stock not in _STOCK:
        return "availability is not understood"
    if _STOCK[stock] and usd_hour(_value_for_cloud(one.get("price"), cloud)) is None:
        return "no price"
    return None


def _offers(one: Mapping[str, Any], request: CatalogueRequest, result: ParseResult) -> Iterator[Offer]:
    """Yield the offers of a usable row: one per data centre of the secure cloud, one for the community cloud.

    A community order that names a data centre is refused, also if the catalogue lists stock there.
    source: issue 326 of the vendor's runpodctl, 2026-08
    """
    price, max_count = usd_hour(_value_for_cloud(one.get("price"), request.cloud)), _max_count(one, request.cloud)
    if not _STOCK[one["availability"]] or price is None or (max_count is not None and request.count > max_count):
        return
    places = _places(one, result)
    somewhere = tuple(place for place in places if place is not None) if request.cloud == COMMUNITY else ()
    for place in (None,) if request.cloud == COMMUNITY else places:
        placement = PodPlacement(one["id"], request.cloud, request.count, place)
        memory_gb = whole(one.get("memory"), 1, 4096)
        offer = offer_of(placement, price, memory_gb, request, _min_cuda(one), places=somewhere)
        if offer is None:
            result.skip("its id is not one that can be kept")
            return
        yield offer


def offer_of(
    placement: PodPlacement,
    gpu_usd_hour: float,
    memory_gb: int | None,
    request: CatalogueRequest,
    cuda: float | None = None,
    places: tuple[str, ...] = (),
) -> Offer | None:
    """Build one offer; None: its id does not fit the store.

    Args:
        gpu_usd_hour: per GPU, without disk.
        memory_gb: per GPU.
        cuda: minimum version of all hosts.
        places: data centres in which a pod without a place may be.
    """
    identity, machine = offer_id(placement), machine_id(placement)
    if identity is None or machine is None:
        return None
    gpu = catalog().resolve(placement.gpu_id, memory_gb)
    return Offer(
        provider=PROVIDER,
        offer_id=identity,
        machine_id=machine,
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=placement.gpu_id,
        gpu_known=gpu.known,
        gpu_count=placement.count,
        gpu_memory_gib=memory_gb,
        spot=False,
        quoted_usd_hour=gpu_usd_hour * placement.count + request.disk_gb * DISK_USD_GB_HOUR,
        quoted_disk_gb=request.disk_gb,
        disk_usd_gb_month=DISK_USD_GB_MONTH,
        observed_at=request.observed_at,
        region=placement.place,
        country=country_of(placement.place),
        datacenter=True if placement.cloud == SECURE else None,
        download_usd_gb=0.0,
        upload_usd_gb=0.0,
        cuda_max=cuda,
        terms=_terms(placement.gpu_id, places),
    )


def _places(one: Mapping[str, Any], result: ParseResult) -> list[str | None]:
    """Return the data centres with stock now. Without a list of them: "somewhere"."""
    data_centres = one.get("dataCenters")
    if data_centres is None:
        return [None]
    rows = objects(data_centres)
    if not rows:
        return [None]
    places: dict[str | None, None] = {}
    for row in rows:
        place, stock = word(row.get("id"), 40), row.get("availability")
        if not is_place(place) or not isinstance(stock, str) or stock not in _STOCK:
            result.skip("a data centre is not understood")
        elif _STOCK[stock]:
            places[place] = None
    return list(places)


def _min_cuda(one: Mapping[str, Any]) -> float | None:
    """Return the lowest of the hosts' CUDA versions: every host has at least that. None: unknown for some hosts."""
    rows = objects(one.get("cudaVersions"))
    usable_rows = [number(row.get("version"), 1.0, 1000.0) for row in rows if row.get("available") is True]
    return min((row for row in usable_rows if row is not None), default=None) if None not in usable_rows else None


@lru_cache(maxsize=512)
def _terms(gpu_id: str, places: tuple[str, ...]) -> OfferTerms:
    """Share one value among all offers of a type. A MIG slice is a part of a GPU."""
    return OfferTerms(
        fungible=True,
        gpu_fraction=gpu_fraction(gpu_id),
        places=tuple(Place(place, country_of(place)) for place in places),
        note=_COMMUNITY_NOTE.format(", ".join(places)) if places else None,
    )


def _name(one: Mapping[str, Any]) -> str:
    return catalog().resolve(word(one.get("id"), 80) or "", whole(one.get("memory"), 1, 4096)).name


def _max_count(one: Mapping[str, Any], cloud: str) -> int | None:
    found = whole(_value_for_cloud(one.get("maxCount"), cloud), 1)
    return None if found is None else min(found, MAX_GPUS)


def _value_for_cloud(value: Any, cloud: str) -> Any:
    return value.get(cloud.lower()) if isinstance(value, dict) else None
