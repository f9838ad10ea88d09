"""A watch is asked for in rounds: every provider and rental type once. A miss is one whole round without a match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from datetime import datetime, timedelta
from typing import Any, TypeVar

from gpuwatch.domain.watches.decide import Match, Observation

PollQuery = tuple[Any, ...]  # the provider, and what else tells one question from another
Q = TypeVar("Q", bound=PollQuery)
_SLOW = 10  # times the quickest one's pace: such a provider's newest view stands for many rounds


class PollCycle:
    """Which questions of one watch were answered since its last whole round. Not for several threads at once."""

    def __init__(self) -> None:
        self._answered: set[PollQuery] = set()

    def observe(  # noqa: PLR0913 all that is known at this moment
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
        """All fresh views of a watch as one look, after some questions were asked.

        Args:
            just_asked: the questions that were asked now.
            found: what the fresh views show, cheapest first, whoever sells it.
            near: does any of them show an otherwise fitting offer at or under threshold × rearm?
            known: questions whose newest answer is fresh, and proves what it does not show.
            expected: all that is asked for the watch.
            paces: of them, what makes up its rounds.
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
    """Of what is asked for a watch, what makes up its rounds: the quick do not wait for those asked hourly.

    Args:
        age_of: how old a view of a provider may be.
    """
    if not expected:
        return frozenset()
    slowest = _SLOW * min(age_of(question[0]) for question in expected)
    return frozenset(question for question in expected if age_of(question[0]) <= slowest)
