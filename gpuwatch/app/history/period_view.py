"""The prices of a period as other programs see them. The history itself loads numpy: the API's document does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number

if TYPE_CHECKING:
    from gpuwatch.domain.history.price_series import PricePeriod


class PeriodView(JsonView, frozen=True, kw_only=True):
    """The prices of a period; null: no offers, or (`looked` false) unknown. Prices include the commission."""

    starts_at: Moment
    looked: bool
    offers: int
    min_price_usd_gpu_hour: float | None
    min_listed_usd_gpu_hour: float | None
    q1_listed_usd_gpu_hour: float | None
    median_listed_usd_gpu_hour: float | None
    q3_listed_usd_gpu_hour: float | None
    q1_price_usd_gpu_hour: float | None
    median_price_usd_gpu_hour: float | None
    q3_price_usd_gpu_hour: float | None
    hours: int
    known_hours: int


class GpuPeriodView(PeriodView, frozen=True, kw_only=True):
    """The prices of one GPU in a period."""

    gpu: str


def period_fields(point: PricePeriod) -> dict[str, Any]:
    """The fields of a `PeriodView` that the period has not under their names."""
    prices: dict[str, float | None] = {}
    for name in ("min", "q1", "median", "q3"):
        prices[f"{name}_listed_usd_gpu_hour"] = usd_number(getattr(point, f"{name}_microusd"))
        prices[f"{name}_price_usd_gpu_hour"] = usd_number(getattr(point, f"{name}_with_commission_microusd"))
    return {"looked": point.polled, **prices}
