"""Hyperstack on loopback: flavors, the price book, key pairs, credit, and machines.

source: as gpuwatch/providers/hyperstack. Prices and stock are invented.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

SSH_KEY: Final = "demo-key-pair"
_IMAGES: Final = ("Ubuntu Server 22.04 LTS R535 CUDA 12.2", "Ubuntu Server 24.04 LTS")
_REGIONS: Final = ("CANADA-1", "NORWAY-1", "US-1")
# flavor, GPU, GPUs, vCPUs, GB of memory, GB of disk, GB of ephemeral disk, regions: in stock
_FLAVORS: Final[tuple[tuple[Any, ...], ...]] = (
    ("n3-H100x1", "H100-80G-PCIe", 1, 28, 180.0, 100, 750, {"CANADA-1": True, "US-1": False}),
    ("n3-H100x8-NVLink", "H100-80G-PCIe-NVLink", 8, 252, 1440.0, 100, 6500, {"CANADA-1": True}),
    ("n3-H100-SXM5x8", "H100-80G-SXM5", 8, 192, 1800.0, 100, 32000, {"US-1": True}),
    ("n3-L40x1", "L40", 1, 28, 58.0, 100, 725, {"NORWAY-1": True, "CANADA-1": True}),
    ("n3-L40x1-spot", "L40-spot", 1, 28, 58.0, 100, 725, {"CANADA-1": True}),
    ("n1-cpu-small", "", 0, 4, 8.0, 100, 0, {"CANADA-1": True}),
)
_PRICES: Final = {
    "H100-80G-PCIe": "1.90", "H100-80G-PCIe-NVLink": "1.95", "H100-80G-SXM5": "2.40", "L40": "1.00",
    "L40-spot": "0.80", "vCPU (cpu-only-flavors)": "0.03",
}  # fmt: skip


class Hyperstack(ProviderServer):
    """A small Hyperstack. Its key is sent in its own header, `api_key`.

    Args:
        most_rows: of a page, whatever is requested.
    """

    ROUTES: ClassVar = (
        ("GET", r"(?:/v1)?/core/flavors", "flavors"),
        ("GET", r"(?:/v1)?/pricebook", "pricebook"),
        ("GET", r"(?:/v1)?/core/keypairs", "keypairs"),
        ("GET", r"(?:/v1)?/billing/user-credit/credit", "credit_of"),
        ("POST", r"(?:/v1)?/core/virtual-machines", "deploy"),
        ("GET", r"(?:/v1)?/core/virtual-machines", "all_machines"),
        ("GET", r"(?:/v1)?/core/virtual-machines/([^/]+)", "machine"),
        ("DELETE", r"(?:/v1)?/core/virtual-machines/([^/]+)", "delete"),
    )

    def __init__(self, *, most_rows: int = 100, **options: Any) -> None:
        super().__init__(**options)
        self.most_rows = most_rows
        self.environments: dict[str, str] = {f"default-{region}": region for region in _REGIONS}
        self.machines: dict[int, dict[str, Any]] = {}
        self._number = 238_143

    def key_of(self, request: EmulatorRequest) -> str | None:
        return request.headers.get("api_key")

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        if not request.keyed:
            raise _refused(401, "unauthorized", "Unauthorized")
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        return _refused(404, "not_found", "The requested URL was not found").reply

    def flavors(self, _request: EmulatorRequest) -> dict[str, Any]:
        groups = [
            {"gpu": flavor[1], "region_name": region, "flavors": [_flavor_row(flavor, region, in_stock)]}
            for flavor in _FLAVORS
            for region, in_stock in flavor[7].items()
        ]
        return {"status": True, "message": "Getting flavors successful", "data": groups}

    def pricebook(self, _request: EmulatorRequest) -> list[dict[str, Any]]:
        rows = enumerate(_PRICES.items(), 1)
        return [{"id": n, "name": name, "value": usd, "original_value": usd, "discount_applied": False,
                 "start_time": None, "end_time": None} for n, (name, usd) in rows]  # fmt: skip

    def keypairs(self, request: EmulatorRequest) -> dict[str, Any]:
        rows = [
            {"id": n, "name": SSH_KEY, "environment": {"name": name, "region": region}, "public_key": "ssh-ed25519 A"}
            for n, (name, region) in enumerate(self.environments.items(), 1)
        ]
        return self._page(request, "keypairs", rows)

    def credit_of(self, _request: EmulatorRequest) -> dict[str, Any]:
        data = {"credit": 100.0, "threshold": 0.0, "can_create_instance": True}
        return {"status": True, "message": "ok", "data": data}

    def deploy(self, request: EmulatorRequest) -> dict[str, Any]:
        wanted = request.body()
        kind = self._checked(wanted)
        self._number += 1
        region = self.environments[wanted["environment_name"]]
        self.machines[self._number] = {
            "id": self._number, "name": wanted["name"], "status": "ACTIVE", "power_state": "RUNNING",
            "vm_state": "active", "environment": {"name": wanted["environment_name"], "region": region},
            "flavor": _flavor_row(kind, region, True), "image": {"name": wanted["image_name"]},
            "keypair": {"name": wanted["key_name"]}, "labels": wanted.get("labels", []), "fixed_ip": "10.0.0.9",
            "floating_ip": f"203.0.113.{self._number % 250}", "floating_ip_status": "ATTACHED",
            "created_at": datetime.fromtimestamp(self.clock(), UTC).isoformat(),
        }  # fmt: skip
        return {"status": True, "message": "ok", "instances": [self.machines[self._number] | {"status": "CREATING"}]}

    def all_machines(self, request: EmulatorRequest) -> dict[str, Any]:
        return self._page(request, "instances", list(self.machines.values()))

    def machine(self, _request: EmulatorRequest, machine_id: str) -> dict[str, Any]:
        return {"status": True, "message": "ok", "instance": self.machines[self._known(machine_id)]}

    def delete(self, _request: EmulatorRequest, machine_id: str) -> dict[str, Any]:
        del self.machines[self._known(machine_id)]
        return {"status": True, "message": "Instance is being deleted."}

    # --- its state ----------------------------------------------------------------------------------------------------
    def _known(self, machine_id: str) -> int:
        if not machine_id.isdigit() or int(machine_id) not in self.machines:
            raise _refused(404, "not_found", f"VM {machine_id} does not exists.")
        return int(machine_id)

    def _checked(self, wanted: dict[str, Any]) -> tuple[Any, ...]:
        """Return the flavor of a well-formed order."""
        kind = next((flavor for flavor in _FLAVORS if flavor[0] == wanted.get("flavor_name")), None)
        environment = wanted.get("environment_name")
        lacking = {
            "flavor": kind is None or self.environments.get(str(environment)) not in kind[7],
            "environment": environment not in self.environments,
            "image": wanted.get("image_name") not in _IMAGES,
            "keypair": wanted.get("key_name") != SSH_KEY,
        }
        for what, is_so in lacking.items():
            if is_so:
                raise _refused(404, "not_found", f"{what} not found")
        wrong = wanted.get("count") != 1 or not 0 < len(wanted.get("name") or "") <= 50
        if wrong:
            raise _refused(400, "bad_request", "Invalid payload")
        assert kind is not None
        return kind

    def _page(self, request: EmulatorRequest, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        page, size = int(request.params.get("page", "1")), int(request.params.get("pageSize", "20"))
        size = min(size, self.most_rows)
        first = (page - 1) * size
        return {
            "status": True, "message": "ok", name: rows[first : first + size], "count": len(rows), "page": page,
            "page_size": size,
        }  # fmt: skip


def _flavor_row(one: tuple[Any, ...], region: str, in_stock: bool) -> dict[str, Any]:
    name, gpu, gpus, vcpus, ram, disk, ephemeral, _regions = one
    return {
        "id": 1, "name": name, "region_name": region, "cpu": vcpus, "ram": ram, "disk": disk, "ephemeral": ephemeral,
        "gpu": gpu, "gpu_count": gpus, "stock_available": in_stock, "created_at": "2026-01-01T00:00:00", "labels": [],
        "features": {}, "display_name": None,
    }  # fmt: skip


def _refused(status: int, reason: str, text: str) -> RefusedRequest:
    return RefusedRequest(reply({"status": False, "message": text, "error_reason": reason}, status))
