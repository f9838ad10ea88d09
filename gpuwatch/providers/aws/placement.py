"""AWS's spot placement scores: the likelihood, from 1 to 10, that a zone has capacity now. Free, and optional.

AWS scores at least three instance types together and rates a single one low, so types with the same GPUs are requested
together; a group of fewer than three, such as the p families, has no score.
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

_TTL_S: Final = 3600.0  # AWS limits the number of different queries a day, and these stay the same
_MIN_TYPES: Final = 3
ZoneScores = Mapping[tuple[str, str], int]  # (instance type, id of its zone) → score


class PlacementScores:
    """Caches the scores of one account for an hour; a refusal (missing permission), too."""

    def __init__(self, account: AwsClient) -> None:
        self._account = account
        self._cache: TtlCache[Mapping[str, int]] = TtlCache(_TTL_S, account.tools.monotonic)

    def scores_of(self, region: str, types: Iterable[InstanceType]) -> ZoneScores:
        """Return the scores of these types in a region's zones, as far as AWS has any. Raises no ProviderError."""
        groups: dict[object, set[str]] = {}
        for one in types:
            if one.fraction == 1.0:
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
