"""How long something lasts, where some of it still stood when the watching ended (Kaplan and Meier, 1958).

Lives of offers are known only as well as looks lay close: each began between two looks and ended between two others.
`lives_under` takes the middles; who must know what that is worth asks `bounded_lives_under` for both ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from gpuwatch.domain.analysis.market_history import MarketHistory, OfferInterval

_Z = 1.959964  # 95 %
_Looks = dict[tuple[str, bool], dict[str, list[int]]]  # (provider, spot) → GPU, "" for all → times of whole answers


class Lifetimes(NamedTuple):
    """Durations, and which of them were seen to end; the others lasted at least so long."""

    durations_s: list[float]
    observed: list[bool]


class OfferLifetime(NamedTuple):
    """One stretch under a price: it lasted from `shortest_s` to `longest_s`, if its end was seen."""

    shortest_s: float
    longest_s: float
    observed: bool


class SurvivalCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The share that lasts longer than each time at which something ended, with its 95 % interval."""

    times_s: Sequence[float]
    survival: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    samples: int
    ended: int  # of them were seen to end
    longest_s: float  # nothing was watched for longer

    def at(self, time_s: float) -> float:
        """The share that lasts longer than this; beyond what was watched, as at its end."""
        index = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
        return 1.0 if index < 0 else float(self.survival[index])

    @property
    def median_s(self) -> float | None:
        """Half of them last longer; None: more than half did as far as was watched."""
        return _first_at_or_under(self.times_s, self.survival, 0.5)

    @property
    def median_interval_s(self) -> tuple[float | None, float | None]:
        """95 % of the median, where the curve's interval crosses one half (Brookmeyer and Crowley, 1982)."""
        return _first_at_or_under(self.times_s, self.low, 0.5), _first_at_or_under(self.times_s, self.high, 0.5)

    def mean_up_to(self, limit_s: float) -> float:
        """The mean of min(life, limit): the area under the curve up to there."""
        edges = np.concatenate(([0.0], np.minimum(self.times_s, limit_s), [limit_s]))
        heights = np.concatenate(([1.0], self.survival))
        return float(np.sum(np.diff(edges) * heights))


def kaplan_meier(durations_s: Sequence[float], observed: Sequence[bool]) -> SurvivalCurve:
    """The product-limit estimate, with Greenwood's variance on the log-log scale, which stays within 0 and 1."""
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


def lives_under(
    market_history: MarketHistory, x_microusd_gpu_hour: float, gpu_price: Callable[[int, OfferInterval], float]
) -> Lifetimes:
    """How long offers stayed at or under a price, by the middles of what is known.

    One that was under it at the first look is left out: nobody saw it begin.

    Args:
        gpu_price: what a GPU-hour of a spell of this listing costs, commission included, in micro-dollars.
    """
    lifetimes = offer_lifetimes(market_history, x_microusd_gpu_hour, gpu_price)
    middles = [
        (lifetime.shortest_s + lifetime.longest_s) / 2 if lifetime.observed else lifetime.shortest_s
        for lifetime in lifetimes
    ]
    return Lifetimes(middles, [lifetime.observed for lifetime in lifetimes])


def offer_lifetimes(
    market_history: MarketHistory, x_microusd_gpu_hour: float, gpu_price: Callable[[int, OfferInterval], float]
) -> list[OfferLifetime]:
    """Each stretch that an offer was seen to begin at or under a price, whether at one price or at several."""
    looks = _looks(market_history)
    under = [
        interval
        for interval in market_history.intervals
        if gpu_price(interval.listing, interval) <= x_microusd_gpu_hour
    ]
    under.sort(key=lambda interval: (interval.listing, interval.from_s))
    lifetimes = []
    for number, intervals in groupby(under, key=lambda interval: interval.listing):
        identity = market_history.listings[number].identity
        mine = looks.get((identity.provider, identity.spot), {})
        for first, last in _stretches(intervals):
            before_s = max((_newest_before(mine.get(gpu, []), first.from_s) for gpu in (identity.gpu, "")), default=-1)
            if before_s >= 0:
                lifetimes.append(_life(before_s, first, last))
    return lifetimes


def _life(before_s: int, first: OfferInterval, last: OfferInterval) -> OfferLifetime:
    shortest_s = float(last.seen_s - first.from_s)
    if last.gone_s is None:
        return OfferLifetime(shortest_s, float("inf"), observed=False)
    return OfferLifetime(shortest_s, float(last.gone_s - before_s), observed=True)


def _stretches(intervals: Iterator[OfferInterval]) -> Iterator[tuple[OfferInterval, OfferInterval]]:
    """The first and the last spell of each stretch without a break."""
    first = last = next(intervals)
    for interval in intervals:
        if last.gone_s is not None and interval.from_s > last.gone_s:
            yield first, last
            first = interval
        last = interval
    yield first, last


def _looks(market_history: MarketHistory) -> _Looks:
    looks: _Looks = {}
    for poll in market_history.polls:
        if poll.proves_absence:
            looks.setdefault((poll.provider, poll.spot), {}).setdefault(poll.gpu, []).append(poll.at_s)
    return looks


def _newest_before(times: Sequence[int], at_s: int) -> int:
    index = bisect_left(times, at_s)
    return times[index - 1] if index else -1


def _greenwood(survival: np.ndarray, events: np.ndarray, at_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.cumsum(events / (at_risk * (at_risk - events)))) / np.log(survival)
        low, high = survival ** np.exp(-_Z * spread), survival ** np.exp(_Z * spread)
    gone = survival <= 0  # nothing is left: the variance is not defined; everything below the last bound may be so
    if gone.any():
        low[gone] = 0.0
        high[gone] = high[~gone][-1] if (~gone).any() else 1.0
    return low, high


def _first_at_or_under(times: Sequence[float], values: Sequence[float], level: float) -> float | None:
    return next((time for time, value in zip(times, values, strict=True) if value <= level + 1e-12), None)
