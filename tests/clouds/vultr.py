"""Vultr on loopback: plans, stock of each place, SSH keys, and instances.

source: as gpuwatch/providers/vultr. Prices and stock are invented.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

SSH_KEY: Final = "cb676a46-66fd-4dfb-b839-443f2e6c0b60"
_SYSTEMS: Final = {1743: "Ubuntu 22.04 LTS x64", 2284: "Ubuntu 24.04 LTS x64"}
_PLACES: Final = {"ewr": ("New Jersey", "US"), "fra": ("Frankfurt", "DE"), "blr": ("Bangalore", "IN")}
# A plan whose GPU is "" has none. One whose GPU is None is of type `vdm`: it states neither its GPU nor its places,
# only the stock of each place.
# plan, GPU, GB of all, GPUs as stated, price, vCPUs, MB of memory, GB of disk, places of the plan, places with stock
_PLANS: Final[tuple[tuple[Any, ...], ...]] = (
    ("vcg-a100-12c-120g-80vram", "NVIDIA_A100", 80, "1", 2.397, 12, 122880, 1400, ("ewr", "fra"), ("ewr",)),
    ("vcg-a100-24c-240g-160vram", "NVIDIA_A100", 160, None, 4.795, 24, 245760, 1400, ("ewr",), ("ewr",)),
    ("vcg-a100-1c-6g-4vram", "NVIDIA_A100", 4, "1/20", 0.123, 1, 6144, 70, ("ewr",), ("ewr",)),
    ("vcg-l40s-16c-180g-48vram", "NVIDIA_L40S", 48, "1", 1.671, 16, 184320, 1200, ("fra", "blr"), ("fra", "blr")),
    ("vcg-a16-12c-128g-32vram", "NVIDIA_A16", 32, "2", 0.942, 12, 131072, 700, ("blr",), ("blr",)),
    ("vcg-a40-24c-120g-48vram", "NVIDIA_A40", 48, "1", 1.712, 24, 122880, 1400, (), ()),
    ("vcg-a40-96c-480g-192vram", None, None, None, 6.848, 96, 491520, 1400, (), ("blr",)),
    ("vcg-b200-999c-1g-1vram", None, None, None, 20.0, 248, 2893824, 1400, (), ("blr",)),  # in no table
    # without GPUs: as a public copy of a list of 2025-12 has them
    ("vc2-1c-0.5gb-free", "", None, None, 0, 1, 512, 10, ("fra",), ("fra",)),
    ("vc2-1c-0.5gb-v6", "", None, None, 0.003, 1, 512, 10, ("ewr",), ("ewr",)),
    ("vc2-1c-1gb", "", None, None, 0.007, 1, 1024, 25, ("ewr", "fra"), ("ewr", "fra")),
    ("vhp-8c-16gb-amd", "", None, None, 0.132, 8, 16384, 350, ("ewr", "fra"), ("fra",)),
    ("vc2-8c-32gb", "", None, None, 0.219, 8, 32768, 640, ("ewr",), ()),
    ("voc-g-8c-32gb-160s-amd", "", None, None, 0.329, 8, 32768, 160, ("ewr", "blr"), ("ewr", "blr")),
)
_OWN_PRICES: Final = {"vcg-l40s-16c-180g-48vram": {"blr": 1.85}}


class Vultr(ProviderServer):
    """A small Vultr.

    Args:
        page_rows: maximum rows per page, whatever is requested.
    """

    ROUTES: ClassVar = (
        ("GET", r"(?:/v2)?/plans", "plans"),
        ("GET", r"(?:/v2)?/regions", "regions"),
        ("GET", r"(?:/v2)?/regions/([^/]+)/availability", "stock"),
        ("GET", r"(?:/v2)?/ssh-keys", "ssh_keys"),
        ("GET", r"(?:/v2)?/account", "account"),
        ("POST", r"(?:/v2)?/instances", "deploy"),
        ("GET", r"(?:/v2)?/instances", "all_instances"),
        ("GET", r"(?:/v2)?/instances/([^/]+)", "instance"),
        ("DELETE", r"(?:/v2)?/instances/([^/]+)", "delete"),
    )

    def __init__(self, *, page_rows: int = 500, **options: Any) -> None:
        super().__init__(**options)
        self.page_rows = page_rows
        self.sold_out: set[tuple[str, str]] = set()
        self.machines: dict[str, dict[str, Any]] = {}
        self._number = 0

    def sell_out(self, offer_id: str) -> None:
        """`PLAN/PLACE` is no longer available, although the stock still shows it."""
        plan, place = offer_id.split("/")
        self.sold_out.add((plan, place))

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Require the key, except for plans and regions."""
        if not request.keyed and not request.path.endswith(("/plans", "/regions", "/availability")):
            raise _refused(401, "Invalid API token.")
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        return _refused(404, "Invalid endpoint.").reply

    def plans(self, request: EmulatorRequest) -> EmulatorReply:
        wanted = request.params.get("type", "all")
        rows = [one for one in map(_plan_row, _PLANS) if wanted in ("all", one["type"])]
        return self._page(request, "plans", rows)

    def regions(self, request: EmulatorRequest) -> EmulatorReply:
        rows = [
            {"id": place, "city": city, "country": country, "continent": "x", "options": ["ddos_protection"]}
            for place, (city, country) in _PLACES.items()
        ]
        return self._page(request, "regions", rows)

    def stock(self, request: EmulatorRequest, place: str) -> dict[str, Any]:
        if place not in _PLACES:
            raise _refused(404, "Invalid region.")
        wanted = request.params.get("type", "all")
        return {
            "available_plans": [plan[0] for plan in _PLANS if place in plan[9] and wanted in ("all", _type_of(plan))]
        }

    def ssh_keys(self, request: EmulatorRequest) -> EmulatorReply:
        row = {"id": SSH_KEY, "date_created": "2026-01-01T00:00:00+00:00", "name": "demo", "ssh_key": "ssh-ed25519 A"}
        return self._page(request, "ssh_keys", [row])

    def account(self, _request: EmulatorRequest) -> dict[str, Any]:
        return {"account": {"balance": -100.55, "pending_charges": 60.25, "name": "Demo", "acls": ["provisioning"]}}

    def deploy(self, request: EmulatorRequest) -> EmulatorReply:
        wanted = request.body()
        plan = self._checked(wanted)
        instance_id = str(uuid.UUID(int=0xDEADC0DE << 96 | (self._number + 1)))
        self._number += 1
        self.machines[instance_id] = {
            "id": instance_id, "os": _SYSTEMS[wanted["os_id"]], "ram": plan[6], "disk": plan[7],
            "main_ip": f"203.0.113.{self._number % 250}", "vcpu_count": plan[5], "region": wanted["region"],
            "plan": plan[0], "date_created": datetime.fromtimestamp(self.clock(), UTC).isoformat(), "status": "active",
            "allowed_bandwidth": 10, "power_status": "running", "server_status": "ok", "label": wanted["label"],
            "internal_ip": "", "kvm": "", "os_id": wanted["os_id"], "tags": wanted.get("tags", []), "features": [],
            "hostname": wanted.get("hostname", ""), "user_scheme": "root",
        }  # fmt: skip
        return reply({"instance": self.machines[instance_id] | {"default_password": "v5{Fkvb#2ycPGwHs"}}, 202)

    def all_instances(self, request: EmulatorRequest) -> EmulatorReply:
        return self._page(request, "instances", list(self.machines.values()))

    def instance(self, _request: EmulatorRequest, instance_id: str) -> dict[str, Any]:
        return {"instance": self.machines[self._known(instance_id)]}

    def delete(self, _request: EmulatorRequest, instance_id: str) -> EmulatorReply:
        del self.machines[self._known(instance_id)]
        return EmulatorReply(204, b"")

    # --- its state ----------------------------------------------------------------------------------------------------
    def _known(self, instance_id: str) -> str:
        if instance_id not in self.machines:
            raise _refused(404, "invalid instance ID")
        return instance_id

    def _checked(self, wanted: dict[str, Any]) -> tuple[Any, ...]:
        """Return the plan of a well-formed order, if in stock."""
        plan = next((one for one in _PLANS if one[0] == wanted.get("plan")), None)
        wrong = {
            "Invalid plan chosen.": plan is None,
            "Invalid region.": wanted.get("region") not in _PLACES,
            "Invalid os_id": wanted.get("os_id") not in _SYSTEMS,
            "Invalid SSH key ID": wanted.get("sshkey_id") not in (None, [SSH_KEY]),
            "Invalid user_data": not _is_base64(wanted.get("user_data", "")),
            "Invalid backups value": wanted.get("backups", "disabled") not in ("enabled", "disabled"),
        }
        for why, is_so in wrong.items():
            if is_so:
                raise _refused(400, why)
        assert plan is not None
        if (plan[0], wanted["region"]) in self.sold_out or wanted["region"] not in plan[9]:
            raise _refused(400, "Server add failed: plan is not available in the selected region")
        return plan

    def _page(self, request: EmulatorRequest, name: str, rows: list[dict[str, Any]]) -> EmulatorReply:
        """Return a part of a list; the cursor of the next one is opaque."""
        size = min(int(request.params.get("per_page", "100")), self.page_rows)
        cursor = request.params.get("cursor")
        first = int(base64.b64decode(cursor).decode().removeprefix("next__")) if cursor else 0
        after = first + size
        following = base64.b64encode(f"next__{after}".encode()).decode() if after < len(rows) else ""
        meta = {"total": len(rows), "links": {"next": following, "prev": ""}}
        return reply({name: rows[first:after], "meta": meta})


