"""Nebius's offers: what its capacity advice reports as available, in each region, on demand and preemptible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Answer, Query
from gpuwatch.providers.nebius.account import NebiusAccount, NebiusPrices
from gpuwatch.providers.nebius.client import LIST_ADVICE, PROVIDER, NebiusClient
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.catalogue import TTL_S
from gpuwatch.providers.toolkit.list_prices import is_plausible
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, build_answer
from gpuwatch.providers.toolkit.validation import usd_hour, whole

MIN_DISK_GB: Final = 50.0  # assumed: images need 40 GiB or less
_NAME: Final = re.compile(r"[a-z0-9.-]{1,40}")
_NAMED_COUNT: Final = re.compile(r"(\d{1,4})gpu-")  # of a preset: 8gpu-128vcpu-1600gb
_GENERATION_SUFFIX: Final = re.compile(r"-[a-z]$")  # gpu-b200-sxm-a: the same card in another machine generation
_FRESH: Final = "DATA_STATE_FRESH"
_LIMIT_REACHED: Final = "AVAILABILITY_LEVEL_LIMIT_REACHED"
_LOW_AVAILABILITY: Final = "AVAILABILITY_LEVEL_LOW"
_COUNTRIES: Final = {  # source: the vendor's page about regions
    "eu-north1": "FI", "eu-north2": "IS", "eu-west1": "FR", "me-west1": "IL", "uk-south1": "GB", "uk-south2": "GB",
    "us-central1": "US",
}  # fmt: skip


class NebiusStock(msgspec.Struct, kw_only=True):
    """One preset of a platform in a region, over all its fabrics.

    Attributes:
        machines: number available by rental type: False is on demand. A missing type is unknown.
        at_limit: rental types with a used-up quota.
        at_risk: rental types for which the vendor warns that an order may find no machine.
    """

    region: str
    platform: str
    preset: str
    gpu_count: int
    gpu_memory_gib: float | None
    vcpu: float | None
    ram_gib: float | None
    machines: dict[bool, int] = msgspec.field(default_factory=dict)
    at_limit: set[bool] = msgspec.field(default_factory=set)
    at_risk: set[bool] = msgspec.field(default_factory=set)

    @property
    def offer_id(self) -> str:
        """Return the offer id; the preemptible one has the suffix "/spot"."""
        return f"{self.platform}/{self.preset}/{self.region}"


class NebiusMarket:
    """The market. One answer serves all watches for a few seconds."""

    name = PROVIDER

    def __init__(self, client: NebiusClient, account: NebiusAccount, prices: NebiusPrices) -> None:
        self._client = client
        self._account = account
        self._prices = prices
        self._cache: TtlCache[tuple[ParseResult, datetime]] = TtlCache(TTL_S, client.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """Return matching offers. Raises ProviderError."""
        self._client.require_key()
        began_s = self._client.tools.monotonic()
        result, observed_at = self._cache.get(self._fetch)
        elapsed_s = self._client.tools.monotonic() - began_s
        return build_answer(result, query, PROVIDER, observed_at=observed_at, elapsed_s=elapsed_s)

    def _fetch(self) -> tuple[ParseResult, datetime]:
        rows = self._client.pages(LIST_ADVICE, kind="search", parent_id=self._account.tenant())
        result = ParseResult(rows=len(rows))
        if not rows:
            result.note_missing("no capacity advice is listed, not even for machines that are sold out")
        stock = parse_advice(rows, result)
        spot = self._spot_prices(result) if any(one.machines.get(True) for one in stock) else {}
        now, free = self._client.tools.now(), set[bool]()
        for one in stock:
            project = self._account.project(one.region) if any(one.machines.values()) else None
            for is_spot in (False, True):
                if project is not None and one.machines.get(is_spot):  # free, and rentable there
                    free.add(is_spot)
                    with result.counting_skips():
                        result.offers.append(self._offer(one, is_spot, project, spot, now))
        if result.skipped and not result.offers and (free or not stock):
            raise result.no_usable_row(
                f"{PROVIDER}: none of {count_text(len(rows), 'row')} of capacity advice can be used"
            )
        if False in free and all(offer.spot for offer in result.offers):
            result.note_missing("no price on demand can be used")
        return result, now

    def _spot_prices(self, result: ParseResult) -> Mapping[tuple[str, str], float]:
        """Return the spot prices; unreadable ones make the answer partial: those on demand are still correct."""
        try:
            return self._prices.spot()
        except PayloadChanged as error:
            result.note_missing(str(error))
            return {}

    def _offer(
        self, one: NebiusStock, is_spot: bool, project: str, spot: Mapping[tuple[str, str], float], now: datetime
    ) -> Offer:
        disk = self._prices.disk_usd_gb_month(project)
        if disk is None:
            raise RowSkipped("no price of a disk")
        if is_spot:
            per_gpu = spot.get((one.region, one.platform))
            price = None if per_gpu is None else usd_hour(per_gpu * one.gpu_count)
        else:
            price = self._prices.on_demand(project, one.platform, one.preset)
        if price is None or not is_plausible(price, one.gpu_count):
            raise RowSkipped("no price of a preemptible GPU" if is_spot else "no price on demand")
        return _offer(one, is_spot, price, disk, now)


def parse_advice(rows: Iterable[Any], result: ParseResult) -> list[NebiusStock]:
    """Parse the presets with GPUs in capacity advice, one per region; joins fabrics. Pure."""
    found: dict[str, NebiusStock] = {}
    for row in rows:
        with result.counting_skips():
            one = _read(row)
            if one is not None:
                stock = found.setdefault(one.offer_id, one)
                _add(stock, row.status, result)
    return list(found.values())


def gpu_of(platform: str, memory_gib: float | None = None) -> GpuName:
    """The GPU of a platform, such as gpu-h100-sxm."""
    return catalog().resolve(_GENERATION_SUFFIX.sub("", platform.removeprefix("gpu-")), memory_gib)


def _read(row: Any) -> NebiusStock | None:
    """Parse one row; None: no GPU. Raises RowSkipped."""
    details = row.spec.compute_instance
    if details is None:
        return None
    resources = details.preset.resources
    count = whole(resources.gpu_count, 0, 1_000)
    if count is None:
        raise RowSkipped("no number of GPUs")
    if not count:
        return None
    names = (row.spec.region, details.platform, details.preset.name)
    if not all(_NAME.fullmatch(name) for name in names):
        raise RowSkipped("no name of its region, platform or preset")
    named = _NAMED_COUNT.match(names[2])
    if named is not None and int(named[1]) != count:
        raise RowSkipped("two different numbers of its GPUs")
    memory = whole(details.gpu_memory_gigabytes, 1, 10_000)
    vcpu, ram = whole(resources.vcpu_count, 1, 10_000), whole(resources.memory_gibibytes, 1, 100_000)
    return NebiusStock(
        region=names[0],
        platform=names[1],
        preset=names[2],
        gpu_count=count,
        gpu_memory_gib=None if memory is None else float(memory),
        vcpu=vcpu,
        ram_gib=ram,
    )


def _add(stock: NebiusStock, status: Any, result: ParseResult) -> None:
    """Add the stock of one fabric. Stale data is unknown: the answer is then partial."""
    for spot, status_of_type in ((False, status.on_demand), (True, status.preemptible)):
        level, state = _enum(status_of_type.availability_level), _enum(status_of_type.data_state)
        if level == _LIMIT_REACHED:
            stock.at_limit.add(spot)
        elif state == "DATA_STATE_UNSPECIFIED":  # the platform is not rented in this way
            continue
        elif state != _FRESH:
            result.note_missing(f"{stock.region}: what is free is not known")
        else:
            stock.machines[spot] = max(stock.machines.get(spot, 0), whole(status_of_type.available, 0, 10**9) or 0)
            if level == _LOW_AVAILABILITY:
                stock.at_risk.add(spot)


def _enum(value: Any) -> str:
    return str(getattr(value, "name", ""))


def _offer(one: NebiusStock, spot: bool, usd_hour: float, disk_usd: float, now: datetime) -> Offer:
    gpu = gpu_of(one.platform, one.gpu_memory_gib)
    risk = "Nebius: an order may find no machine" if spot in one.at_risk else None
    return Offer(
        provider=PROVIDER,
        offer_id=f"{one.offer_id}/spot" if spot else one.offer_id,
        machine_id=one.offer_id,
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=one.platform,
        gpu_known=gpu.known,
        gpu_count=one.gpu_count,
        gpu_memory_gib=one.gpu_memory_gib,
        spot=spot,
        quoted_usd_hour=usd_hour + disk_usd * MIN_DISK_GB / HOURS_A_MONTH,
        quoted_disk_gb=MIN_DISK_GB,
        disk_usd_gb_month=disk_usd,
        observed_at=now,
        region=one.region,
        country=_COUNTRIES.get(one.region),
        datacenter=True,
        vcpu=one.vcpu,
        ram_gib=one.ram_gib,
        terms=OfferTerms(
            instance_type=f"{one.platform} {one.preset}",
            fungible=True,
            interconnect="NVLink" if "-sxm" in one.platform and one.gpu_count > 1 else None,
            multi_node=False,
            tax_included=False,
            least_disk_gb=MIN_DISK_GB,
            note=gpu.reason or risk,
        ),
    )
