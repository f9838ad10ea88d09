"""Judges a statement of future prices by the prices that came."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np

from gpuwatch.domain.analysis.optimal_stopping import PricePath, price_path_of, rule_costs
from gpuwatch.domain.analysis.outcomes import Numbers
from gpuwatch.domain.analysis.price_forecasts import ForecastOutcome, ForecastScore, PriceForecast
from gpuwatch.domain.analysis.price_series import PriceSeries, cut_series

LATER_OFFER_WITHIN = timedelta(days=7)  # after a deadline with nothing on offer; then the highest price counts


def score(made: PriceForecast, series: PriceSeries, now: datetime) -> ForecastScore | None:
    """What came of a statement; None: that is not known yet.

    Args:
        series: the prices from the hour of the statement up to now, or longer.
    """
    if now < made.due_at + timedelta(hours=1):  # the hour of the deadline must be over
        return None
    path = price_path_of(cut_series(series, int(made.made_at.timestamp()) // 3600))
    if len(path.polled) <= made.hours or not path.polled[made.hours]:
        return ForecastScore(outcome=ForecastOutcome.UNKNOWN)
    if made.cap_usd is not None:
        path = msgspec.structs.replace(path, prices=np.where(path.prices <= made.cap_usd, path.prices, np.nan))
    offered = path.prices[: made.hours + 1]
    is_settled = made.cap_usd is not None or not np.isnan(path.prices[made.hours :]).all()
    if not is_settled and now < made.due_at + LATER_OFFER_WITHIN:
        return None
    if made.cap_usd is None and np.isnan(path.prices).all():
        return ForecastScore(outcome=ForecastOutcome.UNKNOWN)  # nothing was ever on offer: no price of a miss
    is_missed = bool(np.isnan(offered[-1])) and not _bought_before(offered, made)
    return ForecastScore(
        outcome=ForecastOutcome.MISSED if is_missed else ForecastOutcome.BOUGHT,
        paid_usd=_paid(path, [_limit(usd) for usd in made.limits_usd], made),
        at_once_usd=_paid(path, [np.inf] * (made.hours + 1), made),
        median_paid_usd=None
        if made.median_usd is None
        else _paid(path, [np.inf, *[made.median_usd] * made.hours], made),
        lowest_usd=None if np.isnan(offered).all() else float(np.nanmin(offered)),
    )


def _paid(path: PricePath, limits: Sequence[float], made: PriceForecast) -> float:
    return float(rule_costs(path, path.prices, limits, made.cap_usd)[0])


def _bought_before(offered: Numbers, made: PriceForecast) -> bool:
    limits = [_limit(usd) for usd in made.limits_usd[::-1]]
    return any(price <= limit for price, limit in zip(offered, limits, strict=True))


def _limit(usd: float | None) -> float:
    return np.inf if usd is None else usd
