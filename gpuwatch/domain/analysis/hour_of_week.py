"""The median price of each hour of the local week, each with an interval."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.analysis.contrasts import WEEK, HourlyLogs
from gpuwatch.domain.analysis.resampling import Floats

_DRAWS = 500
_FEWEST_WEEKS = 3  # for an interval
_CHUNK = 2_000_000


class HourOfWeekPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of the week, in micro-dollars per GPU-hour. None: nobody knows, or too few weeks for an interval."""

    weekday: int  # 0 is Monday
    hour: int
    median_microusd: float | None
    low_microusd: float | None
    high_microusd: float | None
    weeks: int  # in which its price is known


def hour_of_week_prices(hours: HourlyLogs, seed: int) -> list[HourOfWeekPrice]:
    """All 168 of them; intervals of 95 % by drawing whole weeks again (percentiles of the bootstrap)."""
    weeks = _by_week(hours)
    counts = (~np.isnan(weeks)).sum(0)
    medians, lows, highs = _medians(weeks, seed)
    return [
        HourOfWeekPrice(
            weekday=at // 24,
            hour=at % 24,
            median_microusd=_price(medians[at]),
            low_microusd=_price(lows[at]) if counts[at] >= _FEWEST_WEEKS else None,
            high_microusd=_price(highs[at]) if counts[at] >= _FEWEST_WEEKS else None,
            weeks=int(counts[at]),
        )
        for at in range(WEEK)
    ]


def _by_week(hours: HourlyLogs) -> Floats:
    """Local week × hour of the week, in logarithms; of an hour that the clock passes twice, the later."""
    number = (hours.days + 3) // 7  # 1970 began on a Thursday
    found = np.full((int(number[-1] - number[0]) + 1 if len(number) else 1, WEEK), np.nan)
    if len(number):
        found[number - number[0], hours.labels] = hours.logs
    return found


def _medians(weeks: Floats, seed: int) -> tuple[Floats, Floats, Floats]:
    """Column medians, and their intervals: a draw of weeks is how often each counts."""
    order = np.argsort(weeks, axis=0)  # NaN last
    ranked = np.take_along_axis(weeks, order, 0)
    known = ~np.isnan(ranked)
    count = len(weeks)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), _DRAWS)
    drawn = []
    for start in range(0, _DRAWS, max(1, _CHUNK // weeks.size)):
        times = draws[start : start + max(1, _CHUNK // weeks.size)]
        drawn.append(_weighted(ranked, times[:, order] * known))
    own = _weighted(ranked, known[None].astype(np.int64))[0]
    spread = np.sort(np.concatenate(drawn), axis=0)  # NaN last: draws without a known week
    valid = (~np.isnan(spread)).sum(0)
    low, high = (np.floor(np.maximum(valid - 1, 0) * share + 0.5).astype(int) for share in (0.025, 0.975))
    columns = np.arange(weeks.shape[1])
    return own, spread[low, columns], spread[high, columns]


def _weighted(ranked: Floats, times: NDArray[np.signedinteger[Any]]) -> Floats:
    """Medians of ranked columns whose values count so often; the mean of the middle two."""
    sums = times.cumsum(1)
    total = sums[:, -1:, :]
    lower = (sums * 2 >= np.maximum(total, 1)).argmax(1)
    upper = (sums * 2 > total).argmax(1)
    columns = np.arange(ranked.shape[1])
    found = (ranked[lower, columns] + ranked[upper, columns]) / 2
    return np.where(total[:, 0, :] > 0, found, np.nan)


def _price(log: float) -> float | None:
    return None if np.isnan(log) else float(np.exp(log))
