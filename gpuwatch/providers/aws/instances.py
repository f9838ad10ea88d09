"""Parses `DescribeInstances`. Pure. One unreadable instance makes the list unreadable.

An instance that is ending counts as gone: it cannot come back and is not billed. Exception: a spot machine that AWS
reclaims is shown as failed while it shuts down, so that the reason is reported.
source: AWS's EC2 API reference (instance states, state reasons), 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.aws.create import INSTANCE_ID, TAG_BID, TAG_DISK, TAG_LABEL
from gpuwatch.providers.aws.instance_types import table
from gpuwatch.providers.aws.offers import machine_id
from gpuwatch.providers.toolkit.error_mapping import display_sentence
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, word

_STATES: Final = {
    "pending": InstanceState.STARTING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPED,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.FAILED,  # only if AWS interrupted it
}
_ENDING_STATES: Final = ("shutting-down", "terminated")
_INTERRUPTION_CODES: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_MAX_TEXT_LENGTH: Final = 160


def parse_instances(reservations: Sequence[object], region: str, ssh_user: str | None = None) -> list[Instance]:
    """Return every instance that is or may be billed, in the order of the answer.

    Raises:
        PayloadChanged: an instance is unreadable.
    """
    found = []
    for reservation in reservations:
        rows = at(reservation, "Instances")
        if not isinstance(rows, list) or len(objects(rows)) != len(rows):
            raise PayloadChanged(f"aws: {region}: a reservation has no instances")
        found += [_instance(row, region, ssh_user) for row in objects(rows) if not _has_ended(row, region)]
    return found


def _has_ended(row: Mapping[str, Any], region: str) -> bool:
    state, instance_id = at(row, "State", "Name"), row.get("InstanceId")
    if not isinstance(state, str) or not state or not INSTANCE_ID.fullmatch(str(instance_id)):
        raise PayloadChanged(f"aws: {region}: an instance has no id or no state")
    is_interrupted = state == "shutting-down" and at(row, "StateReason", "Code") in _INTERRUPTION_CODES
    return state in _ENDING_STATES and not is_interrupted


def _instance(row: Mapping[str, Any], region: str, ssh_user: str | None) -> Instance:
    tags = {tag.get("Key"): tag.get("Value") for tag in objects(row.get("Tags"))}
    state, name = row["State"]["Name"], word(row.get("InstanceType"), 40)
    machine = table().get(name or "")
    host = word(row.get("PublicIpAddress"), 60)
    return Instance(
        instance_id=f"{region}/{row['InstanceId']}",
        label=word(tags.get(TAG_LABEL)) or word(tags.get("Name")),
        state=_STATES.get(state, InstanceState.UNKNOWN),
        status=_status(row),
        machine_id=_machine_id(row, name),
        gpu=None if machine is None else machine.gpu.name,
        gpu_wire=None if machine is None else machine.gpu_wire,
        gpu_count=None if machine is None else machine.count,
        gpu_memory_gib=None if machine is None else machine.sold_memory_gib,
        disk_gb=number(tags.get(TAG_DISK), 0.0, 1e6),
        spot=row.get("InstanceLifecycle") == "spot",
        bid_usd_hour=usd_hour(tags.get(TAG_BID)),
        ssh_host=host,
        ssh_port=None if host is None else 22,
        ssh_user=ssh_user,
        started_at=_to_utc(row.get("LaunchTime")),
    )


def _to_utc(value: object) -> datetime | None:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else None


def _machine_id(row: Mapping[str, Any], name: str | None) -> str | None:
    zone, zone_id = (word(at(row, "Placement", key), 40) for key in ("AvailabilityZone", "AvailabilityZoneId"))
    return None if zone is None or name is None else machine_id({zone: zone_id or zone}, zone, name)


def _status(row: Mapping[str, Any]) -> str:
    """Return AWS's own words: the state, and its reason."""
    reason = at(row, "StateReason", "Message") or at(row, "StateReason", "Code")
    parts = [row["State"]["Name"], reason if isinstance(reason, str) else ""]
    return display_sentence(": ".join(filter(None, parts)))
