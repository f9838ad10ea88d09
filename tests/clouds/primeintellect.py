"""Prime Intellect's list of offers on loopback: pages, the older format, the summary, disks, and odd rows.

Built from its OpenAPI file and documents. source: docs/providers/primeintellect.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

_PART: Final = {
    "minCount": None, "defaultCount": None, "maxCount": None, "pricePerUnit": None, "step": None,
    "defaultIncludedInPrice": None, "additionalInfo": None,
}  # fmt: skip
_IMAGES: Final = ["ubuntu_22_cuda_12", "cuda_12_1_pytorch_2_2"]
_RATES: Final = (
    b'<?xml version="1.0"?><gesmes:Envelope><Cube><Cube time="2026-11-20">'
    b'<Cube currency="USD" rate="1.1500"/><Cube currency="GBP" rate="0.8600"/></Cube></Cube></gesmes:Envelope>'
)


def part(**values: Any) -> dict[str, Any]:
    """Return one of `disk`, `vcpu`, `memory`, with all its fields."""
    return _PART | values


def row(seller: str, cloud_id: str, gpu: str, socket: str, usd_hour: float, **more: Any) -> dict[str, Any]:
    """Return one offer with all fields of the list; `more` replaces some."""
    community = more.get("security") == "community_cloud"
    return {
        "cloudId": cloud_id,
        "gpuType": gpu,
        "socket": socket,
        "provider": seller,
        "region": "united_states",
        "dataCenter": None,
        "country": "US",
        "gpuCount": 1,
        "gpuMemory": 80,
        "disk": part(defaultCount=100),
        "sharedDisk": None,
        "vcpu": part(defaultCount=16),
        "memory": part(defaultCount=128),
        "internetSpeed": None,
        "interconnect": None,
        "interconnectType": None,
        "provisioningTime": None,
        "stockStatus": "Available",
        "security": "secure_cloud",
        "prices": {
            "onDemand": None if community else usd_hour,
            "communityPrice": usd_hour if community else None,
            "isVariable": None,
            "currency": "USD",
        },
        "images": list(_IMAGES),
        "isSpot": None,
        "prepaidTime": None,
    } | more


def market() -> list[dict[str, Any]]:
    """Return a small market with the two documented offers, and one of each oddity."""
    extra_disk = part(minCount=80, defaultCount=80, maxCount=1000, pricePerUnit=0.00014, step=1)
    euros = {"onDemand": 1.6, "communityPrice": None, "isVariable": True, "currency": "EUR"}
    eight = {"gpuCount": 8, "vcpu": part(defaultCount=192), "memory": part(defaultCount=1800)}
    h100 = ("NVIDIA H100 PCIe", "H100_80GB", "PCIe")
    return [
        row("hyperstack", "n3-H100x1", "H100_80GB", "PCIe", 1.9, dataCenter="CANADA-1", country="CA",
            vcpu=part(defaultCount=180), memory=part(defaultCount=180), region="canada"),
        row("runpod", *h100, 2.69, dataCenter="US-KS-2", stockStatus="Low",
            disk=extra_disk | {"defaultIncludedInPrice": False}, memory=part(defaultCount=251)),
        row("lambdalabs", "gpu_8x_h100_sxm5", "H100_80GB", "SXM5", 23.92, dataCenter="us-west-1", **eight),
        row("datacrunch", "1A100.22V", "A100_80GB", "SXM4", 1.6, dataCenter="FIN-01", country="FI", region="eu_north",
            prices=euros),
        row("datacrunch", "1A100.22V", "A100_80GB", "SXM4", 0.8, dataCenter="FIN-01", country="FI", region="eu_north",
            isSpot=True),
        row("massedcompute", "gpu_1x_a6000", "A6000_48GB", "PCIe", 0.4, gpuMemory=48, security="community_cloud"),
        row("massedcompute", "gpu_1x_a6000", "A6000_48GB", "PCIe", 0.45, gpuMemory=48, security="community_cloud"),
        row("latitude", "g3-h100-month", "H100_80GB", "PCIe", 1.7, dataCenter="DAL", prepaidTime=720),
        row("crusoecloud", "gh200", "GH200_480GB", "SXM5", 1.5, gpuMemory=480, stockStatus="Medium"),
        row("runpod", *h100, 1.0, dataCenter="EU-RO-1", stockStatus="Unavailable"),
        row("hyperstack", "n3-cpu", "CPU_NODE", "PCIe", 0.1, gpuMemory=0),
        row("vultr", "vcg-l40s", "L40S_48GB", "PCIe", 1.2, gpuMemory=48,
            disk=part(defaultCount=100, defaultIncludedInPrice=False)),
    ]  # fmt: skip


class PrimeIntellectServer(ProviderServer):
    """The list in memory.

    Attributes:
        rows: the listed offers; can be changed.
        page_rows: maximum per page.
    """

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("GET", "/api/v1/availability/gpus", "list_gpus"),
        ("GET", "/api/v1/availability/multi-node", "list_none"),
        ("GET", "/api/v1/availability/disks", "list_none"),
        ("GET", "/api/v1/availability/gpu-summary", "summary"),
        ("GET", "/api/v1/availability/?", "by_gpu"),
        ("GET", "/rates/.*", "rates"),
        ("POST", "/api/v1/pods/", "create"),
        ("GET", "/api/v1/pods/", "list_pods"),
        ("GET", "/api/v1/pods/history", "list_past"),
        ("GET", "/api/v1/pods/status", "statuses"),
        ("GET", "/api/v1/user/whoami", "whoami"),
        ("GET", "/api/v1/user/teams", "list_teams"),
        ("GET", r"/api/v1/pods/(pod[0-9]+)", "pod"),
        ("DELETE", r"/api/v1/pods/(pod[0-9]+)", "end"),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.rows = market()
        self.page_rows = 100
        self.pods: dict[str, dict[str, Any]] = {}
        self.pod_page_rows = 100
        self.sold_out: set[tuple[str, ...]] = set()

    def sell_out(self, offer_id: str) -> None:
        """`SELLER/CLOUD ID/…` is no longer available, although the list shows it."""
        self.sold_out.add(tuple(offer_id.split("/")[:2]))

    def create(self, request: EmulatorRequest) -> Any:
        """Create a pod; unknown fields are refused. Above `maxPrice` none is created: for the whole pod, as assumed."""
        wanted = request.body()
        pod, seller = wanted.get("pod") or {}, (wanted.get("provider") or {}).get("type")
        new = sorted(set(pod) - _POD_FIELDS)
        if new or not all(pod.get(key) for key in ("cloudId", "gpuType", "socket", "gpuCount")) or not seller:
            values = [{"param": name, "details": "Extra inputs are not permitted"} for name in new]
            raise RefusedRequest(reply({"errors": values or [{"param": "pod", "details": "Field required"}]}, 422))
        same = {"cloudId": "cloudId", "gpuType": "gpuType", "gpuCount": "gpuCount", "dataCenter": "dataCenterId"}
        found = [
            one for one in self.rows
            if one["provider"] == seller and all(one[key] == pod.get(name) for key, name in same.items())
            and one["stockStatus"] != "Unavailable" and not one["isSpot"]
        ]  # fmt: skip
        if not found or (seller, pod["cloudId"]) in self.sold_out:
            raise RefusedRequest(reply({"detail": "The requested configuration is not available"}, 400))
        price = min(_pod_price(one, pod.get("diskSize")) for one in found)
        if pod.get("maxPrice") is not None and price > pod["maxPrice"]:
            raise RefusedRequest(reply({"detail": "Price of the pod exceeds maxPrice"}, 400))
        pod_id = f"pod{len(self.pods) + 1}"
        self.pods[pod_id] = {
            "id": pod_id, "name": pod.get("name"), "type": "HOSTED", "providerType": seller, "status": "ACTIVE",
            "installationStatus": "FINISHED", "createdAt": "2026-11-21T12:00:00Z", "terminatedAt": None,
            "gpuName": pod["gpuType"], "gpuCount": pod["gpuCount"], "socket": pod["socket"], "priceHr": round(price, 4),
            "stoppedPriceHr": None, "provisioningPriceHr": 0, "environmentType": pod.get("image"), "isSpot": False,
            "primePortMapping": [], "sshConnection": "root@203.0.113.7 -p 22", "ip": "203.0.113.7", "resources": {},
            "attachedResources": [], "autoRestart": False, "diskSize": pod.get("diskSize"), "userId": "user1",
            "totalBilledPrice": 0.0,
        }  # fmt: skip
        return self.pods[pod_id]

    def list_pods(self, request: EmulatorRequest) -> Any:
        """Return pods that have not ended."""
        return self._pods_page(request, [pod for pod in self.pods.values() if pod["terminatedAt"] is None])

    def list_past(self, request: EmulatorRequest) -> Any:
        """Return pods that have ended."""
        return self._pods_page(request, [pod for pod in self.pods.values() if pod["terminatedAt"] is not None])

    def pod(self, request: EmulatorRequest, pod_id: str) -> Any:
        """Return one that has not ended."""
        if pod_id not in self.pods or self.pods[pod_id]["terminatedAt"] is not None:
            raise RefusedRequest(reply({"detail": "Pod not found"}, 404))
        return self.pods[pod_id]

    def statuses(self, request: EmulatorRequest) -> Any:
        """Return further data that the vendor's client requests about a pod."""
        one = self.pod(request, request.params.get("pod_ids", ""))
        same = ("providerType", "status", "sshConnection", "priceHr", "primePortMapping", "ip")
        return {"data": [{"podId": one["id"], "installationProgress": 100} | {name: one[name] for name in same}]}

    def whoami(self, request: EmulatorRequest) -> Any:
        """Return the user, and the key's permissions."""
        scope = {"instances": {"read": True, "write": True}, "availability": {"read": True, "write": False}}
        user = {"id": "user1", "email": "renter@example.org", "name": "Example Renter", "slug": "renter"}
        return {"status": "ok", "data": user | {"scope": scope}}

    def list_teams(self, request: EmulatorRequest) -> Any:
        """Return no teams."""
        return {"data": [], "total_count": 0}

    def end(self, request: EmulatorRequest, pod_id: str) -> Any:
        """End it: it moves to the history."""
        self.pod(request, pod_id).update(terminatedAt="2026-11-21T13:00:00Z", status="TERMINATED")
        return {"status": "ok"}

    def _pods_page(self, request: EmulatorRequest, rows: list[dict[str, Any]]) -> Any:
        offset, limit = _number(request, "offset", 0), min(_number(request, "limit", 100), self.pod_page_rows)
        return {"total_count": len(rows), "offset": offset, "limit": limit, "data": rows[offset : offset + limit]}

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Require a key, except for the bank's rates, which belong to another service."""
        if not request.keyed and not request.path.startswith("/rates/"):
            raise RefusedRequest(reply({"detail": "Could not validate credentials"}, 401))
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        """Redirect to the path of the specification, as FastAPI does."""
        if request.path == "/api/v1/pods":
            query = f"?{urlencode(request.params)}" if request.params else ""
            return reply({}, 307, {"location": f"{self.url}{request.path}/{query}"})
        return super().no_route(request)

    def list_gpus(self, request: EmulatorRequest) -> Any:
        """Return one page of the matching offers."""
        page, size = _number(request, "page", 1), _number(request, "page_size", 100)
        if page < 1 or not 1 <= size <= 100:
            values = [{"param": "page_size", "details": "Input should be between 1 and 100"}]
            raise RefusedRequest(reply({"errors": values}, 422))
        found = [one for one in self.rows if _fits(one, request.params)]
        size = min(size, self.page_rows)
        start = (page - 1) * size
        return {"items": found[start : start + size], "totalCount": len(found)}

    def list_none(self, request: EmulatorRequest) -> Any:
        """Return none: there are no clusters and no disks here."""
        return {"items": [], "totalCount": 0}

    def summary(self, request: EmulatorRequest) -> Any:
        """Return every GPU with the number of its offers."""
        names = [one["gpuType"] for one in self.rows]
        return {name: {"count": names.count(name)} for name in sorted(set(names))}

    def by_gpu(self, request: EmulatorRequest) -> Any:
        """Return the older format: a list for each GPU."""
        found: dict[str, list[Any]] = {}
        for one in self.rows:
            found.setdefault(one["gpuType"], []).append(one)
        return found

    def rates(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the European Central Bank's file of one day."""
        return EmulatorReply(200, _RATES, content_type="application/xml")


_POD_FIELDS: Final = frozenset(
    {
        "name", "cloudId", "gpuType", "socket", "gpuCount", "diskSize", "vcpus", "memory", "maxPrice", "image",
        "customTemplateId", "dataCenterId", "country", "security", "envVars", "jupyterPassword", "sshKeyId",
        "autoRestart", "prepaidForHr",
    }
)  # fmt: skip


def _pod_price(one: Mapping[str, Any], disk_gb: int | None) -> float:
    """Return the cost of a pod: its price, and the disk if not included."""
    prices, disk = one["prices"], one["disk"]
    unit = disk["pricePerUnit"] or 0.0
    included = 0 if disk["defaultIncludedInPrice"] is False else disk["defaultCount"] or 0
    return float((prices["onDemand"] or prices["communityPrice"]) + unit * max((disk_gb or included) - included, 0))


def _number(request: EmulatorRequest, name: str, default: int) -> int:
    values = request.params.get(name, str(default))
    return int(values) if values.isdigit() else 0


def _fits(one: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    fields = {
        "gpu_type": "gpuType", "gpu_count": "gpuCount", "socket": "socket", "security": "security",
        "data_center_id": "dataCenter", "cloud_id": "cloudId", "regions": "region",
    }  # fmt: skip
    return all(str(one[field]) == wanted[name] for name, field in fields.items() if name in wanted)
