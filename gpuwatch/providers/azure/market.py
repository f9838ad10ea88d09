"""Reads Microsoft Azure's retail price list.

All pages of a family are read and cached for a while. Most rows are not hourly prices of Linux machines.
source: the vendor's pages of the Retail Prices API (2023-01-01-preview), of its filters and of machine sizes, and
public readers of the list, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.toolkit.announced_end import marks_an_end
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import merge_answers, query_in_turn
from gpuwatch.providers.toolkit.list_prices import RowCountGuard, is_plausible, without_placeholders
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult
from gpuwatch.providers.toolkit.validation import number, parse_utc, usd_hour, word


class AzureMachine(NamedTuple):
    """The hardware of a machine type. `gpus` below 1: a fraction of one. `vcpu`: the number in its name."""

    gpu: str
    gpus: float
    memory_gib: float | None  # of the fraction; None: the whole card's


class _Type(NamedTuple):
    family: str
    pattern: str
    gpu: str
    gpus: float
    memory_gib: float | None = None


def _type(family: str, pattern: str, gpu: str, gpus: float, memory_gib: float | None = None) -> _Type:
    return _Type(family, f"Standard_{pattern}", gpu, gpus, memory_gib)


# The number in a name counts virtual processors, not GPUs. source: the vendor's pages of machine sizes.
_TYPES: Final = (
    _type("GB200", "ND128isrf?_(?:NDR_)?GB200_v6", "GB200", 4),
    _type("H200", "ND96isr?f?_H200_v5", "H200 SXM", 8),
    _type("H100", "ND96isr?f?_H100_v5", "H100 SXM", 8),
    _type("H100", "NCC?40ads_H100_v5", "H100 NVL", 1),
    _type("H100", "NC80adis_H100_v5", "H100 NVL", 2),
    _type("MI300X", "ND96isr?f?_MI300X_v5", "MI300X", 8),
    _type("A100", "ND96ams?r_A100_v4", "A100 SXM 80GB", 8),
    _type("A100", "ND96asr_v4", "A100 SXM 40GB", 8),
    _type("A100", "NC24ads_A100_v4", "A100 PCIe 80GB", 1),
    _type("A100", "NC48ads_A100_v4", "A100 PCIe 80GB", 2),
    _type("A100", "NC96ads_A100_v4", "A100 PCIe 80GB", 4),
    _type("A10", "NV6ads_A10_v5", "A10", 1 / 6, 4.0),
    _type("A10", "NV12ads_A10_v5", "A10", 1 / 3, 8.0),
    _type("A10", "NV18ads_A10_v5", "A10", 1 / 2, 12.0),
    _type("A10", "NV36adm?s_A10_v5", "A10", 1),
    _type("A10", "NV72ads_A10_v5", "A10", 2),
    _type("T4", "NC(?:4|8|16)as_T4_v3", "T4", 1),
    _type("T4", "NC64as_T4_v3", "T4", 4),
    _type("V100", "NC6s_v3", "V100 PCIe 16GB", 1),
    _type("V100", "NC12s_v3", "V100 PCIe 16GB", 2),
    _type("V100", "NC24r?s_v3", "V100 PCIe 16GB", 4),
    _type("V100", "ND40rs_v2", "V100 SXM2 32GB", 8),
)
_V100S: Final = ("NC6s_v3", "NC12s_v3", "NC24s_v3", "NC24rs_v3", "ND40rs_v2")
_FILTERS: Final[Mapping[str, str]] = {
    **{name: f"contains(armSkuName,'{name}')" for name in ("GB200", "H200", "H100", "MI300X")},
    "A100": "contains(armSkuName,'A100') or armSkuName eq 'Standard_ND96asr_v4'",
    "A10": "contains(armSkuName,'_A10_v5')",
    "T4": "contains(armSkuName,'_T4_v3')",
    "V100": " or ".join(f"armSkuName eq 'Standard_{name}'" for name in _V100S),
}


@cache
def listable_gpus() -> frozenset[str]:
    """Return the GPUs of the table: prices of others are not requested."""
    return frozenset(one.gpu for one in _TYPES)


def families_of(gpus: Iterable[str]) -> tuple[str, ...]:
    """Return the families to request for these GPUs; without GPUs: all families."""
    requested = set(gpus)
    return tuple(dict.fromkeys(one.family for one in _TYPES if not requested or one.gpu in requested))


def filter_of(family: str, regions: Iterable[str] = ()) -> str:
    """Return the OData filter for one family of GPUs. The filter `priceType` is the field `type` of a row."""
    parts = ["serviceName eq 'Virtual Machines'", "priceType eq 'Consumption'", f"({_FILTERS[family]})"]
    if places := " or ".join(f"armRegionName eq '{region}'" for region in regions):
        parts.append(f"({places})")
    return " and ".join(parts)


@cache
def machine(sku: str) -> AzureMachine | None:
    """Return the hardware of a machine type; None: it is not in the table."""
    found = next((one for one in _TYPES if re.fullmatch(one.pattern, sku)), None)
    return None if found is None else AzureMachine(found.gpu, found.gpus, found.memory_gib)


_PROVIDER: Final = "azure"
_REGION: Final = re.compile(r"[A-Za-z0-9]{2,40}")
_RESTRICTED_REGIONS: Final = re.compile(r"(?i)usgov.*|usdod.*|china.*|.*euap|.*stg")
_OTHER_PRODUCTS: Final = re.compile(r"Windows| Win\b|Cloud ?Services|Dedicated")
_NAMES: Final = ("meterName", "skuName")
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_REQUIRED_FIELDS: Final = frozenset(
    {"armSkuName", "armRegionName", "retailPrice", "unitOfMeasure", "meterName", "productName", "type"}
)
_KNOWN_FIELDS: Final = _REQUIRED_FIELDS | frozenset(
    {
        "availabilityId", "currencyCode", "effectiveEndDate", "effectiveStartDate", "isPrimaryMeterRegion", "location",
        "meterId", "productId", "reservationTerm", "savingsPlan", "serviceFamily", "serviceId", "serviceName", "skuId",
        "skuName", "tierMinimumUnits", "unitPrice",
    }
)  # fmt: skip


def parse_prices(rows: list[Any], observed_at: datetime) -> ParseResult:
    """Parse the offers of a price list. Pure. Raises PayloadChanged: no row is an hourly price."""
    result, prices = ParseResult(rows=len(rows)), dict[str, tuple[datetime, Offer]]()
    for row in rows:
        if not _is_readable(row):
            result.skip("a row without what a price needs")
            if isinstance(row, dict):
                result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
        elif (
            _is_linux_hour(row)
            and _is_in_effect(row, observed_at)
            and (offer := _offer(row, result, observed_at)) is not None
        ):
            _keep_newest(prices, offer, parse_utc(row.get("effectiveStartDate")) or _LONG_AGO)
    if rows and not prices:
        raise result.no_usable_row(
            f"azure: none of {count_text(len(rows), 'row')} is the price of an hour of a Linux machine"
        )
    if rows and isinstance(rows[0], dict):
        result.check_drift(rows[0], _KNOWN_FIELDS, _REQUIRED_FIELDS)
    result.offers = _note_undiscounted_spot(without_placeholders((prices[key][1] for key in sorted(prices)), result))
    return result


def _keep_newest(prices: dict[str, tuple[datetime, Offer]], offer: Offer, start: datetime) -> None:
    """Keep one price per offer: of two in force, the one that came into force last; of two from one day, the higher."""
    kept = prices.get(offer.offer_id)
    if kept is None or (start, offer.quoted_usd_hour) > (kept[0], kept[1].quoted_usd_hour):
        prices[offer.offer_id] = (start, offer)


def _is_readable(row: object) -> bool:
    """Whether all fields of a price are present; without the product's name, Windows would count as Linux."""
    return (
        isinstance(row, dict)
        and row.keys() >= _REQUIRED_FIELDS
        and all(isinstance(row[name], str) for name in ("productName", "meterName", "armRegionName"))
    )


