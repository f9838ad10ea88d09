"""Statistics without distributional assumptions: tests, intervals, and survival curves. Textbook methods. Pure.

- Rotation test: a randomisation test (Edgington and Onghena, *Randomization Tests*) in which the start of the clock is
  random, as with random start times; on a studentised mean it keeps its level even if rows differ in spread
  (Janssen 1997; Chung and Romano 2013). The largest of many: Westfall and Young 1993. p = (1 + b) / (1 + B): Phipson
  and Smyth 2010. Several tests at once: Holm 1979.
- Intervals: the circular block bootstrap (Politis and Romano 1992), its percentiles widened for few blocks (Hesterberg
  2015). A few groups with dependence inside each: Student's t on their means (Ibragimov and Müller 2010).
- Survival curve: durations of which some had not ended by the end of observation (Kaplan and Meier, 1958).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_DRAWS = 2_000_000  # numbers in total; a longer history gets fewer draws
_FEWEST, _MOST = 1_999, 9_999
_CHUNK = 1_000_000  # numbers in memory at the same time
_SAME = 1e-9
_ROUNDING = 1e-12

_Z = 1.959964  # 95 %


class SurvivalCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The share that lasts longer than each observed end, with its 95 % interval."""

    times_s: Sequence[float]
    survival: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    samples: int
    ended: int  # samples whose end was observed
    longest_s: float  # the longest observation

    def at(self, time_s: float) -> float:
        """The share that lasts longer than this; beyond the longest observation, the share at its end."""
        index = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
        return 1.0 if index < 0 else float(self.survival[index])

    @property
    def median_s(self) -> float | None:
        """The median duration; None: more than half outlasted the observation."""
        return _first_at_or_under(self.times_s, self.survival, 0.5)

    @property
    def median_interval_s(self) -> tuple[float | None, float | None]:
        """95 % interval of the median: where the curve's interval crosses one half (Brookmeyer and Crowley, 1982)."""
        return _first_at_or_under(self.times_s, self.low, 0.5), _first_at_or_under(self.times_s, self.high, 0.5)

    def mean_up_to(self, limit_s: float) -> float:
        """The mean of min(duration, limit): the area under the curve up to the limit."""
        edges = np.concatenate(([0.0], np.minimum(self.times_s, limit_s), [limit_s]))
        heights = np.concatenate(([1.0], self.survival))
        return float(np.sum(np.diff(edges) * heights))


def abs_t_statistic(values: Floats) -> Floats:
    """Return |mean| ÷ its standard error, along the last axis; 0 if the mean is 0."""
    return _t(values.sum(-1), (values * values).sum(-1), values.shape[-1])


def _t(total: Floats, squares: Floats, count: int) -> Floats:
    mean = np.abs(total) / count
    variance = (squares - count * mean**2) / (count - 1)
    is_spread = variance > _ROUNDING * squares
    found = np.where(is_spread, mean / np.sqrt(np.where(is_spread, variance, 1.0) / count), np.inf)
    return np.where(mean < _SAME, 0.0, found)


def rotation_p_value(rotated: Floats, seed: int) -> float:
    """The p-value: how often the mean of randomly rotated rows is as far from 0 as the observed one.

    Args:
        rotated: row × rotation → the row's value with the clock rotated by that much; rotation 0 is the observed one.
    """
    rows, rotations = rotated.shape
    own = float(abs_t_statistic(rotated[:, 0]))
    if own == 0:
        return 1.0
    draws = draw_count(rows)
    picks = np.random.default_rng(seed).integers(0, rotations, (draws, rows))
    beaten = int(np.sum(abs_t_statistic(rotated[np.arange(rows), picks]) >= own * (1 - _SAME)))
    return (1 + beaten) / (1 + draws)


