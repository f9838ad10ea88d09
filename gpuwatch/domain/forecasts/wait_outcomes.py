"""Outcomes of waits with a deadline. Pure.

One definition for the backtest, the sweep, `advise`, `max_price = "auto"` and the benchmarks.

- A wait starts at a poll. Its rule buys at the first poll, up to and including the deadline, at which it may buy; at
  the deadline it takes the cheapest fitting offer, at any price.
- The newest poll before the deadline shows what was on offer then, if that poll still counts and another poll followed.
  Otherwise the outcome is **unknown**, even if the rule bought earlier: the waits that did not buy would be missing
  from every mean.
- If nothing was on offer at the deadline, the wait **missed**: it pays the price of the next offer, or, if none came
  before the history ends, the highest price in it. Buying at once with nothing on offer costs the same.

So starts = bought + missed + unknown, and means are over the waits that bought or missed.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.history.poll_timeline import Flags

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


class PollPrices(msgspec.Struct, frozen=True, kw_only=True):
    """What each poll saw. NaN: nothing on offer.

    Args:
        at_s: the times of the polls, rising.
        offered: the cheapest fitting price, at any price.
        taken: the price at which the rule may buy.
        lasts_s: how long the result of a poll counts.
    """

    at_s: Numbers
    offered: Numbers
    taken: Numbers
    lasts_s: float


class WaitOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes, one entry per start. Prices are NaN where the outcome is unknown."""

    starts_s: Numbers
    in_time: Flags  # bought by the rule, not at the deadline; False where the outcome is unknown
    bought: Flags  # by its rule, or at the deadline
    missed: Flags  # nothing was on offer at the deadline
    unknown: Flags  # no poll at the deadline
    no_later_offer: Flags  # part of `missed`: no offer before the history ends, so the highest price counts
    paid: Numbers
    at_once: Numbers

    @property
    def counted(self) -> Flags:
        """The starts with a known outcome."""
        return ~self.unknown


def wait_outcomes(polls: PollPrices, starts: Indices, deadline_s: float) -> WaitOutcomes:
    """The outcomes of waits that start at these polls.

    Args:
        starts: indices of polls.
    """
    starts_s = polls.at_s[starts]
    ends_s = starts_s + deadline_s
    newest = np.searchsorted(polls.at_s, ends_s, side="right") - 1
    unknown = (ends_s > polls.at_s[-1]) | (ends_s - polls.at_s[newest] > polls.lasts_s)
    taken_at = next_known(polls.taken)[starts]
    in_time = ~unknown & (taken_at <= newest)
    at_deadline = polls.offered[newest]
    missed = ~unknown & ~in_time & np.isnan(at_deadline)
    later, has_later = next_price(polls.offered)
    paid = np.where(np.isnan(at_deadline), later[newest], at_deadline)
    paid[in_time] = polls.taken[taken_at[in_time]]
    paid[unknown] = np.nan
    return WaitOutcomes(
        starts_s=starts_s,
        in_time=in_time,
        bought=~unknown & ~missed,
        missed=missed,
        unknown=unknown,
        no_later_offer=missed & ~has_later[newest],
        paid=paid,
        at_once=np.where(unknown, np.nan, later[starts]),
    )


def next_known(values: Numbers) -> Indices:
    """For each entry, the index of the first entry at or after it that is not NaN; the length if there is none."""
    count = len(values)
    places = np.where(np.isnan(values), count, np.arange(count))
    return np.minimum.accumulate(places[::-1])[::-1].astype(np.int64)


def next_price(offered: Numbers) -> tuple[Numbers, Flags]:
    """For each entry, the first price at or after it, and whether there is one; otherwise the highest of all prices."""
    places = next_known(offered)
    has_one = places < len(offered)
    highest = float(np.nanmax(offered)) if not np.isnan(offered).all() else np.nan
    prices = np.full(len(offered), highest)
    prices[has_one] = offered[places[has_one]]
    return prices, has_one