def _is_linux_hour(row: Mapping[str, Any]) -> bool:
    """Whether this is the hourly price of a Linux machine, for everyone. Other rows are not errors."""
    return (
        row["type"] == "Consumption"
        and row["unitOfMeasure"] == "1 Hour"
        and not number(row.get("tierMinimumUnits"))
        and not _OTHER_PRODUCTS.search(row["productName"][:200])
        and not row.get("reservationTerm")
        and not _name_contains(row, "low priority")
        and not any(marks_an_end(row.get(name)) for name in (*_NAMES, "productName"))
        and not _RESTRICTED_REGIONS.fullmatch(row["armRegionName"][:80])
    )


def _is_in_effect(row: Mapping[str, Any], now: datetime) -> bool:
    """Whether the price applies now: an announced one, or one that has ended, may be listed beside it."""
    start, end = parse_utc(row.get("effectiveStartDate")), parse_utc(row.get("effectiveEndDate"))
    return (start is None or start <= now) and (end is None or now < end)


def _name_contains(row: Mapping[str, Any], words: str) -> bool:
    """Whether the name of the meter or the SKU contains it: there is no field, and one of the names may change."""
    return any(words in value[:200].lower() for name in _NAMES if isinstance(value := row.get(name), str))


def _offer(row: Mapping[str, Any], result: ParseResult, observed_at: datetime) -> Offer | None:
    sku, region = word(row["armSkuName"], 60), word(row["armRegionName"], 40)
    if sku is None or not sku.startswith("Standard_") or region is None or not _REGION.fullmatch(region):
        result.skip("a machine or a region without a usable name")
        return None
    machine_type = machine(sku)
    if machine_type is None:
        result.skip("a machine type that is in no table")
        result.drift[f"new machine type: {sku}"] = None
        return None
    price = usd_hour(row["retailPrice"])
    if row.get("currencyCode", "USD") != "USD" or price is None or not is_plausible(price, machine_type.gpus):
        result.skip("no price, or a placeholder")
        return None
    hardware, is_spot = _hardware(sku, machine_type), _name_contains(row, "spot")
    return hardware.offer(
        provider=_PROVIDER,
        offer_id=f"{sku}/{region}/{'spot' if is_spot else 'od'}"[:64],
        machine_id=f"{region}/{sku}"[:64],
        usd_hour=price,
        terms=_terms(sku, min(machine_type.gpus, 1.0)),
        observed_at=observed_at,
        spot=is_spot,
        region=region,
        cpu_arch="arm64" if machine_type.gpu == "GB200" else "x86_64",
        kind=OfferKind.LISTED,
    )


