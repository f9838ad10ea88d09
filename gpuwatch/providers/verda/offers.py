"""Verda's offers: instance types × the places with stock, on demand and as spot, including the system disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word
from gpuwatch.providers.verda.client import PROVIDER

MIN_DISK_GB: Final = 50.0  # the minimum of dstack's backend. assumed: the vendor states none
_DISK_TYPE: Final = "NVMe"  # of a system disk
_DISK_PRICE_TTL_S: Final = 3600.0
_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_PLACE: Final = re.compile(r"[A-Z0-9-]{1,16}")
_COUNT_FIRST: Final = re.compile(r"^(\d{1,3})\s?x\s+")
_COUNTRIES: Final = {"FIN": "FI", "ICE": "IS"}  # source: the places that the vendor's client names
_KNOWN_FIELDS: Final = frozenset(
    {
        "id", "instance_type", "price_per_hour", "spot_price", "spot_price_per_hour", "description", "cpu", "gpu",
        "memory", "gpu_memory", "storage", "best_for", "model", "name", "p2p", "currency", "manufacturer",
        "display_name", "supported_os", "deploy_warning", "serverless_price", "serverless_spot_price",
        "dynamic_price", "max_dynamic_price",
    }
)  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"instance_type", "price_per_hour", "gpu", "gpu_memory"})


class VerdaInstanceType(MachineType, frozen=True, kw_only=True):
    """One parsed instance type. `usd_hours`: price without disk by rental type; False is on demand."""

    name: str
    usd_hours: Mapping[bool, float]


class OfferReader:
    """Fetches types, stock and disk prices; caches disk prices for an hour."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._disk_prices: TtlCache[float] = TtlCache(_DISK_PRICE_TTL_S, monotonic)

    def fetch(self, client: ApiClient) -> tuple[ParseResult, datetime]:
        """Return Verda's types wherever they are in stock. Raises ProviderError."""
        disk_usd = self._disk_prices.get(lambda: disk_usd_gb_month(client.get("/volume-types")))
        types = client.get("/instance-types", {"currency": "usd"})
        skipped_rows = ParseResult(searches=0)
        stock = {
            spot: parse_stock(client.get("/instance-availability", {"isSpot": is_spot_text}), skipped_rows)
            for spot, is_spot_text in ((False, "false"), (True, "true"))
        }
        now = client.tools.now()
        result = parse_types(types, stock, disk_usd, now)
        result.add(skipped_rows)
        result.searches = 1 + len(stock)
        return result, now


def disk_usd_gb_month(value: object) -> float:
    """Return the price of a GB of system disk for 720 hours. Raises PayloadChanged: it is not in dollars."""
    for row in objects(value):
        price = at(row, "price", "price_per_month_per_gb")
        if row.get("type") == _DISK_TYPE and (found := number(price, 0.0, 100.0)) is not None:
            if str(at(row, "price", "currency")).casefold() != "usd":
                break
            return found
    raise PayloadChanged(f"{PROVIDER}: no price of an {_DISK_TYPE} disk in US dollars")


def parse_stock(value: object, result: ParseResult) -> dict[str, list[str]]:
    """Parse place → types in stock there; a malformed row makes the answer partial.

    Raises:
        PayloadChanged: it is not a list of places, or none of them is usable.
    """
    if not isinstance(value, list):
        raise PayloadChanged(f"{PROVIDER}: the answer has no stock by location")
    found: dict[str, list[str]] = {}
    for row in value:
        place, names = at(row, "location_code"), at(row, "availabilities")
        if isinstance(place, str) and _PLACE.fullmatch(place) and _is_texts(names):
            found.setdefault(place, []).extend(names)
        else:
            result.note_missing("the stock of a place cannot be read")
    if value and not found:
        raise PayloadChanged(f"{PROVIDER}: the stock of no place can be read")
    return found


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def parse_types(
    value: object, stock: Mapping[bool, Mapping[str, list[str]]], disk_usd: float, observed_at: datetime
) -> ParseResult:
    """Parse the offers of `GET /instance-types`: one per type, place and rental type in stock. Pure.

    If no place is listed for either rental type, the answer is partial: a place without stock has an empty list.

    Raises:
        PayloadChanged: it is not a list of types, or none of them is usable.
    """
    if not isinstance(value, list) or not value:
        raise PayloadChanged(f"{PROVIDER}: the answer is not a list of instance types")

    def read(row: object, result: ParseResult) -> bool:
        if isinstance(row, dict):
            result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
        if (kind := parse_type(row)) is None:
            return False
        result.offers += _offers(kind, stock, disk_usd, observed_at)
        return True

    result = read_types(value, PROVIDER, read, observed_at)
    if not any(stock.values()):
        result.note_missing("no place is listed with its stock")
    return result


