"""Microsoft Azure's retail price list: on demand and spot, per region, without an account. A price, never stock.

source: the vendor's page of the Retail Prices API (2023-01-01-preview) and public readers of it, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, partial
from itertools import groupby
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gpuwatch.adapting import Adapter, OptionSpec, ProviderInfo, Tools
from gpuwatch.adapting.answering import Seen, answer
from gpuwatch.adapting.asking import Remembered, Rest
from gpuwatch.adapting.listed import Usual, is_plausible, without_placeholders
from gpuwatch.adapting.untrusted import number, usd_hour, word
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.market.gpu_names import catalog
from gpuwatch.market.offer import Offer, OfferKind, Terms
from gpuwatch.ports import Answer, ProviderSettings, Query

INFO = ProviderInfo(
    name="azure",
    title="Microsoft Azure",
    base_url="https://prices.azure.com",
    searches_without_key=True,
    runs_images=False,
    kinds=(OfferKind.LISTED,),
    spots=(False, True),
    options=(
        OptionSpec(
            name="regions", kind="texts", about='Regions to ask about, such as ["eastus", "westeurope"]; default: all.'
        ),
    ),
    poll_every_s=6 * 3600.0,
    search_interval_s=1.0,
    console_url="https://portal.azure.com",
)
_PATH: Final = "/api/retail/prices"
_VERSION: Final = "2023-01-01-preview"  # from here on the values of a filter are case-sensitive
_PAGES_MAX: Final = 50  # of 1,000 rows: ten times the largest family
_REGION: Final = re.compile(r"[A-Za-z0-9]{2,40}")
_NOT_FOR_EVERYONE: Final = re.compile(r"(?i)usgov.*|usdod.*|china.*|.*euap|.*stg")
_OTHER_PRODUCTS: Final = re.compile(r"Windows| Win\b|Cloud ?Services|Dedicated")
_NEEDED: Final = frozenset(
    {"armSkuName", "armRegionName", "retailPrice", "unitOfMeasure", "meterName", "productName", "type"}
)
_KNOWN: Final = _NEEDED | frozenset(
    {
        "availabilityId", "currencyCode", "effectiveEndDate", "effectiveStartDate", "isPrimaryMeterRegion", "location",
        "meterId", "productId", "reservationTerm", "savingsPlan", "serviceFamily", "serviceId", "serviceName", "skuId",
        "skuName", "tierMinimumUnits", "unitPrice",
    }
)  # fmt: skip


class Machine(NamedTuple):
    """What is in one type of virtual machine. `gpus` under 1: a part of one. `vcpu`: the number in its name."""

    gpu: str
    gpus: float
    memory_gib: float | None  # of the part; None: the whole card's


class _Type(NamedTuple):
    family: str
    pattern: re.Pattern[str]
    gpu: str
    gpus: float
    memory_gib: float | None = None


def _type(family: str, pattern: str, gpu: str, gpus: float, memory_gib: float | None = None) -> _Type:
    return _Type(family, re.compile(f"Standard_{pattern}"), gpu, gpus, memory_gib)


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


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """The adapter; the price list is public, and no key is ever sent to it."""
    return Adapter(name=INFO.name, info=INFO, market=AzureMarket(settings, tools))


class AzureMarket:
    """The search side. A family's prices, of all regions and both rental types, are fetched at once and kept."""

    name = INFO.name

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        self._rest = Rest(settings, tools, headers={})
        self._tools = tools
        self._home = _origin(settings.base_url)
        self._regions = _regions(settings.options.get("regions"))
        # Half a poll: each poll asks anew, and the watches of one poll share what was fetched.
        self._kept: Remembered[_Walk] = Remembered(settings.poll_every_s / 2, tools.monotonic)
        self._usual = Usual()

    def search(self, query: Query) -> Answer:
        """Prices that fit. A family that fails makes the answer a part; nothing at all is the first one's error.

        Raises:
            ProviderError: no usable answer at all.
        """
        began, now = self._tools.monotonic(), self._tools.now()
        seen, failed = Seen(searches=0), None
        for family in families_of(query.gpus):
            try:
                walk = self._kept.get(partial(self._walk, family), family)
            except ProviderError as error:
                failed = failed or error
                seen.skip(f"{family}: no answer")
                if not isinstance(error, PayloadChanged):
                    break  # the server is away, or does not want to be asked: so it is for the other families
                continue
            _join(seen, parse_prices(walk.rows, now))
            if not walk.whole:
                seen.partial = True
                self._kept.forget(family)
        if failed is not None and not seen.searches:
            raise failed
        seen.partial |= failed is not None
        elapsed_s = self._tools.monotonic() - began
        return answer(seen, query, self.name, observed_at=now, elapsed_s=elapsed_s)

    def _walk(self, family: str) -> _Walk:
        """All pages of one family's prices."""
        params = {"api-version": _VERSION, "$filter": filter_of(family, self._regions)}
        page = _page(self._rest.get(_PATH, params))
        rows, links, whole = list(page.rows), set[str](), True
        while page.next_link is not None:
            if page.next_link in links or len(links) >= _PAGES_MAX or _origin(page.next_link) != self._home:
                whole = False  # in a circle, without an end, or to a stranger
                break
            links.add(page.next_link)
            page = _page(self._rest.get(page.next_link))
            rows += page.rows
        if not rows and not self._regions:
            raise PayloadChanged(f"azure: no prices at all for {family}")
        return _Walk(rows, whole and not self._usual.is_too_few(family, len(rows)))


