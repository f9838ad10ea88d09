"""Parses rows of Azure's price list into offers. Most rows are not hourly prices of Linux machines.

source: the vendor's page of the Retail Prices API, and public readers of the list, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.providers.azure.machine_types import AzureMachine, machine
from gpuwatch.providers.toolkit.announced_end import marks_an_end
from gpuwatch.providers.toolkit.list_prices import is_plausible, without_placeholders
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import number, parse_utc, usd_hour, word

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
            _note_drift(result, row)
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
    return _build_offer(sku, region, machine_type, price, _name_contains(row, "spot"), observed_at)


def _build_offer(
    sku: str, region: str, machine_type: AzureMachine, price: float, spot: bool, observed_at: datetime
) -> Offer:
    card = catalog().get(machine_type.gpu)
    return Offer(
        provider=_PROVIDER,
        offer_id=f"{sku}/{region}/{'spot' if spot else 'od'}"[:64],
        machine_id=f"{region}/{sku}"[:64],
        gpu=machine_type.gpu,
        gpu_family=card.family if card else machine_type.gpu,
        gpu_wire=sku,
        gpu_known=card is not None,
        gpu_count=max(round(machine_type.gpus), 1),
        gpu_memory_gib=machine_type.memory_gib or (card.memory_gib if card else None),
        spot=spot,
        quoted_usd_hour=price,
        quoted_disk_gb=0.0,
        disk_usd_gb_month=None,
        observed_at=observed_at,
        region=region,
        datacenter=True,
        vcpu=_vcpus(sku),
        cpu_arch="arm64" if machine_type.gpu == "GB200" else "x86_64",
        kind=OfferKind.LISTED,
        terms=_terms(sku, min(machine_type.gpus, 1.0)),
    )


@cache
def _terms(sku: str, gpu_fraction: float, note: str | None = None) -> OfferTerms:
    interconnect = "NVLink" if sku.startswith("Standard_ND") and "MI300X" not in sku else None
    return OfferTerms(instance_type=sku, gpu_fraction=gpu_fraction, interconnect=interconnect, note=note)


@cache
def _vcpus(sku: str) -> float | None:
    found = re.match(r"Standard_[A-Z]+(\d{1,3})", sku)
    return float(found[1]) if found else None


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


def _note_drift(result: ParseResult, row: object) -> None:
    if isinstance(row, dict):
        result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