def parse_type(row: object) -> VerdaInstanceType | None:
    """Parse one instance type; None: it has no GPU. Raises RowSkipped: not a type, or malformed numbers."""
    if not isinstance(row, dict):
        raise RowSkipped("no instance type")
    count, name = whole(at(row, "gpu", "number_of_gpus"), 0, 1_000), row.get("instance_type")
    if count is None:
        raise RowSkipped("no number of GPUs")
    if not count:
        return None
    if not isinstance(name, str) or not _TYPE.fullmatch(name):
        raise RowSkipped("no name")
    if str(row.get("currency") or "usd").casefold() != "usd":
        raise RowSkipped("a price that is not in dollars")
    prices = {False: row.get("price_per_hour"), True: _spot_price(row)}
    usd_hours = {spot: found for spot, price in prices.items() if (found := usd_hour(price)) is not None}
    if False not in usd_hours:
        raise RowSkipped("no usable price")
    stated = _COUNT_FIRST.match(word(at(row, "gpu", "description"), 80) or "")
    if stated and int(stated[1]) != count:
        raise RowSkipped("two different numbers of its GPUs")
    wire, memory = hardware_of(row, count)
    gpu = catalog().resolve(wire, memory)
    return VerdaInstanceType(
        name=name,
        gpu=gpu,
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory,
        usd_hours=usd_hours,
        vcpu=number(at(row, "cpu", "number_of_cores"), 1, 10_000),
        ram_gib=number(at(row, "memory", "size_in_gigabytes"), 1, 100_000),
    )


def hardware_of(row: Mapping[str, Any], count: int) -> tuple[str, float | None]:
    """Return the GPU's spelling without its number, and the GB of one GPU. Raises RowSkipped: there is none."""
    description = word(at(row, "gpu", "description"), 80) or word(row.get("model"), 80)
    if description is None:
        raise RowSkipped("no name of its GPU")
    total = number(at(row, "gpu_memory", "size_in_gigabytes"), 1, 100_000)
    return _COUNT_FIRST.sub("", description), None if total is None else round(total / count, 1)


def _spot_price(row: Mapping[str, Any]) -> object:
    return row.get("spot_price", row.get("spot_price_per_hour"))


def _offers(
    kind: VerdaInstanceType, stock: Mapping[bool, Mapping[str, list[str]]], disk_usd: float, observed_at: datetime
) -> Iterator[Offer]:
    terms = OfferTerms(
        instance_type=kind.name,
        fungible=True,
        interconnect="NVLink" if "SXM" in kind.gpu_wire.upper() and kind.gpu_count > 1 else None,
        multi_node=False,
        tax_included=False,
        least_disk_gb=MIN_DISK_GB,
        note=kind.gpu.reason,
    )
    for spot, price in kind.usd_hours.items():
        for place, free in stock.get(spot, {}).items():
            if kind.name in free:
                type_and_place = f"{kind.name}/{place}"
                yield kind.offer(
                    provider=PROVIDER,
                    offer_id=f"{type_and_place}/spot" if spot else type_and_place,
                    machine_id=type_and_place,
                    usd_hour=price + disk_usd * MIN_DISK_GB / HOURS_A_MONTH,
                    quoted_disk_gb=MIN_DISK_GB,
                    disk_usd_gb_month=disk_usd,
                    terms=terms,
                    observed_at=observed_at,
                    spot=spot,
                    region=place,
                    country=_COUNTRIES.get(place.partition("-")[0]),
                )
