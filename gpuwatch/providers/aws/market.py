"""The market of AWS: queries all regions in parallel for the machines that each offers now.

Spot offers have AWS's placement score, the likelihood from 1 to 10 that a zone has capacity now. AWS scores at least
three instance types together and rates a single one low, so types with the same GPUs are requested together; a group of
fewer than three, such as the p families, has no score. Capacity blocks, whole machines paid in advance for a later
span, are shown as list prices and never ordered.
source: AWS's API references of GetSpotPlacementScores and DescribeCapacityBlockOfferings, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.providers.aws.catalog import CatalogCache, PriceList, prices_or_none, sort_text
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.offers import (
    InstanceType,
    RegionZones,
    SpotKey,
    cpu_table,
    known_type,
    matches_query,
    offer_in_zone,
    table,
)
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.catalogue import merge_answers
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult
from gpuwatch.providers.toolkit.validation import number, objects, whole, word

_BLOCKS_TTL_S: Final = 900.0
_SOLD_AS_BLOCKS: Final = re.compile(r"p[4-9]")
_MAX_HOURS: Final = 182 * 24.0
_SCORES_TTL_S: Final = 3600.0  # AWS limits the number of different queries a day, and these stay the same
_MIN_TYPES: Final = 3
ZoneScores = Mapping[tuple[str, str], int]  # (instance type, id of its zone) → score
_GPU_TYPES: Final = [*sorted(table()), "p*", "g*"]  # new types begin with these


class CapacityBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block for sale: one machine from `start` for `hours`, paid at once with `fee_usd`."""

    id: str
    type: str
    zone: str
    start: datetime
    hours: float
    fee_usd: float

    @property
    def usd_hour(self) -> float:
        """The price of an hour of the whole span."""
        return self.fee_usd / self.hours

    @property
    def note(self) -> str:
        """The conditions for a buyer."""
        return (
            f"a capacity block: {dollars(self.fee_usd)} at once for {self.hours:g} hours from "
            f"{format_moment(self.start)}, not refundable; gpuwatch never buys one, the EC2 console does"
        )


class CapacityBlocks:
    """The blocks of a length that AWS sells. `hours` 0: none are requested."""

    def __init__(self, account: AwsClient, hours: int) -> None:
        self._account = account
        self._hours = hours
        self._cache: TtlCache[list[CapacityBlock]] = TtlCache(_BLOCKS_TTL_S, account.tools.monotonic)

    def cheapest_of(self, region: str, types: Iterable[str]) -> list[CapacityBlock]:
        """Return the cheapest block of each type in each zone, the earliest of equals. Raises ProviderError."""
        found: dict[tuple[str, str], CapacityBlock] = {}
        for name in sorted(set(types)) if self._hours else ():
            if _SOLD_AS_BLOCKS.match(name):
                for one in self._cache.get(partial(self._fetch, region, name), (region, name)):
                    key = (one.type, one.zone)
                    found[key] = min(one, found.get(key, one), key=lambda block: (block.usd_hour, block.start))
        return list(found.values())

    def _fetch(self, region: str, name: str) -> list[CapacityBlock]:
        rows = self._account.pages(
            "ec2", region, "describe_capacity_block_offerings", "CapacityBlockOfferings",
            InstanceType=name, InstanceCount=1, CapacityDurationHours=self._hours,
        )  # fmt: skip
        blocks = (parse_block(row) for row in objects(rows))
        return [block for block in blocks if block is not None and block.type == name]


def parse_block(row: Mapping[str, Any]) -> CapacityBlock | None:
    """Parse a block; None: it is not for one machine, not in dollars, or malformed."""
    id_, name, zone = (
        word(row.get(key), 60) for key in ("CapacityBlockOfferingId", "InstanceType", "AvailabilityZone")
    )
    start, hours = row.get("StartDate"), number(row.get("CapacityBlockDurationHours"), 0.0, _MAX_HOURS)
    minutes = number(row.get("CapacityBlockDurationMinutes", 0), 0.0, 59.0)
    fee = number(row.get("UpfrontFee"), 0.01, 1e8)
    if row.get("InstanceCount") != 1 or row.get("CurrencyCode") != "USD" or not isinstance(start, datetime):
        return None
    if not (id_ and name and zone and fee) or hours is None or minutes is None or hours + minutes == 0:
        return None
    start_utc = start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)
    return CapacityBlock(id=id_, type=name, zone=zone, start=start_utc, hours=hours + minutes / 60, fee_usd=fee)


class PlacementScores:
    """Caches the scores of one account for an hour; a refusal (missing permission), too."""

    def __init__(self, account: AwsClient) -> None:
        self._account = account
        self._cache: TtlCache[Mapping[str, int]] = TtlCache(_SCORES_TTL_S, account.tools.monotonic)

    def scores_of(self, region: str, types: Iterable[InstanceType]) -> ZoneScores:
        """Return the scores of these types in a region's zones, as far as AWS has any. Raises no ProviderError."""
        groups: dict[object, set[str]] = {}
        for one in types:
            if one.fraction == 1.0 and one.count:
                groups.setdefault((one.gpu.name, one.count, one.arch), set()).add(one.name)
        found: dict[tuple[str, str], int] = {}
        for names in groups.values():
            if len(names) >= _MIN_TYPES:
                scores = self._fetch_group(region, tuple(sorted(names)))
                found |= {(name, zone_id): score for name in names for zone_id, score in scores.items()}
        return found

    def _fetch_group(self, region: str, names: tuple[str, ...]) -> Mapping[str, int]:
        def fetch() -> Mapping[str, int]:
            try:
                answer = self._account.call(
                    "ec2", region, "get_spot_placement_scores", InstanceTypes=list(names), TargetCapacity=1,
                    TargetCapacityUnitType="units", SingleAvailabilityZone=True, RegionNames=[region],
                )  # fmt: skip
            except ProviderError:
                return {}
            rows = objects(answer.get("SpotPlacementScores"))
            pairs = [(word(row.get("AvailabilityZoneId"), 40), whole(row.get("Score"), 1, 10)) for row in rows]
            return {zone_id: score for zone_id, score in pairs if zone_id and score is not None}

        return self._cache.get(fetch, (region, names))


