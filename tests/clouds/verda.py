"""Verda on loopback: sign-in, types, stock of each place, volumes, start scripts, and instances with an ordered phase.

source: the vendor's Python client 1.25.0 and its tests, its OpenAPI as published in public, what dstack's backend and
SkyPilot's provisioner handle, and a refusal quoted in an issue of the vendor's command line, read 2026-11. Prices and
stock are invented.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

CLIENT_ID: Final = "demo-client"
SSH_KEY: Final = "12345dc1-a5d2-4972-ae4e-d429115d055b"
NVME_USD_GB_MONTH: Final = 0.2
# type, GPU as described, GPUs, GB of all, price, spot price, vCPUs, GB of memory, {place: on demand, spot}
_TYPES: Final[tuple[tuple[Any, ...], ...]] = (
    ("1H100.80S.30V", "1x H100 SXM5 80GB", 1, 80, "2.29", "0.80", 30, 120, {"FIN-02": "both", "FIN-03": "demand"}),
    ("8H100.80S.176V", "8x H100 SXM5 80GB", 8, 640, "18.32", "6.41", 176, 1480, {"FIN-03": "demand"}),
    ("1H200.141S.44V", "1x H200 SXM5 141GB", 1, 141, "3.29", "1.15", 44, 182, {"FIN-03": "both"}),
    ("1B300.30V", "1x B300 SXM6 268GB", 1, 268, "5.45", "1.91", 30, 275, {}),
    ("1A100.22V", "1x A100 SXM4 80GB", 1, 80, "1.29", "0.45", 22, 120, {"FIN-01": "both", "ICE-01": "spot"}),
    ("1V100.6V", "1x Tesla V100 16GB", 1, 16, "0.14", "0.05", 6, 23, {"FIN-01": "both"}),
    ("CPU.4V.16G", "None", 0, 0, "0.028", "0.01", 4, 16, {"FIN-03": "both"}),
)
_OLD_GPUS: Final = ("V100", "A6000")
_OLD_IMAGES: Final = frozenset({"2088da25-bb0d-41cc-a191-dccae45d96fd", "ubuntu-22.04-cuda-12.0-docker"})
_IMAGES: Final = _OLD_IMAGES | {
    "ubuntu-24.04-cuda-12.8-open-docker", "ubuntu-24.04", "ubuntu-22.04", "2404f580-1300-1111-82b3-f199fb9b701b",
}  # fmt: skip
_LEAST_DISK_GB: Final = 50


class Verda(ProviderServer):
    """A small Verda. Its key is the secret of the API credentials; the id is `CLIENT_ID`.

    Args:
        token_s: validity of a token.
        boots_s: how long an instance is ordered and provisioning, half each. It cannot be ended before.
        amount: the balance, in dollars.
    """

    ROUTES: ClassVar = (
        ("POST", r"(?:/v1)?/oauth2/token", "token"),
        ("GET", r"(?:/v1)?/instance-types", "types"),
        ("GET", r"(?:/v1)?/instance-availability", "stock"),
        ("GET", r"(?:/v1)?/instance-availability/([^/]+)", "stock_of"),
        ("GET", r"(?:/v1)?/locations", "locations"),
        ("GET", r"(?:/v1)?/volume-types", "volume_types"),
        ("GET", r"(?:/v1)?/volumes", "all_volumes"),
        ("GET", r"(?:/v1)?/balance", "balance"),
        ("GET", r"(?:/v1)?/sshkeys", "ssh_keys"),
        ("GET", r"(?:/v1)?/images", "images"),
        ("GET", r"(?:/v1)?/scripts", "all_scripts"),
        ("POST", r"(?:/v1)?/scripts", "store_script"),
        ("DELETE", r"(?:/v1)?/scripts/([^/]+)", "delete_script"),
        ("POST", r"(?:/v1)?/instances", "deploy"),
        ("GET", r"(?:/v1)?/instances", "all_instances"),
        ("PUT", r"(?:/v1)?/instances", "act"),
        ("GET", r"(?:/v1)?/instances/([^/]+)", "instance"),
    )

    def __init__(self, *, token_s: float = 3600.0, boots_s: float = 0.0, amount: float = 100.0, **options: Any) -> None:
        super().__init__(**options)
        self.token_s, self.boots_s, self.amount = token_s, boots_s, amount
        self.kinds = _TYPES
        self.sold_out: set[tuple[str, str]] = set()
        self.ends_in: dict[str, str] = {}  # place → the status that every machine ordered there ends in
        self.scripts: dict[str, dict[str, str]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.machines: dict[str, dict[str, Any]] = {}
        self._tokens: dict[str, float] = {}  # → when it expires
        self._number = 0

    # --- controls for tests -------------------------------------------------------------------------------------------
    def sell_out(self, offer_id: str) -> None:
        """`TYPE/PLACE…` is no longer available, although the stock still shows it."""
        kind, place = offer_id.split("/")[:2]
        self.sold_out.add((kind, place))

    def sell_alike(self, kind: str, places: Sequence[str]) -> None:
        """Sell only this type, on demand, in these places."""
        rows = [one for one in self.kinds if one[0] == kind]
        self.kinds = tuple((*one[:-1], dict.fromkeys(places, "demand")) for one in rows)

    def revoke_tokens(self) -> None:
        """Expire all tokens early."""
        self._tokens.clear()

    # --- the provider's side ------------------------------------------------------------------------------------------
    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Require a token for everything except signing in."""
        if not request.path.endswith("/oauth2/token") and self._tokens.get(request.key or "", 0.0) <= self.clock():
            raise _refused(401, "unauthorized_request", "Access token is missing or invalid")
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        return _refused(404, "not_found", f"Cannot {request.method} {request.path}").reply

    def token(self, request: EmulatorRequest) -> dict[str, Any]:
        wanted = request.body()
        known = wanted.get("client_id") == CLIENT_ID and wanted.get("client_secret") == self.key
        if wanted.get("grant_type") != "client_credentials" or not known:
            raise _refused(401, "unauthorized_request", "Invalid client id or client secret")
        token = f"token-{self._new_id()}"
        self._tokens[token] = self.clock() + self.token_s
        return {
            "access_token": token, "refresh_token": f"refresh-{token}", "scope": "cloud-api-v1",
            "token_type": "Bearer", "expires_in": self.token_s,
        }  # fmt: skip

    def types(self, request: EmulatorRequest) -> list[dict[str, Any]]:
        if request.params.get("currency", "usd") not in ("usd", "eur"):
            raise _refused(400, "invalid_request", "currency must be usd or eur")
        return [_type_row(one, request.params.get("currency", "usd")) for one in self.kinds]

    def stock(self, request: EmulatorRequest) -> list[dict[str, Any]]:
        """Return the stock of one rental type by place, including empty places."""
        wanted = "spot" if request.params.get("isSpot") == "true" else "demand"
        free = {place: [one[0] for one in self.kinds if one[8].get(place) in (wanted, "both")] for place in _PLACES}
        only = request.params.get("location_code")
        return [{"location_code": p, "availabilities": names} for p, names in free.items() if only in (None, p)]

    def stock_of(self, request: EmulatorRequest, kind: str) -> bool:
        return any(kind in one["availabilities"] for one in self.stock(request))

    def locations(self, _request: EmulatorRequest) -> list[dict[str, str]]:
        countries = {"FIN": ("Finland", "FI"), "ICE": ("Iceland", "IS")}
        return [{"code": p, "name": countries[p[:3]][0], "country_code": countries[p[:3]][1]} for p in _PLACES]

    def volume_types(self, _request: EmulatorRequest) -> list[dict[str, Any]]:
        prices = {"NVMe": NVME_USD_GB_MONTH, "HDD": 0.05, "NVMe_Shared": 0.25}
        return [
            {"type": name, "price": {"currency": "usd", "price_per_month_per_gb": usd}} for name, usd in prices.items()
        ]

    def all_volumes(self, _request: EmulatorRequest) -> list[dict[str, Any]]:
        return list(self.volumes.values())

    def balance(self, _request: EmulatorRequest) -> dict[str, Any]:
        return {"amount": self.amount, "currency": "usd"}

    def ssh_keys(self, _request: EmulatorRequest) -> list[dict[str, str]]:
        return [{"id": SSH_KEY, "name": "demo", "key": "ssh-ed25519 AAAA demo"}]

    def images(self, _request: EmulatorRequest) -> list[dict[str, Any]]:
        return [
            {"id": self._new_id(), "name": image, "image_type": image, "details": [image]} for image in sorted(_IMAGES)
        ]

    def all_scripts(self, _request: EmulatorRequest) -> list[dict[str, str]]:
        return list(self.scripts.values())

    def store_script(self, request: EmulatorRequest) -> EmulatorReply:
        """Create a script; the answer is only the id, as text."""
        wanted = request.body()
        if not wanted.get("name") or not wanted.get("script"):
            raise _refused(400, "invalid_request", "name and script are required")
        script_id = self._new_id()
        self.scripts[script_id] = {"id": script_id, "name": wanted["name"], "script": wanted["script"]}
        return EmulatorReply(201, script_id.encode())

    def delete_script(self, _request: EmulatorRequest, script_id: str) -> EmulatorReply:
        if self.scripts.pop(script_id, None) is None:
            raise _refused(404, "not_found", "Script not found")
        return EmulatorReply(200, b"")

    def deploy(self, request: EmulatorRequest) -> EmulatorReply:
        """Create an instance; the answer is only the id, as text. Without stock it is a 503."""
        wanted = request.body()
        kind = self._checked(wanted)
        place, spot = wanted.get("location_code", "FIN-01"), wanted.get("is_spot") is True
        if (kind[0], place) in self.sold_out or kind[8].get(place) not in ("both", "spot" if spot else "demand"):
            text = f"Not enough resources to deploy a {kind[2]} GPU instance type {kind[0]} in {place}"
            raise _refused(503, "service_unavailable", text)
        if self.amount <= 0:
            raise _refused(402, "insufficient_funds", "Insufficient funds")
        instance_id, volume_id = self._new_id(), self._new_id()
        disk = wanted["os_volume"]
        self.volumes[volume_id] = {
            "id": volume_id, "name": disk["name"], "size": disk["size"], "type": "NVMe", "status": "attached",
            "instance_id": instance_id, "is_os_volume": True, "location": place, "ssh_key_ids": [SSH_KEY],
            "created_at": datetime.fromtimestamp(self.clock(), UTC).isoformat(),
        }  # fmt: skip
        self.machines[instance_id] = _machine_row(instance_id, volume_id, kind, wanted, self.clock())
        return EmulatorReply(202, instance_id.encode())

    def all_instances(self, request: EmulatorRequest) -> list[dict[str, Any]]:
        """Return all that are not deleted, or those of one status."""
        wanted = request.params.get("status")
        shown = [self._shown(machine) for machine in self.machines.values()]
        return [one for one in shown if (one["status"] != "discontinued" if not wanted else one["status"] == wanted)]

    def instance(self, _request: EmulatorRequest, instance_id: str) -> dict[str, Any]:
        return self._shown(self._known(instance_id))

    def act(self, request: EmulatorRequest) -> EmulatorReply:
        """Delete it. `volume_ids` names the disks to delete with it: others stay, detached and billed."""
        wanted = request.body()
        ids = [wanted["id"]] if isinstance(wanted.get("id"), str) else wanted.get("id") or []
        if wanted.get("action") != "delete" or not ids:
            raise _refused(400, "invalid_request", "action or id is not valid")
        for one in map(self._known, ids):
            status = self._shown(one)["status"]
            if status == "discontinued":
                raise _refused(400, "invalid_request", "Can't discontinue a discontinued instance")
            if status in ("ordered", "provisioning"):
                raise _refused(400, "invalid_request", "Can't discontinue a provisioning instance")
            one["status"] = "discontinued"
            for volume_id in wanted.get("volume_ids") or []:
                self.volumes.pop(volume_id, None)
            if (left := self.volumes.get(one["os_volume_id"])) is not None:
                left.update(status="detached", instance_id=None)
        return EmulatorReply(202, b"")

    # --- its state ----------------------------------------------------------------------------------------------------
    def _new_id(self) -> str:
        self._number += 1
        return str(uuid.UUID(int=0xDEADC0DE << 96 | self._number))

    def _known(self, instance_id: str) -> dict[str, Any]:
        if instance_id not in self.machines:
            raise _refused(400, "invalid_request", "Invalid instance id")
        return self.machines[instance_id]

    def _checked(self, wanted: dict[str, Any]) -> tuple[Any, ...]:
        """Return the type of a well-formed order."""
        kind = next((one for one in self.kinds if one[0] == wanted.get("instance_type")), None)
        disk = wanted.get("os_volume") or {}
        script = wanted.get("startup_script_id")
        wrong = {
            "Invalid instance type": kind is None,
            "Invalid image": wanted.get("image") not in _IMAGES,
            "Invalid ssh key id": wanted.get("ssh_key_ids") != [SSH_KEY],
            "Invalid location code": wanted.get("location_code", "FIN-01") not in _PLACES,
            "hostname and description are required": not wanted.get("hostname") or not wanted.get("description"),
            "OS volume is too small": not isinstance(disk.get("size"), int) or disk["size"] < _LEAST_DISK_GB,
            "Invalid startup script id": script is not None and script not in self.scripts,
            "Operating system is not valid for this instance type": kind is not None
            and any(name in kind[1] for name in _OLD_GPUS) and wanted.get("image") not in _OLD_IMAGES,
        }  # fmt: skip
        for why, is_so in wrong.items():
            if is_so:
                raise _refused(400, "invalid_request", why)
        assert kind is not None
        return kind

    def _shown(self, one: dict[str, Any]) -> dict[str, Any]:
        ordered_at = datetime.fromisoformat(one["created_at"]).timestamp()
        part = 1.0 if not self.boots_s else (self.clock() - ordered_at) / self.boots_s
        status = one["status"]
        if status == "running" and part < 1.0:
            status = "ordered" if part < 0.5 else "provisioning"
        elif status == "running":
            status = self.ends_in.get(one["location"], status)
        ready = status == "running"
        return one | {"status": status, "ip": one["ip"] if ready else None}


