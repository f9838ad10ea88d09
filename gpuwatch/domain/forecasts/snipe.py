"""How long offers stay under a price, and the odds that polling at an interval sees one before it is gone. Pure.

An offer appears at any time between two polls and is seen if it lasts until the next one, so the chance is the mean of
min(lifetime, interval) ÷ interval: the area under the survival curve up to the interval. The history knows lifetimes
only within two bounds, and so the chance. It does not show offers that came and went between two polls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from gpuwatch.domain.history.market_history import MarketHistory, OfferInterval
from gpuwatch.domain.history.market_polls import complete_polls, poll_times
from gpuwatch.domain.history.nonparametric import SurvivalCurve, kaplan_meier

MIN_LIFETIMES = 10
SNIPE_METHOD_TEXT = "Kaplan and Meier (1958) on lives known between two looks"
_DAY_S = 86_400.0
_PollTimes = dict[tuple[str, bool], dict[str, list[int]]]  # (provider, spot) → GPU ("": all) → times of complete polls


class OfferLifetime(NamedTuple):
    """One stretch of an offer under a price: between `shortest_s` and `longest_s`, if its end was observed."""

    shortest_s: float
    longest_s: float
    observed: bool


class DetectionOdds(msgspec.Struct, frozen=True, kw_only=True):
    """The odds of polling every `every_s`."""

    every_s: float
    chance_low: float  # if each offer lasted only as long as it was observed …
    chance: float
    chance_high: float  # … or as long as it may have lasted
    a_day: float  # offers seen per day


class SnipeOdds(msgspec.Struct, frozen=True, kw_only=True):
    """Offers at or under a price, and what polling more often would add."""

    lifetimes: int
    ended: int
    a_day: float  # offers that appeared per day
    median_s: float | None  # of the lifetimes; None: more than half outlasted the observation
    median_interval_s: tuple[float | None, float | None]
    poll_spacing_s: float  # of the history, which shows little about shorter lifetimes
    odds: tuple[DetectionOdds, ...]  # for the given interval, and for half of it


def offer_lifetimes(
    market_history: MarketHistory, limit_microusd: float, gpu_price: Callable[[int, OfferInterval], float]
) -> list[OfferLifetime]:
    """The stretches of offers whose start at or under a price was observed, whether at one price or several.

    Excludes offers under the price in the first poll: their start was not observed.

    Args:
        gpu_price: the GPU price of an interval of this listing, commission included, in micro-dollars.
    """
    polls = _poll_times(market_history)
    under = [
        interval for interval in market_history.intervals if gpu_price(interval.listing, interval) <= limit_microusd
    ]
    under.sort(key=lambda interval: (interval.listing, interval.from_s))
    lifetimes = []
    for number, intervals in groupby(under, key=lambda interval: interval.listing):
        identity = market_history.listings[number].identity
        mine = polls.get((identity.provider, identity.spot), {})
        for first, last in _stretches(intervals):
            before_s = max((_newest_before(mine.get(gpu, []), first.from_s) for gpu in (identity.gpu, "")), default=-1)
            if before_s >= 0:
                lifetimes.append(_lifetime(before_s, first, last))
    return lifetimes


def snipe_odds(lifetimes: Sequence[OfferLifetime], market_history: MarketHistory, every_s: float) -> SnipeOdds | None:
    """The odds; None: the start of too few offers was observed."""
    if len(lifetimes) < MIN_LIFETIMES or market_history.starts_s is None or market_history.ends_s is None:
        return None
    days = max(market_history.ends_s - market_history.starts_s, 1) / _DAY_S
    shortest, middle, longest = (lifetime_curve(lifetimes, part) for part in (0.0, 0.5, 1.0))
    a_day = len(lifetimes) / days

    def odds(interval_s: float) -> DetectionOdds:
        low, chance, high = (one.mean_up_to(interval_s) / interval_s for one in (shortest, middle, longest))
        return DetectionOdds(every_s=interval_s, chance_low=low, chance=chance, chance_high=high, a_day=a_day * chance)

    return SnipeOdds(
        lifetimes=len(lifetimes),
        ended=middle.ended,
        a_day=a_day,
        median_s=middle.median_s,
        median_interval_s=middle.median_interval_s,
        poll_spacing_s=poll_spacing_s(market_history),
        odds=(odds(every_s), odds(every_s / 2)),
    )


def poll_spacing_s(market_history: MarketHistory) -> float:
    """The median time between two complete polls."""
    times = np.unique(np.asarray(poll_times(complete_polls(market_history.polls)), np.int64))
    return float(np.median(np.diff(times))) if len(times) > 1 else float("inf")


def lifetime_curve(lifetimes: Sequence[OfferLifetime], part: float = 0.5) -> SurvivalCurve:
    """The survival curve with each lifetime at this fraction of the way from its lower to its upper bound."""
    durations = [
        lifetime.shortest_s + part * (lifetime.longest_s - lifetime.shortest_s)
        if lifetime.observed
        else lifetime.shortest_s
        for lifetime in lifetimes
    ]
    return kaplan_meier(durations, [lifetime.observed for lifetime in lifetimes])


def _lifetime(before_s: int, first: OfferInterval, last: OfferInterval) -> OfferLifetime:
    shortest_s = float(last.seen_s - first.from_s)
    if last.ended_s is None:
        return OfferLifetime(shortest_s, float("inf"), observed=False)
    return OfferLifetime(shortest_s, float(last.ended_s - before_s), observed=True)


def _stretches(intervals: Iterator[OfferInterval]) -> Iterator[tuple[OfferInterval, OfferInterval]]:
    """The first and the last interval of each uninterrupted stretch."""
    first = last = next(intervals)
    for interval in intervals:
        if last.ended_s is not None and interval.from_s > last.ended_s:
            yield first, last
            first = interval
        last = interval
    yield first, last


def _poll_times(market_history: MarketHistory) -> _PollTimes:
    polls: _PollTimes = {}
    for poll in complete_polls(market_history.polls):
        polls.setdefault((poll.provider, poll.spot), {}).setdefault(poll.gpu, []).append(poll.at_s)
    return polls


def _newest_before(times: Sequence[int], at_s: int) -> int:
    index = bisect_left(times, at_s)
    return times[index - 1] if index else -1
