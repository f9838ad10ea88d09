"""Survival times when some samples had not ended by the end of observation (Kaplan and Meier, 1958)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

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