_PLACES: Final = ("FIN-01", "FIN-02", "FIN-03", "ICE-01")


def _type_row(one: tuple[Any, ...], currency: str) -> dict[str, Any]:
    name, gpu, gpus, vram, price, spot, vcpus, ram, _stock = one
    model = gpu.partition("x ")[2] or gpu
    return {
        "id": f"id-{name}", "instance_type": name, "price_per_hour": price, "spot_price": spot,
        "description": "Dedicated Hardware Instance", "best_for": ["Training"], "model": model.rpartition(" ")[0],
        "name": model, "p2p": "900 GB/s" if gpus > 1 else "", "currency": currency, "manufacturer": "NVIDIA",
        "display_name": model, "supported_os": sorted(_IMAGES), "deploy_warning": None,
        "cpu": {"description": f"{vcpus} CPU", "number_of_cores": vcpus},
        "gpu": {"description": gpu, "number_of_gpus": gpus},
        "memory": {"description": f"{ram}GB RAM", "size_in_gigabytes": ram},
        "gpu_memory": {"description": f"{vram}GB VRAM", "size_in_gigabytes": vram},
        "storage": {"description": "dynamic"},
    }  # fmt: skip


def _machine_row(
    instance_id: str, volume_id: str, kind: tuple[Any, ...], wanted: dict[str, Any], now: float
) -> dict[str, Any]:
    stated, spot = _type_row(kind, "usd"), wanted.get("is_spot") is True
    return {key: stated[key] for key in ("cpu", "gpu", "memory", "gpu_memory", "storage", "instance_type")} | {
        "id": instance_id, "status": "running", "ip": f"203.0.113.{int(instance_id[-4:], 16) % 250}",
        "created_at": datetime.fromtimestamp(now, UTC).isoformat(), "hostname": wanted["hostname"],
        "description": wanted["description"], "location": wanted.get("location_code", "FIN-01"),
        "price_per_hour": float(kind[5] if spot else kind[4]), "image": wanted["image"], "is_spot": spot,
        "ssh_key_ids": wanted["ssh_key_ids"], "os_volume_id": volume_id,
        "startup_script_id": wanted.get("startup_script_id"), "contract": wanted.get("contract"),
        "pricing": wanted.get("pricing"),
    }  # fmt: skip


def _refused(status: int, code: str, text: str) -> RefusedRequest:
    return RefusedRequest(reply({"code": code, "message": text}, status))