class _Walk(NamedTuple):
    rows: list[Any]
    whole: bool


class _Page(NamedTuple):
    rows: list[Any]
    next_link: str | None


def families_of(gpus: Iterable[str]) -> tuple[str, ...]:
    """The families that must be asked for these GPUs; none named: all that there are."""
    wanted = set(gpus)
    return tuple(dict.fromkeys(one.family for one in _TYPES if not wanted or one.gpu in wanted))


def filter_of(family: str, regions: Iterable[str] = ()) -> str:
    """The OData filter for one family of GPUs. `priceType` is a filter's name; in a row the field is `type`."""
    parts = ["serviceName eq 'Virtual Machines'", "priceType eq 'Consumption'", f"({_FILTERS[family]})"]
    if places := " or ".join(f"armRegionName eq '{region}'" for region in regions):
        parts.append(f"({places})")
    return " and ".join(parts)


def parse_prices(rows: list[Any], observed_at: datetime) -> Seen:
    """Offers out of the rows of a price list. Pure.

    Raises:
        PayloadChanged: not one row was understood.
    """
    seen = Seen(rows=len(rows))
    understood, offers = 0, []
    for row in rows:
        if not isinstance(row, dict) or not row.keys() >= _NEEDED:
            seen.skip("a row without what a price needs")
            _note_drift(seen, row)
            continue
        understood += 1
        if _is_ours(row) and (offer := _offer(row, seen, observed_at)) is not None:
            offers.append(offer)
    if rows and not understood:
        raise PayloadChanged("azure: no row of the price list has the fields of a price")
    if rows and isinstance(rows[0], dict):
        seen.look_for_drift(rows[0], _KNOWN, _NEEDED)
    seen.offers = _without_false_spot(without_placeholders(_once(offers), seen))
    return seen


@cache
def machine(sku: str) -> Machine | None:
    """What is in a type of machine; None: the table does not say."""
    found = next((one for one in _TYPES if one.pattern.fullmatch(sku)), None)
    return None if found is None else Machine(found.gpu, found.gpus, found.memory_gib)


def _is_ours(row: Mapping[str, Any]) -> bool:
    """Whether this is the price of an hour of a Linux machine, for everyone. The others are no faults."""
    return (
        row["type"] == "Consumption"
        and row["unitOfMeasure"] == "1 Hour"
        and not number(row.get("tierMinimumUnits"))
        and not _OTHER_PRODUCTS.search(str(row["productName"])[:200])
        and "Low Priority" not in str(row["meterName"])[:200]
        and not _NOT_FOR_EVERYONE.fullmatch(str(row["armRegionName"])[:80])
    )


