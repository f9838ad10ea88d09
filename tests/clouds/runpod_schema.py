"""RunPod's GraphQL schema as far as clients use it, and its values for the emulated account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec

from gpuwatch.emulator.answers import RefusedRequest
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.runpod_graphql import Field, InvalidQuery, ResolverError
from tests.clouds.runpod_pods import EmulatedPod, Lags
from tests.clouds.runpod_stock import PLACES, GpuType, level

_KEYLESS: Final = frozenset({"gpuTypes", "dataCenters", "countryCodes"})
_STATUS: Final = {"EXITED": "EXITED", "TERMINATED": "TERMINATED"}
_DEPLOY: Final = frozenset({
    "cloudType", "gpuTypeId", "gpuCount", "name", "imageName", "containerDiskInGb", "volumeInGb", "volumeMountPath",
    "minVcpuCount", "minMemoryInGb", "ports", "env", "dockerArgs", "dataCenterId", "countryCode", "supportPublicIp",
    "startSsh", "templateId", "networkVolumeId", "minCudaVersion", "allowedCudaVersions", "containerRegistryAuthId",
    "stopAfter", "terminateAfter", "compliance", "minDownload", "minUpload",
})  # fmt: skip


def _plain(*names: str, **leading: str) -> dict[str, str]:
    return dict.fromkeys(names, "") | leading


class RunPodAccount(Protocol):
    """The data and operations of the schema."""

    types: dict[str, GpuType]
    pods: dict[str, EmulatedPod]
    credit: float
    ssh_key: str
    lags: Lags
    registries: dict[str, str]
    templates: dict[str, dict[str, Any]]

    def made(self, body: Mapping[str, Any]) -> EmulatedPod:
        """Create a pod. Raises Refused."""

    def end(self, pod_id: str) -> None:
        """Terminate a pod."""


class Resolver:
    """One request's view of the account."""

    types: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "Query": _plain("countryCodes", gpuTypes="GpuType", dataCenters="DataCenter", myself="User", pod="Pod"),
        "Mutation": _plain(
            "podTerminate", "deleteRegistryAuth", podFindAndDeployOnDemand="Pod", podStop="Pod", podResume="Pod",
            saveTemplate="Template", saveRegistryAuth="RegistryAuth",
        ),
        "Template": _plain(
            "id", "name", "imageName", "dockerArgs", "containerDiskInGb", "volumeInGb", "volumeMountPath", "ports",
            "isServerless", env="Variable",
        ),
        "Variable": _plain("key", "value"),
        "RegistryAuth": _plain("id", "name"),
        "GpuType": _plain(
            "id", "displayName", "manufacturer", "memoryInGb", "cudaCores", "secureCloud", "communityCloud",
            "securePrice", "communityPrice", "secureSpotPrice", "communitySpotPrice", "oneWeekPrice", "oneMonthPrice",
            "threeMonthPrice", "sixMonthPrice", "maxGpuCount", "maxGpuCountSecureCloud", "maxGpuCountCommunityCloud",
            lowestPrice="LowestPrice",
        ),
        "LowestPrice": _plain("minimumBidPrice", "uninterruptablePrice", "stockStatus", "availableGpuCounts"),
        "DataCenter": _plain("id", "name", "location", "listed", "storageSupport", gpuAvailability="GpuAvailability"),
        "GpuAvailability": _plain("gpuTypeId", "displayName", "available", "stockStatus"),
        "User": _plain(
            "id", "email", "pubKey", "clientBalance", "currentSpendPerHr", "spendLimit", pods="Pod",
            networkVolumes="NetworkVolume",
        ),
        "NetworkVolume": _plain("id", "name", "size", "dataCenterId"),
        "Pod": _plain(
            "id", "containerDiskInGb", "costPerHr", "desiredStatus", "dockerArgs", "dockerId", "env", "gpuCount",
            "imageName", "lastStatusChange", "machineId", "memoryInGb", "name", "podType", "port", "ports",
            "uptimeSeconds", "vcpuCount", "volumeInGb", "volumeMountPath", runtime="PodRuntime", machine="PodMachine",
        ),
        "PodRuntime": _plain("uptimeInSeconds", ports="PodRuntimePorts", gpus="PodRuntimeGpus"),
        "PodRuntimePorts": _plain("ip", "isIpPublic", "privatePort", "publicPort", "type"),
        "PodRuntimeGpus": _plain("id", "gpuUtilPercent", "memoryUtilPercent"),
        "PodMachine": _plain("gpuDisplayName", "podHostId"),
    }  # fmt: skip

    def __init__(self, cloud: RunPodAccount, request: EmulatorRequest) -> None:
        self._cloud = cloud
        self._request = request

    def resolve(self, type_name: str, parent: Any, field: Field) -> Any:
        """Return the value of a field. Raises Broken: no key; Failed: no such pod, no capacity."""
        if type_name in ("Query", "Mutation"):
            if field.name not in _KEYLESS and not self._request.keyed:
                raise InvalidQuery("Unauthorized", "UNAUTHENTICATED", 401)
            entry: Callable[[Mapping[str, Any]], Any] = getattr(self, f"_{field.name}")
            return entry(field.arguments.get("input") or field.arguments)
        if field.name == "lowestPrice":
            return _lowest(parent["row"], field.arguments.get("input") or {})
        if field.name == "gpuAvailability":
            return self._availability(parent["id"], field.arguments.get("input") or {})
        return parent.get(field.name)

    # --- without a key ---------------------------------------------------------------------------------------------
    def _gpuTypes(self, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        rows = [row for row in self._cloud.types.values() if wanted.get("id") in (None, row.id)]
        found = [_type(row) for row in rows]
        return found if "id" in wanted else [*found, _type(GpuType("unknown", "unknown", 0, 0.0, 0.0))]

    def _dataCenters(self, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {"id": place, "name": name, "location": region, "listed": True, "storageSupport": True}
            for place, (name, region) in PLACES.items()
        ]

    def _countryCodes(self, wanted: Mapping[str, Any]) -> list[str | None]:
        return ["US", "CA", None, "RO"]

    def _availability(self, place: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        count = wanted.get("gpuCount", 1)
        rows = [row for row in self._cloud.types.values() if place in row.free and count <= row.most]
        levels = [(row, level(row.free[place], count)) for row in rows]
        return [
            {"gpuTypeId": row.id, "displayName": row.name, "available": stock != "NONE", "stockStatus": _title(stock)}
            for row, stock in levels
        ]

    # --- the account -----------------------------------------------------------------------------------------------
    def _myself(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        pods = [self._shown(pod) for pod in self._cloud.pods.values()]
        spend = sum(pod.cost for pod in self._cloud.pods.values() if pod.stopped_at is None)
        return {
            "id": "user_1", "email": "me@example.org", "pubKey": self._cloud.ssh_key,
            "clientBalance": self._cloud.credit,
            "currentSpendPerHr": spend, "spendLimit": 80, "pods": pods, "networkVolumes": [],
        }  # fmt: skip

    def _pod(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        pod = self._cloud.pods.get(wanted.get("podId", ""))
        return None if pod is None else self._shown(pod)

    def _podFindAndDeployOnDemand(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        for name in wanted:
            if name not in _DEPLOY:
                raise InvalidQuery(f'Field "{name}" is not defined by type "PodFindAndDeployOnDemandInput".')
        if wanted.get("templateId"):
            if wanted["templateId"] not in self._cloud.templates:
                raise ResolverError("template not found")
            wanted = self._cloud.templates[wanted["templateId"]] | {k: v for k, v in wanted.items() if v}
        for cloud in ("SECURE", "COMMUNITY") if wanted.get("cloudType", "ALL") == "ALL" else (wanted["cloudType"],):
            try:
                return self._shown(self._cloud.made(_body(wanted, cloud)))
            except RefusedRequest as refused:
                stock = msgspec.json.decode(refused.reply.body)["detail"]
        raise ResolverError(stock)

    def _podStop(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        pod = self._found(wanted)
        pod.stopped_at = self._request.now
        return self._shown(pod)

    def _podResume(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        pod = self._found(wanted)
        pod.stopped_at = None
        return self._shown(pod)

    def _podTerminate(self, wanted: Mapping[str, Any]) -> None:
        self._cloud.end(self._found(wanted, "pod not found to terminate").id)

    # --- stored data -----------------------------------------------------------------------------------------------
    def _saveTemplate(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if any(template["name"] == wanted.get("name") for template in self._cloud.templates.values()):
            raise ResolverError("Template name must be unique.")
        template_id = f"tpl{len(self._cloud.templates) + 1:07d}"
        self._cloud.templates[template_id] = dict(wanted) | {"id": template_id}
        return self._cloud.templates[template_id]

    def _saveRegistryAuth(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if wanted.get("name") in self._cloud.registries.values():
            raise ResolverError("Registry auth name must be unique.")
        auth_id = f"reg{len(self._cloud.registries) + 1:07d}"
        self._cloud.registries[auth_id] = wanted["name"]
        return {"id": auth_id, "name": wanted["name"]}

    def _deleteRegistryAuth(self, wanted: Mapping[str, Any]) -> bool:
        if self._cloud.registries.pop(str(wanted.get("registryAuthId")), None) is None:
            raise ResolverError("registry auth not found")
        return True

    def _found(self, wanted: Mapping[str, Any], stock: str = "pod not found") -> EmulatedPod:
        pod = self._cloud.pods.get(wanted.get("podId", ""))
        if pod is None:
            raise ResolverError(stock)
        return pod

    def _shown(self, pod: EmulatedPod) -> dict[str, Any]:
        now, lags, body = self._request.now, self._cloud.lags, pod.body
        uptime = pod.uptime(now, lags)
        persistent = body.get("mounts", {}).get("persistent", {})
        ports = [
            {
                "ip": p["ip"],
                "isIpPublic": True,
                "privatePort": p["private"],
                "publicPort": p["public"],
                "type": p["type"],
            }
            for p in pod.open_ports(now, lags)
        ]
        gpus = [{"id": f"GPU-{i}", "gpuUtilPercent": u, "memoryUtilPercent": 0} for i, u in enumerate(pod.util or [])]
        return {
            "id": pod.id, "name": body["name"], "imageName": body.get("image", ""), "costPerHr": pod.cost,
            "desiredStatus": _STATUS.get(pod.status(now, lags), "RUNNING"), "dockerArgs": body.get("args", ""),
            "containerDiskInGb": body.get("disk", 20), "env": [f"{k}={v}" for k, v in body.get("env", {}).items()],
            "gpuCount": pod.gpu["count"], "ports": ",".join(body.get("ports", [])), "podType": "RESERVED",
            "machineId": "hpvdausak8xb", "volumeInGb": persistent.get("size", 0), "memoryInGb": 62, "vcpuCount": 16,
            "volumeMountPath": persistent.get("path"), "uptimeSeconds": max(uptime or 0, 0),
            "machine": {"gpuDisplayName": pod.label_of_gpu, "podHostId": f"{pod.id}-64410065"},
            "runtime": None if uptime is None else {"uptimeInSeconds": uptime, "ports": ports, "gpus": gpus},
        }  # fmt: skip


def _type(row: GpuType) -> dict[str, Any]:
    return {
        "row": row, "id": row.id, "displayName": row.name, "manufacturer": row.manufacturer, "memoryInGb": row.memory,
        "secureCloud": row.secure, "communityCloud": row.community, "securePrice": row.secure_price,
        "communityPrice": row.community_price, "maxGpuCount": row.most,
        "maxGpuCountSecureCloud": row.most if row.secure else 0,
        "maxGpuCountCommunityCloud": row.most if row.community else 0,
    }  # fmt: skip


def _lowest(row: GpuType, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the live price of one request: for all its GPUs; without a count every field is null."""
    count = wanted.get("gpuCount")
    both = ("SECURE", "COMMUNITY")
    clouds = both if "secureCloud" not in wanted else both[:1] if wanted["secureCloud"] else both[1:]
    if count is None or count > row.most:
        return {}
    best = {cloud: max(row.free_at(cloud).values(), default=0) for cloud in clouds}
    prices = [price * count for cloud in clouds if best[cloud] >= count and (price := row.price(cloud))]
    stock = level(max(best.values()), count)
    price = min(prices, default=None)
    return {"uninterruptablePrice": price, "minimumBidPrice": price, "stockStatus": _title(stock)}


def _body(wanted: Mapping[str, Any], cloud: str) -> dict[str, Any]:
    """Convert a create of GraphQL to REST."""
    volume = wanted.get("volumeInGb") or 0
    mounts = {"persistent": {"size": volume, "path": wanted.get("volumeMountPath")}} if volume else {}
    return {
        "name": wanted.get("name", ""), "image": wanted.get("imageName", ""), "cloud": cloud,
        "gpu": {"id": wanted.get("gpuTypeId", ""), "count": wanted.get("gpuCount", 1)}, "mounts": mounts,
        "disk": wanted.get("containerDiskInGb", 20), "args": wanted.get("dockerArgs", ""),
        "ports": [port for port in (wanted.get("ports") or "").split(",") if port],
        "env": {one["key"]: one["value"] for one in wanted.get("env", [])},
    } | ({"dataCenterIds": [wanted["dataCenterId"]]} if wanted.get("dataCenterId") else {})  # fmt: skip


def _title(stock: str) -> str | None:
    """Return title case, where REST has upper case; null if there is none."""
    return None if stock == "NONE" else stock.capitalize()
