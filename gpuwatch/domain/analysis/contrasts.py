"""Hours of a price series beside each other: one part of the day or week against the rest of the same day or week.

Prices stand for days and then jump. So no hour is compared with one far away: each row (24 or 168 hours on end) is
judged for itself, by least squares with a straight line and a step where the part begins and ends. What the price does
from row to row does not enter; the rows are the sample.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.analysis.price_series import HOUR_S, PriceSeries
from gpuwatch.domain.analysis.resampling import Floats

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

DAY, WEEK = 24, 168
_KNOWN = 0.75  # of its hours, else a row or a window is left out
_NOTHING = 1e-9  # rounding
_SHORT = 12  # the first and the last row may be shorter by one part in so many
_TELLING = 0.25  # of what a full row tells, for every turn of the clock that is looked at


class HourlyLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Natural logarithms of the lowest prices, NaN where there is none, and the local hour of the week of each."""

    logs: Floats
    labels: Ints  # 0 is Monday 00:00
    days: Ints  # local days since 1970


def hourly_logs(series: PriceSeries, zone: tzinfo) -> HourlyLogs:
    """A series on the local clock. Where the zone is half an hour off, an hour belongs to the label it begins in."""
    logs = np.log(np.array([np.nan if low is None else float(low) for low in series.lows], dtype=np.float64))
    local = [datetime.fromtimestamp((series.first_hour + at) * HOUR_S, UTC).astimezone(zone) for at in range(len(logs))]
    labels = np.array([one.weekday() * DAY + one.hour for one in local], dtype=np.int64)
    days = np.array([one.toordinal() for one in local], dtype=np.int64) - datetime(1970, 1, 1, tzinfo=UTC).toordinal()
    return HourlyLogs(logs=logs, labels=labels, days=days)


