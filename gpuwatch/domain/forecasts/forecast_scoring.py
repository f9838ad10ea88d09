"""Scores a forecast by the prices that came. Pure.

The outcomes are those of `wait_outcomes`: bought, missed, or unknown because no poll covers the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np

from gpuwatch.domain.forecasts.optimal_stopping import PricePath, price_path_of, rule_costs
from gpuwatch.domain.forecasts.price_forecasts import ForecastOutcome, ForecastScore, PriceForecast
from gpuwatch.domain.forecasts.wait_outcomes import Numbers
from gpuwatch.domain.history.price_series import (
    PriceSeries,
    cut_series,
)
from gpuwatch.domain.setup.durations import HOUR_S

LATER_OFFER_WITHIN = timedelta(days=7)  # after a deadline without offers; then the highest price counts


def score(made: PriceForecast, series: PriceSeries, now: datetime) -> ForecastScore | None:
    """The outcome of a forecast; None: it is not known yet.

    Args:
        series: the prices from the hour of the forecast up to now, or longer.
    """
    if now < made.due_at + timedelta(hours=1):  # the hour of the deadline must be over
        return None
    path = _path_since(made, series)
    if len(path.polled) <= made.steps or not path.polled[made.steps]:
        return ForecastScore(outcome=ForecastOutcome.UNKNOWN)
    if made.cap_usd is not None:
        path = msgspec.structs.replace(path, prices=np.where(path.prices <= made.cap_usd, path.prices, np.nan))
    offered = path.prices[: made.steps + 1]
    is_settled = made.cap_usd is not None or not np.isnan(path.prices[made.steps :]).all()
    if not is_settled and now < made.due_at + LATER_OFFER_WITHIN:
        return None
    if made.cap_usd is None and np.isnan(path.prices).all():
        return ForecastScore(outcome=ForecastOutcome.UNKNOWN)  # nothing was ever on offer, so a miss has no price
    is_missed = bool(np.isnan(offered[-1])) and not _bought_before(offered, made)
    return ForecastScore(
        outcome=ForecastOutcome.MISSED if is_missed else ForecastOutcome.BOUGHT,
        paid_usd=_paid(path, [_limit(usd) for usd in made.limits_usd], made),
        at_once_usd=_paid(path, [np.inf] * (made.steps + 1), made),
        median_paid_usd=None
        if made.median_usd is None
        else _paid(path, [np.inf, *[made.median_usd] * made.steps], made),
        lowest_usd=None if np.isnan(offered).all() else float(np.nanmin(offered)),
    )


def _path_since(made: PriceForecast, series: PriceSeries) -> PricePath:
    """The prices from the forecast on, in its own step; the first entry is that of the forecast."""
    hour = int(made.made_at.timestamp()) // HOUR_S
    series = cut_series(series, hour)
    unknown_h = max(0, min(series.first_hour - hour, made.hours + 1))  # no polls before the series begins
    path = price_path_of(series)
    path = PricePath(
        prices=np.append(np.full(unknown_h, np.nan), path.prices),
        polled=np.append(np.zeros(unknown_h, bool), path.polled),
    )
    if made.step_h == 1:
        return path
    whole = (len(path.prices) - 1) // made.step_h
    prices, polled = (
        one[1 : 1 + whole * made.step_h].reshape(whole, made.step_h) for one in (path.prices, path.polled)
    )
    lows = np.where(np.isnan(prices), np.inf, prices).min(axis=1)
    now = np.nan if made.now_usd is None else made.now_usd
    return PricePath(
        prices=np.append(now, np.where(np.isinf(lows), np.nan, lows)), polled=np.append(True, polled.any(axis=1)), day=1
    )


def _paid(path: PricePath, limits: Sequence[float], made: PriceForecast) -> float:
    return float(rule_costs(path, path.prices, limits, made.cap_usd)[0])


def _bought_before(offered: Numbers, made: PriceForecast) -> bool:
    limits = [_limit(usd) for usd in made.limits_usd[::-1]]
    return any(price <= limit for price, limit in zip(offered, limits, strict=True))


def _limit(usd: float | None) -> float:
    return np.inf if usd is None else usd
