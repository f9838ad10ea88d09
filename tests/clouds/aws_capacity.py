"""The emulated AWS's capacity answers: spot placement scores, and capacity blocks for sale. moto supports neither.

source: AWS's API reference and user guide of both actions, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from gpuwatch.emulator.answers import EmulatorReply
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.aws_market import Sold
from tests.clouds.aws_wire import listed, refuse, xml_reply

CAPACITY_ROUTES: Final = (
    ("POST", "/GetSpotPlacementScores", "get_placement_scores"),
    ("POST", "/DescribeCapacityBlockOfferings", "describe_blocks"),
)
_MOST_SCORES: Final = 10
_ENOUGH_TYPES: Final = 3


class _Server(Protocol):
    """What the actions need from the server."""

    market: list[Sold]
    scores: dict[str, int]
    blocks: list[dict[str, Any]]

    def _here(self, request: EmulatorRequest) -> Sequence[Sold]: ...

    def _paged(self, request: EmulatorRequest, name: str, rows: list[Any]) -> EmulatorReply: ...


class CapacityActions:
    """Mixed into the server."""

    def get_placement_scores(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return the best ten zones; fewer than three types always get a low score."""
        sent = request.params
        if "TargetCapacity" not in sent:
            raise refuse("MissingParameter", "The request must contain the parameter TargetCapacity")
        types, regions = set(listed(sent, "InstanceType")), listed(sent, "RegionName")
        if sent.get("SingleAvailabilityZone") != "true" or not types:
            raise refuse("InvalidParameterCombination", "only scores of zones, by instance types, are played here")
        zones = {
            one.zone_id: one.region
            for one in self.market
            if one.type in types and one.spot is not None and (not regions or one.region in regions)
        }
        enough = len(types) >= _ENOUGH_TYPES
        rows = [
            {"region": region, "availabilityZoneId": zone, "score": self.scores.get(zone, 5) if enough else 1}
            for zone, region in zones.items()
        ]
        rows.sort(key=lambda row: -int(str(row["score"])))
        return xml_reply(request, {"spotPlacementScoreSet": rows[:_MOST_SCORES]})

    def describe_blocks(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return blocks of a type for a whole number of days (of weeks, beyond two)."""
        sent = request.params
        hours = int(sent.get("CapacityDurationHours", "0"))
        if hours <= 0 or hours % 24 or (hours > 14 * 24 and hours % 168) or hours > 182 * 24:
            raise refuse("InvalidParameterValue", f"Invalid capacity duration hours: {hours}")
        if "InstanceType" not in sent:
            raise refuse("MissingParameter", "The request must contain the parameter InstanceType")
        zones = {one.zone for one in self._here(request)}
        rows = [
            block
            for block in self.blocks
            if block["instanceType"] == sent["InstanceType"]
            and block["availabilityZone"] in zones
            and block["capacityBlockDurationHours"] == hours
        ]
        return self._paged(request, "capacityBlockOfferingSet", rows)
