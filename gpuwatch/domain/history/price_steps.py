"""Slow markets: prices that are polled once a day or once a week, as series with a step of that length.

The result of a poll counts for three hours. If polls are a day apart, seven of eight hours are unknown, and no wait
could be followed hour by hour. By the day, nothing is missing and nothing is invented.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from statistics import median

import msgspec

from gpuwatch.domain.history.price_series import HOUR_S, POLL_LASTS_S, PriceSeries

STEPS_H = {"hour": 1, "day": 24, "week": 168}
_LONGEST_STRETCH_H = 2 * POLL_LASTS_S // HOUR_S  # mean run of known hours; longer runs come from hourly polls
LEAST_KNOWN_SHARE = 0.25  # of the entries of a series; with fewer, too much is unknown (assumed)


def step_name(step_h: int) -> str:
    """Return "hour", "day" or "week"."""
    return next(name for name, hours in STEPS_H.items() if hours == step_h)


def on_own_step(series: PriceSeries) -> PriceSeries:
    """The series by the hour, if polls cover a quarter of all hours; otherwise by the day or the week.

    At least half of the polls must come within four steps of the previous one. The series stays hourly if they do not,
    even by the week, or if it is an hourly history with long gaps.
    """
    starts = [
        hour for hour, is_known in enumerate(series.polled) if is_known and not (hour and series.polled[hour - 1])
    ]
    if series.known >= LEAST_KNOWN_SHARE * len(series.polled) or series.known > _LONGEST_STRETCH_H * len(starts):
        return series
    spacing = median(later - one for one, later in pairwise(starts)) if len(starts) > 1 else inf
    steps = (step_h for step_h in STEPS_H.values() if LEAST_KNOWN_SHARE * spacing <= step_h)
    return with_step(series, next(steps, 1))


def with_step(series: PriceSeries, step_h: int) -> PriceSeries:
    """The lowest price of each step, counted back from the newest hour; the last entry is the newest price."""
    hours = len(series.polled)
    if step_h == 1 or not hours:
        return series
    ends = range(hours, 0, -step_h)[::-1]
    parts = [slice(max(0, end - step_h), end) for end in ends]
    lows = [min((low for low in series.lows[part] if low is not None), default=None) for part in parts]
    newest = max((at for at, is_known in enumerate(series.polled) if is_known), default=hours - 1)
    if newest >= hours - step_h:
        lows[-1] = series.lows[newest]
    return msgspec.structs.replace(
        series,
        first_hour=series.first_hour + hours - len(parts) * step_h,
        lows=lows,
        polled=[any(series.polled[part]) for part in parts],
        step_h=step_h,
    )
