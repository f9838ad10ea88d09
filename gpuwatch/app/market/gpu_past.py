"""The last 30 days of one GPU name: its rank, hourly prices for advice and calendar, changes, lifetimes. With numpy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.history.past_prices import commission_rates, known_gpu_names_of
from gpuwatch.app.market.market import MarketRequest, market_overview
from gpuwatch.app.market.market_ranks import RANK_DAYS, GpuRank, rank_of
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.queries.gpu_lows import GpuLows, read_gpu_lows

if TYPE_CHECKING:
    from gpuwatch.domain.history.gpu_status import GpuStatus
    from gpuwatch.domain.history.nonparametric import SurvivalCurve
    from gpuwatch.settings import Settings


class LifetimeStep(msgspec.Struct, frozen=True, kw_only=True):
    """From so many seconds on, this share of the offers is still on sale, with its 95 % interval."""

    seconds: float
    share: float
    low: float
    high: float


class GpuPast(msgspec.Struct, frozen=True, kw_only=True):
    """The past of one GPU name.

    Attributes:
        gpus: the canonical names.
        statuses: of each model with that name that was polled.
        series: the lowest price of each hour that is over, commission included.
    """

    gpus: tuple[str, ...]
    statuses: Sequence[GpuStatus]
    rank: GpuRank
    series: PriceSeries


def gpu_past(
    settings: Settings, gpu: str, scope: MarketFilter, now: datetime, under_usd: float | None = None
) -> GpuPast:
    """The past of a GPU name.

    Args:
        scope: without GPUs: they come from `gpu`.
        under_usd: the price of the lifetimes; None: the median price.

    Raises:
        UsageError: no GPU has this name.
        StoreError: the store cannot be read.
    """
    gpus = known_gpu_names_of(settings, gpu, None)
    hours = RANK_DAYS * 24
    rates = {name: 1 + rate for name, rate in commission_rates(settings).items()}
    with open_store_read_only(settings) as database:
        found, end_hour = read_gpu_lows(
            database, msgspec.structs.replace(scope, gpus=gpus), int(now.timestamp()) // HOUR_S, hours, hours, rates
        )
    lows: dict[int, int] = {}
    for one in found.values():
        for hour, price in one.lows.items():
            lows[hour] = min(price, lows.get(hour, price))
    whole = range(end_hour - hours, end_hour)
    unpolled = frozenset(whole).intersection(*(one.unpolled for one in found.values())) - lows.keys()
    since = now - timedelta(days=RANK_DAYS)
    request = MarketRequest(gpus=(gpu,), scope=scope, since=since, until=now, data=None, under_usd=under_usd)
    first = min((hour for hour in whole if hour not in unpolled), default=end_hour)
    return GpuPast(
        gpus=gpus,
        statuses=market_overview(settings, request).rows,
        rank=rank_of(GpuLows(lows, unpolled), end_hour),
        series=PriceSeries(
            first_hour=first,
            lows=[lows.get(hour) for hour in range(first, end_hour)],
            polled=[hour not in unpolled for hour in range(first, end_hour)],
            source="the store",
        ),
    )


def with_price_of_now(series: PriceSeries, price: float | None) -> PriceSeries:
    """The series with the current hour, in which the price is that of now."""
    return msgspec.structs.replace(
        series, lows=[*series.lows, None if price is None else round(price)], polled=[*series.polled, True]
    )


def lifetime_steps(curve: SurvivalCurve) -> list[LifetimeStep]:
    """The curve as steps."""
    columns = zip(curve.times_s, curve.survival, curve.low, curve.high, strict=True)
    return [LifetimeStep(seconds=at_s, share=share, low=low, high=high) for at_s, share, low, high in columns]


def share_seen(curve: SurvivalCurve, every_s: float) -> float:
    """The share of such offers that polls at this interval see: a shorter lifetime is seen by chance."""
    return min(1.0, curve.mean_up_to(every_s) / every_s) if every_s > 0 else 1.0
