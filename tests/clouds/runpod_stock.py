"""The stock of the emulated RunPod: GPU types, their prices, and how many are free in which data centre."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PLACES: Final = {  # id → name, region
    "US-KS-2": ("US Kansas 2", "NORTH_AMERICA"),
    "CA-MTL-1": ("CA Montreal 1", "NORTH_AMERICA"),
    "EU-RO-1": ("EU Romania 1", "EUROPE"),
    "EUR-IS-1": ("EUR Iceland 1", "EUROPE"),
    "EU-CZ-1": ("EU Czechia 1", "EUROPE"),
    "SEA-SG-1": ("SEA Singapore 1", "ASIA"),
}


@dataclass
class GpuType:
    """One row of the catalogue; `free` counts GPUs by data centre, `community_free` those of hosts."""

    id: str
    name: str
    memory: int
    secure_price: float | None
    community_price: float | None
    free: dict[str, int] = field(default_factory=dict)
    community_free: int = 0
    community_places: tuple[str, ...] = ()  # where the catalogue lists its hosts; an order that names one is refused
    manufacturer: str = "NVIDIA"
    community: bool = True
    most: int = 8  # GPUs in one pod

    @property
    def secure(self) -> bool:
        """Whether the secure cloud sells it at all."""
        return self.secure_price is not None

    def price(self, cloud: str) -> float | None:
        """Return the USD per hour of one GPU."""
        return self.secure_price if cloud == "SECURE" else self.community_price

    def sold(self, cloud: str) -> bool:
        """Whether this cloud sells it at all."""
        return self.secure if cloud == "SECURE" else self.community

    def free_at(self, cloud: str) -> dict[str | None, int]:
        """Return free GPUs by data centre; those of the community cloud count for None, whatever is listed.

        source: issue 326 of the vendor's runpodctl, 2026-08
        """
        if not self.sold(cloud):
            return {}
        found: dict[str | None, int] = {}
        if cloud == "COMMUNITY":
            return found | {None: self.community_free} | dict.fromkeys(self.community_places, self.community_free)
        return found | self.free


def seeded() -> dict[str, GpuType]:
    """Return the market of a new stage. Prices: seen 2026-05 and 2026-08, or invented."""
    rows = [
        GpuType("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.74, 0.34, {"US-KS-2": 32, "EU-RO-1": 9, "EUR-IS-1": 3}, 9),
        GpuType("NVIDIA GeForce RTX 3090", "RTX 3090", 24, 0.46, 0.22, {"EU-RO-1": 6}, 25),
        GpuType("NVIDIA GeForce RTX 5090", "RTX 5090", 32, 0.99, 0.69, {"EUR-IS-1": 16, "US-KS-2": 1}, 10),
        GpuType("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.69, None, {"US-KS-2": 24, "CA-MTL-1": 5}, community=False),
        GpuType("NVIDIA H100 PCIe", "H100 PCIe", 80, 2.39, 1.99, {"US-KS-2": 4, "EU-RO-1": 2}, 8),
        GpuType("NVIDIA H100 NVL", "H100 NVL", 94, 2.79, 2.59, {"US-KS-2": 4}, 0, most=6),
        # its community price was a leftover for months
        GpuType("NVIDIA H200", "H200 SXM", 141, 3.59, 0.5, {"US-KS-2": 8, "SEA-SG-1": 8}, community=False),
        GpuType("NVIDIA B200", "B200", 180, 5.98, None, {"US-KS-2": 8}, community=False),
        GpuType("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.64, 1.19, {"EU-RO-1": 7, "CA-MTL-1": 2}, 6),
        GpuType("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, 1.59, 1.39, {"US-KS-2": 16, "SEA-SG-1": 3}, 4),
        GpuType("NVIDIA A40", "A40", 48, 0.44, None, {"CA-MTL-1": 12, "EUR-IS-1": 2}, community=False),
        GpuType("NVIDIA L4", "L4", 24, 0.44, None, {"EU-RO-1": 5}, community=False),
        GpuType("NVIDIA L40S", "L40S", 48, 0.99, None, {"US-KS-2": 0}, community=False),
        GpuType(
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 MaxQ", 96, 1.79, None,
            {"EUR-IS-1": 4}, community=False,
        ),
        GpuType(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", "PRO 6000 MIG 24GB", 24, 0.49, None,
            {"EUR-IS-1": 8}, community=False, most=1,
        ),
        GpuType("NVIDIA GeForce RTX 3070", "RTX 3070", 8, None, 0.13, {}, 2),
        GpuType(
            "AMD Instinct MI300X OAM", "MI300X", 192, 1.99, None, {"EU-RO-1": 8}, manufacturer="AMD", community=False
        ),
    ]  # fmt: skip
    return {row.id: row for row in rows}


def level(free: int, count: int) -> str:
    """Return NONE, LOW, MEDIUM or HIGH; the vendor does not publish the boundaries."""
    times = free // count
    return "NONE" if times < 1 else "LOW" if times < 2 else "MEDIUM" if times < 4 else "HIGH"


def rendered(row: GpuType, cloud: str, count: int, with_stock: bool) -> dict[str, Any]:
    """Return one type as REST shows it."""
    most = {"secure": row.most if row.secure else 0, "community": row.most if row.community else 0}
    shown: dict[str, Any] = {
        "id": row.id, "name": row.name, "pool": None, "manufacturer": row.manufacturer, "memory": row.memory,
        "secure": row.secure, "community": row.community,
        "price": {"secure": row.secure_price or 0, "community": row.community_price or 0}, "maxCount": most,
    }  # fmt: skip
    if not with_stock:
        return shown
    free = row.free_at(cloud) if count <= row.most else {}
    levels = {place: level(left, count) for place, left in free.items()}
    best = max(free.values(), default=0)
    shown["availability"] = level(best, count)
    places = [
        {"id": place, "name": PLACES[place][0], "availability": stock}
        for place, stock in levels.items()
        if place is not None and stock != "NONE"
    ]
    return shown | ({"dataCenters": places} if places else {})
