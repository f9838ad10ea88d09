"""AWS's prices without an account, from the files behind its price pages. They are undocumented and may change.

Prices are by region only, without zones, disks or stock: list prices. Only types in gpuwatch's own table are known.
source: public price trackers that read these files, 2026; an older file, `spot.js`, is still there, frozen in 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gpuwatch.domain.market.offer import NO_GPU, Offer, OfferKind
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.aws.catalog import PriceList, list_price, price_list, sort_text
from gpuwatch.providers.aws.offers import (
    InstanceType,
    ListPrice,
    RegionZones,
    cpu_table,
    known_type,
    matches_query,
    offer_in_zone,
    table,
)
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import merge_answers, query_in_turn
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult
from gpuwatch.providers.toolkit.validation import at, objects, word

_SPOT_HOST: Final = "https://website.spot.ec2.aws.a2z.com"
_ON_DEMAND_HOST: Final = "https://b0.p.awsstatic.com"
_ON_DEMAND: Final = "/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/{}/Linux/index.json"
_SPOT_S: Final = 1800.0  # AWS rewrites the file once an hour
_ON_DEMAND_S: Final = 6 * 3600.0
_NOT_SOLD: Final = "N/A*"
_NOTE: Final = "from AWS's price page; zone and disk (EBS) are not told"  # word-check: allow - a value of the JSON

# Names of regions on the page of on-demand prices.
_LOCATIONS: Final = {
    "us-east-1": "US East (N. Virginia)", "us-east-2": "US East (Ohio)", "us-west-1": "US West (N. California)",
    "us-west-2": "US West (Oregon)", "ca-central-1": "Canada (Central)", "sa-east-1": "South America (Sao Paulo)",
    "eu-central-1": "EU (Frankfurt)", "eu-west-1": "EU (Ireland)", "eu-west-2": "EU (London)",
    "eu-west-3": "EU (Paris)", "eu-north-1": "EU (Stockholm)", "eu-south-1": "EU (Milan)",
    "ap-south-1": "Asia Pacific (Mumbai)", "ap-northeast-1": "Asia Pacific (Tokyo)",
    "ap-northeast-2": "Asia Pacific (Seoul)", "ap-northeast-3": "Asia Pacific (Osaka)",
    "ap-southeast-1": "Asia Pacific (Singapore)", "ap-southeast-2": "Asia Pacific (Sydney)",
    "ap-southeast-3": "Asia Pacific (Jakarta)", "ap-east-1": "Asia Pacific (Hong Kong)",
}  # fmt: skip
# Old names of some regions on the page of spot prices, without numbers.
_LEGACY_REGION_NAMES: Final = {
    "us-east": "us-east-1", "us-west": "us-west-1", "eu-ireland": "eu-west-1", "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2", "apac-tokyo": "ap-northeast-1",
}  # fmt: skip


class PublicMarket(BasicMarket):
    """Returns AWS's list prices without an account, at most half an hour old (on demand: six hours)."""

    listable = frozenset({NO_GPU, *(machine.gpu.name for machine in table().values())})

    def __init__(self, settings: ProviderSettings, tools: Tools, own_endpoints: bool) -> None:
        super().__init__(settings, tools)
        self._client = ApiClient(settings, tools, headers={})  # sends no key
        self._spot_url = ("" if not own_endpoints else _SPOT_HOST) + "/spot.json"
        self._on_demand_url = ("" if not own_endpoints else _ON_DEMAND_HOST) + _ON_DEMAND
        regions = settings.options.get("regions")
        self._regions = tuple(regions) if isinstance(regions, tuple | list) else ()
        self._spot: TtlCache[dict[str, PriceList]] = TtlCache(_SPOT_S, tools.monotonic)
        self._on_demand: TtlCache[PriceList] = TtlCache(_ON_DEMAND_S, tools.monotonic)

    def _read(self, query: Query, now: datetime) -> ParseResult:
        regions = ((f"region {region}", partial(self._read_region, region, query, now)) for region in self._regions)
        return merge_answers(query_in_turn(regions))

    def _read_region(self, region: str, query: Query, now: datetime) -> ParseResult:
        prices = self._prices(region, query.spot)
        wanted = cpu_table() if query.wants_no_gpu else table()
        types = {name: price for name, price in prices.types.items() if name in wanted}
        if not types:
            what = sort_text(cpu=query.wants_no_gpu)
            raise PayloadChanged(f"aws: {region}: its price page lists no {what}")
        result = ParseResult(rows=len(types) + sum(prices.skipped.values()), skipped=dict(prices.skipped))
        add_offers(result, types, region, query, now)
        return result

    def _prices(self, region: str, spot: bool) -> PriceList:
        if not spot:
            return self._on_demand_prices(region)
        return self._spot.get(self._fetch_spot_prices).get(region) or PriceList()

    def _fetch_spot_prices(self) -> dict[str, PriceList]:
        return parse_spot_page(self._client.get(self._spot_url))

    def _on_demand_prices(self, region: str) -> PriceList:
        location = _LOCATIONS.get(region)
        if location is None:
            raise PayloadChanged(f"aws: {region}: the name of this region on its price page is unknown")
        url = self._on_demand_url.format(quote(location))
        return self._on_demand.get(lambda: parse_on_demand_page(self._client.get(url), location), region)


