"""Offers and answers for tests of the store; a test names only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength, PricePeriod
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.ports import Answer, Completeness

if TYPE_CHECKING:
    from gpuwatch.storage.setup.database import Database

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
    """A market's answer, this many seconds after noon."""
    plain: dict[str, Any] = {
        "provider": "vastai",
        "observed_at": NOON + timedelta(seconds=after_s),
        "offers": offers,
        "completeness": Completeness.COMPLETE,
        "rows": len(offers),
    }
    return Answer(**(plain | changed))


def machines(offers: Sequence[Any]) -> dict[str, int]:
    """Return machine → listed price of the offers."""
    return {offer.identity.machine_id: offer.listed_microusd_hour() for offer in offers}


def on_demand(*gpus: str, provider: str | None = None) -> MarketFilter:
    """A part of the market without interruptible offers."""
    return MarketFilter(gpus=gpus, provider=provider, spot=False)


def price_track(
    database: Database,
    scope: MarketFilter,
    since: datetime,
    now: datetime,
    *,
    day_in: tzinfo | None = None,
    commissions: Mapping[str, Commission] | None = None,
) -> list[PricePeriod]:
    """Return a point for each hour, or each day of a zone, as `gpuwatch history` shows them."""
    from gpuwatch.storage.history.queries.history_queries import read_price_periods

    rates = {name: 1 + float(commission.on_top_rate(None)) for name, commission in (commissions or {}).items()}
    spans = (PeriodLength.HOUR, UTC) if day_in is None else (PeriodLength.DAY, day_in)
    return read_price_periods(database, scope, (since, now), spans=spans, rates=rates).points
