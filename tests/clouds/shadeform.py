"""Shadeform on loopback: many clouds' types, instances that wait for their cloud, and the limits of `auto_delete`.

source: the vendor's OpenAPI 1.0.0 and guides; a refusal recorded on 2026-08-18. Prices are invented, or the seller's.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

# Entries for spot, beside those on demand: the price is a text, in dollars. source: the tests of a public client.
_SPOT: Final[dict[tuple[str, str], list[dict[str, Any]]]] = {
    ("oblivus", "H100x8"): [
        {"region": "MON1", "available": True, "display_name": "CA, Montreal", "rental_type": "spot",
         "hourly_price": "16.4"},
    ],
}  # fmt: skip
# cloud, type, the cloud's own name, GPU, GPUs, GB of each, interconnect, cents an hour, {region: (place, available)}
_TYPES: Final = (
    ("lambdalabs", "A10", "gpu_1x_a10", "A10", 1, 24, "pcie", 129, {"us-west-1": ("US, California", True)}),
    ("lambdalabs", "H100_sxm5", "gpu_1x_h100_sxm5", "H100_sxm5", 1, 80, "sxm5", 429, {
        "us-east-1": ("US, Virginia", True), "us-south-1": ("US, Texas", True)}),
    ("hyperstack", "H100", "n3-H100x1", "H100", 1, 80, "pcie", 240, {
        "canada-1": ("CA, Montreal", True), "norway-1": ("NO, Oslo", True)}),
    ("oblivus", "H100x8", "H100_PCIE_80GB_x8", "H100", 8, 80, "pcie", 3280, {"MON1": ("CA, Montreal", True)}),
    ("massedcompute", "H100x8", "gpu_8x_h100", "H100", 8, 80, "pcie", 2392, {
        "us-central-2": ("US, Kansas City, KS", False)}),
    ("massedcompute", "A6000", "gpu_1x_a6000", "A6000", 1, 48, "pcie", 57, {
        "us-central-2": ("US, Kansas City, KS", True)}),
    ("runpod", "A100_80G", "NVIDIA A100 80GB PCIe", "A100_80G", 1, 80, "pcie", 203, {"any": ("", True)}),
    ("hyperstack", "A100_80Gx8", "n3-A100x8", "A100_80G", 8, 80, "sxm4", 1120, {"canada-1": ("CA, Montreal", True)}),
    ("vultr", "A16", "vcg-a16-2c-8g-2vram", "A16", 1, 2, "pcie", 6, {"ewr": ("US, New Jersey", True)}),
    ("hotaisle", "MI300X", "1x MI300X", "MI300X", 1, 192, "oam", 199, {"us-michigan-1": ("US, Michigan", True)}),
)  # fmt: skip
_CONTAINERS: Final = frozenset({"runpod"})


class ShadeformBooking(NamedTuple):
    """One instance: the constant part of its row, its limits, and its times in Unix seconds."""

    row: dict[str, Any]
    limits: dict[str, str]
    created_at: float
    deleted_at: float | None = None


class Shadeform(ProviderServer):
    """A small Shadeform; its types are public.

    Args:
        boots_s: how long an instance is creating, waiting for its cloud, and pending, a third each.
        ends_s: how long it is in state deleting.
    """

    ROUTES: ClassVar = (
        ("GET", r"(?:/v1)?/instances/types", "types"),
        ("POST", r"(?:/v1)?/instances/create", "create"),
        ("GET", r"(?:/v1)?/instances", "instances"),
        ("GET", r"(?:/v1)?/instances/([^/]+)/info", "info"),
        ("POST", r"(?:/v1)?/instances/([^/]+)/delete", "delete"),
        ("POST", r"(?:/v1)?/instances/([^/]+)/update", "update"),
    )

    def __init__(self, *, boots_s: float = 0.0, ends_s: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.boots_s = boots_s
        self.ends_s = ends_s
        self.kinds = [_kind(one) for one in _TYPES]
        self.sold_out: set[tuple[str, str, str]] = set()
        self._booked: dict[str, ShadeformBooking] = {}
        self._dice = Random(7)
        self._number = 0

    # --- controls for tests -------------------------------------------------------------------------------------------
    def sell_out(self, offer_id: str) -> None:
        """`CLOUD/TYPE/REGION…` is no longer available, although the list shows it."""
        cloud, kind, region = offer_id.split("/")[:3]
        self.sold_out.add((cloud, kind, region))

    # --- the provider's side ------------------------------------------------------------------------------------------
    def key_of(self, request: EmulatorRequest) -> str | None:
        return request.headers.get("x-api-key")

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Check the key: only the types are public, and a wrong key is refused there, too."""
        is_public = request.path.endswith("/instances/types") and self.key_of(request) is None
        if not request.keyed and not is_public:
            raise _refused(401, "UNAUTHORIZED", "Invalid API key")
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        return _refused(404, "NOT_FOUND", "Not found").reply

    def types(self, request: EmulatorRequest) -> dict[str, Any]:
        """Return filtered types; unordered unless sorted by price."""
        found = [kind for kind in self.kinds if _fits(kind, request.params)]
        if request.params.get("sort") == "price":
            found.sort(key=lambda kind: int(kind["hourly_price"]))
        else:
            self._dice.shuffle(found)
        return {"instance_types": found}

    def create(self, request: EmulatorRequest) -> dict[str, Any]:
        """Create one. A 200 is only a promise: the cloud may fail afterwards."""
        wanted = request.body()
        if not all(wanted.get(key) for key in ("cloud", "region", "shade_instance_type", "name")) or not isinstance(
            wanted.get("shade_cloud"), bool
        ):
            raise _refused(400, "BAD_REQUEST", "Missing required field")
        key = (wanted["cloud"], wanted["shade_instance_type"], wanted["region"])
        kind = next((one for one in self.kinds if (one["cloud"], one["shade_instance_type"]) == key[:2]), None)
        open_in = (
            [one["region"] for one in kind["availability"] if one["available"] and not _is_spot(one)] if kind else []
        )
        if kind is None or key in self.sold_out or key[2] not in open_in:
            text = f"The instance type [{key[1]}] is not available in the region [{key[2]}]"
            raise _refused(409, "OUT_OF_STOCK", text)
        self._number += 1
        instance_id = str(uuid.UUID(int=self._number))
        row = _row(instance_id, kind, wanted)
        self._booked[instance_id] = ShadeformBooking(row, _limits(wanted), self.clock())
        return {"id": instance_id, "cloud_assigned_id": row["cloud_assigned_id"]}

    def instances(self, _request: EmulatorRequest) -> dict[str, Any]:
        """Return all instances, with the start script but without the variables."""
        shown = [self._shown(one) for one in self._booked.values()]
        hidden = {"envs", "auto_delete"}
        kept = [one for one in shown if one["status"] != "deleted"]
        return {"instances": [{key: one[key] for key in one.keys() - hidden} for one in kept]}

    def info(self, _request: EmulatorRequest, instance_id: str) -> dict[str, Any]:
        """Return one with all fields; the documents show a status for deleted ones, not a 404."""
        deleted = self._booked.get(instance_id)
        return self._shown(self._known(instance_id) if deleted is None else deleted)

    def delete(self, _request: EmulatorRequest, instance_id: str) -> EmulatorReply:
        """Delete one; the answer is empty."""
        one = self._known(instance_id)
        if one.deleted_at is None:
            self._booked[instance_id] = one._replace(deleted_at=self.clock())
        return EmulatorReply(200, b"")

    def update(self, request: EmulatorRequest, instance_id: str) -> EmulatorReply:
        """Change name, tags, and limits."""
        one, wanted = self._known(instance_id), request.body()
        row = one.row | {key: wanted[key] for key in ("name", "tags") if key in wanted}
        limits = _limits(wanted) if "auto_delete" in wanted else one.limits
        self._booked[instance_id] = one._replace(row=row, limits=limits)
        return EmulatorReply(200, b"")

    # --- its state ----------------------------------------------------------------------------------------------------
    def _known(self, instance_id: str) -> ShadeformBooking:
        one = self._booked.get(instance_id)
        if one is None or self._status(one) == "deleted":
            raise _refused(404, "NOT_FOUND", "Instance not found")
        return one

    def _ended_at(self, one: ShadeformBooking) -> float | None:
        """Return when its owner or `auto_delete` ended it, or None."""
        ends = [] if one.deleted_at is None else [one.deleted_at]
        if date := one.limits.get("date_threshold"):
            ends.append(datetime.fromisoformat(date).timestamp())
        if spend := one.limits.get("spend_threshold"):
            ends.append(one.created_at + float(spend) * 100 / one.row["hourly_price"] * 3600)
        return min((end for end in ends if end <= self.clock()), default=None)

    def _status(self, one: ShadeformBooking) -> str:
        ended_at, now = self._ended_at(one), self.clock()
        if ended_at is not None:
            return "deleting" if now < ended_at + self.ends_s else "deleted"
        if now >= one.created_at + self.boots_s:
            return "active"
        part = int((now - one.created_at) / self.boots_s * 3)
        return ("creating", "pending_provider", "pending")[min(part, 2)]

    def _shown(self, one: ShadeformBooking) -> dict[str, Any]:
        status = self._status(one)
        ended_at = self._ended_at(one)
        until = self.clock() if ended_at is None else ended_at
        spent = max(until - one.created_at, 0.0) / 3600 * one.row["hourly_price"] / 100
        return one.row | {
            "status": status,
            "ip": f"203.0.113.{int(one.row['id'].rpartition('-')[2], 16) % 250}" if status == "active" else "",
            "cost_estimate": f"{spent:.4f}",
            "auto_delete": one.limits,
            "created_at": _moment(one.created_at),
            "active_at": _moment(one.created_at + self.boots_s if status == "active" else None),
            "deleted_at": _moment(ended_at),
        }


