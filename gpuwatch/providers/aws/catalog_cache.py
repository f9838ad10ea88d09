"""Caches for hours what changes a few times a year: zones, list prices, new instance types."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.instance_types import InstanceType, parse_instance_type, table
from gpuwatch.providers.aws.prices import (
    PRODUCTS,
    PriceList,
    SpotKey,
    SpotPrice,
    disk_filters,
    drop_placeholders,
    drop_price_jumps,
    machine_filters,
    parse_disk,
    parse_machines,
    parse_spot,
)
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import objects, word

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
        self._latest_lists: dict[str, PriceList] = {}
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

    def prices(self, region: str, new: Iterable[str] = ()) -> PriceList:
        """Return on-demand prices of the known types, of some new ones, and of disks. Raises ProviderError."""
        names = tuple(sorted({*table(), *new}))

        def fetch() -> PriceList:
            products: list[object] = []
            for filters in _filters(region, names):
                products += self._products(filters)
            found = parse_machines(products, region)
            if not found.types:
                raise PayloadChanged(f"aws: {region}: the Pricing API lists no GPU machine there")
            found.disk_usd_gb_month = parse_disk(self._products(disk_filters(region)), region)
            with self._lock:
                drop_price_jumps(found, self._latest_lists.get(region))
                self._latest_lists[region] = found
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
            "ec2",
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=sorted(types),
            ProductDescriptions=list(PRODUCTS),
            StartTime=now,
            MaxResults=_SPOT_ROWS,
        )
        return parse_spot(rows, result, now)

    def _products(self, filters: list[dict[str, str]]) -> list[object]:
        return self._account.pages(
            "pricing",
            _PRICING_REGION,
            "get_products",
            "PriceList",
            ServiceCode="AmazonEC2",
            Filters=filters,
            FormatVersion="aws_v1",
            MaxResults=100,
        )

    def _describe(self, region: str, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        rows = self._account.pages(
            "ec2", region, "describe_instance_types", "InstanceTypes", InstanceTypes=list(names[:100])
        )
        found = [parse_instance_type(row) for row in objects(rows)]
        return {machine.name: machine for machine in found if machine is not None}


def _filters(region: str, types: Iterable[str]) -> Iterable[list[dict[str, str]]]:
    """Yield filters for all these types, in pieces that fit."""
    names: list[str] = []
    for name in types:
        if len(",".join([*names, name])) > _FILTER_LENGTH:
            yield machine_filters(region, names)
            names = []
        names.append(name)
    yield machine_filters(region, names)
