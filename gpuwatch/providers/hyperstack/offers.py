"""Hyperstack's offers: flavors in stock in a region, at the price per GPU of the price book."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.hyperstack.client import PROVIDER
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.catalogue import read_types
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, parse_utc, usd_hour, whole, word

_FLAVOR: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[A-Z0-9-]{1,20}")
_MEMORY: Final = re.compile(r"-(\d{2,3})G\b")
_COUNTRIES: Final = {"CANADA": "CA", "NORWAY": "NO", "US": "US"}  # source: a public reader of the API, 2026-08
_NOT_ON_DEMAND: Final = re.compile(r"(?i)[-_ ](?:spot|preemptible|reserved|reservation)\b")


class HyperstackFlavor(MachineType, frozen=True, kw_only=True):
    """One parsed flavor of a region."""

    name: str
    region: str


def fetch_flavors(client: ApiClient) -> tuple[ParseResult, datetime]:
    """Fetch Hyperstack's flavors wherever they are in stock. Raises ProviderError."""
    book = client.get("/pricebook", kind="prices")  # not paced as a search: it belongs to one
    prices = parse_prices(book, client.tools.now())
    value, now = client.get("/core/flavors"), client.tools.now()
    result = parse_flavors(value, prices, now)
    result.searches = 2
    return result, now


def parse_prices(value: object, now: datetime | None = None) -> dict[str, float]:
    """Parse GPU → dollars an hour for one, from `GET /pricebook`.

    Only prices in force count. A GPU with two different ones has none.

    Args:
        now: when the book arrived; None: all its prices count.

    Raises:
        PayloadChanged: it is not a list of prices.
    """
    found: dict[str, set[float | None]] = {}
    for row in objects(value):
        if isinstance(name := row.get("name"), str) and _is_in_force(row, now):
            found.setdefault(name, set()).add(usd_hour(row.get("value")))
    if not any(prices - {None} for prices in found.values()):
        raise PayloadChanged(f"{PROVIDER}: the answer is not a price book")
    return {name: price for name, prices in found.items() if len(prices) == 1 for price in prices if price is not None}


def _is_in_force(row: Mapping[str, Any], now: datetime | None) -> bool:
    start, end = (_book_time(row.get(key)) for key in ("start_time", "end_time"))
    return now is None or ((start is None or start <= now) and (end is None or now < end))


def _book_time(value: object) -> datetime | None:
    """Return a time of the price book, which states no zone: UTC."""
    return parse_utc(value) or (parse_utc(f"{value}+00:00") if isinstance(value, str) else None)


def parse_flavors(value: object, prices: Mapping[str, float], observed_at: datetime) -> ParseResult:
    """Parse the offers of `GET /core/flavors`: one per flavor and region in stock. Pure.

    Raises:
        PayloadChanged: it has no groups of flavors, or none of them is usable.
    """
    groups = at(value, "data")
    if at(value, "status") is not True or not isinstance(groups, list) or not groups:
        raise PayloadChanged(f"{PROVIDER}: the answer is not a list of flavors")
    rows = [row for group in groups for row in _rows(group)]
    return read_types(rows, PROVIDER, partial(_read, prices=prices, observed_at=observed_at), observed_at)


def _rows(group: object) -> list[Any]:
    rows = at(group, "flavors")
    return rows if isinstance(rows, list) else [None]  # a group that cannot be read counts as a row


def _read(row: object, result: ParseResult, prices: Mapping[str, float], observed_at: datetime) -> bool:
    flavor = parse_flavor(row)
    if flavor is None or not isinstance(row, dict):
        return False
    is_in_stock, price = row.get("stock_available"), prices.get(flavor.gpu_wire)
    if not isinstance(is_in_stock, bool):
        raise RowSkipped("nothing about its stock")
    if price is None:
        raise RowSkipped("a GPU without one clear price")
    if is_in_stock:
        result.offers.append(_offer(flavor, price * flavor.gpu_count, observed_at))
    return True


def parse_flavor(row: object) -> HyperstackFlavor | None:
    """Parse one flavor; None: it has no GPU, or is spot. Raises RowSkipped: not a flavor, or malformed numbers."""
    if not isinstance(row, dict):
        raise RowSkipped("no flavor")
    count, wire = whole(row.get("gpu_count"), 0, 1_000), word(row.get("gpu"), 60)
    if count is None:
        raise RowSkipped("no number of GPUs")
    if not count:
        return None
    if wire is None:
        raise RowSkipped("no name of its GPU")
    if _is_not_on_demand(wire, row.get("name")) or row.get("is_spot") is True:
        return None
    name, region = row.get("name"), row.get("region_name")
    if not isinstance(name, str) or not _FLAVOR.fullmatch(name):
        raise RowSkipped("no name")
    if not isinstance(region, str) or not _REGION.fullmatch(region):
        raise RowSkipped("no name of its region")
    gpu, memory_gib = gpu_of(wire)
    disks = [number(row.get(key), 0, 1e7) or 0.0 for key in ("disk", "ephemeral")]
    return HyperstackFlavor(
        name=name,
        region=region,
        gpu=gpu,
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gib,
        vcpu=number(row.get("cpu"), 1, 10_000),
        ram_gib=number(row.get("ram"), 1, 100_000),
        disk_gb=sum(disks),
    )


def _is_not_on_demand(*names: object) -> bool:
    """Whether a name marks another rental type, whose price the book lists under the same suffix."""
    return any(isinstance(name, str) and _NOT_ON_DEMAND.search(name[:100]) for name in names)


def gpu_of(wire: str) -> tuple[GpuName, float | None]:
    """Return the GPU of a spelling, and the memory of one: from the spelling, else from the catalogue."""
    memory = _MEMORY.search(wire)
    gpu = catalog().resolve(wire, number(memory[1]) if memory else None)
    card = catalog().get(gpu.name)
    return gpu, float(memory[1]) if memory else (card.memory_gib if card else None)


def _offer(kind: HyperstackFlavor, price: float, observed_at: datetime) -> Offer:
    offer_id = f"{kind.name}/{kind.region}"
    nvlink = kind.gpu_count > 1 and "NVLink" in kind.gpu_wire
    return kind.offer(
        provider=PROVIDER,
        offer_id=offer_id,
        machine_id=offer_id,
        usd_hour=price,
        observed_at=observed_at,
        region=kind.region,
        country=_COUNTRIES.get(kind.region.partition("-")[0]),
        terms=OfferTerms(
            instance_type=kind.name,
            fungible=True,
            interconnect="NVLink" if nvlink else None,
            multi_node=False,
            tax_included=False,
            note=kind.gpu.reason,
        ),
    )
