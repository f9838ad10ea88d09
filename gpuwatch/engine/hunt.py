"""The hunt: per watch a small question, cheapest first, at or under its threshold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.evaluator import Evaluator
from gpuwatch.engine.queries import queries_for
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import Answer, Completeness, Market, Query

log = logging.getLogger(__name__)

HuntRecorder = Callable[[Query, Answer | ProviderError, datetime], None]
CurrentLimits = Callable[[Watch, datetime], Watch]


class Hunter:
    """The hunt at one provider. One beat at a time; `now` comes from outside."""

    def __init__(
        self,
        market: Market,
        watches: Sequence[Watch],
        commission: Commission,
        evaluator: Evaluator,
        record: HuntRecorder,
        stopping: threading.Event,
    ) -> None:
        self.with_current_limit: CurrentLimits = lambda watch, now: (
            watch
        )  # a watch with the limit of a moment; may raise StoreError
        self.market = market
        self._watches = tuple(watches)
        self._commission = commission
        self._moved: list[Watch] | None = None  # the watches as they were asked for last
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
        self._apply_current_limits(clock())
        for query, watches in self._watches_of.items():
            if self._stopping.is_set():
                return
            slow = self._matched.get(query) and not any(map(self._evaluator.wants_more_launches, watches))
            every_s = matched_every_s if slow else poll_every_s
            asked_at = self._asked_at.get(query)
            # a clock that stepped back must not silence a watch: an hour ahead of us is not "asked lately"
            if asked_at is not None and timedelta(0) <= clock() - asked_at < timedelta(seconds=every_s * 0.9):
                continue
            self._ask(query, watches, clock)

    def _apply_current_limits(self, now: datetime) -> None:
        """Ask for what is at or under the limits of this moment; where one is not known, for nothing."""
        if all(watch.auto is None for watch in self._watches):
            return
        moved = []
        for watch in self._watches:
            try:
                moved.append(self.with_current_limit(watch, now))
            except StoreError as error:
                log.error("watch %s: its limit is not known: %s", watch.name, error)  # noqa: TRY400
            except Exception:  # no history may blind the other watches of this provider
                log.exception("watch %s: its limit cannot be reckoned; nothing is asked for it", watch.name)
        if moved == self._moved:
            return
        self._moved, self._watches_of = moved, _by_query(moved, self._commission)
        self._asked_at = {query: at for query, at in self._asked_at.items() if query in self._watches_of}
        self._matched = {query: has for query, has in self._matched.items() if query in self._watches_of}

    def _ask(self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]) -> None:
        self._asked_at[query] = clock()
        answer: Answer | ProviderError
        try:
            answer = self._search(query, watches, clock)
        except ProviderError as error:
            answer = error
        try:
            if isinstance(answer, ProviderError):
                self._evaluator.evaluate_unanswered(watches, self.market.name, query.spot, clock())
            else:
                self._matched[query] = answer.rows > 0
                self._evaluator.evaluate(watches, answer, query.spot, clock())
        except StoreError as error:  # nothing was begun or told that is not written down; the next look tries again
            log.error("a decision could not be kept: %s", error, extra={"provider": self.market.name})  # noqa: TRY400
        self._record(query, answer, clock())

    def _search(self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]) -> Answer:
        answer = self.market.search(query)
        if answer.completeness is not Completeness.TRUNCATED:
            return answer
        if any(self._evaluator.view(watch, answer, clock()).matches for watch in watches) and not any(
            watch.max_job_cost_usd is not None and self._evaluator.will_rent(watch) for watch in watches
        ):
            return answer  # cheapest first: what was cut is dearer, an hour; a whole job is rented for the least of all
        # a page full of offers that no watch accepts proves nothing: read on to the end
        return self.market.search(msgspec.structs.replace(query, limit=None))


def _by_query(watches: Sequence[Watch], commission: Commission) -> Mapping[Query, Sequence[Watch]]:
    """Watches that ask the same are answered by one search."""
    found: dict[Query, list[Watch]] = {}
    for watch in watches:
        for query in queries_for(watch, commission):
            found.setdefault(query, []).append(watch)
    return found
