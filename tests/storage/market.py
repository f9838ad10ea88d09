"""Offers and answers for tests of the store; a test names only what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuwatch.domain.market.offer import Offer
from gpuwatch.ports import Answer, Completeness

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
PLAIN: dict[str, Any] = {
    "provider": "vastai",
    "offer_id": "9000001",
    "gpu": "H100 SXM",
    "gpu_family": "H100",
    "gpu_wire": "H100 SXM",
    "gpu_known": True,
    "gpu_count": 1,
    "gpu_memory_gib": 80.0,
    "spot": False,
    "quoted_disk_gb": 8.0,
    "disk_usd_gb_month": 0.15,
    "observed_at": NOON,
    "region": "Texas, US",
    "country": "US",
    "reliability": 0.99,
}


def an_offer(machine_id: str | None = "m1", usd_hour: float = 3.0, **changed: Any) -> Offer:
    """A machine for rent at a quote."""
    return Offer(**(PLAIN | {"machine_id": machine_id, "quoted_usd_hour": usd_hour} | changed))


def an_answer(*offers: Offer, after_s: float = 0, **changed: Any) -> Answer:
    """What a market answered, so many seconds after noon."""
    plain: dict[str, Any] = {
        "provider": "vastai",
        "observed_at": NOON + timedelta(seconds=after_s),
        "offers": offers,
        "completeness": Completeness.COMPLETE,
        "rows": len(offers),
    }
    return Answer(**(plain | changed))


def machines(offers: Sequence[Any]) -> dict[str, int]:
    """Machine → listed price of what was on sale."""
    return {one.identity.machine_id: one.listed_microusd_hour() for one in offers}
