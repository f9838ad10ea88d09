# ruff: noqa: E501
"""A seeded market that resembles a real one in what affects a store: models, counts, prices, churn.

Machines come and go, few are repriced; ids, places and figures are invented.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuwatch.domain.market.offer import Offer

START = datetime(2026, 3, 2, 0, 10, tzinfo=UTC)
# model, typical listed price of one GPU (USD/h), share of the market
MODELS = [
    ("RTX 4090", 0.36, 17), ("RTX 5090", 0.52, 14), ("RTX 3090", 0.17, 12), ("RTX 3060", 0.07, 6), ("RTX 4080S", 0.20, 3),
    ("RTX 4070 Ti", 0.13, 2), ("RTX 4060 Ti", 0.10, 3), ("RTX 3080", 0.10, 3), ("RTX 5080", 0.24, 4), ("RTX 5070 Ti", 0.16, 3),
    ("RTX 6000 Ada", 0.60, 2), ("RTX PRO 6000", 1.05, 3), ("RTX A6000", 0.42, 3), ("RTX A5000", 0.20, 3), ("RTX A4000", 0.12, 2),
    ("A40", 0.35, 1), ("L4", 0.32, 1), ("L40S", 0.61, 2), ("A100 PCIe", 0.62, 2), ("A100 SXM 80GB", 0.79, 3), ("H100 PCIe", 1.85, 1),
    ("H100 SXM", 2.10, 3), ("H100 NVL", 1.95, 2), ("H200", 2.70, 2), ("B200", 3.60, 1), ("RTX 8000", 0.25, 1), ("GTX 1080 Ti", 0.06, 1),
    ("Tesla V100", 0.20, 2), ("Tesla T4", 0.13, 1), ("Titan RTX", 0.16, 1),
]  # fmt: skip
_WEIGHTS = [share for _, _, share in MODELS]
_COUNTS, _COUNT_WEIGHTS = [1, 2, 4, 8, 10, 12], [55, 14, 16, 12, 2, 1]
_DISKS = [0.05, 0.08, 0.1, 0.15, 0.2, 0.25]


class Market:
    """Offers that change slightly from poll to poll."""

    def __init__(self, offers: int, seed: int = 7) -> None:
        self._rng = random.Random(seed)
        self._next_id = 10_000_000
        self._offers = [msgspec.convert(self._new(), Offer) for _ in range(offers)]

    def polls(self, count: int, repriced: float = 0.02, replaced: float = 0.01) -> Iterator[list[Offer]]:
        """Yield this number of polls; each after the first follows a step of churn."""
        for number in range(count):
            if number:
                self._evolve(repriced, replaced)
            yield list(self._offers)

    def _evolve(self, repriced: float, replaced: float) -> None:
        size = len(self._offers)
        moved = self._rng.sample(range(size), int(size * (repriced + replaced)))
        cut = int(size * repriced)
        for at in moved[:cut]:
            usd = self._offers[at].quoted_usd_hour * self._rng.lognormvariate(0.0, 0.05)
            self._offers[at] = msgspec.structs.replace(self._offers[at], quoted_usd_hour=usd)
        for at in moved[cut:]:
            self._offers[at] = msgspec.convert(self._new(), Offer)

    def _new(self) -> dict[str, Any]:
        rng = self._rng
        gpu, price, _ = rng.choices(MODELS, _WEIGHTS)[0]
        count = rng.choices(_COUNTS, _COUNT_WEIGHTS)[0]
        disk = rng.choice(_DISKS) * rng.choice([1, 4 / 3])
        self._next_id += rng.randrange(1, 60)
        return {
            "provider": "vastai", "offer_id": str(self._next_id), "machine_id": str(rng.randrange(1000, 150_000)), "gpu": gpu,
            "gpu_family": gpu.split()[0], "gpu_wire": gpu, "gpu_known": True, "gpu_count": count, "gpu_memory_gib": 80.0,
            "spot": False, "quoted_usd_hour": count * price * rng.lognormvariate(0.0, 0.22) + disk * 8 / 720,
            "quoted_disk_gb": 8.0, "disk_usd_gb_month": disk, "observed_at": START, "region": f"Region {rng.randrange(25)}",
            "country": rng.choice(["US", "DE", "CN", "SE"]), "reliability": round(min(0.9999, 1 - rng.expovariate(60)), 7),
            "verification": "verified" if rng.random() < 0.8 else "unverified",
        }  # fmt: skip
