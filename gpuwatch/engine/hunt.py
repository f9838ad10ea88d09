"""The hunt: per watch a small question, cheapest first, at or under its threshold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.evaluate import Evaluator
from gpuwatch.engine.queries import queries_for
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.market.pricing import Commission
from gpuwatch.ports import Answer, Completeness, Market, Query
from gpuwatch.watches.watch import Watch

log = logging.getLogger(__name__)

Recorder = Callable[[Query, Answer | ProviderError, datetime], None]


class Hunter:
    """The hunt at one provider. One beat at a time; `now` comes from outside."""

    def __init__(
        self,
        market: Market,
        watches: Sequence[Watch],
        commission: Commission,
        evaluator: Evaluator,
        record: Recorder,
        stopping: threading.Event,
    ) -> None:
        self.market = market
        self._watches_of = _by_query(watches, commission)
        self._evaluator = evaluator
        self._record = record
        self._stopping = stopping
        self._asked_at: dict[Query, datetime] = {}
        self._matched: dict[Query, bool] = {}

    @property
    def queries(self) -> int:
        """How many distinct questions a round has."""
        return len(self._watches_of)

    @property
    def matched_queries(self) -> int:
        """How many of them return rows as things are."""
        return sum(self._matched.values())

    def beat(self, clock: Callable[[], datetime], poll_every_s: float, matched_every_s: float) -> None:
        """Ask every question that is due; decide on each answer at once, before the next is asked."""
        for query, watches in self._watches_of.items():
            if self._stopping.is_set():
                return
            slow = self._matched.get(query) and not any(map(self._evaluator.is_hungry, watches))
            every_s = matched_every_s if slow else poll_every_s
            asked_at = self._asked_at.get(query)
            # a clock that stepped back must not silence a watch: an hour ahead of us is not "asked lately"
            if asked_at is not None and timedelta(0) <= clock() - asked_at < timedelta(seconds=every_s * 0.9):
                continue
            self._ask(query, watches, clock)

    def _ask(self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]) -> None:
        self._asked_at[query] = clock()
        answer: Answer | ProviderError
        try:
            answer = self._search(query, watches, clock)
        except ProviderError as error:
            answer = error
        try:
            if isinstance(answer, ProviderError):
                self._evaluator.judge_blind(watches, self.market.name, query.spot, clock())
            else:
                self._matched[query] = answer.rows > 0
                self._evaluator.judge(watches, answer, query.spot, clock())
        except StoreError as error:  # nothing was begun or told that is not written down; the next look tries again
            log.error("a decision could not be kept: %s", error, extra={"provider": self.market.name})  # noqa: TRY400
        self._record(query, answer, clock())

    def _search(self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]) -> Answer:
        answer = self.market.search(query)
        if answer.completeness is not Completeness.TRUNCATED:
            return answer
        if any(self._evaluator.view(watch, answer, clock()).matches for watch in watches):
            return answer  # cheapest first: what was cut is dearer
        # a page full of offers that no watch accepts proves nothing: read on to the end
        return self.market.search(msgspec.structs.replace(query, limit=None))


def _by_query(watches: Sequence[Watch], commission: Commission) -> Mapping[Query, Sequence[Watch]]:
    """Watches that ask the same are answered by one search."""
    found: dict[Query, list[Watch]] = {}
    for watch in watches:
        for query in queries_for(watch, commission):
            found.setdefault(query, []).append(watch)
    return found
