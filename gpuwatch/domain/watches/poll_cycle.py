"""Polling cycles of a watch: every provider and rental type once. A miss is one whole cycle without a match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from datetime import datetime, timedelta
from typing import Any, TypeVar

from gpuwatch.domain.watches.decide import Match, Observation

PollQuery = tuple[Any, ...]  # the provider, and anything else that identifies a query
Q = TypeVar("Q", bound=PollQuery)
_SLOW = 10  # times the fastest provider's interval: slower providers do not delay the cycle


class PollCycle:
    """The queries of one watch that were answered since its last whole cycle. Not thread-safe."""

    def __init__(self) -> None:
        self._answered: set[PollQuery] = set()

    def observe(  # noqa: PLR0913 - everything known at this moment
        self,
        just_polled: Collection[PollQuery],
        found: tuple[Match, ...],
        *,
        near: bool,
        known: Set[PollQuery],
        expected: Set[PollQuery],
        paces: Set[PollQuery],
        observed_at: datetime,
    ) -> Observation:
        """Return all fresh results of a watch as one observation, after some queries were answered.

        Args:
            just_polled: the queries that were just answered.
            found: the matches in the fresh results of all providers, cheapest first.
            near: whether any of them contains an otherwise matching offer at or under threshold × rearm.
            known: queries whose latest answer is fresh and complete.
            expected: all queries of the watch.
            paces: those queries that make up its cycle.
        """
        all_known = expected <= known
        self._answered.update(just_polled)
        whole_round = all_known and paces <= self._answered
        if found or whole_round:
            self._answered.clear()
        return Observation(
            matches=found,
            known=bool(found) or all_known,
            completes_cycle=whole_round,
            near=near,
            observed_at=observed_at,
        )


def cycle_members(expected: Set[Q], age_of: Callable[[str], timedelta]) -> frozenset[Q]:
    """Return the queries that make up a watch's cycle: fast providers do not wait for those polled hourly.

    Args:
        age_of: the maximum age of a provider's results.
    """
    if not expected:
        return frozenset()
    slowest = _SLOW * min(age_of(question[0]) for question in expected)
    return frozenset(question for question in expected if age_of(question[0]) <= slowest)
