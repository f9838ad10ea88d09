"""AWS's zones, list prices, spot prices and new instance types: parsed, and cached as long as they rarely change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.offers import (
    InstanceType,
    ListPrice,
    SpotKey,
    SpotPrice,
    cpu_table,
    parse_instance_type,
    table,
)
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import UNREADABLE, at, number, objects, usd_hour, word

# Old accounts have the second name.
PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_MACHINE: Final = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
}  # fmt: skip
_ON_DEMAND: Final = "OnDemand"
_PLACEHOLDER_SHARE: Final = 0.2  # fraction of the median over the regions
_MIN_REGIONS: Final = 3  # fewer have no useful median
_MAX_JUMP: Final = 3.0  # factor of a price change since hours ago
_MAX_DISK_USD: Final = 10.0  # per gigabyte and month
_CLOCK_TOLERANCE: Final = timedelta(minutes=15)  # AWS refuses requests from clocks that differ by more


class PriceList(msgspec.Struct, kw_only=True):
    """One region's list prices. `disk_usd_gb_month`: of a gp3 volume; None: unknown."""

    types: dict[str, ListPrice] = {}
    disk_usd_gb_month: float | None = None
    skipped: dict[str, int] = {}

    def with_size(self, name: str, usd_hour: float) -> ListPrice:
        """Return another price of an instance type, with the size of the type as far as it is known."""
        return replace(self.types.get(name) or ListPrice(usd_hour), usd_hour=usd_hour)

    def skip(self, reason: str) -> None:
        """Count a row that cannot be used."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def machine_filters(region: str, types: Iterable[str]) -> list[dict[str, str]]:
    """Return filters for `GetProducts`: plain Linux machines on shared hardware, of these types."""
    fields = _MACHINE | {"regionCode": region, "marketoption": _ON_DEMAND}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    return [*filters, {"Type": "ANY_OF", "Field": "instanceType", "Value": ",".join(types)}]


def disk_filters(region: str) -> list[dict[str, str]]:
    """Return filters for `GetProducts`: gp3 volumes, the type of root disks."""
    fields = {"regionCode": region, "productFamily": "Storage", "volumeApiName": "gp3"}
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]


def price_list(rows: Iterable[tuple[str, ListPrice | None]]) -> PriceList:
    """Join names of instance types and their prices; counts rows without a price (None).

    If there are two prices for one type, neither is used.
    """
    found, contradictory = PriceList(types={}, skipped={}), set()
    for name, price in rows:
        if price is None:
            found.skip("a list price without a price")
        elif found.types.setdefault(name, price).usd_hour != price.usd_hour:
            contradictory.add(name)
    for name in contradictory:
        del found.types[name]
        found.skip("several list prices for one instance type")
    return found


def parse_machines(products: Iterable[object], region: str) -> PriceList:
    """Parse prices of instance types from `PriceList`, whose entries are JSON in strings.

    The server's filters are not trusted: rows of other kinds passed them before and made prices wrong for months.
    """
    rows, others = [], PriceList(skipped={})
    for product in products:
        value = _decode(product)
        attributes = at(value, "product", "attributes")
        if not isinstance(attributes, dict):
            others.skip("a list price that is not understood")
        elif attributes.get("regionCode") != region or any(attributes.get(k) != v for k, v in _MACHINE.items()):
            others.skip("a list price of another kind")
        else:
            name, usd = word(attributes.get("instanceType"), 40), _price(value, "Hrs")
            rows.append(
                (name or "", list_price(usd if name else None, attributes.get("vcpu"), attributes.get("memory")))
            )
    found = price_list(rows)
    found.skipped |= others.skipped
    return found


def list_price(usd_per_hour: object, vcpu: object = None, memory: object = None) -> ListPrice | None:
    """Parse a price and the size of its machine, such as "2,048 GiB"; None: no usable price."""
    usd = usd_hour(usd_per_hour)
    return None if usd is None else ListPrice(usd, number(vcpu, 1.0, 1e5), _ram_gib(memory))


def parse_disk(products: Iterable[object], region: str) -> float | None:
    """Return US dollars per GB and month of a gp3 volume; None: missing, or contradictory."""
    prices = set()
    for product in products:
        value = _decode(product)
        attributes = at(value, "product", "attributes")
        if at(attributes, "regionCode") == region and at(attributes, "volumeApiName") == "gp3":
            prices.add(number(_price(value, "GB-Mo"), 0.0, _MAX_DISK_USD))
    prices.discard(None)
    return prices.pop() if len(prices) == 1 else None


def prices_or_none(list_prices: Callable[[], PriceList]) -> PriceList:
    """Return list prices, or an empty list: what they only add to, such as a spot price, is correct without them."""
    try:
        return list_prices()
    except ProviderError:
        return PriceList()


def drop_placeholders(lists: Mapping[Any, PriceList]) -> None:
    """Drop prices below a fifth of the median of the same type over the regions, and count them."""
    by_type: dict[str, list[float]] = {}
    for one in lists.values():
        for name, price in one.types.items():
            by_type.setdefault(name, []).append(price.usd_hour)
    floors = {
        name: median(prices) * _PLACEHOLDER_SHARE for name, prices in by_type.items() if len(prices) >= _MIN_REGIONS
    }
    for one in lists.values():
        for name in [name for name, price in one.types.items() if price.usd_hour < floors.get(name, 0.0)]:
            del one.types[name]
            one.skip("a list price far under that of other regions")


def drop_price_jumps(new: PriceList, previous: PriceList | None) -> None:
    """Drop prices that changed threefold since the last list, and count them: they are used when they come again."""
    for name, old in (previous.types if previous is not None else {}).items():
        price = new.types.get(name)
        if price is not None and not 1 / _MAX_JUMP <= price.usd_hour / old.usd_hour <= _MAX_JUMP:
            del new.types[name]
            new.skip("a list price that changed threefold at once")


def parse_spot(rows: Iterable[object], result: ParseResult, now: datetime) -> dict[SpotKey, SpotPrice]:
    """Return the newest price of each type and zone. Rows are changes: the newest one is valid.

    Args:
        rows: of `DescribeSpotPriceHistory`.
        result: counts the rows, and the unusable ones by reason.

    Raises:
        NoRowUnderstood: there are rows, but none is usable.
    """
    found: dict[SpotKey, SpotPrice] = {}
    read = ParseResult()
    for row in rows:
        read.rows += 1
        with read.counting_skips():
            key, price = _spot_price(row, now)
            if key not in found or found[key].since < price.since:
                found[key] = price
    if read.rows and not found:
        raise read.no_usable_row(f"aws: none of {read.rows} spot prices can be used")
    result.rows += read.rows
    result.add_skipped(read.skipped)
    return found


def _spot_price(row: object, now: datetime) -> tuple[SpotKey, SpotPrice]:
    if at(row, "ProductDescription") not in PRODUCTS:
        raise RowSkipped("a spot price of another product")
    name, zone = word(at(row, "InstanceType"), 40), word(at(row, "AvailabilityZone"), 40)
    usd, since = usd_hour(at(row, "SpotPrice")), at(row, "Timestamp")
    if name is None or zone is None or usd is None or not isinstance(since, datetime) or since.tzinfo is None:
        raise RowSkipped("a spot price that is not understood")
    if since - now > _CLOCK_TOLERANCE:
        raise RowSkipped("a spot price of the future")
    return SpotKey(name, zone), SpotPrice(usd, since)


def _ram_gib(text: object) -> float | None:
    """Parse "2,048 GiB" as a number."""
    amount, _, unit = text.replace(",", "").partition(" ") if isinstance(text, str) else ("", "", "")
    return number(amount, 0.1, 1e6) if unit == "GiB" else None


def _price(product: object, unit: str) -> object:
    """Return the one price of a product's one on-demand term; None: there is none, or more than one."""
    dimensions = [
        dimension
        for term in _values(at(product, "terms", _ON_DEMAND))
        for dimension in _values(at(term, "priceDimensions"))
        if at(dimension, "unit") == unit
    ]
    return at(dimensions[0], "pricePerUnit", "USD") if len(dimensions) == 1 else None


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _decode(product: object) -> object:
    try:
        return msgspec.json.decode(product) if isinstance(product, str) else None
    except (*UNREADABLE, UnicodeEncodeError):  # UnicodeEncodeError: a lone surrogate in the text
        return None


