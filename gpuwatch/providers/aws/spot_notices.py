"""What the status of AWS's spot requests says about their machines: marked to be taken back, or taken.

source: AWS's EC2 User Guide, "Spot request status codes" and "Spot Instance interruption notices", 2026-11.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from gpuwatch.domain.launches.interruption import InterruptionKind, InterruptionNotice
from gpuwatch.errors import KeyRejected, ProviderError
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.create import INSTANCE_ID
from gpuwatch.providers.toolkit.validation import at, objects

log = logging.getLogger(__name__)

_NO_RIGHT_S: Final = 3600.0  # until it is asked again, without the right to
_WARNING: Final = timedelta(minutes=2)  # from the mark to the interruption, as AWS documents it
_MARKED: Final = {
    "marked-for-termination": InterruptionKind.TERMINATE,
    "marked-for-stop": InterruptionKind.STOP,
}
# AWS's own interruptions; other codes of ended machines are requests of the owner
_CAUSES: Final = ("by-price", "no-capacity", "capacity-oversubscribed", "by-experiment")
_TAKEN: Final = {f"instance-terminated-{cause}": InterruptionKind.TERMINATE for cause in _CAUSES} | {
    f"instance-stopped-{cause}": InterruptionKind.STOP for cause in _CAUSES
}


class SpotNotices:
    """AWS's notices of an account's spot machines."""

    def __init__(self, account: AwsClient) -> None:
        self._account = account
        self._again_s: dict[str, float] = {}  # region → when to ask again

    def added(self, found: list[Instance], region: str) -> list[Instance]:
        """Add the notices of gpuwatch's running machines, as far as known: a list without them is still a list."""
        asked = [
            one.instance_id.rpartition("/")[2]
            for one in found
            if one.spot and one.state is InstanceState.RUNNING and one.disk_gb is not None  # the tag is gpuwatch's
        ]
        if not asked or self._account.tools.monotonic() < self._again_s.get(region, 0.0):
            return found
        try:
            notices = notices_in(
                self._account.pages(
                    "ec2", region, "describe_spot_instance_requests", "SpotInstanceRequests",
                    Filters=[{"Name": "instance-id", "Values": asked}],
                ),
                region,
            )  # fmt: skip
        except KeyRejected as error:  # a policy of before: what the machine itself reads is left
            log.info("aws: notices before spot machines are taken back: %s", error)
            self._again_s[region] = self._account.tools.monotonic() + _NO_RIGHT_S
            return found
        except ProviderError:
            return found
        return [
            msgspec.structs.replace(one, interruption=notices[one.instance_id]) if one.instance_id in notices else one
            for one in found
        ]


def notices_in(rows: Sequence[object], region: str) -> dict[str, InterruptionNotice]:
    """Return the notice of each machine that has one, by instance id. A row that makes no sense is none."""
    found = {}
    for row in objects(rows):
        instance_id, code = row.get("InstanceId"), at(row, "Status", "Code")
        if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id) or not isinstance(code, str):
            continue
        kind = _MARKED.get(code) or _TAKEN.get(code)
        if kind is not None:
            when = _moment(at(row, "Status", "UpdateTime"), _WARNING if code in _MARKED else timedelta(0))
            found[f"{region}/{instance_id}"] = InterruptionNotice(kind=kind, at=when)
    return found


def _moment(marked_at: object, later: timedelta) -> datetime | None:
    if not isinstance(marked_at, datetime) or marked_at.tzinfo is None:
        return None
    try:
        return marked_at.astimezone(UTC) + later
    except OverflowError:
        return None