def _type_of(plan: tuple[Any, ...]) -> str:
    return {None: "vdm", "": plan[0].partition("-")[0]}.get(plan[1], "vcg")


def _plan_row(one: tuple[Any, ...]) -> dict[str, Any]:
    name, gpu, vram, count, price, vcpus, ram, disk, places, _stock = one
    return {
        "id": name, "vcpu_count": vcpus, "ram": ram, "disk": disk, "disk_count": 1, "bandwidth": 10240,
        "monthly_cost": round(price * 730, 2), "hourly_cost": price, "type": _type_of(one), "locations": list(places),
        "deploy_ondemand": True, "deploy_preemptible": False, "invoice_type": "monthly", "vcpu_type": "thread",
        **({} if gpu == "" else {"gpu_brand": "NVIDIA"}),
        **({"gpu_type": gpu, "gpu_vram_gb": vram} if gpu else {}),
        **({} if count is None else {"gpu_count": count}),
        "location_cost": {
            place: {"hourly_cost": usd, "monthly_cost": round(usd * 730, 2)}
            for place, usd in _OWN_PRICES.get(name, {}).items()
        },
    }  # fmt: skip


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _refused(status: int, text: str) -> RefusedRequest:
    return RefusedRequest(reply({"error": text, "status": status}, status))
