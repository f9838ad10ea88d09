"""Records a provider's answers: history, health and new values. A launch never waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.domain.market.search_query import query_of
from gpuwatch.engine.market.drift_detector import DriftDetector
from gpuwatch.engine.market.empty_answers import EmptyAnswers
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.market.known_prices import PricesOnSale
from gpuwatch.engine.market.watch_search import why_incomplete
from gpuwatch.errors import NoRowUnderstood, ProviderError, StoreError
from gpuwatch.ports import HUNT, SWEEP, Answer, Completeness, PollHistory, Query

log = logging.getLogger(__name__)


class AnswerRecorder:
    """Records the answers of one provider.

    Args:
        let_launches_start: waits briefly for the launches that a hunt has just started: writing the history would
            take the interpreter's lock from a request that is being sent.
        prices: learns what is on sale from every answer; None: nothing plans queries with it.
        empty_answers: finds answers that became empty; None: nothing looks for them.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        provider: str,
        history: PollHistory,
        health_monitor: HealthMonitor,
        drift_detector: DriftDetector,
        let_launches_start: Callable[[], None] = lambda: None,
        *,
        prices: PricesOnSale | None = None,
        empty_answers: EmptyAnswers | None = None,
    ) -> None:
        self.polled: set[str] = set()  # lanes that sent a query; a spot watch sends none without spot offers
        self._provider = provider
        self._history = history
        self._health_monitor = health_monitor
        self._drift_detector = drift_detector
        self._let_launches_start = let_launches_start
        self._prices = prices
        self._empty_answers = empty_answers

    @property
    def needs_sweep(self) -> bool:
        """Whether only a sweep, which has no limits, can tell whether the provider still lists offers."""
        return self._empty_answers is not None and self._empty_answers.needs_sweep

    def record_hunt(self, query: Query, answer: Answer | ProviderError, now: datetime) -> None:
        """Record the answer to a query of the hunt, after the decision."""
        self._let_launches_start()
        self._learn(query, answer)
        self._record(HUNT, query.gpus[0] if len(query.gpus) == 1 else "", query.spot, answer, now, query)

    def record_sweep(self, gpu: str, spot: bool, answer: Answer | ProviderError, now: datetime) -> None:
        """Record the answer to one search of a sweep."""
        self._learn(query_of(gpu, spot=spot), answer)
        self._record(SWEEP, gpu, spot, answer, now)

    def _learn(self, query: Query, answer: Answer | ProviderError) -> None:
        if self._prices is not None and isinstance(answer, Answer):
            self._prices.learn(query, answer)

    def _record(
        self,
        lane: str,
        gpu: str,
        spot: bool,
        answer: Answer | ProviderError,
        now: datetime,
        hunted: Query | None = None,
    ) -> None:
        if isinstance(answer, Answer) and answer.searches == 0:
            return  # nothing was sent: that proves neither health nor an empty market
        self.polled.add(lane)
        query_text = f"{gpu or 'all models'}{' spot' if spot else ''}"
        try:
            if isinstance(answer, ProviderError):
                self._health_monitor.failed(lane, query_text, answer, now)
                if not answer.was_sent:
                    return  # no search was made, so the history counts none
                self._history.record_failure(self._provider, lane=lane, gpu=gpu, spot=spot, at=now, error=str(answer))
                if isinstance(answer, NoRowUnderstood):
                    self._drift_detector.note_unusable(answer, now)
                return
            if (why := why_incomplete(answer)) and answer.completeness is Completeness.PARTIAL:
                self._health_monitor.answered_in_part(lane, why)
            else:
                has_rows = bool(answer.offers) or answer.rows > sum(answer.skipped.values())
                self._health_monitor.answered(lane, query_text, has_rows, now)
                if self._empty_answers is not None and answer.completeness is not Completeness.PARTIAL:
                    self._empty_answers.note(lane, hunted or (lane, gpu, spot), answer.rows, now)
            self._history.record(answer, lane=lane, gpu=gpu, spot=spot)
            self._drift_detector.check(answer, now)
        except StoreError as error:
            # losing prices while the disk is full is acceptable, and the hunt goes on; a launch needs a durable intent
            log.error("cannot store the answer: %s", error, extra={"provider": self._provider})  # noqa: TRY400
