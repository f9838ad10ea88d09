"""TensorDock's API v2 on loopback, with reported oddities: errors as HTTP 200 and false stock.

Built from its documents and recorded answers. source: docs/providers/tensordock.md.
"""

from __future__ import annotations

import itertools
import random
import re
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

IMAGES: Final = frozenset(
    {
        "ubuntu2204", "ubuntu2404", "ubuntu2404_ml_pytorch", "ubuntu2404_ml_tensorflow", "ubuntu2404_ml_everything",
        "windows10", "debian12",
    }
)  # fmt: skip
CAPACITY: Final = (
    "No available nodes found",
    "No available public IPs on hostnode",
    "Hostnode unavailable",
    "insufficient capacity",
)
_PRICING: Final = {"per_vcpu_hr": 0.003, "per_gb_ram_hr": 0.002, "per_gb_storage_hr": 0.00005}
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _gpu(name: str, shown: str, count: int, price: float, room: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    """One GPU model of a location. `room`: vCPUs, GB of memory, GB of disk."""
    row = {
        "v0Name": name,
        "displayName": shown,
        "max_count": count,
        "price_per_hr": price,
        "resources": dict(zip(("max_vcpus", "max_ram_gb", "max_storage_gb"), room, strict=True)),
        "pricing": dict(_PRICING),
        "network_features": {
            "dedicated_ip_available": True, "port_forwarding_available": True, "network_storage_available": False,
        },
    }  # fmt: skip
    return row | more


def _location(number: int, city: str, state: str, country: str, tier: int, *gpus: dict[str, Any]) -> dict[str, Any]:
    place = str(uuid.UUID(int=(0x8DD95FF0 << 96) + (4 << 76) + (8 << 60) + number))
    return {"id": place, "city": city, "stateprovince": state, "country": country, "tier": tier, "gpus": list(gpus)}


def market() -> list[dict[str, Any]]:
    """Return a small market: prices as published, one place without a rate, one sold out."""
    rtx_4090 = "NVIDIA GeForce RTX 4090 PCIe 24GB"
    unpriced = {"per_vcpu_hr": 0.003, "per_gb_storage_hr": 0.00005}
    return [
        _location(
            1, "Austin", "Texas", "United States", 3,
            _gpu("h100-sxm5-80gb", "H100 SXM5 80GB", 8, 2.2, (128, 300, 1000)),
            _gpu("geforcertx4090-pcie-24gb", rtx_4090, 4, 0.5, (32, 128, 2000)),
        ),
        _location(
            2, "Chubbuck", "Idaho", "United States", 1,
            _gpu("geforcertx4090-pcie-24gb", rtx_4090, 4, 0.3966, (56, 331, 30200)),
        ),
        _location(3, "Joplin", "Missouri", "USA", 0, _gpu("rtxa6000-pcie-48gb", "", 2, 0.4, (48, 192, 3000))),
        _location(
            4, "Warsaw", "Mazovia", "Poland", 2,
            _gpu("geforcertx3090-pcie-24gb", "", 3, 0.2, (36, 180, 1500), pricing=unpriced),
            _gpu("a100-sxm4-80gb", "", 0, 0.87, (0, 0, 0)),
        ),
    ]  # fmt: skip


class TensorDock(ProviderServer):
    """Locations and machines in memory.

    Attributes:
        locations: the listed locations; can be changed.
        false_stock: this many of the next creates find nothing, whatever is listed.
        false_rate: this share of all creates finds nothing, the same ones in every run.
    """

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("GET", "/api/v2/locations", "list_locations"),
        ("GET", "/api/v2/hostnodes", "list_hosts"),
        ("GET", "/api/v2/hostnodes/([^/]+)", "show_host"),
        ("POST", "/api/v2/instances", "create"),
        ("GET", "/api/v2/instances", "list_machines"),
        ("GET", "/api/v2/instances/([^/]+)", "show"),
        ("DELETE", "/api/v2/instances/([^/]+)", "delete"),
        ("POST", "/api/v2/instances/([^/]+)/(start|stop)", "turn"),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.locations = market()
        self.machines: dict[str, dict[str, Any]] = {}
        self.false_stock = 0
        self.false_rate = 0.0
        self.balance_usd = 100.0
        self._numbers = itertools.count(1)
        self._chance = random.Random(7)

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Check the key: only locations are public."""
        keyless = request.path == "/api/v2/locations" and request.key is None
        if not request.keyed and not keyless:
            raise RefusedRequest(reply({"error": "Unauthorized"}, 401))
        return super().routed(request)

    # --- offers -------------------------------------------------------------------------------------------------------

    def list_locations(self, request: EmulatorRequest) -> Any:
        """Return all places, with what a machine could have there."""
        return {"data": {"locations": self.locations}}

    def list_hosts(self, request: EmulatorRequest) -> Any:
        """Return one host for each GPU model of each place."""
        return {"data": {"hostnodes": self._hosts()}}

    def show_host(self, request: EmulatorRequest, host: str) -> Any:
        """Return one host."""
        found = next((one for one in self._hosts() if one["id"] == host), None)
        return {"data": found} if found else self._no(404, "Hostnode not found")

    def _hosts(self) -> list[dict[str, Any]]:
        return [self._host(place, gpu) for place in self.locations for gpu in place["gpus"]]

    def _host(self, place: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any]:
        room = gpu["resources"]
        where = {key: place[key] for key in ("city", "stateprovince", "country", "tier")}
        return {
            "id": str(uuid.uuid5(uuid.UUID(place["id"]), gpu["v0Name"])),
            "location_id": place["id"],
            "engine": "kvm",
            "uptime_percentage": 99.9,
            "available_resources": {
                "gpus": [
                    {"v0Name": gpu["v0Name"], "availableCount": gpu["max_count"], "price_per_hr": gpu["price_per_hr"]}
                ],
                "vcpu_count": room["max_vcpus"],
                "ram_gb": room["max_ram_gb"],
                "storage_gb": room["max_storage_gb"],
                "available_ports": [22022, 22080],
                "has_public_ip_available": False,
            },
            "pricing": gpu["pricing"],
            "location": where | {"uuid": place["id"], "network_speed_gbps": 2.5, "network_speed_upload_gbps": 1.0},
        }

    # --- machines -----------------------------------------------------------------------------------------------------

    def create(self, request: EmulatorRequest) -> Any:
        """Rent: validate the fields, then check the stock."""
        wanted = request.body().get("data", {}).get("attributes", {})
        faults = list(_faults(wanted))
        if faults:
            return reply(faults, 400)
        inside = {one.get("internal_port") for one in wanted.get("port_forwards", [])}
        if not wanted.get("useDedicatedIp") and 22 not in inside and "windows" not in wanted["image"]:
            return reply({"error": "SSH port (22) must be forwarded for Ubuntu VMs"}, 400)
        if self.balance_usd < 1:
            return self._no(400, "You need at least 1 USD of balance")
        gpu = self._stock(wanted)
        [(name, many)] = wanted["resources"]["gpus"].items()
        if self._is_not_there() or gpu is None or many["count"] > gpu["max_count"]:
            return self._no(400, CAPACITY[next(self._numbers) % len(CAPACITY)])
        gpu["max_count"] -= many["count"]
        machine = self._machine(wanted, gpu, {name: {"count": many["count"], "v0Name": name}})
        self.machines[machine["id"]] = machine
        return {"data": {key: machine[key] for key in ("type", "id", "name", "status")}}

    def list_machines(self, request: EmulatorRequest) -> Any:
        """Return all machines: their names and little else."""
        rows = [
            {"type": "VM", "id": machine["id"], "attributes": {"name": machine["name"], "status": machine["status"]}}
            for machine in self.machines.values()
        ]
        return {"data": {"instances": rows}}

    def show(self, request: EmulatorRequest, machine_id: str) -> Any:
        """Return one machine, without an envelope."""
        machine = self.machines.get(machine_id)
        if machine is None:
            return self._no(404, "Instance not found")
        return machine

    def delete(self, request: EmulatorRequest, machine_id: str) -> Any:
        """Delete it."""
        machine = self.machines.pop(machine_id, None)
        if machine is None:
            return self._no(404, "Instance not found")
        return {"data": {"type": "success", "attributes": {"message": "Instance deleted successfully"}}}

    def turn(self, request: EmulatorRequest, machine_id: str, how: str) -> Any:
        """Start or stop it."""
        machine = self.machines.get(machine_id)
        if machine is None:
            return self._no(404, "Instance not found")
        machine["status"] = {"start": "running", "stop": "stopped"}[how]
        words = {"start": "starting", "stop": "stopping"}[how]
        return {"data": {"type": "instance", "id": machine_id, "attributes": {"status": words}}}

    def _is_not_there(self) -> bool:
        if self.false_stock > 0:
            self.false_stock -= 1
            return True
        return self._chance.random() < self.false_rate

    def _stock(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        name = next(iter(wanted["resources"]["gpus"]))
        for place in self.locations:
            for gpu in place["gpus"]:
                host = str(uuid.uuid5(uuid.UUID(place["id"]), gpu["v0Name"]))
                is_there = place["id"] == wanted.get("location_id") or host == wanted.get("hostnode_id")
                if is_there and gpu["v0Name"] == name:
                    found: dict[str, Any] = gpu
                    return found
        return None

    def _machine(self, wanted: Mapping[str, Any], gpu: Mapping[str, Any], gpus: dict[str, Any]) -> dict[str, Any]:
        number, room, rates = next(self._numbers), wanted["resources"], gpu["pricing"]
        [many] = gpus.values()
        rate = (
            many["count"] * gpu["price_per_hr"]
            + room["vcpu_count"] * rates.get("per_vcpu_hr", 0.003)
            + room["ram_gb"] * rates.get("per_gb_ram_hr", 0.002)
            + room["storage_gb"] * rates.get("per_gb_storage_hr", 0.00005)
        )
        ports = [one["internal_port"] for one in wanted.get("port_forwards", [])]
        return {
            "type": "virtualmachine",
            "id": str(uuid.UUID(int=(0x468B716A << 96) + (4 << 76) + (8 << 60) + number)),
            "name": wanted["name"],
            "status": "running",
            "ipAddress": f"203.0.113.{number % 250 + 1}",
            # the platform chooses the outer number: 22 was requested, 20456 was assigned
            "portForwards": [{"internal_port": port, "external_port": 20456 + at} for at, port in enumerate(ports)],
            "resources": dict(room) | {"gpus": gpus},
            "rateHourly": round(rate, 6),
        }

    def _no(self, status: int, error: str) -> EmulatorReply:
        return reply({"error": error, "status": status}, 200)


def _faults(wanted: Mapping[str, Any]) -> Any:
    """Return validation errors, each with its path."""
    room = wanted.get("resources") or {}
    place, host = wanted.get("location_id"), wanted.get("hostnode_id")
    checks = (
        (bool(wanted.get("name")), "required", "Name is required", "name"),
        (wanted.get("type") == "virtualmachine", "invalid", "Invalid type", "type"),
        (wanted.get("image") in IMAGES, "invalid", "Invalid image", "image"),
        ((place is None) != (host is None), "invalid", "Either location_id or hostnode_id", "location_id"),
        (bool(_UUID.fullmatch(place or host or "")), "invalid", "Invalid location_id format", "location_id"),
        (_is_even(room.get("vcpu_count")), "invalid", "vcpu_count must be even", "resources"),
        (_is_even(room.get("ram_gb")), "invalid", "ram_gb must be even", "resources"),
        ((room.get("storage_gb") or 0) >= 100, "too_small", "storage_gb must be at least 100", "resources"),
        (len(room.get("gpus") or {}) == 1, "required", "At least one GPU is required", "resources"),
        (bool(wanted.get("ssh_key")) != bool(wanted.get("ssh_key_id")), "required", "SSH key is required", "ssh_key"),
    )
    for holds, code, message, field in checks:
        if not holds:
            yield {"code": code, "message": message, "path": ["data", "attributes", field]}


def _is_even(value: Any) -> bool:
    return isinstance(value, int) and value > 0 and value % 2 == 0
