"""RunPod's offer ids, and its catalogue parsed into offers. Pure.

A GPU type has one price per GPU everywhere in a cloud. The stock differs by cloud, GPU count and data centre, and is
requested for each GPU count separately. The price does not include the disk.
source: REST v2 specification 2.0.0, pricing page (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferTerms, Place
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word

SECURE: Final = "SECURE"
COMMUNITY: Final = "COMMUNITY"
ANYWHERE: Final = "*"
_MAX_LENGTH: Final = 64  # characters of an id in the store
_VENDOR: Final = "NVIDIA "
_SHORT_VENDOR: Final = "~"  # replaces the maker if the whole id is too long
_PLACE: Final = re.compile(r"[A-Z0-9][A-Z0-9-]{0,30}")
_GPU: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()-]{0,79}")
_CLOUDS: Final = {SECURE: SECURE, COMMUNITY: COMMUNITY, "S": SECURE, "C": COMMUNITY}
_COUNT: Final = re.compile(r"[1-9][0-9]{0,2}")

# Known data centres; the list grows, and ids do not follow a rule ("EU-SE-1" is Sweden, "SEA-SG-1" is not).
# source: SkyPilot 0.14.1's catalogue, read 2026-11.
_COUNTRY: Final[dict[str, tuple[str, ...]]] = {
    "AU": ("OC-AU-1",),
    "CA": ("CA-MTL-1", "CA-MTL-2", "CA-MTL-3", "CA-MTL-4"),
    "CZ": ("EU-CZ-1",),
    "DK": ("EU-DK-1",),
    "FR": ("EU-FR-1",),
    "IN": ("AP-IN-1", "AP-IN-2"),
    "IS": ("EUR-IS-1", "EUR-IS-2", "EUR-IS-3", "EUR-IS-4", "EUR-IS-5"),
    "JP": ("AP-JP-1",),
    "NL": ("EU-NL-1",),
    "NO": ("EUR-NO-1", "EUR-NO-2"),
    "RO": ("EU-RO-1",),
    "SE": ("EU-SE-1", "EU-SE-2"),
    "SG": ("SEA-SG-1",),
    "US": (
        "US-CA-1", "US-CA-2", "US-CO-1", "US-DE-1", "US-GA-1", "US-GA-2", "US-IL-1", "US-KS-1", "US-KS-2", "US-KS-3",
        "US-MD-1", "US-MO-1", "US-MO-2", "US-NC-1", "US-NC-2", "US-NE-1", "US-OR-1", "US-OR-2", "US-PA-1", "US-TX-1",
        "US-TX-2", "US-TX-3", "US-TX-4", "US-TX-5", "US-TX-6", "US-WA-1",
    ),
}  # fmt: skip
_COUNTRY_OF: Final = {place: country for country, places in _COUNTRY.items() for place in places}


class PodPlacement(msgspec.Struct, frozen=True):
    """What a create needs; `place` None: any place with stock."""

    gpu_id: str
    cloud: str
    count: int
    place: str | None


def country_of(place: str | None) -> str | None:
    """Return the ISO 3166 alpha-2 country of a data centre; None: unknown."""
    return _COUNTRY_OF.get(place or "")


def is_place(text: str | None) -> bool:
    """Return whether this can be the id of a data centre."""
    return text is not None and _PLACE.fullmatch(text) is not None


def offer_id(placement: PodPlacement) -> str | None:
    """Return `NVIDIA H100 80GB HBM3/SECURE/8/EU-RO-1`, or a short form that `parse_offer_id` parses; None: too long."""
    return _shortened(placement, (str(placement.count), placement.place or ANYWHERE))


def machine_id(placement: PodPlacement) -> str | None:
    """Return the id of a price series: GPU type, cloud and place. RunPod does not name hosts."""
    return _shortened(placement, (placement.place or ANYWHERE,))


def parse_offer_id(text: str) -> PodPlacement | None:
    """Parse an offer id; None: it is not one."""
    parts = text.rsplit("/", 3)
    if len(parts) != 4:
        return None
    gpu_id, cloud, count, place = parts
    if gpu_id.startswith(_SHORT_VENDOR):
        gpu_id = _VENDOR + gpu_id.removeprefix(_SHORT_VENDOR)
    is_valid = _GPU.fullmatch(gpu_id) and cloud in _CLOUDS and _COUNT.fullmatch(count)
    if not is_valid or not (place == ANYWHERE or is_place(place)):
        return None
    return PodPlacement(gpu_id, _CLOUDS[cloud], int(count), None if place == ANYWHERE else place)


def _shortened(placement: PodPlacement, suffix: tuple[str, ...]) -> str | None:
    if not _GPU.fullmatch(placement.gpu_id):
        return None
    full_id = "/".join((placement.gpu_id, placement.cloud, *suffix))
    if len(full_id) <= _MAX_LENGTH:
        return full_id
    gpu_id = placement.gpu_id
    if gpu_id.startswith(_VENDOR):
        gpu_id = _SHORT_VENDOR + gpu_id.removeprefix(_VENDOR)
    short_id = "/".join((gpu_id, placement.cloud[0], *suffix))
    return short_id if len(short_id) <= _MAX_LENGTH else None


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


class GpuTypeRow(NamedTuple):
    """One GPU type in one cloud, for one GPU count."""

    gpu_id: str
    memory_gb: int | None  # of one GPU
    gpu_usd_hour: float | None  # of one GPU, without disk
    is_in_stock: bool
    max_count: int | None
    places: Iterable[str | None]  # None: somewhere
    somewhere: tuple[str, ...] = ()  # data centres in which a pod without a place may be
    cuda: float | None = None  # minimum version of all hosts


def parse_catalogue(value: Any, request: CatalogueRequest) -> ParseResult:
    """Parse the offers of one cloud and one GPU count.

    Raises:
        PayloadChanged: it is not a catalogue, or none of its rows is usable.
    """
    return parse_types(gpu_types(value), request, _read_type)


def parse_types(
    rows: Iterable[Mapping[str, Any]],
    request: CatalogueRequest,
    read: Callable[[Mapping[str, Any], CatalogueRequest, ParseResult], GpuTypeRow | None],
) -> ParseResult:
    """Parse the offers of GPU types. A catalogue without a usable row is not a market without offers.

    Args:
        read: returns one type; None: it is not sold in this cloud, so that a leftover price is ignored. Raises
            RowSkipped.

    Raises:
        PayloadChanged: no row is usable.
    """
    result, usable_rows = ParseResult(), 0
    for one in rows:
        result.rows += 1
        if one.get("id") == SENTINEL or is_ending(one, request.observed_at):
            continue
        with result.counting_skips():
            found = read(one, request, result)
            if found is None:
                continue
            if found.is_in_stock and found.gpu_usd_hour is None:
                raise RowSkipped("no price")
            usable_rows += 1
            result.offers += _offers(found, request)
    if result.skipped and not usable_rows:
        raise PayloadChanged(f"{PROVIDER}: no row of the catalogue can be used: {next(iter(result.skipped))}")
    return result


def _read_type(one: Mapping[str, Any], request: CatalogueRequest, result: ParseResult) -> GpuTypeRow | None:
    """Read a type of REST v2. A community order that names a data centre is refused, even where stock is listed.

    source: issue 326 of the vendor's runpodctl, 2026-08
    """
    cloud, stock = request.cloud.lower(), one.get("availability")
    if one.get(cloud) is False:
        return None
    result.check_drift(one, _TYPE_FIELDS, _REQUIRED_FIELDS)
    gpu_id = gpu_id_of(one)
    if one.get(cloud) is not True:
        raise RowSkipped(f"{cloud} is not true or false")
    if not isinstance(stock, str) or stock not in _STOCK:
        raise RowSkipped("availability is not understood")
    is_community = request.cloud == COMMUNITY
    places = _places(one, result) if _STOCK[stock] else []
    return GpuTypeRow(
        gpu_id=gpu_id,
        memory_gb=whole(one.get("memory"), 1, 4096),
        gpu_usd_hour=usd_hour(at(one, "price", cloud)),
        is_in_stock=_STOCK[stock],
        max_count=_max_count(one, request.cloud),
        places=(None,) if is_community else places,
        somewhere=tuple(place for place in places if place is not None) if is_community else (),
        cuda=_min_cuda(one),
    )


def gpu_id_of(one: Mapping[str, Any]) -> str:
    """Return the id of a GPU type. Raises RowSkipped."""
    gpu_id = word(one.get("id"), 80)
    if gpu_id is None or one.get("id") != gpu_id:
        raise RowSkipped("no id of a GPU type")
    return gpu_id


def _offers(one: GpuTypeRow, request: CatalogueRequest) -> Iterator[Offer]:
    """Yield the offers of a type, one per place. Raises RowSkipped: its id cannot be kept."""
    if not one.is_in_stock or one.gpu_usd_hour is None or (one.max_count is not None and request.count > one.max_count):
        return
    for place in one.places:
        offer = _offer(one, one.gpu_usd_hour, PodPlacement(one.gpu_id, request.cloud, request.count, place), request)
        if offer is None:
            raise RowSkipped("its id is not one that can be kept")
        yield offer


def _offer(one: GpuTypeRow, gpu_usd_hour: float, placement: PodPlacement, request: CatalogueRequest) -> Offer | None:
    """Build one offer; None: its id does not fit the store."""
    identity, machine, memory_gb = offer_id(placement), machine_id(placement), one.memory_gb
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
        cuda_max=one.cuda,
        terms=_terms(placement.gpu_id, one.somewhere),
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
    found = whole(at(one, "maxCount", cloud.lower()), 1)
    return None if found is None else min(found, MAX_GPUS)
