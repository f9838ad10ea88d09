"""From single observations of an offer to intervals: how long one price lasted, as far as polls show."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

PricePoint = tuple[int, int]  # when it was seen, and its price in micro-dollars per hour


class CompletePoll(NamedTuple):
    """A poll that read every offer of a scope."""

    at_s: int
    to_microusd: int | None = None  # the offers at or under this; None: all


class PriceRun(NamedTuple):
    """One price, without a poll that missed it."""

    from_s: int
    seen_s: int
    microusd: int


class PollTimeline:
    """All polls of one scope, in any order."""

    def __init__(self, polls: Iterable[CompletePoll]) -> None:
        found = sorted(set(polls), key=lambda poll: poll.at_s)
        self.times = [poll.at_s for poll in found]
        self._complete = [poll.at_s for poll in found if poll.to_microusd is None]
        self._bounded = [poll for poll in found if poll.to_microusd is not None]

    def first_miss(self, after_s: int, microusd: int, until_s: float = math.inf) -> int | None:
        """The first poll between two times that would have shown this price."""
        at = bisect_right(self._complete, after_s)
        missed = self._complete[at : at + 1]
        if self._bounded:
            start = bisect_right(self._bounded, after_s, key=lambda poll: poll.at_s)
            missed = [*missed, *self._first_reaching(start, microusd, until_s)]
        first = min(missed, default=None)
        return None if first is None or first >= until_s else first

    def _first_reaching(self, start: int, microusd: int, until_s: float) -> list[int]:
        for poll in islice(self._bounded, start, None):
            if poll.at_s >= until_s or microusd <= (poll.to_microusd or 0):
                return [poll.at_s]
        return []

    def within(self, from_s: int, to_s: int) -> Sequence[int]:
        """The times of the polls in [from_s, to_s]."""
        return self.times[bisect_left(self.times, from_s) : bisect_right(self.times, to_s)]


def price_runs(points: Iterable[PricePoint], polls: PollTimeline) -> list[PriceRun]:
    """Join observations into runs, in order.

    Args:
        points: one price per time, by time.
        polls: all polls of its scope; one at a time without a point did not see the offer.
    """
    made: list[PriceRun] = []
    for at_s, microusd in points:
        last = made[-1] if made else None
        if last and last.microusd == microusd and polls.first_miss(last.seen_s, microusd, at_s) is None:
            made[-1] = last._replace(seen_s=at_s)
        else:
            made.append(PriceRun(at_s, at_s, microusd))
    return made


def run_end(made: Sequence[PriceRun], at: int, polls: PollTimeline) -> int | None:
    """When the run `made[at]` of one offer ended: at the first poll that missed it, or with its next price."""
    ends = [made[at + 1].from_s] if at + 1 < len(made) else []
    miss = polls.first_miss(made[at].seen_s, made[at].microusd)
    return min([*ends, miss] if miss is not None else ends, default=None)
