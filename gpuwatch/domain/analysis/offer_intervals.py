"""From single sightings of an offer to spells: how long one price of it stood, as far as anybody looked."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

PricePoint = tuple[int, int]  # when it was seen, and its price in micro-dollars an hour


class CompletePoll(NamedTuple):
    """Somebody read all there was of a scope."""

    at_s: int
    to_microusd: int | None = None  # what was listed at or under this; None: everything


class PriceRun(NamedTuple):
    """One price without a look that missed it."""

    from_s: int
    seen_s: int
    microusd: int


class PollTimeline:
    """All looks at one scope; the order in which they are given does not matter."""

    def __init__(self, looks: Iterable[CompletePoll]) -> None:
        found = sorted(set(looks), key=lambda look: look.at_s)
        self.times = [look.at_s for look in found]
        self._whole = [look.at_s for look in found if look.to_microusd is None]
        self._bounded = [look for look in found if look.to_microusd is not None]

    def first_miss(self, after_s: int, microusd: int, until_s: float = math.inf) -> int | None:
        """The first look between two moments that would have shown this price."""
        at = bisect_right(self._whole, after_s)
        missed = self._whole[at : at + 1]
        if self._bounded:
            start = bisect_right(self._bounded, after_s, key=lambda look: look.at_s)
            missed = [*missed, *self._first_reaching(start, microusd, until_s)]
        first = min(missed, default=None)
        return None if first is None or first >= until_s else first

    def _first_reaching(self, start: int, microusd: int, until_s: float) -> list[int]:
        for look in islice(self._bounded, start, None):
            if look.at_s >= until_s or microusd <= (look.to_microusd or 0):
                return [look.at_s]
        return []

    def within(self, from_s: int, to_s: int) -> Sequence[int]:
        """The moments of looks in [from_s, to_s]."""
        return self.times[bisect_left(self.times, from_s) : bisect_right(self.times, to_s)]


def price_runs(points: Iterable[PricePoint], looks: PollTimeline) -> list[PriceRun]:
    """The runs that sightings make, in order.

    Args:
        points: one price a moment, by time.
        looks: all looks at its scope; one at a moment without a point did not see it.
    """
    made: list[PriceRun] = []
    for at_s, microusd in points:
        last = made[-1] if made else None
        if last and last.microusd == microusd and looks.first_miss(last.seen_s, microusd, at_s) is None:
            made[-1] = last._replace(seen_s=at_s)
        else:
            made.append(PriceRun(at_s, at_s, microusd))
    return made


def run_end(made: Sequence[PriceRun], at: int, looks: PollTimeline) -> int | None:
    """When the run `made[at]` of one offer was over: at the first look that missed it, or with its next price."""
    ends = [made[at + 1].from_s] if at + 1 < len(made) else []
    miss = looks.first_miss(made[at].seen_s, made[at].microusd)
    return min([*ends, miss] if miss is not None else ends, default=None)
