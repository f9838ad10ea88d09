"""Records what a provider answered: the history, its health, values never seen before. Never before a launch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.engine.drift_detector import DriftDetector
from gpuwatch.engine.health_monitor import HealthMonitor
from gpuwatch.engine.prices_on_sale import PricesOnSale
from gpuwatch.errors import NoRowUnderstood, ProviderError, StoreError
from gpuwatch.ports import HUNT, SWEEP, Answer, Completeness, PollHistory, Query

log = logging.getLogger(__name__)


def _no_launches() -> None:
    """Nothing to wait for."""


class AnswerRecorder:
    """Records the answers of one provider.

    Args:
        let_launches_start: waits a moment for the launches that a hunt has just started: writing the history would
            take the interpreter's lock from a request that is just being sent.
        prices: learns from every answer what is on sale; None: nobody plans questions by that.
    """

    def __init__(
        self,
        provider: str,
        history: PollHistory,
        health_monitor: HealthMonitor,
        drift_detector: DriftDetector,
        let_launches_start: Callable[[], None] = _no_launches,
        prices: PricesOnSale | None = None,
    ) -> None:
        self.polled: set[str] = set()  # lanes where anything was asked: a spot watch asks nothing where none is spot
        self._provider = provider
        self._history = history
        self._health_monitor = health_monitor
        self._drift_detector = drift_detector
        self._let_launches_start = let_launches_start
        self._prices = prices

    def record_hunt(self, query: Query, answer: Answer | ProviderError, now: datetime) -> None:
        """After a query of the hunt was decided on."""
        self._let_launches_start()
        self._learn(query, answer)
        self._record(HUNT, query.gpus[0] if len(query.gpus) == 1 else "", query.spot, answer, now)

    def record_sweep(self, gpu: str, spot: bool, answer: Answer | ProviderError, now: datetime) -> None:
        """After one search of a sweep."""
        self._learn(Query(gpus=(gpu,), spot=spot), answer)
        self._record(SWEEP, gpu, spot, answer, now)

    def _learn(self, query: Query, answer: Answer | ProviderError) -> None:
        if self._prices is not None and isinstance(answer, Answer):
            self._prices.learn(query, answer)

    def _record(self, lane: str, gpu: str, spot: bool, answer: Answer | ProviderError, now: datetime) -> None:
        if isinstance(answer, Answer) and answer.searches == 0:
            return  # nothing was asked: that proves neither health nor a market without offers
        self.polled.add(lane)
        question = f"{gpu or 'all models'}{' spot' if spot else ''}"
        try:
            if isinstance(answer, ProviderError):
                self._health_monitor.failed(lane, question, answer, now)
                if not answer.was_sent:
                    return  # no search: the history counts those that were made
                self._history.record_failure(self._provider, lane=lane, gpu=gpu, spot=spot, at=now, error=str(answer))
                if isinstance(answer, NoRowUnderstood):
                    self._drift_detector.check_unusable(answer, now)
                return
            if answer.completeness is not Completeness.PARTIAL:
                has_rows = bool(answer.offers) or answer.rows > sum(answer.skipped.values())
                if self._health_monitor.answered(lane, question, has_rows, now):
                    self._drift_detector.understands_again()
            self._history.record(answer, lane=lane, gpu=gpu, spot=spot)
            self._drift_detector.check(answer, now)
        except StoreError as error:
            # prices may be lost while the disk is full and the hunt goes on; a launch needs a durable intent
            log.error("cannot store the answer: %s", error, extra={"provider": self._provider})  # noqa: TRY400