def parse_spot_page(value: object) -> dict[str, PriceList]:
    """Return region → the Linux spot prices of known types. "N/A*" means not sold there. Raises PayloadChanged."""
    regions = at(value, "config", "regions")
    if not isinstance(regions, list) or not regions:
        raise PayloadChanged("aws: the spot price page has an unexpected format")
    found: dict[str, PriceList] = {}
    for region in objects(regions):
        name = word(region.get("region"), 40) or ""
        found[_LEGACY_REGION_NAMES.get(name, name)] = price_list(_spot_rows(region))
    return found


def parse_on_demand_page(value: object, location: str) -> PriceList:
    """Return the Linux list prices of known types. Raises PayloadChanged."""
    rows = at(value, "regions", location)
    if not isinstance(rows, dict):
        raise PayloadChanged("aws: the on-demand price page has an unexpected format")
    return price_list(
        (name, list_price(at(row, "price"), at(row, "vCPU"), at(row, "Memory")))
        for row in rows.values()
        if known_type(name := word(at(row, "Instance Type"), 40) or "")
    )


def add_offers(
    result: ParseResult, prices: Mapping[str, ListPrice], region: str, query: Query, observed_at: datetime
) -> None:
    """Add one offer per type: the zone is unknown."""
    place = RegionZones(region, {region: region}, observed_at)
    for name, price in prices.items():
        machine = known_type(name)
        if machine is not None and matches_query(machine, query):
            with result.counting_skips():
                result.offers.append(_offer(place, machine, price, query.spot))


def _offer(place: RegionZones, machine: InstanceType, price: ListPrice, spot: bool) -> Offer:
    offer = offer_in_zone(place, place.region, machine, price, None)
    return msgspec.structs.replace(
        offer,
        offer_id=f"{place.region}/{machine.name}/{'spot' if spot else 'on-demand'}",  # not orderable
        spot=spot,
        kind=OfferKind.LISTED,
        terms=msgspec.structs.replace(offer.terms, note=_NOTE),
    )


def _spot_rows(region: Mapping[str, Any]) -> Iterator[tuple[str, ListPrice | None]]:
    for family in objects(region.get("instanceTypes")):
        for size in objects(family.get("sizes")):
            name = word(size.get("size"), 40) or ""
            for column in objects(size.get("valueColumns")):
                usd = at(column, "prices", "USD")
                if known_type(name) and column.get("name") == "linux" and usd != _NOT_SOLD:
                    yield name, list_price(usd)
