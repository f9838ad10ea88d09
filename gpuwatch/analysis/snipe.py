"""Snipe odds: the chance that looking every so often sees an offer before it is gone.

An offer comes at any moment between two looks. It is seen if it lasts until the next one, so the chance is the mean of
min(life, interval) ÷ interval: the area under the survival curve up to the interval. Lives are known between two
bounds only, and so is the chance. Of offers that came and went between two looks the history knows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gpuwatch.analysis.survival import Curve, Life, kaplan_meier
from gpuwatch.analysis.tape import Tape

LEAST_LIVES = 10
_DAY_S = 86_400.0


class Odds(msgspec.Struct, frozen=True, kw_only=True):
    """Of looking every `every_s`."""

    every_s: float
    chance_low: float  # if each offer lasted only as long as it was seen …
    chance: float
    chance_high: float  # … or as long as it can have lasted
    a_day: float  # so many are seen a day


class Snipe(msgspec.Struct, frozen=True, kw_only=True):
    """Offers at or under a price, and what looking oftener would add."""

    lives: int
    ended: int
    a_day: float  # so many began a day
    median_s: float | None  # of their lives; None: more than half lasted as long as was watched
    median_interval_s: tuple[float | None, float | None]
    looks_apart_s: float  # the history's own: of shorter lives it knows little
    odds: tuple[Odds, ...]  # of the interval asked for, and of half of it


def snipe(lives: Sequence[Life], tape: Tape, every_s: float) -> Snipe | None:
    """None: too few offers were seen to begin."""
    if len(lives) < LEAST_LIVES or tape.starts_s is None or tape.ends_s is None:
        return None
    days = max(tape.ends_s - tape.starts_s, 1) / _DAY_S
    shortest, middle, longest = (_curve(lives, part) for part in (0.0, 0.5, 1.0))
    a_day = len(lives) / days

    def odds(interval_s: float) -> Odds:
        low, chance, high = (one.mean_up_to(interval_s) / interval_s for one in (shortest, middle, longest))
        return Odds(every_s=interval_s, chance_low=low, chance=chance, chance_high=high, a_day=a_day * chance)

    return Snipe(
        lives=len(lives),
        ended=middle.ended,
        a_day=a_day,
        median_s=middle.median_s,
        median_interval_s=middle.median_interval_s,
        looks_apart_s=looks_apart_s(tape),
        odds=(odds(every_s), odds(every_s / 2)),
    )


def looks_apart_s(tape: Tape) -> float:
    """The median time between two moments at which somebody looked at it all."""
    times = np.unique([poll.at_s for poll in tape.polls if poll.is_whole])
    return float(np.median(np.diff(times))) if len(times) > 1 else float("inf")


def _curve(lives: Sequence[Life], part: float) -> Curve:
    """Each life as long as this part of the way from its lower to its upper bound."""
    durations = [
        life.shortest_s + part * (life.longest_s - life.shortest_s) if life.observed else life.shortest_s
        for life in lives
    ]
    return kaplan_meier(durations, [life.observed for life in lives])
