"""One provider's part of the daemon: its hunt, its sweep, its rows, its sight. One's failure never touches another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from gpuwatch.engine.drift_detector import DriftDetector
from gpuwatch.engine.health_monitor import HealthMonitor
from gpuwatch.engine.hunt import Hunter
from gpuwatch.engine.row_budget import RowDemand, RowPlan, plan_rows
from gpuwatch.engine.sweep import Sweeper
from gpuwatch.errors import ProviderError, QuotaSpent, StoreError
from gpuwatch.ports import (
    Answer,
    Completeness,
    PollHistory,
    ProviderSettings,
    Query,
)

log = logging.getLogger(__name__)


class ProviderWorker:
    """Runs the beats of one provider; each beat is called by the clockwork, never two of a kind at once."""

    def __init__(
        self,
        settings: ProviderSettings,
        history: PollHistory,
        health_monitor: HealthMonitor,
        drift_detector: DriftDetector,
        clock: Callable[[], datetime],
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.health_monitor = health_monitor
        self.finished_rounds = 0  # progress, for the watchdog
        self._history = history
        self._drift_detector = drift_detector
        self._clock = clock
        self._swept_at: datetime | None = None
        self._asks = False  # was anything asked of the provider itself? A spot watch asks nothing where nothing is spot
        self._next_plan: RowPlan | None = None
        self.hunter: Hunter | None = None
        self.sweeper: Sweeper | None = None

    def man(self, hunter: Hunter | None, sweeper: Sweeper | None, swept_at: datetime | None = None) -> None:
        """Take up the work; None: there is none of that kind.

        Args:
            swept_at: when the market was read last, also by an earlier process: a restart must not cost a sweep.
        """
        self.hunter, self.sweeper, self._swept_at = hunter, sweeper, swept_at

    @property
    def interval_s(self) -> float:
        """How long a round of hunts takes at least: questions lie `search_interval` apart."""
        questions = self.hunter.queries if self.hunter else 0
        return max(self.settings.poll_every_s, questions * self.settings.search_interval_s)

    def plan(self, now: datetime) -> RowPlan:
        """How the rest of the day's rows is shared."""
        demand = RowDemand(
            rows_per_day=self.settings.rows_per_day,
            poll_every_s=self.settings.poll_every_s,
            matched=self.hunter.matched_queries if self.hunter else 0,
            sweep_rows=self.sweeper.rows if self.sweeper else None,
            sweep_every_s=self.settings.sweep_every_s,
        )
        return plan_rows(demand, self._history.rows_used(self.name, now), now)

    def hunt(self) -> None:
        """One round of the hunt; nothing is asked while the day's rows are spent."""
        if self.hunter is not None:
            plan = self._plan_at_hand(self._clock())
            if plan.spent:
                self.health_monitor.failed(_spent(self.name, plan), self._clock())
            else:
                self.hunter.beat(self._clock, self.settings.poll_every_s, plan.matched_every_s)
            self._next_plan = self.plan(self._clock())
        self.finished_rounds += 1

    def _plan_at_hand(self, now: datetime) -> RowPlan:
        """As it was after the hunt before, if the day is still the same: counting rows must not delay a launch."""
        plan, self._next_plan = self._next_plan, None
        return plan if plan is not None and now < plan.resets_at else self.plan(now)

    def sweep_if_due(self) -> bool:
        """One sweep, if its time has come; True if it ran."""
        if self.sweeper is None or not self.sweeper.targets:
            return False
        now = self._clock()
        plan = self.plan(now)
        if plan.sweep_every_s is None or plan.spent:
            return False
        if self._swept_at and timedelta(0) <= now - self._swept_at < timedelta(seconds=plan.sweep_every_s):
            return False
        self._swept_at = now
        self.sweeper.beat(self._clock)
        return True

    def check_health(self) -> None:
        """Has it been silent for three intervals? Where nothing is asked, silence tells nothing."""
        if not self._asks:
            return
        now = self._clock()
        every_s = self._asked_every_s(now)
        if every_s is not None:
            self.health_monitor.beat(every_s + self.settings.timeout_s, now)

    def _asked_every_s(self, now: datetime) -> float | None:
        """How often an answer is to be expected; None: no watch asks there, and nothing is recorded."""
        if self.hunter is not None:
            return self.interval_s
        if self.sweeper is None or not self.sweeper.targets:
            return None
        return self.plan(now).sweep_every_s

    def record_hunt(self, query: Query, answer: Answer | ProviderError, now: datetime) -> None:
        """After a hunt: the history, the sight, what is new."""
        self._keep("hunt", query.gpus[0] if len(query.gpus) == 1 else "", query.spot, answer, now)

    def record_sweep(self, gpu: str, spot: bool, answer: Answer | ProviderError, now: datetime) -> None:
        """After one search of a sweep."""
        self._keep("sweep", gpu, spot, answer, now)

    def _keep(self, lane: str, gpu: str, spot: bool, answer: Answer | ProviderError, now: datetime) -> None:
        if isinstance(answer, Answer) and answer.searches == 0:
            return  # nothing was asked: what a provider never has proves neither sight nor a market without offers
        self._asks = True
        try:
            if isinstance(answer, ProviderError):
                self.health_monitor.failed(answer, now)
                self._history.record_failure(self.name, lane=lane, gpu=gpu, spot=spot, at=now, error=str(answer))
                return
            if answer.completeness is not Completeness.PARTIAL:
                self.health_monitor.saw(now)
            self._history.record(answer, lane=lane, gpu=gpu, spot=spot)
            self._drift_detector.look(answer, now)
        except StoreError as fault:
            # prices may be lost while the disk is full; the hunt goes on, launches cannot: their intent must be durable
            log.error("the answer was not kept: %s", fault, extra={"provider": self.name})  # noqa: TRY400


def _spent(name: str, plan: RowPlan) -> QuotaSpent:
    text = f"{name}: the day's {plan.rows_per_day} rows are used up; nothing is seen until 00:00 UTC"
    return QuotaSpent(text, plan.resets_at)
