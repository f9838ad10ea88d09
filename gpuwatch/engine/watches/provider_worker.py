"""Collects the quotes that a decision waits for: queries the providers at once and decides when the window ends.

It serves the windows of `QuoteGathering` on its own thread, because an evaluation must not wait for a provider.

The sweep: reads every offer of the watched and recorded GPUs, for the history.

The polling jobs of one provider: hunt, sweep, health check. One provider's failure never touches another.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.watches.query_plan import PollingLimits
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.history.answer_recorder import AnswerRecorder
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.market.polling_plan import sweep_share
from gpuwatch.engine.market.query_planner import RowDemand, RowPlan, paced_age, plan_rows
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import QuoteGathering, QuoteRequest
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import ProviderError, QuotaSpent, RateLimited, StoreError
from gpuwatch.ports import HUNT, SWEEP, Answer, Completeness, Market, PollHistory, ProviderTerms, Query

log = logging.getLogger(__name__)


class QuoteCollector:
    """Serves the windows that one evaluator opens.

    Args:
        hunters: by provider; a provider that is not polled has none.
        run_now: runs a periodic task, by name, before its next scheduled time.
    """

    def __init__(
        self,
        gathering: QuoteGathering,
        evaluator: Evaluator,
        hunters: Mapping[str, Hunter],
        run_now: Callable[[str], None],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._gathering = gathering
        self._evaluator = evaluator
        self._hunters = hunters
        self._run_now = run_now
        self._clock = clock
        self._monotonic = monotonic

    def start(self) -> None:
        """Start serving on a daemon thread."""
        threading.Thread(target=self.run, name="gather", daemon=True).start()

    def run(self) -> None:
        """Serve until the gathering ends."""
        decide_at_s = math.inf
        while True:
            requests = self._gathering.next_requests(decide_at_s - self._monotonic())
            if self._gathering.is_over:  # a daemon that stops must not rent
                return
            if requests:
                for request in requests:
                    self._collect(request)
                decide_at_s = min(decide_at_s, self._monotonic() + self._gathering.longest_s)
            elif self._monotonic() >= decide_at_s:
                decide_at_s = self._monotonic() + self.decide()

    def decide(self) -> float:
        """Decide for watches that have waited long enough, even if providers have not answered.

        Returns:
            Seconds until the next decision is due; infinity: nothing waits.
        """
        try:
            return self._evaluator.decide_gathered(self._clock())
        except StoreError as error:  # the next poll decides
            log.error("cannot store a decision: %s", error)  # noqa: TRY400
        except Exception:  # a defect must not end the thread: no other window would be served
            log.exception("cannot decide on the quotes that were gathered; the next poll decides")
        return self._gathering.longest_s

    def _collect(self, request: QuoteRequest) -> None:
        """Query a provider on a separate thread: a slow one may be in the middle of a long request."""
        hunter = self._hunters.get(request.provider)
        if hunter is not None and not self._gathering.is_starting(request.provider):
            polling = threading.Thread(target=self._poll_providers, args=(hunter, request), name="quotes", daemon=True)
            polling.start()

    def _poll_providers(self, hunter: Hunter, request: QuoteRequest) -> None:
        """Query the best offer alone if the whole query takes too long, else make the whole query due now."""
        if not hunter.poll_best_offer(request.watch, self._gathering.longest_s, self._clock):
            hunter.poll_soon(request.watch)
            self._run_now(f"hunt {request.provider}")


SweepRecorder = Callable[[str, bool, Answer | ProviderError, datetime], None]


def sweep_targets(watches: Iterable[Watch], recorded: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """Return which (GPU, spot) to read: recorded GPUs on demand, watched GPUs with their watches' rental types."""
    found = {(gpu, False): None for gpu in recorded}
    for watch in watches:
        found.update({(gpu, spot): None for gpu in watch.gpu_names for spot in RENTAL_TYPES[watch.spot]})
    return tuple(found)


class Sweeper:
    """The sweep at one provider.

    Args:
        rows: the rows of the last complete sweep; None: unknown.
    """

    def __init__(
        self,
        market: Market,
        targets: Sequence[tuple[str, bool]],
        record: SweepRecorder,
        stopping: threading.Event,
        rows: int | None = None,
    ) -> None:
        self.market = market
        self.targets = targets
        self.rows = rows
        self._record = record
        self._stopping = stopping
        self._remaining: list[tuple[str, bool]] = []  # remaining targets of the current sweep, and its rows so far
        self._rows_read, self._is_complete = 0, True

    @property
    def is_unfinished(self) -> bool:
        """Whether the last sweep was interrupted: the next call of `run` continues it."""
        return bool(self._remaining)

    def run(self, clock: Callable[[], datetime]) -> bool:
        """Read every target once, or the rest of an interrupted sweep; return whether every answer was complete.

        A rate limit or a used-up quota interrupts the sweep.
        """
        if not self._remaining:
            self._remaining, self._rows_read, self._is_complete = list(self.targets), 0, True
        while self._remaining:
            if self._stopping.is_set():
                return False
            gpu, spot = self._remaining[0]
            try:
                answer = self.market.search(Query(gpus=(gpu,), count_max=None, spot=spot))
            except ProviderError as error:
                self._record(gpu, spot, error, clock())
                if isinstance(error, RateLimited | QuotaSpent):
                    return False
                self._is_complete = False
            else:
                self._rows_read += answer.rows
                self._is_complete = self._is_complete and answer.completeness is Completeness.COMPLETE
                self._record(gpu, spot, answer, clock())
            self._remaining.pop(0)
        if self._is_complete:
            self.rows = self._rows_read
        return self._is_complete


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
        self.finished_rounds = 0  # for the watchdog
        self._history = history
        self._clock = clock
        self._swept_at = swept_at
        self._paced_ages = {} if paced_ages is None else paced_ages
        self._next_plan: RowPlan | None = None

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
