"""Patterns of a price series by hour of the day and of the week: comparisons within a day or week, and hourly medians.

Prices last for days and then jump, so no hour is compared with one far away. Each row (24 or 168 consecutive hours) is
judged by itself, by least squares with a straight line and a step where the part starts and ends. Changes between rows
do not matter; the rows are the sample.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.history.nonparametric import Floats
from gpuwatch.domain.history.poll_timeline import Flags, Ints
from gpuwatch.domain.history.price_series import PriceSeries

DAY, WEEK = 24, 168
_KNOWN = 0.75  # share of the hours that must be known; otherwise a row or a window is left out
_ROUNDING = 1e-9
_SHORT = 12  # the first and the last row may lack 1/12 of their hours
_MIN_INFORMATION = 0.25  # share of a full row's information, for every rotation

_DRAWS = 500
_MIN_WEEKS = 3  # for an interval
_CHUNK = 2_000_000


class HourlyLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Natural logarithms of the lowest prices (NaN: no price), and the local hour of the week of each."""

    logs: Floats
    labels: Ints  # 0 is Monday 00:00
    days: Ints  # local days since 1970


def hourly_logs(series: PriceSeries, zone: tzinfo) -> HourlyLogs:
    """Place a series on the local clock: an hour belongs to the local hour it starts in."""
    logs = np.log(np.array([np.nan if low is None else float(low) for low in series.lows], dtype=np.float64))
    local = [series.starts_at(at).astimezone(zone) for at in range(len(logs))]
    labels = np.array([one.weekday() * DAY + one.hour for one in local], dtype=np.int64)
    days = np.array([one.toordinal() for one in local], dtype=np.int64) - datetime(1970, 1, 1, tzinfo=UTC).toordinal()
    return HourlyLogs(logs=logs, labels=labels, days=days)


