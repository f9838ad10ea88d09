"""The market of AWS: queries all regions in parallel for the machines that each offers now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Answer, Query
from gpuwatch.providers.aws.capacity_blocks import CapacityBlocks
from gpuwatch.providers.aws.catalog_cache import CatalogCache
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.instance_types import InstanceType, matches_query, table
from gpuwatch.providers.aws.offers import RegionZones, block_offer, on_demand_offer, spot_offer, with_score
from gpuwatch.providers.aws.placement import PlacementScores
from gpuwatch.providers.aws.prices import PriceList, SpotKey
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer
from gpuwatch.providers.toolkit.validation import objects, word

# New types begin with these, too.
_FILTERS: Final = [{"Name": "instance-type", "Values": [*sorted(table()), "p*", "g*"]}]


class AwsMarket:
    """EC2's GPU machines, by region and zone."""

    name = "aws"

    def __init__(self, account: AwsClient, catalog: CatalogCache, block_hours: int = 0) -> None:
        self._account = account
        self._catalog = catalog
        self._scores = PlacementScores(account)
        self._blocks = CapacityBlocks(account, block_hours)

    def search(self, query: Query) -> Answer:
        """Return the matching offers. A region that does not answer makes the answer partial.

        Raises:
            ProviderError: no region answered.
        """
        tools = self._account.tools
        started_s, observed_at = tools.monotonic(), tools.now()
        self._account.start_search(urgent=query.limit is not None)
        answers = self._account.in_all_regions(
            self._account.regions, lambda region: self._search_region(region, query, observed_at)
        )
        result = _merge(answers)
        return build_answer(result, query, self.name, observed_at=observed_at, elapsed_s=tools.monotonic() - started_s)

    def _search_region(self, region: str, query: Query, observed_at: datetime) -> ParseResult:
        offerings = self._offerings(region)
        machines = self._catalog.machines(region, (key.type for key in offerings))
        machines_by_name = {name: machine for name, machine in machines.items() if matches_query(machine, query)}
        new_types = [name for name in machines if name not in table()]
        result = ParseResult(rows=len(offerings), drift={f"new instance type: {name[:40]}": None for name in new_types})
        keys = [key for key in offerings if key.type in machines_by_name]
        if keys:
            place = RegionZones(region, self._catalog.zones(region), observed_at)
            add = self._add_spot if query.spot else self._add_on_demand
            add(result, place, keys, machines_by_name, new_types)
        return result

    def _offerings(self, region: str) -> list[SpotKey]:
        """Return what this account may rent in a region, by zone. An answer without any GPU is an error."""
        rows = self._account.pages(
            "ec2",
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=_FILTERS,
            MaxResults=1000,
        )
        pairs = [(word(row.get("InstanceType"), 40), word(row.get("Location"), 40)) for row in objects(rows)]
        found = [SpotKey(name, zone) for name, zone in pairs if name and zone]
        if not found:
            raise PayloadChanged(f"aws: {region}: no GPU machines are offered there; check the name of the region")
        return found

    def _add_on_demand(
        self,
        result: ParseResult,
        place: RegionZones,
        keys: list[SpotKey],
        machines_by_name: Mapping[str, InstanceType],
        new_types: Iterable[str],
    ) -> None:
        prices = self._catalog.prices(place.region, new_types)
        result.add_skipped(prices.skipped)
        for key in keys:
            price = prices.types.get(key.type)
            if price is None:
                result.skip("an instance type without a list price")
            elif key.zone in place.zones:
                with result.counting_skips():
                    machine = machines_by_name[key.type]
                    result.offers.append(on_demand_offer(place, key.zone, machine, price, prices.disk_usd_gb_month))
        self._add_blocks(result, place, machines_by_name, prices)

    def _add_blocks(
        self, result: ParseResult, place: RegionZones, machines_by_name: Mapping[str, InstanceType], prices: PriceList
    ) -> None:
        """Add what is for sale in advance; if that fails, the other offers are still correct."""
        try:
            blocks = self._blocks.cheapest_of(place.region, machines_by_name)
        except ProviderError as error:
            result.skip(f"no capacity blocks of {place.region}: {type(error).__name__}")
            return
        for block in blocks:
            if block.zone in place.zones:
                machine, size = machines_by_name[block.type], prices.types.get(block.type)
                with result.counting_skips():
                    result.offers.append(block_offer(place, machine, block, size, prices.disk_usd_gb_month))

    def _add_spot(
        self,
        result: ParseResult,
        place: RegionZones,
        keys: list[SpotKey],
        machines_by_name: Mapping[str, InstanceType],
        new_types: Iterable[str],
    ) -> None:
        found = self._catalog.spot_prices(place.region, {key.type for key in keys}, result)
        prices = self._list_prices(place.region, new_types)
        prices_by_key = {key: price for key in keys if (price := found.get(key)) and key.zone in place.zones}
        scores = self._scores.scores_of(place.region, [machines_by_name[key.type] for key in prices_by_key])
        for key, price in prices_by_key.items():  # no price: not sold as spot there
            machine, size = machines_by_name[key.type], prices.types.get(key.type)
            score = scores.get((key.type, place.zones[key.zone]))
            with result.counting_skips():
                offer = spot_offer(place, key.zone, machine, price, size, prices.disk_usd_gb_month)
                result.offers.append(with_score(offer, score))

    def _list_prices(self, region: str, new_types: Iterable[str]) -> PriceList:
        """Add the disk's price and the machine's size: a spot price is correct without them."""
        try:
            return self._catalog.prices(region, new_types)
        except ProviderError:
            return PriceList()


def _merge(answers: Mapping[str, ParseResult | ProviderError]) -> ParseResult:
    """Merge the answers of all regions. Raises ProviderError: none answered."""
    merged, errors = ParseResult(), []
    for region, answer in answers.items():
        if isinstance(answer, ProviderError):
            errors.append(answer)
            merged.skip(f"region {region} did not answer: {type(answer).__name__}")
            merged.note_missing(f"region {region}: {answer}")
            continue
        merged.add(answer)
    if errors and len(errors) == len(answers):
        raise errors[0]
    merged.searches = len(answers)
    return merged
