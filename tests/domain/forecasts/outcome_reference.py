"""Waits, start by start, implemented from docs/backtest.md alone: plain loops, no arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Poll(NamedTuple):
    """The result of one poll. None: no offers."""

    at_s: float
    offered: float | None
    taken: float | None


class Outcome(NamedTuple):
    """The outcome of one start."""

    kind: str  # "bought", "missed", "unknown"
    paid: float | None
    at_once: float | None


def outcome(polls: Sequence[Poll], start: int, deadline_s: float, lasts_s: float) -> Outcome:
    """Follow one start poll by poll."""
    ends_s = polls[start].at_s + deadline_s
    seen = [poll for poll in polls if poll.at_s <= ends_s]
    if polls[-1].at_s < ends_s or ends_s - seen[-1].at_s > lasts_s:
        return Outcome("unknown", None, None)
    at_once = next_offer(polls, polls[start].at_s)
    for poll in seen[start:]:
        if poll.taken is not None:
            return Outcome("bought", poll.taken, at_once)
    if seen[-1].offered is not None:
        return Outcome("bought", seen[-1].offered, at_once)
    return Outcome("missed", next_offer(polls, ends_s), at_once)


def next_offer(polls: Sequence[Poll], from_s: float) -> float | None:
    """Return the first price from a moment on, or the highest price ever."""
    for poll in polls:
        if poll.at_s >= from_s and poll.offered is not None:
            return poll.offered
    return max((poll.offered for poll in polls if poll.offered is not None), default=None)


def mean_paid(outcomes: Sequence[Outcome]) -> tuple[float, float] | None:
    """Return the mean paid and the mean at once, over the known outcomes; None: none has a price."""
    known = [one for one in outcomes if one.paid is not None and one.at_once is not None]
    if not known:
        return None
    paid, once = ([getattr(one, name) for one in known] for name in ("paid", "at_once"))
    return sum(paid) / len(paid), sum(once) / len(once)