_PRICES_S: Final = 6 * 3600.0
_ZONES_S: Final = 24 * 3600.0
_REGIONS_S: Final = 3600.0
_PRICING_REGION: Final = "us-east-1"  # one of three that have the Pricing API
_FILTER_LENGTH: Final = 1024  # maximum length of a filter's value
_SPOT_ROWS: Final = 1000


class CatalogCache:
    """List prices and names of one account's regions, fetched on demand, and again after some hours."""

    def __init__(self, account: AwsClient) -> None:
        monotonic = account.tools.monotonic
        self._account = account
        self._prices: TtlCache[PriceList] = TtlCache(_PRICES_S, monotonic)
        self._zones: TtlCache[Mapping[str, str]] = TtlCache(_ZONES_S, monotonic)
        self._regions: TtlCache[tuple[str, ...]] = TtlCache(_REGIONS_S, monotonic)
        self._described_types: TtlCache[Mapping[str, InstanceType]] = TtlCache(_ZONES_S, monotonic)
        self._latest_lists: dict[tuple[str, bool], PriceList] = {}
        self._lock = threading.Lock()

    def zones(self, region: str) -> Mapping[str, str]:
        """Return zone name → zone id. Names differ between accounts, ids do not. Raises ProviderError."""

        def fetch() -> Mapping[str, str]:
            filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
            answer = self._account.call("ec2", region, "describe_availability_zones", Filters=filters)
            rows = objects(answer.get("AvailabilityZones"))
            pairs = [(word(row.get("ZoneName"), 40), word(row.get("ZoneId"), 40)) for row in rows]
            found = {name: zone_id for name, zone_id in pairs if name and zone_id}
            if not found:
                raise PayloadChanged(f"aws: {region}: the answer has no availability zones")
            return found

        return self._zones.get(fetch, region)

    def prices(self, region: str, new: Iterable[str] = (), *, cpu: bool = False) -> PriceList:
        """Return on-demand prices of the known types, of some new ones, and of disks. Raises ProviderError.

        Args:
            cpu: of the types without GPUs, in place of those with them.
        """
        names = tuple(sorted({*(cpu_table() if cpu else table()), *new}))

        def fetch() -> PriceList:
            products: list[object] = []
            for filters in _filters(region, names):
                products += self._products(filters)
            found = parse_machines(products, region)
            if not found.types:
                raise PayloadChanged(f"aws: {region}: the Pricing API lists no {sort_text(cpu=cpu)} there")
            found.disk_usd_gb_month = parse_disk(self._products(disk_filters(region)), region)
            with self._lock:
                drop_price_jumps(found, self._latest_lists.get((region, cpu)))
                self._latest_lists[region, cpu] = found
                drop_placeholders(self._latest_lists)
            return found

        return self._prices.get(fetch, (region, names))

    def machines(self, region: str, names: Iterable[str]) -> Mapping[str, InstanceType]:
        """Describe these instance types; leaves out those without GPUs. Raises ProviderError."""
        known_types = table()
        new = tuple(sorted(set(names) - known_types.keys()))
        return (
            {**known_types, **self._described_types.get(lambda: self._describe(region, new), (region, new))}
            if new
            else known_types
        )

    def regions(self) -> tuple[str, ...]:
        """Return all regions in which there may be instances. Raises ProviderError."""

        def fetch() -> tuple[str, ...]:
            answer = self._account.call("ec2", self._account.regions[0], "describe_regions")
            found = [word(row.get("RegionName"), 40) for row in objects(answer.get("Regions"))]
            if not found or None in found:
                raise PayloadChanged("aws: the answer has no regions")
            return tuple(name for name in found if name)

        all_regions = self._account.listed_regions or self._regions.get(fetch)
        return tuple(dict.fromkeys((*self._account.regions, *all_regions)))

    def spot_prices(self, region: str, types: Iterable[str], result: ParseResult) -> dict[SpotKey, SpotPrice]:
        """Return the current spot prices, requested each time; counts their rows. Raises ProviderError."""
        now = self._account.tools.now()
        rows = self._account.pages(
            "ec2", region, "describe_spot_price_history", "SpotPriceHistory", InstanceTypes=sorted(types),
            ProductDescriptions=list(PRODUCTS), StartTime=now, MaxResults=_SPOT_ROWS,
        )  # fmt: skip
        return parse_spot(rows, result, now)

    def _products(self, filters: list[dict[str, str]]) -> list[object]:
        return self._account.pages(
            "pricing", _PRICING_REGION, "get_products", "PriceList",
            ServiceCode="AmazonEC2", Filters=filters, FormatVersion="aws_v1", MaxResults=100,
        )  # fmt: skip

    def _describe(self, region: str, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        rows = self._account.pages(
            "ec2", region, "describe_instance_types", "InstanceTypes", InstanceTypes=list(names[:100])
        )
        found = [parse_instance_type(row) for row in objects(rows)]
        return {machine.name: machine for machine in found if machine is not None}


def sort_text(*, cpu: bool) -> str:
    """Name what is searched for, for errors."""
    return "machine without GPUs" if cpu else "GPU machine"


def _filters(region: str, types: Iterable[str]) -> Iterable[list[dict[str, str]]]:
    """Yield filters for all these types, in pieces that fit."""
    names: list[str] = []
    for name in types:
        if len(",".join([*names, name])) > _FILTER_LENGTH:
            yield machine_filters(region, names)
            names = []
        names.append(name)
    yield machine_filters(region, names)