class AwsMarket(BasicMarket):
    """EC2's machines, with GPUs or (for queries about them) without, by region and zone."""

    def __init__(self, settings: ProviderSettings, account: AwsClient, catalog: CatalogCache) -> None:
        super().__init__(settings, account.tools)
        hours = settings.options.get("capacity_block_hours")
        self._account = account
        self._catalog = catalog
        self._scores = PlacementScores(account)
        self._blocks = CapacityBlocks(account, hours if isinstance(hours, int) else 0)

    def _read(self, query: Query, now: datetime) -> ParseResult:
        """Return the offers of all regions. A region that does not answer makes them partial. Raises ProviderError."""
        self._account.start_search(urgent=query.limit is not None)
        answers = self._account.in_all_regions(
            self._account.regions, lambda region: self._search_region(region, query, now)
        )
        return merge_answers((f"region {region}", answer) for region, answer in answers.items())

    def _search_region(self, region: str, query: Query, observed_at: datetime) -> ParseResult:
        cpu = query.wants_no_gpu
        offerings = self._offerings(region, cpu=cpu)
        machines = cpu_table() if cpu else self._catalog.machines(region, (key.type for key in offerings))
        machines_by_name = {name: machine for name, machine in machines.items() if matches_query(machine, query)}
        new_types = [name for name in machines if known_type(name) is None]
        result = ParseResult(rows=len(offerings), drift={f"new instance type: {name[:40]}": None for name in new_types})
        keys = [key for key in offerings if key.type in machines_by_name]
        if keys:
            place = RegionZones(region, self._catalog.zones(region), observed_at)
            add = self._add_spot if query.spot else self._add_on_demand
            add(result, place, keys, machines_by_name, partial(self._catalog.prices, region, new_types, cpu=cpu))
        return result

    def _offerings(self, region: str, *, cpu: bool) -> list[SpotKey]:
        """Return what this account may rent in a region, by zone. An answer without any machine is an error."""
        filters = [{"Name": "instance-type", "Values": sorted(cpu_table()) if cpu else _GPU_TYPES}]
        rows = self._account.pages(
            "ec2", region, "describe_instance_type_offerings", "InstanceTypeOfferings",
            LocationType="availability-zone", Filters=filters, MaxResults=1000,
        )  # fmt: skip
        pairs = [(word(row.get("InstanceType"), 40), word(row.get("Location"), 40)) for row in objects(rows)]
        found = [SpotKey(name, zone) for name, zone in pairs if name and zone]
        if not found:
            what = sort_text(cpu=cpu)
            raise PayloadChanged(f"aws: {region}: no {what} is offered there; check the name of the region")
        return found

    def _add_on_demand(
        self,
        result: ParseResult,
        place: RegionZones,
        keys: list[SpotKey],
        machines_by_name: Mapping[str, InstanceType],
        list_prices: Callable[[], PriceList],
    ) -> None:
        prices = list_prices()
        result.add_skipped(prices.skipped)
        for key in keys:
            price = prices.types.get(key.type)
            if price is None:
                result.skip("an instance type without a list price")
            elif key.zone in place.zones:
                with result.counting_skips():
                    machine = machines_by_name[key.type]
                    result.offers.append(offer_in_zone(place, key.zone, machine, price, prices.disk_usd_gb_month))
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
                with result.counting_skips():
                    result.offers.append(block_offer(place, machines_by_name[block.type], block, prices))

    def _add_spot(
        self,
        result: ParseResult,
        place: RegionZones,
        keys: list[SpotKey],
        machines_by_name: Mapping[str, InstanceType],
        list_prices: Callable[[], PriceList],
    ) -> None:
        found = self._catalog.spot_prices(place.region, {key.type for key in keys}, result)
        prices = prices_or_none(list_prices)
        prices_by_key = {key: price for key in keys if (price := found.get(key)) and key.zone in place.zones}
        scores = self._scores.scores_of(place.region, [machines_by_name[key.type] for key in prices_by_key])
        for key, price in prices_by_key.items():  # no price: not sold as spot there
            machine, spot_price = machines_by_name[key.type], prices.with_size(key.type, price.usd_hour)
            score = scores.get((key.type, place.zones[key.zone]))
            with result.counting_skips():
                offer = offer_in_zone(
                    place, key.zone, machine, spot_price, prices.disk_usd_gb_month, spot=True, score=score
                )
                result.offers.append(offer)


def block_offer(place: RegionZones, machine: InstanceType, block: CapacityBlock, prices: PriceList) -> Offer:
    """Build the offer of a capacity block, per hour. It is not live and its id is not orderable: nobody can rent it."""
    price = prices.with_size(block.type, block.usd_hour)
    offer = offer_in_zone(place, block.zone, machine, price, prices.disk_usd_gb_month)
    return replace(
        offer,
        offer_id=f"{place.region}/{block.zone}/{machine.name}/block/{block.id}",
        machine_id=f"{offer.machine_id}/block",
        kind=OfferKind.LISTED,
        terms=replace(offer.terms, prepaid=True, min_billing_s=block.hours * 3600.0, quota=None, note=block.note),
    )