@cache
def _hardware(sku: str, machine_type: AzureMachine) -> MachineType:
    card, vcpus = catalog().get(machine_type.gpu), re.match(r"Standard_[A-Z]+(\d{1,3})", sku)
    return MachineType(
        gpu=catalog().resolve(machine_type.gpu),
        gpu_wire=sku,
        gpu_count=max(round(machine_type.gpus), 1),
        gpu_memory_gib=machine_type.memory_gib or (card.memory_gib if card else None),
        vcpu=float(vcpus[1]) if vcpus else None,
    )


@cache
def _terms(sku: str, gpu_fraction: float, note: str | None = None) -> OfferTerms:
    interconnect = "NVLink" if sku.startswith("Standard_ND") and "MI300X" not in sku else None
    return OfferTerms(instance_type=sku, gpu_fraction=gpu_fraction, interconnect=interconnect, note=note)


def _note_undiscounted_spot(offers: list[Offer]) -> list[Offer]:
    """Add a note to spot offers at the full price: there is no discount at the moment."""
    on_demand_usd_hour = {offer.machine_id: offer.quoted_usd_hour for offer in offers if not offer.spot}
    noted = []
    for offer in offers:
        if offer.spot and offer.quoted_usd_hour >= on_demand_usd_hour.get(offer.machine_id, float("inf")):
            sku = offer.terms.instance_type or ""
            terms = _terms(sku, offer.terms.gpu_fraction, "spot without a discount: the full price of this region")
            offer = msgspec.structs.replace(offer, terms=terms)  # noqa: PLW2901
        noted.append(offer)
    return noted


