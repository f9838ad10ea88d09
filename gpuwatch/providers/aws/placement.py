"""AWS's spot placement scores: how likely a zone is to have capacity now, from 1 to 10. Free, and never needed.

AWS scores at least three instance types together and calls one alone always low, so those with the same GPUs are asked
about together; a group without three, such as the p families, has no score.
source: AWS's API reference and user guide of GetSpotPlacementScores, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuwatch.errors import ProviderError
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.instance_types import InstanceType
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.validation import objects, whole, word

_KEPT_S: Final = 3600.0  # AWS limits how many different questions it answers a day, and these stay the same
_LEAST_TYPES: Final = 3
ZoneScores = Mapping[tuple[str, str], int]  # (instance type, id of its zone) → score


class PlacementScores:
    """The scores of one account, kept for an hour; so is a refusal: without the right there are none."""

    def __init__(self, account: AwsClient) -> None:
        self._account = account
        self._kept: TtlCache[Mapping[str, int]] = TtlCache(_KEPT_S, account.tools.monotonic)

    def of(self, region: str, offered: Iterable[InstanceType]) -> ZoneScores:
        """The scores of these types in a region's zones, as far as AWS gives any. Raises nothing of the provider's."""
        groups: dict[object, set[str]] = {}
        for one in offered:
            if one.fraction == 1.0:
                groups.setdefault((one.gpu.name, one.count, one.arch), set()).add(one.name)
        found: dict[tuple[str, str], int] = {}
        for names in groups.values():
            if len(names) >= _LEAST_TYPES:
                scores = self._of_group(region, tuple(sorted(names)))
                found |= {(name, zone_id): score for name in names for zone_id, score in scores.items()}
        return found

    def _of_group(self, region: str, names: tuple[str, ...]) -> Mapping[str, int]:
        def fetch() -> Mapping[str, int]:
            try:
                answer = self._account.ask(
                    "ec2", region, "get_spot_placement_scores", InstanceTypes=list(names), TargetCapacity=1,
                    TargetCapacityUnitType="units", SingleAvailabilityZone=True, RegionNames=[region],
                )  # fmt: skip
            except ProviderError:
                return {}
            rows = objects(answer.get("SpotPlacementScores"))
            pairs = [(word(row.get("AvailabilityZoneId"), 40), whole(row.get("Score"), 1, 10)) for row in rows]
            return {zone_id: score for zone_id, score in pairs if zone_id and score is not None}

        return self._kept.get(fetch, (region, names))
