"""One GPU of the market as other programs see it; apart from what computes it, which loads numpy."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gpuwatch.domain.market.json_view import JsonView, Moment


class GpuStatusView(JsonView, frozen=True, kw_only=True):
    """One GPU of `gpuwatch market`; null: unknown."""

    gpu: str
    looked_at: Moment
    imported: Annotated[bool, Meta(description="The prices are those of an import.")]
    price_usd_gpu_hour: Annotated[float | None, Meta(description="Commission included.")]
    change_24h: float | None
    change_7d: float | None
    change_30d: float | None
    percentile: Annotated[float | None, Meta(description="0: cheaper than ever.")]
    known_hours: int
    offers: int
    under_usd_gpu_hour: Annotated[float | None, Meta(description="The price of the lifetimes.")]
    life_median_seconds: float | None
    life_median_low_seconds: float | None
    life_median_high_seconds: float | None
    life_samples: int
    life_ended: int
    seen_offers: Annotated[int, Meta(description="Different offers since the start of the time asked for.")]
    away_share: Annotated[
        float | None,
        Meta(description="Of the time between the first and last sight of each offer: rented, or off the market."),
    ]
    new_offers_per_day: float | None
    gone_offers_per_day: float | None
