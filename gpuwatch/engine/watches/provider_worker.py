"""The polling jobs of one provider: hunt, sweep, health check. One provider's failure never touches another.

`FirstRequestGate` decides when a daemon that has just started sends its first query. Nothing can be rented at a
provider until its instances are listed and its prerequisites are known, so earlier quotes could not win. The wait is
longer for a provider that has answered something than for a silent one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.watches.query_plan import PollingLimits
from gpuwatch.engine.history.answer_recorder import AnswerRecorder
from gpuwatch.engine.history.sweep import Sweeper
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.market.polling_plan import sweep_share
from gpuwatch.engine.market.row_budget import (
    RowDemand,
    RowPlan,
    paced_age,
    plan_rows,
)
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.ports import HUNT, SWEEP, PollHistory, ProviderTerms

log = logging.getLogger(__name__)

FIRST_LIST_S = 5.0  # after a start; later, the alert names a provider that has not listed its instances
READY_S = 15.0  # after a start, for a provider that answers slowly; assumed
_PROOF_EVERY_S = 60.0  # between sweeps that must tell whether a provider still lists offers


class ProviderWorker:
    """The jobs of one provider; the scheduler never runs two of a kind at once.

    Args:
        hunter: None: no watch polls this provider.
        swept_at: time of the last sweep, also by an earlier process: a restart must not cost a sweep.
        paced_ages: kept up to date: how long its answers count while the row quota slows its hunt down.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        settings: ProviderTerms,
        history: PollHistory,
        health_monitor: HealthMonitor,
        recorder: AnswerRecorder,
        clock: Callable[[], datetime],
        *,
        hunter: Hunter | None,
        sweeper: Sweeper,
        swept_at: datetime | None = None,
        paced_ages: MutableMapping[str, timedelta] | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.health_monitor = health_monitor
        self.recorder = recorder
        self.hunter = hunter
        self.sweeper = sweeper
        self.finished_rounds = 0
        self._history = history
        self._clock = clock
        self._swept_at = swept_at
        self._paced_ages = {} if paced_ages is None else paced_ages
        self._next_plan: RowPlan | None = None

    @property
    def steps(self) -> int:
        """Rounds and queries, for the watchdog: a round takes longer where owners share an account."""
        return self.finished_rounds + (0 if self.hunter is None else self.hunter.attempts)

    @property
    def interval_s(self) -> float:
        """The minimum duration of a round of the hunt: its queries are `search_interval` apart."""
        queries = self.hunter.queries if self.hunter else 0
        return max(self.settings.poll_every_s, queries * self.settings.search_interval_s)

    @property
    def hunt_every_s(self) -> float:
        """How often to check for due queries: with a plan, queries have their own intervals."""
        planned = self.hunter is not None and self.hunter.is_planned
        turn_s = max(self.settings.search_interval_s, 1.0)
        return min(self.settings.poll_every_s, turn_s) if planned else self.settings.poll_every_s

    def plan(self, now: datetime) -> RowPlan:
        """Return how the rest of the day's rows is divided."""
        demand = RowDemand(
            rows_per_day=self.settings.rows_per_day,
            poll_every_s=self.settings.poll_every_s,
            matched_rows=sum(self.hunter.matched_rows) if self.hunter else 0,
            sweep_rows=self.sweeper.rows,
            sweep_every_s=self.settings.sweep_every_s,
        )
        return plan_rows(demand, self._history.rows_used(self.name, now), now)

    def hunt(self) -> None:
        """Run a round of the hunt, and the next at once if it took longer than `poll_every`: no turn stays unused."""
        while self._hunt_once() > self.settings.poll_every_s:
            if self.hunter is None or self.hunter.is_stopping:
                return

    def _hunt_once(self) -> float:
        """Run one round, without polls if the day's rows are used up; return its duration in seconds."""
        began = self._clock()
        if self.hunter is not None:
            plan = self._newest_plan(began)
            if plan.spent:
                self.health_monitor.paused_for_rows(plan.rows_per_day, plan.rows_used, plan.resets_at, self._clock())
            else:
                self._run_round(self.hunter, plan)
            self._next_plan = self.plan(self._clock())
        self.finished_rounds += 1
        return (self._clock() - began).total_seconds()

    def _run_round(self, hunter: Hunter, plan: RowPlan) -> None:
        attempts = hunter.attempts
        limits = self._limits(plan) if hunter.is_planned else None
        hunter.run_round(
            self._clock, self.settings.poll_every_s, plan.matched_every_s, limits, may_hurry=plan.may_hurry
        )
        self._paced_ages[self.name] = paced_age(self.settings.rows_per_day, len(hunter.matched_rows))
        if hunter.attempts == attempts:
            self.health_monitor.nothing_due(HUNT)

    def _limits(self, plan: RowPlan) -> PollingLimits:
        settings = self.settings
        share = sweep_share(len(self.sweeper.targets), plan.sweep_every_s, settings.search_interval_s)
        return PollingLimits(
            poll_every_s=settings.poll_every_s,
            search_interval_s=settings.search_interval_s,
            turns_share=1.0 - share,
            rows_per_s=plan.hunt_rows_per_s,
        )

    def _newest_plan(self, now: datetime) -> RowPlan:
        """Return the plan made after the last round, if from today: counting rows must not delay a launch."""
        plan, self._next_plan = self._next_plan, None
        return plan if plan is not None and now < plan.resets_at else self.plan(now)

    def sweep_if_due(self) -> bool:
        """Run a due sweep, or the rest of an interrupted one; return whether it ran."""
        if not self.sweeper.targets:
            return False
        now = self._clock()
        plan = self.plan(now)
        every_s = _PROOF_EVERY_S if self.recorder.needs_sweep else plan.sweep_every_s
        if every_s is None or plan.spent:
            self.health_monitor.nothing_due(SWEEP)
            return False
        if self.sweeper.is_unfinished:
            self.sweeper.run(self._clock)
            return True
        if self._swept_at and timedelta(0) <= now - self._swept_at < timedelta(seconds=every_s):
            self.health_monitor.nothing_due(SWEEP)
            return False
        self._swept_at = now
        self.sweeper.run(self._clock)
        return True

    def check_health(self) -> None:
        """Check whether a lane has been silent for three intervals; lanes that poll nothing are exempt."""
        now = self._clock()
        for lane, is_polled in ((HUNT, bool(self.hunter and self.hunter.queries)), (SWEEP, bool(self.sweeper.targets))):
            if not is_polled:
                self.health_monitor.not_polled(lane)
            elif lane in self.recorder.polled and (every_s := self._expected_every_s(lane, now)) is not None:
                self.health_monitor.check(lane, every_s + self.settings.timeout_s, now)

    def _expected_every_s(self, lane: str, now: datetime) -> float | None:
        """Return the expected interval between answers; None: no answer before the day's rows are reset."""
        return self.interval_s if lane == HUNT else self.plan(now).sweep_every_s


class FirstRequestGate(msgspec.Struct, frozen=True, kw_only=True):
    """Decides whether the first search may be sent to a provider.

    Args:
        started_s: monotonic, when the daemon started.
        is_listed: whether its instances are known.
        is_checked: whether its prerequisites are known.
        is_alive: whether it has answered, and its instance list did not fail.
        rents: whether anything can be rented; alerts alone wait at most `FIRST_LIST_S` for prerequisites.
    """

    started_s: float
    is_listed: Callable[[], bool]
    is_checked: Callable[[], bool]
    is_alive: Callable[[], bool]
    rents: Callable[[], bool]

    def is_ready(self) -> bool:
        """Whether renting there is possible."""
        return self.is_listed() and self.is_checked()

    def is_due(self, now_s: float) -> bool:
        """Whether it is ready, or the wait is over. `now_s` is monotonic."""
        waited_s = now_s - self.started_s
        if self.is_ready() or waited_s >= READY_S:
            return True
        return waited_s >= FIRST_LIST_S and not (self.is_alive() and self.rents())