def max_statistic_p_values(rows: Floats, seed: int) -> Floats:
    """The p-value of each column's mean, corrected for all columns (maximum over all rotations).

    Both the mean and the studentised mean must be as large: with a few outlier rows, either one alone finds too much.
    """
    count, columns = rows.shape
    # row and rotation × column: a draw selects rows, and its sums are one matrix product
    rotated = np.stack([np.roll(rows, rotation, axis=1) for rotation in range(columns)], 1).reshape(-1, columns)
    both = np.hstack([rotated, rotated * rotated])
    own = _sizes(np.hstack([rows.sum(0), (rows * rows).sum(0)]), count) * (1 - _SAME)
    rng, draws = np.random.default_rng(seed), draw_count(rows.size)
    beaten, left = np.zeros((2, columns)), draws
    while left:
        some = min(left, max(1, _CHUNK // len(rotated)))
        chosen = np.zeros((some, count, columns))
        np.put_along_axis(chosen, rng.integers(0, columns, (some, count, 1)), 1.0, axis=2)
        largest = _sizes(chosen.reshape(some, -1) @ both, count).max(-1)
        beaten += (largest[:, :, None] >= own[:, None, :]).sum(1)
        left -= some
    return np.where(own[0] < _SAME, 1.0, (1 + beaten.max(0)) / (1 + draws))


def _sizes(sums: Floats, count: int) -> Floats:
    """Return |mean|, plain and studentised, from sums and sums of squares side by side."""
    total, squares = np.split(sums, 2, axis=-1)
    return np.stack([np.abs(total) / count, _t(total, squares, count)])


def draw_count(numbers: int) -> int:
    """The number of draws; fewer if each consists of many numbers."""
    return int(np.clip(_MOST_DRAWS // max(1, numbers), _FEWEST, _MOST))


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979), which bounds the chance of any false alarm."""
    found, highest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, ps[at] * (len(ps) - rank)))
        found[at] = highest
    return found


def mean_interval(values: Floats, seed: int) -> tuple[float, float]:
    """95 % interval of the mean of ordered values: the wider of block bootstrap and Student's t."""
    count = len(values)
    length = max(1, int(count ** (1 / 3)))
    blocks = -(-count // length)
    draws = draw_count(count)
    starts = np.random.default_rng(seed).integers(0, count, (draws, blocks, 1))
    picks = ((starts + np.arange(length)) % count).reshape(draws, -1)[:, :count]
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * t_quantile(0.975, count - 1))
    low, high = np.quantile(values[picks].mean(1), [tail, 1 - tail])
    mean, reach = values.mean(), t_quantile(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)
    return float(min(low, mean - reach)), float(max(high, mean + reach))


def t_two_sided_p(t: float, freedom: int) -> float:
    """P(|T| > t) of Student's t distribution (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    if math.isinf(t):
        return 0.0
    angle = math.atan2(t, math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = 1.0, 0.0
    for k in range(1, (freedom - odd) // 2 + 1):
        total += term
        term *= cos2 * (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
    inside = math.sin(angle) * total * (math.cos(angle) if odd else 1.0)
    return max(0.0, 1 - ((angle + inside) * 2 / math.pi if odd else inside))


@lru_cache(maxsize=64)
def t_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t distribution, for a share over one half."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided_p(middle, freedom) / 2 > 1 - share else (low, middle)
    return low


def kaplan_meier(durations_s: Sequence[float], observed: Sequence[bool]) -> SurvivalCurve:
    """The product-limit estimate, with Greenwood's variance on the log-log scale, which stays between 0 and 1.

    Args:
        observed: whether the end was observed; if not, the sample lasted at least this long.
    """
    durations, ends = np.asarray(durations_s, float), np.asarray(observed, bool)
    times, events = np.unique(durations[ends], return_counts=True)
    at_risk = len(durations) - np.searchsorted(np.sort(durations), times, side="left")
    survival = np.cumprod(1 - events / np.maximum(at_risk, 1))
    low, high = _greenwood(survival, events, at_risk)
    return SurvivalCurve(
        times_s=times.tolist(),
        survival=survival.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        samples=len(durations),
        ended=int(ends.sum()),
        longest_s=float(durations.max()) if len(durations) else 0.0,
    )


def _greenwood(survival: np.ndarray, events: np.ndarray, at_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.cumsum(events / (at_risk * (at_risk - events)))) / np.log(survival)
        low, high = survival ** np.exp(-_Z * spread), survival ** np.exp(_Z * spread)
    gone = survival <= 0  # no sample is left and the variance is undefined: the upper bound stays as it was
    if gone.any():
        low[gone] = 0.0
        high[gone] = high[~gone][-1] if (~gone).any() else 1.0
    return low, high


def _first_at_or_under(times: Sequence[float], values: Sequence[float], level: float) -> float | None:
    return next((time for time, value in zip(times, values, strict=True) if value <= level + 1e-12), None)
