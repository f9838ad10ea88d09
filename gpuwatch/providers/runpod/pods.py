"""Parses RunPod's list of pods into instances, and detects pods whose container restarts again and again.

`RUNNING` is the desired state of a pod: it is up when `runtime` has an uptime of its container, and its ports. A
container that exits is restarted, and the pod stays `RUNNING`.
source: REST v2 specification 2.0.0; series of a restart loop recorded 2026-06-15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.runpod.catalogue import (
    DISK_USD_GB_HOUR,
    PROVIDER,
    STOPPED_DISK_USD_GB_HOUR,
    PodPlacement,
    is_place,
    machine_id,
)
from gpuwatch.providers.runpod.create import POD_ID
from gpuwatch.providers.toolkit.basic_launcher import instance_rows
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, whole, word
from gpuwatch.redaction import redact

# source: PodStatus of the REST v2 specification 2.0.0, and of GraphQL (CREATED, RESTARTING, PAUSED, DEAD); read 2026-11
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("PROVISIONING", "STARTING", "CREATED", "RESTARTING"), InstanceState.STARTING),
    "RUNNING": InstanceState.RUNNING,
    **dict.fromkeys(("EXITED", "PAUSED"), InstanceState.STOPPED),
    **dict.fromkeys(("ERROR", "DEAD"), InstanceState.FAILED),
    "TERMINATED": InstanceState.ENDED,
})  # fmt: skip
_LOOPING: Final = "RUNNING: its container starts again and again"
_PORTS_LAG_S: Final = 120.0  # ports appear 30 to 60 s late; if they never appear, the host has no public address
YOUNG_S: Final = 90.0  # a container with a shorter uptime at every poll …
LOOP_S: Final = 180.0  # … for this long, and whose uptime fell this often, is in a restart loop; without a fall, after
MIN_UPTIME_FALLS: Final = 2
STUCK_S: Final = 600.0
_MAX_DISK_GB: Final = 1e6


class PodRow(msgspec.Struct, frozen=True):
    """One row: the instance from the row alone, and its container's uptime (None: there is none).

    `is_running`: its desired state is running.
    """

    instance: Instance
    is_running: bool
    uptime_s: float | None


def parse_pods(value: Any) -> list[PodRow]:
    """Parse every pod of a list. A pod that cannot be read makes the list unreadable: it may be billed.

    Raises:
        PayloadChanged: the list has an unexpected format, or is incomplete.
    """
    rows = instance_rows(value, at(value, "pods"), PROVIDER)
    return [_pod(row) for row in rows if not STATUS_WORDS.is_ended(row.get("status"))]


def parse_pod(value: Any) -> Instance:
    """Parse the answer about one pod, ended or not. Raises PayloadChanged."""
    return _pod(value).instance


class _YoungContainer(msgspec.Struct):
    """A container that was young at every poll so far."""

    since_s: float  # monotonic
    uptime_s: float
    uptime_falls: int = 0  # polls at which its uptime was lower than at the poll before, or missing


class RestartDetector:
    """Detects pods whose container never runs for long."""

    def __init__(self) -> None:
        self._young_containers: dict[str, _YoungContainer] = {}

    def update(self, pods: Iterable[PodRow], now_s: float) -> list[Instance]:
        """Return the instances, with those in a restart loop as failed.

        Args:
            now_s: monotonic; the interval between polls may vary.
        """
        pods = list(pods)
        containers = {pod.instance.instance_id: self._track(pod, now_s) for pod in pods}
        self._young_containers = {
            instance_id: container for instance_id, container in containers.items() if container is not None
        }
        return [self._with_restart_state(pod, now_s) for pod in pods]

    def _track(self, pod: PodRow, now_s: float) -> _YoungContainer | None:
        """Update a young container; None: it is no longer young, or there is none."""
        container = self._young_containers.get(pod.instance.instance_id)
        if pod.uptime_s is None:
            return container if pod.is_running else None  # between two starts there is briefly no container
        if pod.uptime_s >= YOUNG_S:
            return None
        if container is None:
            return _YoungContainer(now_s, pod.uptime_s)
        has_fallen = pod.uptime_s < container.uptime_s or pod.uptime_s < 0
        return _YoungContainer(container.since_s, pod.uptime_s, container.uptime_falls + has_fallen)

    def _with_restart_state(self, pod: PodRow, now_s: float) -> Instance:
        """Return the instance, failed if in a restart loop. RunPod's uptime lags: only a fall proves a restart."""
        container = self._young_containers.get(pod.instance.instance_id)
        age_s = 0.0 if container is None else now_s - container.since_s
        if container is None or age_s < LOOP_S or (container.uptime_falls < MIN_UPTIME_FALLS and age_s < STUCK_S):
            return pod.instance
        return msgspec.structs.replace(pod.instance, state=InstanceState.FAILED, status=_LOOPING)


