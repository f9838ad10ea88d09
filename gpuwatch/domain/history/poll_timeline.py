"""The polls of a part of the market, and how long each price lasted between them: many offers at once, as arrays. Pure.

Apart from `market_history`, because only this part loads numpy: most commands and daemons need no arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.history.market_history import CompletePoll
from gpuwatch.domain.history.packed_polls import COVERS_FLAG
from gpuwatch.domain.setup.durations import DAY_S

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NEVER_S = np.iinfo(np.int64).max  # later than any time


class PollTimeline:
    """All polls of one scope, in any order.

    Args:
        complete_s: times of the polls that show every offer.
        bounded: polls that show the offers up to a price.
    """

    def __init__(self, complete_s: Ints, bounded: Iterable[CompletePoll] = ()) -> None:
        self.complete_s = np.unique(complete_s)
        self._bounded = sorted({(poll.at_s, poll.to_microusd or 0) for poll in bounded})
        times = np.array([at_s for at_s, _ in self._bounded], np.int64)
        self.times = np.union1d(self.complete_s, times)
        self._bounded_s = times
        self._bounds = np.array([*(bound for _, bound in self._bounded), -1], np.int64)  # the last one: a sentinel

    def missed_between(self, after_s: Ints, until_s: Ints, microusd: Ints) -> Flags:
        """Return whether a poll strictly between two times would have shown this price."""
        complete = self.complete_s
        missed = np.asarray(np.searchsorted(complete, after_s, "right") < np.searchsorted(complete, until_s, "left"))
        if self._bounded:
            low, high = (np.searchsorted(self._bounded_s, *where) for where in ((after_s, "right"), (until_s, "left")))
            some = np.flatnonzero(~missed & (low < high))
            if len(some):
                spans = np.column_stack((low[some], high[some])).ravel()
                missed[some] = np.maximum.reduceat(self._bounds, spans)[::2] >= microusd[some]
        return missed

    def first_miss(self, after_s: Ints, microusd: Ints) -> Ints:
        """The first poll after a time that would have shown this price; `NEVER_S`: none."""
        later = np.append(self.complete_s, NEVER_S)
        found = later[np.searchsorted(self.complete_s, after_s, "right")]
        if self._bounded:
            for place, (moment, price) in enumerate(zip(after_s.tolist(), microusd.tolist(), strict=True)):
                found[place] = min(found[place], self._first_reaching(moment, price))
        return found

    def _first_reaching(self, after_s: int, microusd: int) -> int:
        start = bisect_right(self._bounded, after_s, key=lambda poll: poll[0])
        reaching = (at_s for at_s, bound in islice(self._bounded, start, None) if microusd <= bound)
        return next(reaching, NEVER_S)


class PriceRuns(NamedTuple):
    """Runs of one price that no poll missed, ordered by offer and time."""

    offer: Ints
    from_s: Ints
    seen_s: Ints
    microusd: Ints
    ended_s: Ints  # the first poll that missed it, or the offer's next price; `NEVER_S`: neither yet


def price_runs(offer: Ints, at_s: Ints, microusd: Ints, polls: PollTimeline) -> PriceRuns:
    """Join observations into runs.

    Args:
        offer: numbers of offers; observations are ordered by offer and time, with one price per time.
        polls: all polls of the scope; an offer without an observation at the time of a poll was not on offer.
    """
    joined = np.zeros(len(offer), bool)
    joined[1:] = (offer[1:] == offer[:-1]) & (microusd[1:] == microusd[:-1])
    pairs = np.flatnonzero(joined)
    joined[pairs] = ~polls.missed_between(at_s[pairs - 1], at_s[pairs], microusd[pairs])
    first = np.flatnonzero(~joined)
    last = np.append(first[1:], len(offer))[: len(first)] - 1
    ended_s = polls.first_miss(at_s[last], microusd[first])
    has_next = np.flatnonzero(offer[first][1:] == offer[first][:-1])
    ended_s[has_next] = np.minimum(ended_s[has_next], at_s[first][has_next + 1])
    return PriceRuns(offer[first], at_s[first], at_s[last], microusd[first], ended_s)


def covering_times(days: Sequence[tuple[int, tuple[bytes, bytes, bytes, bytes]]]) -> Ints:
    """The times of the covering polls of packed days (`packed_columns`) in their order.

    A year has a hundred thousand days of scopes: all of one scope at once takes a quarter of one by one.
    """
    counts = np.array([len(flags) for _, (_, _, flags, _) in days], np.int64)
    steps = np.frombuffer(b"".join(columns[0] for _, columns in days), "<i4").astype(np.int64)
    flags = np.frombuffer(b"".join(columns[2] for _, columns in days), np.uint8)
    if not len(steps):
        return steps
    days_s = np.repeat(np.array([day for day, _ in days], np.int64) * DAY_S, counts)
    reached = np.cumsum(steps)
    before = np.concatenate(([0], reached))[np.cumsum(counts) - counts]  # the sum of all earlier days' steps
    return np.asarray((days_s + reached - np.repeat(before, counts))[(flags & COVERS_FLAG) != 0])