def rotated_contrasts(hours: HourlyLogs, mask: Bools, period: int, fewest: int) -> Floats:
    """Row × turn → how much dearer (in logarithms) the masked part is than the rest of its row.

    Args:
        mask: 168 hours of the week.
        period: of a row; 24: turned hour by hour, 168: not turned, there is one column.
        fewest: rows that must stay if the beginning of the rows is chosen well.
    """
    logs, labels = _padded(hours, period // _SHORT)
    inside = mask[labels].astype(np.float64)
    start = _best_start(inside, ~np.isnan(logs), period, fewest)
    rows = (len(inside) - start) // period
    if rows < 1:
        return np.empty((0, 1))
    cut = slice(start, start + rows * period)
    turns = range(DAY if period == DAY else 1)
    found = _fits(logs[cut].reshape(rows, period), inside[cut].reshape(rows, period), turns)
    found[np.abs(found) < _NOTHING] = 0.0
    return found[~np.isnan(found).any(1)]


def _padded(hours: HourlyLogs, more: int) -> tuple[Floats, Ints]:
    """With unknown hours before and behind: a first or last row of which little is missing is a row."""
    if not len(hours.logs):
        return hours.logs, hours.labels
    before = (hours.labels[0] + np.arange(-more, 0)) % WEEK
    behind = (hours.labels[-1] + np.arange(1, more + 1)) % WEEK
    return np.pad(hours.logs, more, constant_values=np.nan), np.concatenate([before, hours.labels, behind])


def _best_start(inside: Floats, known: Bools, period: int, fewest: int) -> int:
    """Where rows begin so that together they tell most: the part in the middle, few hours lost."""
    found: list[tuple[int, float]] = []
    for first in range(min(period, max(0, len(inside) - period + 1))):
        end = first + (len(inside) - first) // period * period
        rows = int(np.sum(known[first:end].reshape(-1, period).sum(1) >= _KNOWN * period))
        found.append((rows, rows * _told(inside[first : first + period])))
    most = max((rows for rows, _ in found), default=0)
    told = [round(told, 9) if rows >= min(most, fewest) else -1.0 for rows, told in found]
    return told.index(max(told)) if told else 0


def _told(inside: Floats) -> float:
    """The sum of squares of a step that no straight line takes away."""
    line = np.arange(len(inside)) - (len(inside) - 1) / 2
    step = inside - inside.mean()
    return float(step @ step - (step @ line) ** 2 / (line @ line))


def _fits(logs: Floats, inside: Floats, turns: range) -> Floats:
    """Least squares of each row on a constant, a straight line and the part, for each turn; NaN: too little known."""
    known = ~np.isnan(logs)
    weight, price = known.astype(np.float64), np.where(known, logs, 0.0)
    is_long = known.sum(1) >= _KNOWN * logs.shape[1]
    found = []
    for turn in turns:
        part = np.roll(inside, turn, axis=1)
        left = _bent(part, weight)
        told, full = (left * left).sum(1), (_bent(part, np.ones_like(weight)) ** 2).sum(1)
        is_good = is_long & (told > np.maximum(_TELLING * full, 1e-9))
        found.append(np.where(is_good, (left * price).sum(1) / np.where(is_good, told, 1.0), np.nan))
    return np.stack(found, 1)


def _bent(part: Floats, weight: Floats) -> Floats:
    """What of each row no constant and no straight line explains; weights are 0 or 1."""
    flat = weight.copy()
    line = _without(np.arange(part.shape[1]) * weight, flat)
    return _without(_without(part * weight, flat), line)


def _without(values: Floats, of: Floats) -> Floats:
    size = (of * of).sum(1, keepdims=True)
    left: Floats = values - of * ((values * of).sum(1, keepdims=True) / np.where(size > 0, size, 1.0))
    return left


def day_profiles(hours: HourlyLogs) -> Floats:
    """Row × hour of the local day → its price against the mean of the 24 hours around it (in logarithms).

    That is the classical decomposition: a centred moving average of one period takes level and trend away, and leaves
    what repeats by day as it is. Hours without a price count as 0: they say nothing either way.
    """
    around = hours.logs - moving_average(hours.logs, DAY)
    rows = len(around) // DAY
    around, labels = around[len(around) - rows * DAY :].reshape(rows, DAY), hours.labels[len(around) - rows * DAY :]
    found = np.zeros((rows, DAY))
    np.put_along_axis(found, labels.reshape(rows, DAY) % DAY, np.nan_to_num(around), axis=1)
    found[np.abs(found) < _NOTHING] = 0.0
    kept: Floats = found[(~np.isnan(around)).sum(1) >= _KNOWN * DAY]
    return kept


def daily_pattern(hours: HourlyLogs) -> Floats:
    """The mean of each hour of the local day against the 24 hours around it, of those that are known; else 0."""
    around = hours.logs - moving_average(hours.logs, DAY)
    known = ~np.isnan(around)
    count = np.bincount(hours.labels[known] % DAY, minlength=DAY)
    found = np.bincount(hours.labels[known] % DAY, weights=around[known], minlength=DAY) / np.maximum(count, 1)
    found[np.abs(found) < _NOTHING] = 0.0
    return found


def without_daily_pattern(hours: HourlyLogs) -> HourlyLogs:
    """The same without what repeats by day: whole days are then compared, however many nights of each are known."""
    return msgspec.structs.replace(hours, logs=hours.logs - daily_pattern(hours)[hours.labels % DAY])


def moving_average(values: Floats, period: int) -> Floats:
    """The centred mean of a period, of the hours that are known; NaN where too few are; at the ends, the nearest."""
    if len(values) <= period:
        return np.full(len(values), np.nan)
    weights = np.ones(period + 1)
    weights[[0, -1]] = 0.5
    known = ~np.isnan(values)
    count = np.convolve(known.astype(np.float64), weights, "valid")
    total = np.convolve(np.where(known, values, 0.0), weights, "valid")
    found = np.where(count >= _KNOWN * period, total / np.maximum(count, 1.0), np.nan)
    return np.concatenate([np.full(period // 2, found[0]), found, np.full(period // 2, found[-1])])