def _pod(row: Any) -> PodRow:
    pod_id, status = at(row, "id"), at(row, "status")
    if not isinstance(pod_id, str) or not POD_ID.fullmatch(pod_id) or not isinstance(status, str):
        raise PayloadChanged(f"{PROVIDER}: a pod of the list has no id or no status")
    runtime = row.get("runtime")
    uptime_s = number(at(runtime, "uptime"), -1e9) if status == "RUNNING" else None
    return PodRow(_instance(pod_id, status, row, uptime_s), status == "RUNNING", uptime_s)


def _instance(pod_id: str, status: str, row: Mapping[str, Any], uptime_s: float | None) -> Instance:
    gpu_id, (state, unknown_status) = word(at(row, "gpu", "id"), 80), STATUS_WORDS.read(status)
    status_text = word(redact(status), 60) or "unknown"
    if state is InstanceState.RUNNING and not _is_running(row, uptime_s):
        state, status_text = InstanceState.STARTING, f"{status_text}: its container is not up yet"
    host, port = _ssh(row)
    return Instance(
        instance_id=pod_id,
        label=word(row.get("name")),
        state=state,
        status=status_text,
        unknown_status=None if unknown_status is None else status_text,
        machine_id=_machine_id(gpu_id, row),
        gpu=None if gpu_id is None else catalog().resolve(gpu_id).name,
        gpu_wire=gpu_id,
        gpu_count=whole(at(row, "gpu", "count"), 1),
        disk_gb=number(row.get("disk"), 0.0, _MAX_DISK_GB),
        cuda=number(row.get("cudaVersion"), 1.0, 1000.0),
        spot=False,
        listed_usd_hour=_listed_usd_hour(row),
        stopped_usd_hour=_volume_gb(row) * STOPPED_DISK_USD_GB_HOUR,
        gpu_utilisation=_utilisation(row),
        ssh_host=host,
        ssh_port=port,
        started_at=_parse_time(row.get("startedAt")),
    )


def _is_running(row: Mapping[str, Any], uptime_s: float | None) -> bool:
    """Return the uptime. `runtime` may be empty; in a restart loop the uptime is mostly 0 or negative."""
    if uptime_s is None or uptime_s <= 0:
        return False
    requested_ports = {port.removesuffix("/tcp") for port in _texts(row.get("ports")) if port.endswith("/tcp")}
    mapped_ports = {str(one.get("private")) for one in objects(at(row, "runtime", "ports")) if _port(one.get("public"))}
    return requested_ports <= mapped_ports or uptime_s > _PORTS_LAG_S


def _listed_usd_hour(row: Mapping[str, Any]) -> float | None:
    """Return the cost while it runs. `cost` excludes the disks, and is 0 when nothing runs."""
    cost = usd_hour(row.get("cost"))
    if cost is None:
        return None
    return cost + ((number(row.get("disk"), 0.0, _MAX_DISK_GB) or 0.0) + _volume_gb(row)) * DISK_USD_GB_HOUR


def _volume_gb(row: Mapping[str, Any]) -> float:
    return number(at(row, "mounts", "persistent", "size"), 0.0, _MAX_DISK_GB) or 0.0


def _utilisation(row: Mapping[str, Any]) -> float | None:
    """Return the percentage of the busiest GPU: a pod with one busy GPU is not idle. None: unknown for one of them."""
    gpus = objects(at(row, "runtime", "gpus"))
    utilisation = [number(one.get("util"), 0.0, 100.0) for one in gpus]
    count = whole(at(row, "gpu", "count"), 1)
    if not utilisation or (count is not None and len(utilisation) < count):
        return None
    known = [one for one in utilisation if one is not None]
    return max(known) if len(known) == len(utilisation) else None


def _ssh(row: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the direct address of sshd; the provider's proxy requires a special user and is not used."""
    host, port = word(at(row, "ssh", "direct", "host"), 253), _port(at(row, "ssh", "direct", "port"))
    if host is not None and port is not None:
        return host, port
    for one in objects(at(row, "runtime", "ports")):
        host, port = word(one.get("ip"), 253), _port(one.get("public"))
        if whole(one.get("private")) == 22 and host is not None and port is not None:
            return host, port
    return None, None


def _machine_id(gpu_id: str | None, row: Mapping[str, Any]) -> str | None:
    cloud, place = row.get("cloud"), row.get("dataCenterId")
    if gpu_id is None or cloud not in ("SECURE", "COMMUNITY"):
        return None
    return machine_id(PodPlacement(gpu_id, cloud, 1, place if isinstance(place, str) and is_place(place) else None))


def _port(value: object) -> int | None:
    return whole(value, 1, 65_535)


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _parse_time(value: object) -> datetime | None:
    try:
        return msgspec.convert(value, datetime) if isinstance(value, str) and value.endswith("Z") else None
    except msgspec.ValidationError:
        return None
