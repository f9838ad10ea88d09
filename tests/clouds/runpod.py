"""RunPod on loopback: the catalogue, pods and billing of REST v2, and the official client's GraphQL queries.

Built from the vendor's specification and recorded answers. If the vendor publishes nothing (the boundary of LOW and
HIGH, how long a pod takes), this stage invents something and says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.runpod_graphql import InvalidQuery, answered
from tests.clouds.runpod_pods import EmulatedPod, Lags, crossed, faults_of, moment
from tests.clouds.runpod_quota import QuotaMeter, Quotas
from tests.clouds.runpod_schema import Resolver
from tests.clouds.runpod_stock import PLACES, GpuType, rendered, seeded

NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
_TITLES = {
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 409: "Conflict", 422: "Unprocessable Entity", 429: "Too Many Requests",
}  # fmt: skip


class RunPod(ProviderServer):
    """One account. `types` and `pods` can be read and changed under `lock`.

    Args:
        credit: dollars; a create is refused with 402 if it covers less than an hour of the pod.
        lags: duration of each step of a new pod.
        quotas: for requests to REST.
    """

    ROUTES: ClassVar = (
        ("GET", r"/v2/catalog/gpus", "catalogue"),
        ("GET", r"/v2/catalog/gpus/([^/]+)", "one_type"),
        ("GET", r"/v2/catalog/datacenters", "data_centres"),
        ("POST", r"/v2/pods", "create"),
        ("GET", r"/v2/pods", "listed"),
        ("GET", r"/v2/pods/([^/]+)", "one"),
        ("DELETE", r"/v2/pods/([^/]+)", "ended"),
        ("POST", r"/v2/pods/([^/]+)/action", "acted"),
        ("GET", r"/v2/billing/pods", "billing"),
        ("GET", r"/v2/registries", "registries_listed"),
        ("POST", r"/graphql", "graphql"),
    )

    def __init__(
        self,
        *,
        port: int = 0,
        key: str = "demo-key",
        clock: Clock = time.time,
        credit: float = 100.0,
        lags: Lags = Lags(),  # noqa: B008 a frozen value
        quotas: Quotas = Quotas(),  # noqa: B008 a frozen value
    ) -> None:
        super().__init__(port=port, key=key, clock=clock)
        self.types: dict[str, GpuType] = seeded()
        self.pods: dict[str, EmulatedPod] = {}
        self.ended_pods: list[EmulatedPod] = []
        self.credit = credit
        self.ssh_key = "ssh-ed25519 AAAA me"  # of the account; empty: none
        self.registries: dict[str, str] = {}  # id → name
        self.templates: dict[str, dict[str, Any]] = {}  # by id, as GraphQL keeps them
        self.lags = lags
        self.taken: set[str] = set()  # stopped pods whose GPUs another one has
        self.dearer_by = 0.0  # USD an hour that a pod costs over the list price
        self._meter = QuotaMeter(quotas)
        self._made = 0

    # --- for tests -------------------------------------------------------------------------------------------------
    def sell_out(self, gpu_id: str, cloud: str = "SECURE", place: str | None = None) -> None:
        """From now on no GPU of this type is free, there or (None) anywhere in that cloud."""
        with self.lock:
            row = self.types[gpu_id]
            if cloud == "COMMUNITY":
                row.community_free = 0
            else:
                row.free = {one: 0 if place in (None, one) else left for one, left in row.free.items()}

    def stop(self, pod_id: str) -> None:
        """Make a pod exit, because of its owner, an empty balance, or its host."""
        with self.lock:
            self.pods[pod_id].stopped_at = self.clock()

    # --- REST v2 ---------------------------------------------------------------------------------------------------
    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Check the key and the quota of REST, and report the rest of it; GraphQL has its own check."""
        if not request.path.startswith("/v2/"):
            return super().routed(request)
        if not request.keyed:
            return problem(401, "missing bearer token")
        spent = self._meter.count(request.now)
        headers = self._meter.headers(request.now, spent)
        if spent is not None:
            return problem(429, f"rate limit exceeded for the {spent} window", headers=headers)
        try:
            answer = super().routed(request)
        except RefusedRequest as refused:
            answer = refused.reply
        return replace(answer, headers=(*answer.headers, *headers.items()))

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        """Refuse a wrong path, or an unsupported method."""
        return problem(404, "resource not found")

    def catalogue(self, request: EmulatorRequest) -> Any:
        """`GET /v2/catalog/gpus`."""
        with_stock, cloud, count = _stock_wanted(request.params)
        return {"gpus": [rendered(row, cloud, count, with_stock) for row in self.types.values()]}

    def one_type(self, request: EmulatorRequest, gpu_id: str) -> Any:
        """`GET /v2/catalog/gpus/{id}`."""
        with_stock, cloud, count = _stock_wanted(request.params)
        if gpu_id not in self.types:
            raise RefusedRequest(problem(404, "resource not found"))
        return rendered(self.types[gpu_id], cloud, count, with_stock)

    def data_centres(self, request: EmulatorRequest) -> Any:
        """`GET /v2/catalog/datacenters`."""
        rows = [{"id": place, "name": name, "region": region} for place, (name, region) in PLACES.items()]
        return {
            "dataCenters": [row | {"globalNetwork": True, "networkVolumeTypes": [], "compliance": []} for row in rows]
        }

    def create(self, request: EmulatorRequest) -> EmulatorReply:
        """`POST /v2/pods`."""
        body = request.decode_body()
        faults = faults_of(body)
        if faults:
            raise RefusedRequest(problem(422, "Request validation failed.", errors=faults))
        broken = crossed(body)
        if broken is not None:
            raise RefusedRequest(problem(400, broken))
        pod = self.made(body)
        return reply(pod.shown(request.now, self.lags), 201)

    def made(self, body: Mapping[str, Any]) -> EmulatedPod:
        """Create a pod. Raises Refused: no capacity, no money."""
        row = self.types.get(body["gpu"]["id"])
        cloud, count = body.get("cloud", "SECURE"), body["gpu"].get("count", 1)
        place = None if row is None else self._place(row, cloud, count, body.get("dataCenterIds"))
        price = None if row is None else row.price(cloud)
        if row is None or price is None or place is None:
            raise RefusedRequest(problem(400, NO_CAPACITY))
        cost = price * count + self.dearer_by
        if self.credit < cost:
            raise RefusedRequest(problem(402, "Your account balance is too low for this pod."))
        self._made += 1
        pod_id = f"pod{self._made:011d}"
        self._take(row, cloud, place[0], count)
        pod = EmulatedPod(pod_id, dict(body), cost, self.clock(), place[0], row.name)
        self.pods[pod_id] = pod
        return pod

    def listed(self, request: EmulatorRequest) -> Any:
        """`GET /v2/pods`: no filters, no pages; members of clusters only on request."""
        everything = request.params.get("includeClusterPods") == "true"
        pods = [pod for pod in self.pods.values() if everything or pod.cluster is None]
        return {"pods": [pod.shown(request.now, self.lags) for pod in pods]}

    def one(self, request: EmulatorRequest, pod_id: str) -> Any:
        """`GET /v2/pods/{id}`."""
        return self.pod(pod_id).shown(request.now, self.lags)

    def ended(self, request: EmulatorRequest, pod_id: str) -> EmulatorReply:
        """`DELETE /v2/pods/{id}`."""
        self.end(pod_id)
        return EmulatorReply(204, b"")

    def acted(self, request: EmulatorRequest, pod_id: str) -> EmulatorReply:
        """`POST /v2/pods/{id}/action`."""
        pod, action = self.pod(pod_id), request.body().get("action")
        if action == "terminate":
            self.end(pod_id)
            return EmulatorReply(204, b"")
        if action not in ("start", "stop", "restart"):
            raise RefusedRequest(problem(422, "Request validation failed.", errors=["$.action: no such action"]))
        if (action == "start") is (pod.stopped_at is None):
            raise RefusedRequest(problem(409, "the action is not allowed in this state"))
        if action == "start" and pod_id in self.taken:
            raise RefusedRequest(problem(400, NO_CAPACITY))
        pod.stopped_at = request.now if action == "stop" else None
        return reply(pod.shown(request.now, self.lags))

    def registries_listed(self, request: EmulatorRequest) -> Any:
        """`GET /v2/registries`: saved credentials, without their passwords."""
        return {"registries": [{"id": one, "name": name} for one, name in self.registries.items()]}

    def billing(self, request: EmulatorRequest) -> Any:
        """`GET /v2/billing/pods`, by whole days: running pods and their costs."""
        start, end = (request.params.get(name, "") for name in ("startTime", "endTime"))
        records = [self._record(pod, start, end) for pod in (*self.ended_pods, *self.pods.values())]
        return {"records": records, "metadata": {"recordCount": len(records)}}

    def graphql(self, request: EmulatorRequest) -> EmulatorReply:
        """`POST /graphql`: application errors are a 200 with `errors`."""
        body = request.body()
        try:
            value = answered(str(body.get("query", "")), body.get("variables") or {}, Resolver(self, request))
        except InvalidQuery as broken:
            return reply({"errors": [broken.error]}, broken.status)
        return reply(value)

    def pod(self, pod_id: str) -> EmulatedPod:
        """Return an existing pod. Raises Refused."""
        if pod_id not in self.pods:
            raise RefusedRequest(problem(404, "pod not found"))
        return self.pods[pod_id]

    def end(self, pod_id: str) -> None:
        """Terminate a pod and free its GPUs. Raises Refused."""
        pod = self.pod(pod_id)
        row, count = self.types[pod.gpu["id"]], pod.gpu["count"]
        self._take(row, pod.cloud, pod.place, -count)
        pod.stopped_at = pod.stopped_at or self.clock()
        self.ended_pods.append(self.pods.pop(pod_id))

    def _record(self, pod: EmulatedPod, start: str, end: str) -> dict[str, Any]:
        hours = ((pod.stopped_at or self.clock()) - pod.created_at) / 3600
        gpu, disk = hours * pod.cost, hours * pod.body.get("disk", 20) * 0.10 / 730
        day = moment(pod.created_at)[:10]
        return {
            "startTime": f"{day}T00:00:00Z", "endTime": f"{day}T23:59:59Z", "podId": pod.id, "totalAmount": gpu + disk,
            "gpuAmount": gpu, "cpuAmount": 0, "diskAmount": disk,
        }  # fmt: skip

    @staticmethod
    def _place(row: GpuType, cloud: str, count: int, wanted: list[str] | None) -> tuple[str | None] | None:
        """Return a place with room, if any. The list is enforced, although the specification calls it preferred."""
        if not row.sold(cloud) or count > row.most or (cloud == "COMMUNITY" and wanted):
            return None
        for place, free in row.free_at(cloud).items():
            if free >= count and (not wanted or place in wanted):
                return (place,)
        return None

    @staticmethod
    def _take(row: GpuType, cloud: str, place: Any, count: int) -> None:
        if cloud == "COMMUNITY":
            row.community_free -= count
        elif place in row.free:
            row.free[place] -= count


def problem(
    status: int, detail: str, errors: list[str] | None = None, headers: Mapping[str, str] | None = None
) -> EmulatorReply:
    """Return an RFC 9457 problem, as REST v2 does."""
    body = {"title": _TITLES.get(status, "Error"), "status": status, "detail": detail}
    answer = reply(body | ({} if errors is None else {"errors": errors}), status, headers)
    return replace(answer, content_type="application/problem+json")


def _stock_wanted(params: Mapping[str, str]) -> tuple[bool, str, int]:
    """Return (with stock?, cloud, GPUs). `include` and `product` must be given together or not at all."""
    include, product = params.get("include"), params.get("product")
    if (include is None) is not (product is None):
        raise RefusedRequest(problem(400, "product is required with include, and forbidden without it"))
    cloud, count = params.get("cloud", "SECURE"), params.get("count", "1")
    if (
        cloud not in ("SECURE", "COMMUNITY")
        or not count.isdigit()
        or int(count) < 1
        or include not in (None, "AVAILABILITY")
    ):
        raise RefusedRequest(problem(422, "Request validation failed.", errors=["$: a parameter is not understood"]))
    if include is None and "count" in params:
        raise RefusedRequest(problem(400, "count needs include"))
    return include is not None, cloud, int(count)