def _offer(row: Mapping[str, Any], seen: Seen, observed_at: datetime) -> Offer | None:
    sku, region = word(row["armSkuName"], 60), word(row["armRegionName"], 40)
    if sku is None or not sku.startswith("Standard_") or region is None or not _REGION.fullmatch(region):
        seen.skip("a machine or a region without a usable name")
        return None
    found = machine(sku)
    if found is None:
        seen.skip("a machine type that is in no table")
        seen.drift[f"new machine type: {sku}"] = None
        return None
    price = usd_hour(row["retailPrice"])
    if row.get("currencyCode", "USD") != "USD" or price is None or not is_plausible(price, found.gpus):
        seen.skip("no price, or a placeholder")
        return None
    return _made(sku, region, found, price, "Spot" in str(row["meterName"]), observed_at)


def _made(sku: str, region: str, found: Machine, price: float, spot: bool, observed_at: datetime) -> Offer:
    card = catalog().get(found.gpu)
    return Offer(
        provider=INFO.name,
        offer_id=f"{sku}/{region}/{'spot' if spot else 'od'}"[:64],
        machine_id=f"{region}/{sku}"[:64],
        gpu=found.gpu,
        gpu_family=card.family if card else found.gpu,
        gpu_wire=sku,
        gpu_known=card is not None,
        gpu_count=max(round(found.gpus), 1),
        gpu_memory_gib=found.memory_gib or (card.memory_gib if card else None),
        spot=spot,
        quoted_usd_hour=price,
        quoted_disk_gb=0.0,
        disk_usd_gb_month=None,
        observed_at=observed_at,
        region=region,
        datacenter=True,
        vcpu=_vcpus(sku),
        cpu_arch="arm64" if found.gpu == "GB200" else "x86_64",
        kind=OfferKind.LISTED,
        terms=_terms(sku, min(found.gpus, 1.0)),
    )


@cache
def _terms(sku: str, gpu_fraction: float, note: str | None = None) -> Terms:
    together = "NVLink" if sku.startswith("Standard_ND") and "MI300X" not in sku else None
    return Terms(instance_type=sku, gpu_fraction=gpu_fraction, interconnect=together, note=note)


@cache
def _vcpus(sku: str) -> float | None:
    found = re.match(r"Standard_[A-Z]+(\d{1,3})", sku)
    return float(found[1]) if found else None


def _once(offers: Iterable[Offer]) -> list[Offer]:
    """A walk over live data may bring a row twice; of several meters of one thing the cheapest counts."""

    def thing(offer: Offer) -> tuple[str, float]:
        return offer.offer_id, offer.quoted_usd_hour

    return [next(same) for _, same in groupby(sorted(offers, key=thing), lambda offer: offer.offer_id)]


def _without_false_spot(offers: list[Offer]) -> list[Offer]:
    """Spot at the full price is listed where there is no discount to give: it is kept, and says so."""
    full = {offer.machine_id: offer.quoted_usd_hour for offer in offers if not offer.spot}
    told = []
    for offer in offers:
        if offer.spot and offer.quoted_usd_hour >= full.get(offer.machine_id, float("inf")):
            sku = offer.terms.instance_type or ""
            terms = _terms(sku, offer.terms.gpu_fraction, "spot without a discount: the full price of this region")
            offer = msgspec.structs.replace(offer, terms=terms)  # noqa: PLW2901
        told.append(offer)
    return told


def _page(value: object) -> _Page:
    rows = value.get("Items") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(rows, list):
        raise PayloadChanged("azure: an answer without a list of prices")
    link = value.get("NextPageLink")
    return _Page(rows, link if isinstance(link, str) and link else None)


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Who is asked; None: not an address. The links of the price list name the port, its address does not."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None


def _regions(option: object) -> tuple[str, ...]:
    """Names of regions as the filter wants them: small letters, no blanks; what is none would break the filter."""
    told = option if isinstance(option, tuple) else ()
    names = (str(one).replace(" ", "").lower() for one in told)
    return tuple(dict.fromkeys(name for name in names if _REGION.fullmatch(name)))


def _join(seen: Seen, more: Seen) -> None:
    seen.offers += more.offers
    seen.rows += more.rows
    seen.searches += more.searches
    seen.drift |= more.drift
    for reason, rows in more.skipped.items():
        seen.skipped[reason] = seen.skipped.get(reason, 0) + rows


def _note_drift(seen: Seen, row: object) -> None:
    if isinstance(row, dict):
        seen.look_for_drift(row, _KNOWN, _NEEDED)