def _kind(values: tuple[Any, ...]) -> dict[str, Any]:
    cloud, name, own_name, gpu, gpus, vram_gb, interconnect, cents, regions = values
    return {
        "cloud": cloud,
        "shade_instance_type": name,
        "cloud_instance_type": own_name,
        "configuration": {
            "memory_in_gb": 120 * gpus,
            "storage_in_gb": 256 * gpus,
            "vcpus": 16 * gpus,
            "num_gpus": gpus,
            "gpu_type": gpu,
            "interconnect": interconnect,
            "nvlink": interconnect.startswith("sxm") and gpus > 1,
            "os_options": ["ubuntu22.04_cuda12.2_shade_os"],
            "vram_per_gpu_in_gb": vram_gb,
            "gpu_manufacturer": "amd" if gpu.startswith("MI") else "nvidia",
        },
        "hourly_price": cents,
        "deployment_type": "container" if cloud in _CONTAINERS else "vm",
        "availability": [
            {"region": region, "available": available, "display_name": place}
            for region, (place, available) in regions.items()
        ]
        + _SPOT.get((cloud, name), []),
        "boot_time": {"min_boot_in_sec": 180, "max_boot_in_sec": 300},
    }


def _is_spot(entry: dict[str, Any]) -> bool:
    return entry.get("rental_type") == "spot"


