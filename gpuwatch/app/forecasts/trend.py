"""How a GPU's rent changes over the years: public quarterly prices and the owner's own history."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import commission_rates, gpu_names_of
from gpuwatch.app.history.recorded_prices import RECORDED
from gpuwatch.bootstrap import open_history, real_now
from gpuwatch.domain.forecasts.long_trend import (
    A_YEAR,
    LEAST_QUARTERS,
    TREND_METHOD_TEXT,
    PriceTrend,
    QuarterPrice,
    parse_quarter,
    price_trend,
    quarter_text,
)
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.errors import StoreMissing
from gpuwatch.storage.history.queries.history_queries import newest_prices, read_price_periods

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_FILE = files("gpuwatch.app.forecasts") / "long-prices.csv"
_LEAST_WEEKS = 4  # of a quarter: fewer may be an unusual time of it
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_MICRO = 1e6


class TrendResult(msgspec.Struct, frozen=True, kw_only=True):
    """The trend of one GPU and rental type, with the prices that it rests on."""

    gpu: str
    spot: bool
    trend: PriceTrend | None  # None: too few quarters
    prices: tuple[QuarterPrice, ...]


@cache
def public_prices() -> tuple[QuarterPrice, ...]:
    """The public series that come with gpuwatch; `tools/long_prices.py` says what they are."""
    lines = (line for line in _FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(
        QuarterPrice(
            row["source"], row["spot"] == "yes", row["gpu"], parse_quarter(row["quarter"]), float(row["usd_gpu_hour"])
        )
        for row in csv.DictReader(lines)
    )


def long_trends(settings: Settings, gpu: str | None, *, spot: bool, own: bool = False) -> list[TrendResult]:
    """The trend of a GPU, or of each one with enough quarters.

    Args:
        gpu: a name or a family, whose series count together; None: all GPUs.
        own: without the public series.

    Raises:
        UsageError: no GPU has this name.
        StoreError: the store exists and cannot be read.
    """
    names = None if gpu is None else gpu_names_of(gpu)
    prices = [*own_prices(settings, names, spot=spot), *(() if own else public_prices())]
    if gpu is not None and names is not None:
        return [_result(prices, gpu, names, spot=spot)]
    known = sorted({price.gpu for price in prices if price.spot is spot})
    return [one for name in known if (one := _result(prices, name, (name,), spot=spot)).trend is not None]


def _result(prices: Collection[QuarterPrice], gpu: str, names: Collection[str], *, spot: bool) -> TrendResult:
    of_gpu = tuple(sorted(price for price in prices if price.gpu in names and price.spot is spot))
    shown = names[0] if isinstance(names, tuple) and len(names) == 1 else gpu
    return TrendResult(gpu=shown, spot=spot, trend=price_trend(prices, names, spot=spot), prices=of_gpu)


def own_prices(settings: Settings, gpus: tuple[str, ...] | None, *, spot: bool) -> list[QuarterPrice]:
    """The median price of each quarter, provider and GPU in the store; empty: there is no store."""
    now = real_now()
    try:
        with open_history(settings, MarketFilter(gpus=gpus, spot=spot), _FIRST, now, needs_prices=False) as database:
            found = {(name.removesuffix(":history"), gpu) for name, gpu, _ in newest_prices(database, gpus)}
            own = sorted(one for one in found if one[0].partition(":")[0] != RECORDED)
            rates = {name: 1 + rate for name, rate in commission_rates(settings).items()}
            return [
                QuarterPrice(f"your {name}", spot, gpu, quarter, usd)
                for name, gpu in own
                for quarter, usd in _quarters(database, MarketFilter(gpus=(gpu,), provider=name, spot=spot), now, rates)
            ]
    except StoreMissing:
        return []


def _quarters(
    database: Database, scope: MarketFilter, now: datetime, rates: dict[str, float]
) -> Iterator[tuple[int, float]]:
    found = read_price_periods(database, scope, (_FIRST, now), spans=(PeriodLength.WEEK, UTC), rates=rates, trim=True)
    weeks: dict[int, list[float]] = defaultdict(list)
    for point in found.points:
        if (microusd := point.median_with_commission_microusd) is not None:
            at = point.starts_at
            weeks[at.year * A_YEAR + (at.month - 1) // 3].append(microusd / _MICRO)
    return ((quarter, median(prices)) for quarter, prices in weeks.items() if len(prices) >= _LEAST_WEEKS)


def trend_sentence(result: TrendResult) -> str:
    """The trend in one plain sentence."""
    kind, trend = ("spot" if result.spot else "on-demand"), result.trend
    if trend is None:
        return f"Too few prices of {result.gpu}: a trend needs {LEAST_QUARTERS} quarters, {kind}."
    change = "did not change"
    if trend.drift:
        change = f"{'fell' if trend.drift < 0 else 'rose'} {100 * abs(trend.a_year):.1f} %"
    chance = ", which may be chance" if trend.drift and trend.low < 0 < trend.high else ""
    return (
        f"The {kind} price of {result.gpu} {change} a year{chance} (95 % interval {interval_text(trend)}; "
        f"{count_text(trend.quarters, 'quarter')} of {count_text(trend.series, 'series', 'series')}, "
        f"{quarter_text(trend.first)} to {quarter_text(trend.last)})."
    )


LIST_PRICES_TEXT = (
    "public series are mostly list prices of clouds; marketplaces fell further and rose again (docs/trend.md): "
    "where you rent there, your own history counts (--own)"
)


def interval_text(trend: PriceTrend) -> str:
    """The 95 % interval of the change a year: "-12.5 % to +0.5 %"."""
    return f"{100 * trend.low:+.1f} % to {100 * trend.high:+.1f} %"


def trend_json(results: Sequence[TrendResult]) -> dict[str, Any]:
    """JSON of `gpuwatch forecasts trend`."""
    return {"method": TREND_METHOD_TEXT, "trends": [_trend_json(result) for result in results]}


def _trend_json(result: TrendResult) -> dict[str, Any]:
    trend = result.trend
    return {
        "gpu": result.gpu,
        "spot": result.spot,
        "sentence": trend_sentence(result),
        "percent_a_year": trend and 100 * trend.a_year,
        "percent_a_year_low": trend and 100 * trend.low,
        "percent_a_year_high": trend and 100 * trend.high,
        "quarters": 0 if trend is None else trend.quarters,
        "series": 0 if trend is None else trend.series,
        "samples": 0 if trend is None else trend.changes,
        "since": trend and quarter_text(trend.first),
        "until": trend and quarter_text(trend.last),
        "prices": [
            {
                "source": price.source,
                "gpu": price.gpu,
                "quarter": quarter_text(price.quarter),
                "price_usd_gpu_hour": price.usd_gpu_hour,
            }
            for price in result.prices
        ],
    }
