"""Builds the parts that poll the marketplaces and evaluate their answers, and plans the polls of each provider."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch import providers
from gpuwatch.bootstrap import new_id, real_monotonic
from gpuwatch.bootstrap.provider_access import is_polled_for, is_swept_for
from gpuwatch.bootstrap.rules import all_commissions, build_rules, commissions_of, watched_gpus
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.engine.forecasts.auto_limits import AutoPrices
from gpuwatch.engine.forecasts.forecast_ledger import ForecastLedger
from gpuwatch.engine.history.answer_recorder import AnswerRecorder
from gpuwatch.engine.history.sweep import Sweeper, sweep_targets
from gpuwatch.engine.market.drift_detector import DriftDetector
from gpuwatch.engine.market.empty_answers import PAST, EmptyAnswers
from gpuwatch.engine.market.health_monitor import HealthMonitor
from gpuwatch.engine.market.known_prices import PriceRanks, PricesOnSale
from gpuwatch.engine.market.polling_plan import PollingPlan, plan_polling
from gpuwatch.engine.market.query_planner import QueryPlanner
from gpuwatch.engine.market.row_budget import SWEEP_EVERY_MIN_S
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.engine.watches.current_limits import MachineReputations, PastLimits, WatchLimits
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import QuoteGathering
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.provider_worker import ProviderWorker
from gpuwatch.engine.watches.quote_collector import QuoteCollector
from gpuwatch.engine.watches.replacement import ReplacementCheck
from gpuwatch.errors import StoreError
from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices
from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits, SqlForecasts
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows, prices_on_sale
from gpuwatch.storage.history.queries.poll_queries import last_sweeps, recent_sweeps
from gpuwatch.storage.launches.renting_blocks import SqlMachineNoteRepository
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.bootstrap.essentials import Essentials
    from gpuwatch.bootstrap.following import Following
    from gpuwatch.domain.market.search_query import ExpectedRows
    from gpuwatch.engine.jobs.job_queue import JobQueue
    from gpuwatch.engine.launches.renting.launch_commands import LaunchCommands
    from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
    from gpuwatch.ports import ProviderSection
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
    from gpuwatch.storage.setup.database import Database

LAUNCH_PRIORITY_S = 0.2  # how long the history waits at most for launches that have just started


class Polling:
    """The evaluation of answers, and a worker for each provider; none in rescue mode, where a filter may be
    missing, and none on a standby.

    Attributes:
        quotes: collects the quotes of waiting decisions; its thread is not started.
    """

    def __init__(
        self,
        base: Essentials,
        history: SqlHistoryRecorder,
        following: Following,
        executor: LaunchExecutor,
        commands: LaunchCommands,
        job_queue: JobQueue,
    ) -> None:
        settings, store = base.settings, base.store
        self._base, self._history, self._executor = base, history, executor
        self._launchers, self._job_queue = following.launchers, job_queue
        self.auto_prices = _auto_prices(base)
        self.price_ranks = PriceRanks(
            SqlHourlyLows(store),
            watched_gpus(settings),
            REFERENCE_DISK_GB,
            all_commissions(settings),
            verified_gpus=watched_gpus(settings, verified=True),
        )
        self.past_limits = PastLimits(SqlFittingPrices(store, all_commissions(settings)), REFERENCE_DISK_GB)
        self._open_jobs: frozenset[str] = frozenset()
        self.limits = WatchLimits(
            self.auto_prices,
            self.past_limits,
            MachineReputations(SqlMachineNoteRepository(store).records),
        )
        self._paced_ages: dict[str, timedelta] = {}
        self._emptied: set[str] = set()
        self.gathering = QuoteGathering(timedelta(seconds=settings.launching.gather_s))
        rules = build_rules(
            settings,
            tuple(base.adapters),
            self.price_ranks.rank_of,
            following.known_accounts,
            self._paced_ages,
            self._emptied,
        )
        self.replacements = ReplacementCheck(base.uow_factory, rules, executor, new_id)
        self.evaluator = Evaluator(
            base.uow_factory,
            rules,
            executor,
            base.slots,
            new_id,
            self.gathering,
            observations=base.observations,
            commands=commands,
        )
        adapters = base.adapters if base.lease.leads and not settings.rescue else {}
        self.workers = {name: self._worker(name, adapter) for name, adapter in adapters.items()}
        hunters = {name: worker.hunter for name, worker in self.workers.items() if worker.hunter is not None}
        self.quotes = QuoteCollector(
            self.gathering, self.evaluator, hunters, base.slots.run_now, base.time_source.now, real_monotonic
        )

    def forget_jobs_that_are_over(self) -> None:
        """Keep nothing in memory about the watches of jobs that are over: a daemon runs for months."""
        names = self._job_queue.open_watches
        if self._open_jobs - names:
            kept = names | {watch.name for watch in self._base.settings.watches}
            self.evaluator.forget_except(kept)
            self.auto_prices.forget_except(kept)
            self.past_limits.forget_except(kept)
        self._open_jobs = names

    def _worker(self, name: str, adapter: Adapter) -> ProviderWorker:
        base = self._base
        provider, now = base.settings.providers[name], base.time_source.now
        health_monitor = HealthMonitor(name, base.uow_factory, new_id, self._unpaced_s, provider.base_url)
        prices = PricesOnSale(adapter.info.default_disk_gb) if adapter.info.joins_gpus else None
        recorder = AnswerRecorder(
            name,
            self._history,
            health_monitor,
            DriftDetector(name, base.uow_factory, new_id),
            partial(self._executor.wait_for_started, name, LAUNCH_PRIORITY_S),
            prices=prices,
            empty_answers=EmptyAnswers(
                name,
                base.uow_factory,
                SqlHolds(base.store),
                new_id,
                recent_sweeps(base.store, name, now() - PAST),
                self._emptied,
                filters=_filters_of(provider),
            ),
        )
        newest_sweep = last_sweeps(base.store).get(name)
        return ProviderWorker(
            provider,
            self._history,
            health_monitor,
            recorder,
            now,
            hunter=self._hunter(name, adapter, recorder, prices),
            sweeper=self._sweeper(name, adapter, recorder, newest_sweep.rows if newest_sweep else None),
            swept_at=newest_sweep.at if newest_sweep else None,
            paced_ages=self._paced_ages,
        )

    def _unpaced_s(self) -> float:
        """Monotonic seconds at the pace of the wall clock, also in tests that speed up waits."""
        return self._base.time_source.monotonic() / pace()

    def _hunter(
        self, name: str, adapter: Adapter, recorder: AnswerRecorder, prices: PricesOnSale | None
    ) -> Hunter | None:
        base = self._base
        watches = [watch for watch in base.settings.watches if is_polled_for(name, watch)]
        if not watches and name not in self._launchers:
            return None
        if prices is not None and len(watches) > 1:
            prices.begin_with(prices_on_sale(base.store, name))
        arrivals = partial(self.price_ranks.arrivals, name)
        planner = None if prices is None else QueryPlanner(prices, arrivals, self.limits.deadline)
        return Hunter(
            adapter.market,
            watches,
            base.settings.providers[name].commission,
            self.evaluator,
            recorder.record_hunt,
            base.stopping,
            current_limit=partial(self.limits.of, provider=name),
            job_watches=lambda: [watch for watch in self._job_queue.watches if is_polled_for(name, watch)],
            planner=planner,
            started_at=base.time_source.now(),
        )

    def _sweeper(self, name: str, adapter: Adapter, recorder: AnswerRecorder, rows: int | None) -> Sweeper:
        base = self._base
        watches = [watch for watch in base.settings.watches if is_swept_for(name, watch)]
        targets = sweep_targets(watches, base.settings.record.gpu_names)  # including list prices, for watches that rent
        return Sweeper(adapter.market, targets, recorder.record_sweep, base.stopping, rows)


def _auto_prices(base: Essentials) -> AutoPrices:
    commissions, watches = commissions_of(base.settings), base.settings.watches
    ledger = ForecastLedger(SqlForecasts(base.store, commissions, watches))
    return AutoPrices(SqlAutoPriceWaits(base.store, commissions), ledger=ledger, new_id=new_id)


def _filters_of(provider: ProviderSection) -> str:
    """What decides which offers a provider lists, apart from the queries: a digest, because options may be long."""
    text = repr((provider.base_url, sorted(provider.options.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def polling_plan(settings: Settings, name: str, store: Database | None = None) -> PollingPlan:
    """The plan of one enabled provider, with sweeps as often as possible.

    Args:
        store: its offers decide which queries are merged; None, or unreadable: no offers are known.
    """
    provider = settings.providers[name]
    sweep_every_s = provider.sweep_every_s or max(SWEEP_EVERY_MIN_S, provider.poll_every_s)
    hunted_watches = [watch for watch in settings.watches if is_polled_for(name, watch)]
    swept_watches = [watch for watch in settings.watches if is_swept_for(name, watch)]
    targets = sweep_targets(swept_watches, settings.record.gpu_names)
    expected_rows = _expected_rows(name, store)
    return plan_polling(provider, hunted_watches, provider.commission, len(targets), sweep_every_s, expected_rows)


def _expected_rows(name: str, store: Database | None) -> ExpectedRows | None:
    info = providers.info(name)
    if store is None or not info.joins_gpus:
        return None
    prices = PricesOnSale(info.default_disk_gb)
    try:
        prices.begin_with(prices_on_sale(store, name))
    except StoreError:
        return None  # callers that need more from the store report the error
    return prices.expected_rows()


def polling_warnings(settings: Settings, store: Database | None = None) -> Iterator[str]:
    """One line for each provider whose watches need more searches than allowed."""
    for name in settings.providers:
        if (warning := polling_plan(settings, name, store).warning) is not None:
            yield warning