def rotated_contrasts(hours: HourlyLogs, mask: Flags, compared: Flags, period: int, fewest: int) -> Floats:
    """Row × rotation → how much more expensive (in logarithms) the masked part is than the rest of its row.

    Args:
        mask: 168 hours of the week.
        compared: the hours that count; all others are treated as unknown.
        period: length of a row; 24: rotated hour by hour; 168: not rotated, one column.
        fewest: the number of rows to keep when choosing where rows start.
    """
    logs, labels = _padded(hours, period // _SHORT)
    wanted = compared[labels]
    inside = (mask[labels] & wanted).astype(np.float64)
    start = _best_start(inside, ~np.isnan(logs) & wanted, wanted, period, fewest)
    rows = (len(inside) - start) // period
    if rows < 1:
        return np.empty((0, 1))
    cut = slice(start, start + rows * period)
    rotations = range(DAY if period == DAY else 1)
    shape = (rows, period)
    found = _fits(logs[cut].reshape(shape), inside[cut].reshape(shape), wanted[cut].reshape(shape), rotations)
    found[np.abs(found) < _ROUNDING] = 0.0
    return found[~np.isnan(found).any(1)]


def _padded(hours: HourlyLogs, more: int) -> tuple[Floats, Ints]:
    """Add unknown hours at both ends, so that a first or last row that lacks few hours counts."""
    if not len(hours.logs):
        return hours.logs, hours.labels
    before = (hours.labels[0] + np.arange(-more, 0)) % WEEK
    after = (hours.labels[-1] + np.arange(1, more + 1)) % WEEK
    return np.pad(hours.logs, more, constant_values=np.nan), np.concatenate([before, hours.labels, after])


def _best_start(inside: Floats, known: Flags, wanted: Flags, period: int, fewest: int) -> int:
    """The row start with the most information: the part in the middle, few hours lost."""
    found: list[tuple[int, float]] = []
    for first in range(min(period, max(0, len(inside) - period + 1))):
        end = first + (len(inside) - first) // period * period
        counted = wanted[first:end].reshape(-1, period)
        is_long = _is_long(known[first:end].reshape(-1, period), counted)
        part = inside[first:end].reshape(-1, period)
        information = np.where(is_long, _information(part, counted.astype(np.float64)), 0.0)
        information = information[information > _MIN_INFORMATION * information.max(initial=0.0)]
        found.append((len(information), float(information.sum())))
    most = max((rows for rows, _ in found), default=0)
    scores = [round(score, 9) if rows >= min(most, fewest) else -1.0 for rows, score in found]
    return scores.index(max(scores)) if scores else 0


def _is_long(known: Flags, wanted: Flags) -> Flags:
    """The rows that have a price in enough of the hours that count."""
    counted = wanted.sum(1)
    found: Flags = (counted > 0) & (known.sum(1) >= _KNOWN * counted)
    return found


def _information(inside: Floats, weight: Floats) -> Floats:
    """The sum of squares of each row's step that a constant and a straight line do not explain."""
    found: Floats = (_residual(inside, weight) ** 2).sum(1)
    return found


def _fits(logs: Floats, inside: Floats, wanted: Flags, rotations: range) -> Floats:
    """Least squares of each row on a constant, a straight line and the part, per rotation; NaN: too few known hours."""
    known = ~np.isnan(logs) & wanted
    weight, price = known.astype(np.float64), np.where(known, logs, 0.0)
    is_long = _is_long(known, wanted)
    found = []
    for rotation in rotations:
        part = np.roll(inside, rotation, axis=1)
        left = _residual(part, weight)
        information, of_whole_rows = (left * left).sum(1), _information(part, np.ones_like(weight)).max()
        is_good = is_long & (information > max(_MIN_INFORMATION * of_whole_rows, 1e-9))
        found.append(np.where(is_good, (left * price).sum(1) / np.where(is_good, information, 1.0), np.nan))
    return np.stack(found, 1)


def _residual(part: Floats, weight: Floats) -> Floats:
    """The part of each row that a constant and a straight line do not explain; weights are 0 or 1."""
    flat = weight.copy()
    line = _without(np.arange(part.shape[1]) * weight, flat)
    return _without(_without(part * weight, flat), line)


def _without(values: Floats, of: Floats) -> Floats:
    size = (of * of).sum(1, keepdims=True)
    left: Floats = values - of * ((values * of).sum(1, keepdims=True) / np.where(size > 0, size, 1.0))
    return left


def day_profiles(hours: HourlyLogs) -> Floats:
    """Row × hour of the local day → its price against the mean of the 24 hours around it (in logarithms).

    The classical decomposition: a centred moving average of one period removes level and trend and keeps the daily
    pattern. Hours without a price count as 0, which is neutral.
    """
    around = hours.logs - moving_average(hours.logs, DAY)
    rows = len(around) // DAY
    around, labels = around[len(around) - rows * DAY :].reshape(rows, DAY), hours.labels[len(around) - rows * DAY :]
    found = np.zeros((rows, DAY))
    np.put_along_axis(found, labels.reshape(rows, DAY) % DAY, np.nan_to_num(around), axis=1)
    found[np.abs(found) < _ROUNDING] = 0.0
    kept: Floats = found[(~np.isnan(around)).sum(1) >= _KNOWN * DAY]
    return kept


def daily_pattern(hours: HourlyLogs) -> Floats:
    """The mean of each hour of the local day, relative to the 24 hours around it; 0 if unknown."""
    around = hours.logs - moving_average(hours.logs, DAY)
    known = ~np.isnan(around)
    count = np.bincount(hours.labels[known] % DAY, minlength=DAY)
    found = np.bincount(hours.labels[known] % DAY, weights=around[known], minlength=DAY) / np.maximum(count, 1)
    found[np.abs(found) < _ROUNDING] = 0.0
    return found


def without_daily_pattern(hours: HourlyLogs) -> HourlyLogs:
    """Remove the daily pattern, so that whole days are comparable even if some of their hours are unknown."""
    return msgspec.structs.replace(hours, logs=hours.logs - daily_pattern(hours)[hours.labels % DAY])


def moving_average(values: Floats, period: int) -> Floats:
    """The centred mean of the known hours of a period; NaN if too few are known; at the ends, the nearest one."""
    if len(values) <= period:
        return np.full(len(values), np.nan)
    weights = np.ones(period + 1)
    weights[[0, -1]] = 0.5
    known = ~np.isnan(values)
    count = np.convolve(known.astype(np.float64), weights, "valid")
    total = np.convolve(np.where(known, values, 0.0), weights, "valid")
    found = np.where(count >= _KNOWN * period, total / np.maximum(count, 1.0), np.nan)
    return np.concatenate([np.full(period // 2, found[0]), found, np.full(period // 2, found[-1])])


# --- medians of the hours of the week ---------------------------------------------------------------------------------


class HourOfWeekPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of the week, in micro-dollars per GPU-hour. None: unknown, or too few weeks for an interval."""

    weekday: int  # 0 is Monday
    hour: int
    median_microusd: float | None
    low_microusd: float | None
    high_microusd: float | None
    weeks: int  # with a known price


def hour_of_week_prices(hours: HourlyLogs, seed: int) -> list[HourOfWeekPrice]:
    """All 168 hours; 95 % intervals by resampling whole weeks (percentile bootstrap)."""
    weeks = _by_week(hours)
    counts = (~np.isnan(weeks)).sum(0)
    medians, lows, highs = _medians(weeks, seed)
    return [
        HourOfWeekPrice(
            weekday=at // 24,
            hour=at % 24,
            median_microusd=_price(medians[at]),
            low_microusd=_price(lows[at]) if counts[at] >= _MIN_WEEKS else None,
            high_microusd=_price(highs[at]) if counts[at] >= _MIN_WEEKS else None,
            weeks=int(counts[at]),
        )
        for at in range(WEEK)
    ]


def _by_week(hours: HourlyLogs) -> Floats:
    """Local week × hour of the week, in logarithms; if the clock passes an hour twice, the later known one."""
    number = (hours.days + 3) // 7  # 1970 began on a Thursday
    found = np.full((int(number[-1] - number[0]) + 1 if len(number) else 1, WEEK), np.nan)
    if len(number):
        known = ~np.isnan(hours.logs)
        found[number[known] - number[0], hours.labels[known]] = hours.logs[known]
    return found


def _medians(weeks: Floats, seed: int) -> tuple[Floats, Floats, Floats]:
    """Column medians and their intervals; a draw holds how often each week counts."""
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
    spread = np.sort(np.concatenate(drawn), axis=0)  # NaN (draws without a known week) come last
    valid = (~np.isnan(spread)).sum(0)
    low, high = (np.floor(np.maximum(valid - 1, 0) * share + 0.5).astype(int) for share in (0.025, 0.975))
    columns = np.arange(weeks.shape[1])
    return own, spread[low, columns], spread[high, columns]


def _weighted(ranked: Floats, times: NDArray[np.signedinteger[Any]]) -> Floats:
    """Weighted medians of ranked columns; the mean of the middle two."""
    sums = times.cumsum(1)
    total = sums[:, -1:, :]
    lower = (sums * 2 >= np.maximum(total, 1)).argmax(1)
    upper = (sums * 2 > total).argmax(1)
    columns = np.arange(ranked.shape[1])
    found = (ranked[lower, columns] + ranked[upper, columns]) / 2
    return np.where(total[:, 0, :] > 0, found, np.nan)


def _price(log: float) -> float | None:
    return None if np.isnan(log) else float(np.exp(log))
