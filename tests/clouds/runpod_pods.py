"""Pods of the emulated RunPod: valid creates, how a pod starts, how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

FIELDS: Final = frozenset({
    "name", "image", "gpu", "cpu", "cloud", "dataCenterIds", "disk", "mounts", "ports", "env", "args", "registry",
    "entrypoint", "cmd",
    "startSsh", "startJupyter", "templateId", "globalNetworking",
})  # fmt: skip
GPU_FIELDS: Final = frozenset({
    "id", "count", "minCudaVersion", "allowedCudaVersions", "minRamPerGpu", "minVcpuCountPerGpu",
})  # fmt: skip
ADDRESS: Final = "195.26.233.3"


class Lags(NamedTuple):
    """Seconds from the create to each step of a pod, in ascending order."""

    starting_s: float = 0.0
    running_s: float = 0.0
    container_s: float = 0.0  # until then `runtime` is empty though the pod is RUNNING
    ports_s: float = 0.0


@dataclass
class EmulatedPod:
    """One pod: the body of its create, its cost, and its events."""

    id: str
    body: Mapping[str, Any]
    cost: float  # USD an hour while it runs, without disks
    created_at: float
    place: str | None
    label_of_gpu: str
    stopped_at: float | None = None
    failed: bool = False
    looping: bool = False  # its container ends and is started again
    util: list[int] | None = None  # percent of each GPU
    cluster: str | None = None

    @property
    def gpu(self) -> dict[str, Any]:
        """Return type and number."""
        shown = self.body["gpu"]
        return {"id": shown["id"], "count": shown.get("count", 1)}

    @property
    def cloud(self) -> str:
        """SECURE unless the create states otherwise."""
        return str(self.body.get("cloud", "SECURE"))

    def status(self, now: float, lags: Lags) -> str:
        """Return the value in REST's form."""
        if self.stopped_at is not None:
            return "EXITED"
        if self.failed:
            return "ERROR"
        age = now - self.created_at
        return "PROVISIONING" if age < lags.starting_s else "STARTING" if age < lags.running_s else "RUNNING"

    def uptime(self, now: float, lags: Lags) -> int | None:
        """Uptime of the container; None: there is none. In a restart loop it is around 0, and often negative."""
        if self.status(now, lags) != "RUNNING" or now - self.created_at < lags.container_s:
            return None
        up = int(now - self.created_at - lags.container_s)
        return (7, 0, -14, -9)[up // 30 % 4] if self.looping else max(up, 1)

    def shown(self, now: float, lags: Lags) -> dict[str, Any]:
        """Return the pod as REST shows it."""
        status, body = self.status(now, lags), self.body
        ports = self.open_ports(now, lags)
        ssh = next((port for port in ports if port["private"] == 22), None)
        runs = status not in {"EXITED", "TERMINATED"}
        shown: dict[str, Any] = {
            "id": self.id, "name": body["name"], "image": body.get("image", ""), "args": body.get("args", ""),
            "disk": body.get("disk", 20), "ports": list(body.get("ports", [])), "env": dict(body.get("env", {})),
            "registry": body.get("registry"), "status": status,
            "actions": ["start", "terminate"] if status == "PROVISIONING" else ["stop", "restart", "terminate"],
            "mounts": dict(body.get("mounts", {})), "gpu": self.gpu, "cloud": self.cloud, "dataCenterId": self.place,
            "cudaVersion": "12.8",
            "ssh": {
                "proxy": {"host": "ssh.runpod.io", "port": 22, "username": f"{self.id}-64411eb2"},
                "direct": None if ssh is None else {"host": ssh["ip"], "port": ssh["public"], "username": "root"},
            },
            "template": None, "cost": self.cost if runs else 0, "locked": False,
            "globalNetworking": {"enabled": False}, "runtime": self._runtime(now, lags),
            "createdAt": moment(self.created_at),
            "startedAt": moment(self.created_at + lags.running_s) if status == "RUNNING" else None,
        }  # fmt: skip
        shown |= {name: list(body[name]) for name in ("entrypoint", "cmd") if name in body}
        return shown | ({} if self.cluster is None else {"cluster": {"id": self.cluster}})

    def open_ports(self, now: float, lags: Lags) -> list[dict[str, Any]]:
        """Return the mapped TCP ports, which appear late."""
        if self.uptime(now, lags) is None or now - self.created_at < lags.ports_s:
            return []
        inside = [int(port.partition("/")[0]) for port in self.body.get("ports", []) if port.endswith("/tcp")]
        return [
            {"private": port, "public": 30_000 + (port * 7 + len(self.id)) % 30_000, "type": "tcp", "ip": ADDRESS}
            for port in inside
        ]

    def _runtime(self, now: float, lags: Lags) -> dict[str, Any] | None:
        uptime = self.uptime(now, lags)
        if uptime is None:
            return {} if self.status(now, lags) in {"PROVISIONING", "RUNNING"} else None
        shown: dict[str, Any] = {"uptime": uptime, "ports": self.open_ports(now, lags)}
        if self.util is not None:
            shown["gpus"] = [{"util": one, "memoryUtil": 1} for one in self.util]
            shown |= {"cpu": {"util": 13}, "memory": {"util": 20}}
        return shown


def faults_of(body: Any) -> list[str]:
    """Return a create's violations of the contract: one line each, as in a 422."""
    if not isinstance(body, dict):
        return ["$: expected an object"]
    found = [f"$: additional properties '{name}' not allowed" for name in sorted(body.keys() - FIELDS)]
    if not isinstance(body.get("name"), str) or not body["name"]:
        found.append("$: missing property 'name'")
    if not body.get("image") and not body.get("templateId"):
        found.append("$: missing property 'image'")
    gpu = body.get("gpu")
    if not isinstance(gpu, dict) or not isinstance(gpu.get("id"), str):
        found.append("$: missing property 'gpu'")
    else:
        found += _gpu_faults(gpu)
    if not _is_count(body.get("disk", 1)):
        found.append("$.disk: expected an integer of at least 1")
    if body.get("cloud", "SECURE") not in ("SECURE", "COMMUNITY"):
        found.append("$.cloud: value must be one of 'SECURE', 'COMMUNITY'")
    return found + _typed(body)


def _gpu_faults(gpu: Mapping[str, Any]) -> list[str]:
    found = [f"$.gpu: additional properties '{name}' not allowed" for name in sorted(gpu.keys() - GPU_FIELDS)]
    if not _is_count(gpu.get("count", 1)):
        found.append("$.gpu.count: expected an integer of at least 1")
    for name in ("minRamPerGpu", "minVcpuCountPerGpu"):
        if not _is_count(gpu.get(name, 1)):
            found.append(f"$.gpu.{name}: expected an integer of at least 1")
    return found


def crossed(body: Mapping[str, Any]) -> str | None:
    """Return a broken rule between fields (a 400), or None."""
    if {"persistent", "network"} <= body.get("mounts", {}).keys():
        return "mounts.persistent and mounts.network are mutually exclusive"
    if {"minCudaVersion", "allowedCudaVersions"} <= body["gpu"].keys():
        return "gpu.minCudaVersion and gpu.allowedCudaVersions are mutually exclusive"
    return None


def moment(seconds: float) -> str:
    """Format Unix seconds by RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _typed(body: Mapping[str, Any]) -> list[str]:
    found = []
    for name in ("ports", "dataCenterIds", "entrypoint", "cmd"):
        if not isinstance(body.get(name, []), list):
            found.append(f"$.{name}: expected an array")
            continue
        if not all(isinstance(one, str) for one in body.get(name, [])):
            found.append(f"$.{name}: expected strings")
    if not all(isinstance(one, str) for one in body.get("env", {}).values()):
        found.append("$.env: expected strings")
    for name in ("args", "registry", "templateId", "image"):
        if not isinstance(body.get(name, ""), str):
            found.append(f"$.{name}: expected a string")
    mounts = body.get("mounts", {})
    if not isinstance(mounts, dict) or mounts.keys() - {"persistent", "network"}:
        found.append("$.mounts: additional properties not allowed")
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
