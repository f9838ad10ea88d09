"""Values with plain defaults: a test names only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from gpuwatch.domain.history.price_rows import PriceRow
from gpuwatch.domain.market.gpu_names import CatalogGpu, catalog
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import ListedOffer, Offer, Verification
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def an_offer(**changes: Any) -> Offer:
    """One verified H100 SXM for 3 $/h listed, with 8 GB of disk at 0.20 $ a GB and month."""
    plain: dict[str, Any] = {
        "provider": "vastai",
        "offer_id": "1001",
        "machine_id": "77",
        "gpu": "H100 SXM",
        "gpu_family": "H100",
        "gpu_wire": "H100 SXM",
        "gpu_known": True,
        "gpu_count": 1,
        "gpu_memory_gib": 79.6,
        "spot": False,
        "quoted_usd_hour": 3.0,
        "quoted_disk_gb": 8.0,
        "disk_usd_gb_month": 0.2,
        "observed_at": NOON,
        "region": "Utah",
        "country": "US",
        "reliability": 0.99,
        "verification": Verification.VERIFIED,
    }
    return Offer(**(plain | changes))


def a_listing(machine: str = "77", **changes: Any) -> ListedOffer:
    """An H100 at vast.ai, as the history knows it."""
    plain = {"provider": "vastai", "offer_id": machine, "machine_id": machine, "gpu": "H100 SXM", "gpu_family": "H100"}
    return ListedOffer(**{**plain, "gpu_count": 1, "spot": False} | changes)


def a_price_row(at_s: int, offer_key: str = "", **changes: Any) -> PriceRow:
    """A row of a file: of one H100 at vast.ai for a dollar; without a key, a poll."""
    plain = {"provider": "vastai", "gpu_wire": "H100 SXM", "gpu_count": int(bool(offer_key)), "spot": False}
    return PriceRow(**{**plain, "at_s": at_s, "offer_key": offer_key, "listed_microusd_hour": 10**6} | changes)


def a_watch(**changes: Any) -> Watch:
    """A watch for one H100 SXM at or under 3.60 $ per GPU-hour that alerts."""
    plain: dict[str, Any] = {
        "name": "h100",
        "gpu": ("H100",),
        "gpu_names": ("H100 SXM", "H100 PCIe", "H100 NVL"),
        "max_price_usd_gpu_hour": Decimal("3.60"),
    }
    return Watch(**(plain | changes))


def a_match(offer: Offer | None = None, disk_gb: float | None = None, commission: str = "0.20") -> Match:
    """An offer with its price, including 20 % commission."""
    offer = an_offer() if offer is None else offer
    return Match(offer, price_of(offer, disk_gb, Commission(commission)))


def seen_at(match: Match, at: datetime) -> Match:
    """The match as an answer at that moment shows it."""
    return msgspec.structs.replace(match, offer=msgspec.structs.replace(match.offer, observed_at=at))


def changed(value: Any, **changes: Any) -> Any:
    """Return a copy with other fields."""
    return msgspec.structs.replace(value, **changes)


def shared_gpu_names() -> list[CatalogGpu]:
    """Spellings that several cards of the catalogue share: "H100", "A100 80GB", "V100 16GB"."""
    spellings = {spelling for gpu in catalog().gpus() for spelling in gpu.spellings}
    names = {name for spelling in spellings for name in catalog().wanted(spelling)}
    found = [catalog().get(name) for name in sorted(names)]
    return [gpu for gpu in found if gpu and gpu.members]
