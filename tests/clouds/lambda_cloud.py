"""Lambda on loopback: types × regions, launches, instances that boot and end, and the vendor's errors.

source: the vendor's OpenAPI 1.10.0, its billing page, and what public clients had to work around, read 2026-11.
Prices and types as recorded on 2026-08-20; capacity is invented.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

REGIONS: Final = {
    "us-east-1": "Virginia, USA",
    "us-east-3": "Washington D.C., USA",
    "us-south-1": "Texas, USA",
    "us-west-1": "California, USA",
    "europe-central-1": "Germany",
    "asia-northeast-2": "Osaka, Japan",
}
# name, GPU as described, cents an hour, vCPUs, GiB, disk GiB, regions with capacity
_TYPES: Final = (
    ("gpu_1x_a10", "A10 (24 GB PCIe)", 129, 30, 200, 1400, "us-west-1"),
    ("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 69, 14, 46, 512, "us-south-1"),
    ("gpu_1x_a100", "A100 (40 GB PCIe)", 199, 30, 200, 512, "us-east-1"),
    ("gpu_8x_a100", "A100 (40 GB SXM4)", 1592, 124, 1800, 6144, "us-east-1 us-west-1"),
    ("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 2232, 240, 1800, 20480, ""),
    ("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 329, 26, 200, 1024, "us-west-1"),
    ("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 429, 26, 225, 2816, "us-east-1 us-south-1 europe-central-1"),
    ("gpu_2x_h100_sxm5", "H100 (80 GB SXM5)", 838, 52, 450, 5632, ""),
    ("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 3192, 208, 1800, 22528, "us-south-1 asia-northeast-2"),
    ("gpu_1x_gh200", "GH200 (96 GB)", 229, 64, 432, 4096, "us-east-3"),
    ("gpu_8x_b200_sxm6", "B200 (180 GB SXM6)", 5352, 208, 2900, 22528, ""),
    ("gpu_8x_v100_n", "Tesla V100 (16 GB)", 632, 88, 448, 6041, "us-south-1"),
    ("cpu_4x_general", "N/A", 20, 4, 16, 512, "us-east-1"),
)
_TAG_KEY: Final = re.compile(r"[a-z][a-z0-9-:]{1,54}")
_USER_DATA_BYTES: Final = 2**20


class LambdaBooking(NamedTuple):
    """One instance: the constant part of its row, and its times in Unix seconds."""

    row: dict[str, Any]
    launched_at: float
    terminated_at: float | None = None
    sick: bool = False


class LambdaCloud(ProviderServer):
    """A small Lambda. `capacity` maps a type to the regions that list it; `sold_out` is listed, but not available.

    Args:
        strict: one request a second and one launch in 12 s, by `clock`; else 429.
        boots_s: how long an instance boots, without an address.
        ends_s: how long it is terminating, and then terminated, before the list omits it.
        quota: maximum instances of the account.
    """

    ROUTES: ClassVar = (
        ("GET", r"(?:/api/v1)?/instance-types", "types"),
        ("GET", r"(?:/api/v1)?/regions", "regions"),
        ("GET", r"(?:/api/v1)?/ssh-keys", "ssh_keys"),
        ("POST", r"(?:/api/v1)?/instance-operations/launch", "launch"),
        ("POST", r"(?:/api/v1)?/instance-operations/terminate", "terminate"),
        ("GET", r"(?:/api/v1)?/instances", "instances"),
        ("GET", r"(?:/api/v1)?/instances/([0-9a-f]+)", "instance"),
    )

    def __init__(
        self, *, strict: bool = False, boots_s: float = 0.0, ends_s: float = 0.0, quota: int = 50, **options: Any
    ) -> None:
        super().__init__(**options)
        self.strict = strict
        self.boots_s = boots_s
        self.ends_s = ends_s
        self.quota = quota
        self.kinds = {one[0]: _kind(*one[:6]) for one in _TYPES}
        self.capacity: dict[str, list[str]] = {one[0]: one[6].split() for one in _TYPES}
        self.sold_out: set[tuple[str, str]] = set()
        self.keys = ["my-key"]
        self._booked: dict[str, LambdaBooking] = {}
        self._asked_at: dict[str, float] = {}
        self._number = 0

    # --- controls for tests -------------------------------------------------------------------------------------------
    def sell_out(self, offer_id: str) -> None:
        """`TYPE/REGION` is no longer available, although it stays listed: capacity flickers."""
        name, _, region = offer_id.partition("/")
        self.sold_out.add((name, region))

    def sicken(self, instance_id: str) -> None:
        """Make the instance unhealthy."""
        self._booked[instance_id] = self._booked[instance_id]._replace(sick=True)

    # --- the provider's side ------------------------------------------------------------------------------------------
    def key_of(self, request: EmulatorRequest) -> str | None:
        """Accept a bearer token, or the user of HTTP Basic."""
        sent = request.headers.get("authorization", "")
        if not sent.lower().startswith("basic "):
            return request.key
        try:
            return base64.b64decode(sent[6:]).decode().partition(":")[0]
        except ValueError:
            return None

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Check the limits and the key before everything else."""
        if not request.keyed:
            raise _refused(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.")
        if self.strict:
            self._count(request)
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        return _refused(404, "global/not-found", "The requested resource was not found.").reply

    def types(self, _request: EmulatorRequest) -> dict[str, Any]:
        """Return a map by the type's name, not a list."""
        return {
            "data": {
                name: {
                    "instance_type": kind,
                    "regions_with_capacity_available": [_region(one) for one in self.capacity.get(name, ())],
                }
                for name, kind in self.kinds.items()
            }
        }

    def regions(self, _request: EmulatorRequest) -> dict[str, Any]:
        """Return all regions."""
        return {"data": [_region(name) for name in REGIONS]}

    def ssh_keys(self, _request: EmulatorRequest) -> dict[str, Any]:
        """Return the account's keys."""
        return {"data": [{"id": name, "name": name, "public_key": "ssh-ed25519 AAAA"} for name in self.keys]}

    def launch(self, request: EmulatorRequest) -> dict[str, Any]:
        """Launch one instance."""
        wanted = request.body()
        name, region = wanted.get("instance_type_name"), wanted.get("region_name")
        _check(wanted)
        if name not in self.kinds or region not in REGIONS:
            raise _missing("instance type or region")
        if wanted["ssh_key_names"][0] not in self.keys:
            raise _missing("SSH key")
        if len(self._alive()) >= self.quota:
            raise _refused(400, "global/quota-exceeded", "Quota exceeded.")
        if region not in self.capacity[name] or (name, region) in self.sold_out:
            code = "instance-operations/launch/insufficient-capacity"
            raise _refused(400, code, "Not enough capacity to fulfill launch request.")
        self._number += 1
        instance_id = uuid.UUID(int=self._number).hex
        self._booked[instance_id] = LambdaBooking(self._row(instance_id, wanted), self.clock())
        return {"data": {"instance_ids": [instance_id]}}

    def instances(self, _request: EmulatorRequest) -> dict[str, Any]:
        """Return all instances, including recently terminated ones; there are no pages."""
        return {"data": [self._shown(booking) for booking in self._listed()]}

    def instance(self, _request: EmulatorRequest, instance_id: str) -> dict[str, Any]:
        """Return one instance."""
        return {"data": self._shown(self._known(instance_id))}

    def terminate(self, request: EmulatorRequest) -> dict[str, Any]:
        """End instances; all of them must exist."""
        ids = request.body().get("instance_ids")
        if not isinstance(ids, list) or not ids:
            raise _refused(400, "global/invalid-parameters", "Invalid request data.")
        for one in [self._known(str(one)) for one in ids]:
            ended_at = self.clock() if one.terminated_at is None else one.terminated_at
            self._booked[one.row["id"]] = one._replace(terminated_at=ended_at)
        return {"data": {"terminated_instances": [self._shown(self._booked[one]) for one in ids]}}

    # --- its state ----------------------------------------------------------------------------------------------------
    def _count(self, request: EmulatorRequest) -> None:
        least_s = {"any": 1.0} | ({"launch": 12.0} if request.path.endswith("/launch") else {})
        for kind, seconds in least_s.items():
            if request.now - self._asked_at.get(kind, float("-inf")) < seconds - 1e-6:
                raise _refused(429, "global/too-many-requests", "Too many requests.")
        self._asked_at |= dict.fromkeys(least_s, request.now)

    def _alive(self) -> list[LambdaBooking]:
        return [one for one in self._booked.values() if one.terminated_at is None]

    def _listed(self) -> Iterable[LambdaBooking]:
        now = self.clock()
        return [
            one
            for one in self._booked.values()
            if one.terminated_at is None or now < one.terminated_at + 2 * self.ends_s
        ]

    def _known(self, instance_id: str) -> LambdaBooking:
        for booking in self._listed():
            if booking.row["id"] == instance_id:
                return booking
        raise _missing("instance", 404)

    def _row(self, instance_id: str, wanted: dict[str, Any]) -> dict[str, Any]:
        kept = {key: wanted[key] for key in ("name", "hostname", "tags") if wanted.get(key)}
        return {
            "id": instance_id,
            "ssh_key_names": wanted["ssh_key_names"],
            "file_system_names": wanted.get("file_system_names", []),
            "region": _region(wanted["region_name"]),
            "instance_type": self.kinds[wanted["instance_type_name"]],
            "is_reserved": False,
        } | kept

    def _shown(self, one: LambdaBooking) -> dict[str, Any]:
        """Return the current row: a value that does not exist yet is missing, not null."""
        status = self._status(one)
        row = one.row | {"status": status, "actions": _actions(status)}
        if status in ("active", "unhealthy"):
            number = int(one.row["id"], 16) % 250
            row |= {
                "ip": f"198.51.100.{number}",
                "private_ip": f"10.0.2.{number}",
                "jupyter_token": "not-for-anybody",
                "jupyter_url": "https://jupyter.example/?token=not-for-anybody",
            }
        return row

    def _status(self, one: LambdaBooking) -> str:
        now = self.clock()
        if one.terminated_at is not None:
            return "terminating" if now < one.terminated_at + self.ends_s else "terminated"
        if now < one.launched_at + self.boots_s:
            return "booting"
        return "unhealthy" if one.sick else "active"


def _kind(name: str, gpu: str, cents: int, vcpus: int, memory_gib: int, storage_gib: int) -> dict[str, Any]:
    found = re.match(r"gpu_(\d+)x", name)
    gpus = int(found[1]) if found else 0
    return {
        "name": name,
        "description": f"{gpus}x {gpu}" if gpus else "4x CPU General",
        "gpu_description": gpu,
        "price_cents_per_hour": cents,
        "architecture": "arm64" if "gh200" in name else "x86_64",  # returned, although no schema has it
        "specs": {"vcpus": vcpus, "memory_gib": memory_gib, "storage_gib": storage_gib, "gpus": gpus},
    }


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": REGIONS[name]}


def _actions(status: str) -> dict[str, Any]:
    allowed: dict[str, Any] = {"available": True}
    if status != "active":
        code = "vm-has-not-launched" if status == "booting" else "vm-is-terminating"
        allowed = {"available": False, "reason_code": code, "reason_description": "Not now."}
    return dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), allowed)


def _check(wanted: dict[str, Any]) -> None:
    """Validate a launch by the schema."""
    keys, tags = wanted.get("ssh_key_names"), wanted.get("tags", [])
    sound = (
        isinstance(keys, list)
        and len(keys) == 1
        and len(wanted.get("name", "")) <= 64
        and len(wanted.get("user_data", "").encode()) <= _USER_DATA_BYTES
        and wanted.get("image", {}).keys() in (set(), {"id"}, {"family"})
        and all(_TAG_KEY.fullmatch(tag["key"]) and len(tag["value"]) <= 128 for tag in tags)
    )
    if not sound:
        raise _refused(400, "global/invalid-parameters", "Invalid request data.")


def _missing(what: str, status: int = 400) -> RefusedRequest:
    return _refused(status, "global/object-does-not-exist", f"Specified {what} does not exist.")


def _refused(status: int, code: str, message: str) -> RefusedRequest:
    return RefusedRequest(reply({"error": {"code": code, "message": message}}, status))