_PATH: Final = "/api/retail/prices"
_VERSION: Final = "2023-01-01-preview"  # since this version, filter values are case-sensitive
_PAGES_MAX: Final = 50  # of 1,000 rows: ten times the largest family


class AzureMarket(BasicMarket):
    """The market. Fetches and caches a family's prices, of all regions and both rental types."""

    listable = listable_gpus()

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        self._client = ApiClient(settings, tools, headers={})
        self._base_origin = _origin(settings.base_url)
        self._regions = _regions(settings.options.get("regions"))
        # Half a poll interval: each poll fetches again, and the watches of one poll share the result.
        self._cache: TtlCache[_FamilyPages] = TtlCache(settings.poll_every_s / 2, tools.monotonic)
        self._row_count_guard = RowCountGuard()

    def _read(self, query: Query, now: datetime) -> ParseResult:
        queries = ((family, partial(self._pages, family)) for family in families_of(query.gpus))
        return merge_answers(
            (family, pages if isinstance(pages, ProviderError) else self._parse(family, pages, now))
            for family, pages in query_in_turn(queries, one_server=True)
        )

    def _pages(self, family: str) -> _FamilyPages:
        return self._cache.get(partial(self._fetch_family, family), family)

    def _parse(self, family: str, pages: _FamilyPages, now: datetime) -> ParseResult:
        result = parse_prices(pages.rows, now)
        if not pages.is_complete:
            result.note_missing(f"{family}: its pages break off, or show less than a third of the usual prices")
            self._cache.invalidate(family)
        return result

    def _fetch_family(self, family: str) -> _FamilyPages:
        """Return all pages of one family's prices."""
        params = {"api-version": _VERSION, "$filter": filter_of(family, self._regions)}
        page = _page(self._client.get(_PATH, params))
        rows, links, is_complete = list(page.rows), set[str](), True
        while page.next_link is not None:
            if page.next_link in links or len(links) >= _PAGES_MAX or _origin(page.next_link) != self._base_origin:
                is_complete = False  # in a circle, endless, or at another host
                break
            links.add(page.next_link)
            page = _page(self._client.get(page.next_link))
            rows += page.rows
        if not rows and not self._regions:
            raise PayloadChanged(f"azure: no prices at all for {family}")
        return _FamilyPages(rows, is_complete and not self._row_count_guard.is_too_few(family, len(rows)))


class _FamilyPages(NamedTuple):
    rows: list[Any]
    is_complete: bool


class _Page(NamedTuple):
    rows: list[Any]
    next_link: str | None


def _page(value: object) -> _Page:
    rows = value.get("Items") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(rows, list):
        raise PayloadChanged("azure: the answer has no list of prices")
    link = value.get("NextPageLink")
    return _Page(rows, str(link) if link else None)


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Return the host of a URL; None: not a URL. Links in the price list contain the port, its own URL does not."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None


def _regions(option: object) -> tuple[str, ...]:
    """Return region names for the filter: lower case, no spaces; others would break it."""
    values = option if isinstance(option, tuple) else ()
    names = (str(value).replace(" ", "").lower() for value in values)
    return tuple(dict.fromkeys(name for name in names if _REGION.fullmatch(name)))