def _fits(kind: dict[str, Any], params: dict[str, str]) -> bool:
    regions = kind["availability"]
    values = {
        "cloud": [kind["cloud"]],
        "shade_instance_type": [kind["shade_instance_type"]],
        "gpu_type": [kind["configuration"]["gpu_type"]],
        "num_gpus": [str(kind["configuration"]["num_gpus"])],
        "region": [region["region"] for region in regions],
        "available": ["true" if any(region["available"] for region in regions) else "false"],
    }
    return all(params[key] in values for key, values in values.items() if key in params)


def _row(instance_id: str, kind: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    kept = {key: wanted[key] for key in ("tags", "envs", "launch_configuration", "ssh_key_id") if key in wanted}
    return {
        "id": instance_id,
        "cloud": kind["cloud"],
        "region": wanted["region"],
        "shade_instance_type": kind["shade_instance_type"],
        "cloud_instance_type": kind["cloud_instance_type"],
        "cloud_assigned_id": f"{kind['cloud']}-{instance_id[-4:]}",
        "shade_cloud": wanted["shade_cloud"],
        "name": wanted["name"],
        "configuration": kind["configuration"] | {"os": "ubuntu22.04_cuda12.2_shade_os"},
        "ssh_user": "shadeform",
        "ssh_port": 22,
        "hourly_price": kind["hourly_price"],
    } | kept


def _limits(wanted: dict[str, Any]) -> dict[str, str]:
    """Validate by the schema: an RFC 3339 date, decimal dollars as text."""
    limits = wanted.get("auto_delete") or {}
    try:
        if date := limits.get("date_threshold"):
            datetime.fromisoformat(date)
        if spend := limits.get("spend_threshold"):
            float(spend + "")
    except (TypeError, ValueError):
        raise _refused(400, "BAD_REQUEST", "auto_delete is not understood") from None
    return dict(limits)


def _moment(seconds: float | None) -> str:
    """Format by RFC 3339; a time that has not come is in the year 1."""
    if seconds is None:
        return "0001-01-01T00:00:00Z"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(status: int, code: str, text: str) -> RefusedRequest:
    return RefusedRequest(reply({"error_code": code, "error": text}, status))
