"""Snipe odds: the chance that looking every so often sees an offer before it is gone.

An offer comes at any moment between two looks. It is seen if it lasts until the next one, so the chance is the mean of
min(life, interval) ÷ interval: the area under the survival curve up to the interval. Lives are known between two
bounds only, and so is the chance. Of offers that came and went between two looks the history knows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gpuwatch.domain.analysis.market_history import MarketHistory
from gpuwatch.domain.analysis.survival import OfferLifetime, SurvivalCurve, kaplan_meier

MIN_LIFETIMES = 10
_DAY_S = 86_400.0


class DetectionOdds(msgspec.Struct, frozen=True, kw_only=True):
    """Of looking every `every_s`."""

    every_s: float
    chance_low: float  # if each offer lasted only as long as it was seen …
    chance: float
    chance_high: float  # … or as long as it can have lasted
    a_day: float  # so many are seen a day


class SnipeOdds(msgspec.Struct, frozen=True, kw_only=True):
    """Offers at or under a price, and what looking oftener would add."""

    lifetimes: int
    ended: int
    a_day: float  # so many began a day
    median_s: float | None  # of their lives; None: more than half lasted as long as was watched
    median_interval_s: tuple[float | None, float | None]
    poll_spacing_s: float  # the history's own: of shorter lives it knows little
    odds: tuple[DetectionOdds, ...]  # of the interval asked for, and of half of it


def snipe_odds(lifetimes: Sequence[OfferLifetime], market_history: MarketHistory, every_s: float) -> SnipeOdds | None:
    """None: too few offers were seen to begin."""
    if len(lifetimes) < MIN_LIFETIMES or market_history.starts_s is None or market_history.ends_s is None:
        return None
    days = max(market_history.ends_s - market_history.starts_s, 1) / _DAY_S
    shortest, middle, longest = (_curve(lifetimes, part) for part in (0.0, 0.5, 1.0))
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
    """The median time between two moments at which somebody looked at it all."""
    times = np.unique([poll.at_s for poll in market_history.polls if poll.proves_absence])
    return float(np.median(np.diff(times))) if len(times) > 1 else float("inf")


def _curve(lifetimes: Sequence[OfferLifetime], part: float) -> SurvivalCurve:
    """Each life as long as this part of the way from its lower to its upper bound."""
    durations = [
        lifetime.shortest_s + part * (lifetime.longest_s - lifetime.shortest_s)
        if lifetime.observed
        else lifetime.shortest_s
        for lifetime in lifetimes
    ]
    return kaplan_meier(durations, [lifetime.observed for lifetime in lifetimes])
