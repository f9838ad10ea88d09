"""Parses `DescribeInstances`. Pure. One unreadable instance makes the list unreadable.

An instance that is ending has ended: it cannot come back and is not billed. Exception: a spot machine that AWS
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
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, word

# source: InstanceStateName of botocore's EC2 model, 2026-11
STATUS_WORDS: Final = StatusWords({
    "pending": InstanceState.STARTING,
    "running": InstanceState.RUNNING,
    **dict.fromkeys(("stopping", "stopped"), InstanceState.STOPPED),
    **dict.fromkeys(("shutting-down", "terminated"), InstanceState.ENDED),
})  # fmt: skip
_NO_CAPACITY: Final = "Server.InsufficientInstanceCapacity"
_INTERRUPTION_CODES: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_MAX_TEXT_LENGTH: Final = 160


def parse_instances(reservations: Sequence[object], region: str, ssh_user: str | None = None) -> list[Instance]:
    """Return every instance that is or may be billed, in the order of the answer. Raises PayloadChanged."""
    return [one for one in parse_all(reservations, region, ssh_user) if one.state is not InstanceState.ENDED]


def parse_all(reservations: Sequence[object], region: str, ssh_user: str | None = None) -> list[Instance]:
    """Return every instance of the answer, ended or not.

    Raises:
        PayloadChanged: an instance is unreadable.
    """
    found = []
    for reservation in reservations:
        rows = at(reservation, "Instances")
        if not isinstance(rows, list) or len(objects(rows)) != len(rows):
            raise PayloadChanged(f"aws: {region}: a reservation has no instances")
        found += [_instance(row, region, ssh_user) for row in objects(rows)]
    return found


def _read_status(row: Mapping[str, Any], region: str) -> ReadStatus:
    """Return its state. Raises PayloadChanged: the row has no id or no state."""
    state, instance_id = at(row, "State", "Name"), row.get("InstanceId")
    if not isinstance(state, str) or not state or not INSTANCE_ID.fullmatch(str(instance_id)):
        raise PayloadChanged(f"aws: {region}: an instance has no id or no state")
    if state == "shutting-down" and at(row, "StateReason", "Code") in _INTERRUPTION_CODES:
        return ReadStatus(InstanceState.FAILED)
    return STATUS_WORDS.read(state)


def _instance(row: Mapping[str, Any], region: str, ssh_user: str | None) -> Instance:
    (state, unknown_status), name = _read_status(row, region), word(row.get("InstanceType"), 40)
    tags = {tag.get("Key"): tag.get("Value") for tag in objects(row.get("Tags"))}
    machine = table().get(name or "")
    host = word(row.get("PublicIpAddress"), 60)
    return Instance(
        instance_id=f"{region}/{row['InstanceId']}",
        label=word(tags.get(TAG_LABEL)) or word(tags.get("Name")),
        state=state,
        status=_status(row),
        unknown_status=word(unknown_status, 40),
        is_placed=at(row, "StateReason", "Code") != _NO_CAPACITY,
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
