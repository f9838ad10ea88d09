"""Prime Intellect's list of available machines: requests the pages, and parses the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.market.resold import known_as
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.primeintellect import INFO
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, short_id
from gpuwatch.providers.toolkit.validation import at, number, usd_hour, whole, word

if TYPE_CHECKING:
    from gpuwatch.providers.toolkit.currency import ExchangeRate

_PAGE_ROWS: Final = 100  # the maximum page size
_PAGES_MAX: Final = 50
_IN_STOCK: Final = frozenset({"available", "low", "medium", "high"})
_SOLD_OUT: Final = "unavailable"
_KNOWN_FIELDS: Final = frozenset(
    {
        "cloudId", "gpuType", "socket", "provider", "region", "dataCenter", "country", "gpuCount", "gpuMemory", "disk",
        "sharedDisk", "vcpu", "memory", "internetSpeed", "interconnect", "interconnectType", "provisioningTime",
        "stockStatus", "security", "prices", "images", "isSpot", "prepaidTime",
    }
)  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"cloudId", "gpuType", "provider", "gpuCount", "prices"})
_PRICED_PARTS: Final = ("disk", "vcpu", "memory")  # of a machine, which may have a price of their own
Rates = Callable[[str], "ExchangeRate | None"]


ListedRows = dict[str, tuple[Mapping[str, Any], Offer]]


def build_fetch(
    settings: ProviderSettings, tools: Tools, listed_rows: ListedRows | None = None
) -> Callable[[ApiClient], tuple[ParseResult, datetime]]:
    """Return the function that fetches the list; if a later page fails, the result is partial. It raises ProviderError.

    Args:
        listed_rows: receives the offers of each list: id → row and offer; for a duplicate id, the cheaper one.
    """
    from gpuwatch.providers.toolkit.currency import ExchangeRates  # noqa: PLC0415 - not for start-up

    exchange = ExchangeRates(tools, _rate_url(settings))

    def fetch(client: ApiClient) -> tuple[ParseResult, datetime]:
        rows, is_complete, pages = _all_rows(client)
        now = tools.now()
        rows_by_id: ListedRows = {}
        result = parse_rows(rows, exchange.rate, now, rows_by_id)
        if listed_rows is not None:
            listed_rows.clear()
            listed_rows.update(rows_by_id)
        result.searches = pages
        if not is_complete:
            result.note_missing(f"its list ends early, after page {pages}")
        return result, now

    return fetch


def _all_rows(client: ApiClient) -> tuple[list[Any], bool, int]:
    """Return all rows, whether they are as many as the list itself states, and the number of pages."""
    rows: list[Any] = []
    previous: list[Any] | None = None
    for page in range(1, _PAGES_MAX + 1):
        params = {"page": str(page), "page_size": str(_PAGE_ROWS)}
        try:
            found, total = page_of(client.get("/api/v1/availability/gpus", params))
        except ProviderError:
            if page == 1:
                raise
            return rows, False, page
        if not found or found == previous:  # the list ended early, or has no pages
            return rows, not found and len(rows) >= (total or 0), page
        rows += found
        previous = found
        if len(rows) >= total if total is not None else len(found) < _PAGE_ROWS:
            return rows, True, page
    return rows, False, _PAGES_MAX


def page_of(value: Any) -> tuple[list[Any], int | None]:
    """Return the rows of one page, and their number on all; also of the older format, a list per GPU.

    Raises:
        PayloadChanged: it is neither.
    """
    items = at(value, "items")
    if isinstance(items, list):
        return items, whole(at(value, "totalCount"))
    if isinstance(value, dict) and value and all(isinstance(one, list) for one in value.values()):
        rows = [row for one in value.values() for row in one]
        return rows, len(rows)
    raise PayloadChanged(f"{INFO.name}: the answer has no list of offers")


def parse_rows(
    rows: list[Any], rate: Rates, observed_at: datetime, rows_by_id: ListedRows | None = None
) -> ParseResult:
    """Parse the offers of all pages.

    Args:
        rate: returns dollars for one unit of a currency.
        rows_by_id: receives the row of each offer by its id; for a duplicate id, the cheaper one.
    """
    result = ParseResult(rows=len(rows))
    for row in rows:
        with result.counting_skips():
            if not isinstance(row, dict):
                raise RowSkipped("a row that is no object")
            result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
            for offer in _offers(row, rate, observed_at):
                result.offers.append(offer)
                if rows_by_id is not None and _is_cheaper(offer, rows_by_id.get(offer.offer_id)):
                    rows_by_id[offer.offer_id] = (row, offer)
    return result


def _is_cheaper(offer: Offer, other: tuple[Mapping[str, Any], Offer] | None) -> bool:
    return other is None or offer.quoted_usd_hour < other[1].quoted_usd_hour


def _offers(row: Mapping[str, Any], rate: Rates, observed_at: datetime) -> Iterator[Offer]:
    """Yield one offer, or none for a row that is sold out or has no GPU."""
    stock = (word(row.get("stockStatus"), 40) or "available").casefold()
    wire = word(row.get("gpuType"), 80)
    if stock == _SOLD_OUT or wire == "CPU_NODE" or is_ending(row, observed_at):
        return
    seller, cloud_id, count = word(row.get("provider"), 40), word(row.get("cloudId"), 120), _count(row)
    if wire is None or seller is None or cloud_id is None:
        raise RowSkipped("a row without its GPU, its seller or its id")
    gpu, memory = _gpu(wire, row)
    price = _price(row, rate)
    spot, security = _is_spot(row.get("isSpot")), word(row.get("security"), 40) or "secure_cloud"
    place = word(row.get("dataCenter"), 80)
    identity = (seller, cloud_id, place or "", security)
    kind = OfferKind.LIVE if stock in _IN_STOCK else OfferKind.LISTED
    yield Offer(
        provider=INFO.name,
        offer_id=short_id(*identity, str(count), "spot" if spot else "on-demand"),
        machine_id=short_id(*identity),
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=wire,
        gpu_known=gpu.known,
        gpu_count=count,
        gpu_memory_gib=memory,
        spot=spot,
        quoted_usd_hour=price.usd_hour,
        quoted_disk_gb=price.disk_gb,
        disk_usd_gb_month=price.disk_usd_gb_month,
        observed_at=observed_at,
        region=place or word(row.get("region"), 80),
        country=_country(row.get("country")),
        datacenter={"secure_cloud": True, "community_cloud": False}.get(security),
        vcpu=number(at(row, "vcpu", "defaultCount"), 0),
        ram_gib=number(at(row, "memory", "defaultCount"), 0),
        disk_free_gb=_max_disk_gb(row),
        download_mbps=number(row.get("internetSpeed"), 0, 1e7) or None,
        kind=kind,
        terms=_terms(row, known_as(seller) or seller, cloud_id, price, _notes(gpu, price, stock, row)),
    )


# --- the price --------------------------------------------------------------------------------------------------------


class _ConfigurationPrice(msgspec.Struct, frozen=True, kw_only=True):
    """The price of the whole configuration, including its disk."""

    usd_hour: float
    disk_gb: float
    disk_usd_gb_month: float | None
    rate: Any  # an `ExchangeRate`


def _price(row: Mapping[str, Any], rates: Rates) -> _ConfigurationPrice:
    prices = row.get("prices")
    currency = at(prices, "currency") or "USD"
    rate = rates(currency) if isinstance(currency, str) and len(currency) == 3 and currency.isupper() else None
    if rate is None:
        raise RowSkipped("a price in a currency without a rate")
    order = ("onDemand", "communityPrice")
    if row.get("security") == "community_cloud":
        order = ("communityPrice", "onDemand")
    value = next((at(prices, key) for key in order if at(prices, key) is not None), None)
    price_value = number(value, 0.0)
    if not price_value:
        raise RowSkipped("a row without its price")
    total = usd_hour((price_value + sum(_surcharge(row, part) for part in _PRICED_PARTS)) * rate.usd)
    if total is None:
        raise RowSkipped("a price that nobody would ask")
    unit_price = number(at(row, "disk", "pricePerUnit"), 0.0, 100.0)
    return _ConfigurationPrice(
        usd_hour=total,
        disk_gb=number(at(row, "disk", "defaultCount"), 0.0, 1e7) or 0.0,
        disk_usd_gb_month=unit_price * HOURS_A_MONTH * rate.usd if unit_price else None,
        rate=rate,
    )


def _surcharge(row: Mapping[str, Any], part: str) -> float:
    """Return the additional price of a part, for the included number of units."""
    if at(row, part, "defaultIncludedInPrice") is not False:
        return 0.0
    unit_price, count = (
        number(at(row, part, "pricePerUnit"), 0.0, 1000.0),
        number(at(row, part, "defaultCount"), 0.0, 1e7),
    )
    if unit_price is None or count is None:
        raise RowSkipped(f"{part} costs more, and nobody says how much")
    return unit_price * count


def _max_disk_gb(row: Mapping[str, Any]) -> float | None:
    """Return the largest disk; if none can be added, the included one."""
    max_gb = number(at(row, "disk", "maxCount"), 0.0, 1e7)
    if max_gb is None and at(row, "disk", "pricePerUnit") is None:
        max_gb = number(at(row, "disk", "defaultCount"), 0.0, 1e7)
    return max_gb


# --- names and terms --------------------------------------------------------------------------------------------------


def _gpu(wire: str, row: Mapping[str, Any]) -> tuple[GpuName, float | None]:
    """Return the GPU, and the stated memory of one, unless it is clearly not its HBM (`GH200_480GB`)."""
    memory = number(row.get("gpuMemory"), 0.5, 9_000.0)
    found = catalog().resolve(wire, memory, word(row.get("socket"), 20))
    card = catalog().get(found.name) if found.known else None
    if card is not None and memory is not None and card.memory_distance(memory) > card.memory_gib * 0.5:
        memory = card.memory_gib
    return found, memory


def _terms(
    row: Mapping[str, Any], seller: str, cloud_id: str, price: _ConfigurationPrice, notes: list[str]
) -> OfferTerms:
    hours, rate = number(row.get("prepaidTime"), 0.0, 1e6), price.rate
    return OfferTerms(
        seller=seller,
        instance_type=cloud_id,
        gpu_fraction=min(gpu_fraction(cloud_id), gpu_fraction(str(row.get("gpuType")))),
        interconnect=word(row.get("interconnectType"), 40),
        multi_node=False,
        prepaid=True if hours else None,
        min_billing_s=hours * 3600 if hours else None,
        currency=rate.currency,
        usd_rate=None if rate.on is None else rate.usd,
        usd_rate_on=rate.on,
        note="; ".join(notes) or None,
    )


def _notes(gpu: GpuName, price: _ConfigurationPrice, stock: str, row: Mapping[str, Any]) -> list[str]:
    hours = number(row.get("prepaidTime"), 0.0, 1e6)
    notes = (
        (f"{hours or 0:g} hours are charged at once", bool(hours)),
        ("the price may change", at(row, "prices", "isVariable") is True),
        ("little stock", stock == "low"),
        # word-check: allow - a value of the JSON
        ("its stock is told in a word that is not known", stock not in _IN_STOCK),
        (gpu.reason or "", not gpu.certain),
        (price.rate.note or "", bool(price.rate.note)),
    )
    return [text for text, applies in notes if applies]


def _is_spot(value: Any) -> bool:
    """Return the rental type. Raises RowSkipped: not stated in a known way, so the price may be of either."""
    if value is None or isinstance(value, bool):
        return value is True
    raise RowSkipped("a rental type that is not known")


def _count(row: Mapping[str, Any]) -> int:
    count = whole(row.get("gpuCount"), 1, 1000)
    if count is None:
        raise RowSkipped("a number of GPUs that is none")
    return count


def _country(value: Any) -> str | None:
    found = word(value, 10)
    return found.upper() if found and len(found) == 2 and found.isascii() and found.isalpha() else None


def _rate_url(settings: ProviderSettings) -> str:
    """Return the URL of the exchange rates; for another `base_url` (a stand-in, a mirror) its `/rates`."""
    url = str(settings.options.get("rate_url") or "")
    if settings.base_url.rstrip("/") == INFO.base_url:
        return url
    return f"{settings.base_url.rstrip('/')}/rates{urlsplit(url).path}"
