"""Capacity blocks: whole machines paid in advance for a later span. Shown as list prices, never ordered.

source: AWS's API reference of DescribeCapacityBlockOfferings, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.validation import number, objects, word

_TTL_S: Final = 900.0
_SOLD_AS_BLOCKS: Final = re.compile(r"p[4-9]")
_MAX_HOURS: Final = 182 * 24.0


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
        self._cache: TtlCache[list[CapacityBlock]] = TtlCache(_TTL_S, account.tools.monotonic)

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
