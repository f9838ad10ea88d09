"""Builds and connects the daemon's parts; `daemon/tasks.py` defines what runs when."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import REAL_TIME, TimeSource, build_adapters, build_channels, build_hooks, http_client, new_id
from gpuwatch.bootstrap.accounts import account_faults, provider_account, with_previous_keys
from gpuwatch.bootstrap.alert_log import log_alert
from gpuwatch.bootstrap.buttons import give_buttons
from gpuwatch.bootstrap.clusters import build_cluster_jobs, cluster_states, orchestrator
from gpuwatch.bootstrap.commands import build_commands
from gpuwatch.bootstrap.jobs import build_job_queue, build_job_runner, job_shells
from gpuwatch.bootstrap.keeper import obligation_file, obligations_at
from gpuwatch.bootstrap.prerequisites import build_gates
from gpuwatch.bootstrap.provider_access import has_credentials, is_polled_for, label_lengths, providers_to_follow
from gpuwatch.bootstrap.renamed_watches import settle_watches
from gpuwatch.bootstrap.rules import all_commissions, build_routing, build_rules, commissions_of, watched_gpus
from gpuwatch.domain.jobs.cluster import TOOL
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alert_delivery import AlertDelivery
from gpuwatch.engine.answer_recorder import AnswerRecorder
from gpuwatch.engine.auto_prices import AutoPrices
from gpuwatch.engine.balance_cache import BalanceCache
from gpuwatch.engine.candidate_loop import ProviderContext
from gpuwatch.engine.drift_detector import DriftDetector
from gpuwatch.engine.evaluator import Evaluator
from gpuwatch.engine.fallback_alerts import FallbackAlerts
from gpuwatch.engine.forecast_scores import ForecastLedger
from gpuwatch.engine.gather import QuoteGathering
from gpuwatch.engine.guard import ProviderGuard
from gpuwatch.engine.health_monitor import HealthMonitor
from gpuwatch.engine.hunt import Hunter
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.launch_executor import LaunchExecutor
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launch_slots import LaunchSlots
from gpuwatch.engine.machine_reputations import MachineReputations
from gpuwatch.engine.past_limits import PastLimits
from gpuwatch.engine.price_ranks import PriceRanks
from gpuwatch.engine.prices_on_sale import PricesOnSale
from gpuwatch.engine.provider_worker import ProviderWorker
from gpuwatch.engine.query_planner import QueryPlanner
from gpuwatch.engine.sweep import Sweeper, sweep_targets
from gpuwatch.engine.transition_executor import TransitionExecutor
from gpuwatch.errors import StoreError
from gpuwatch.remote.ssh_probe import SshProbe
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB
from gpuwatch.storage.auto_prices import SqlAutoPriceWaits, SqlPastPrices
from gpuwatch.storage.forecasts import SqlForecasts
from gpuwatch.storage.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.hourly_lows import SqlHourlyLows
from gpuwatch.storage.invoices import SqlInvoiceRepository
from gpuwatch.storage.job_repository import SqlJobRepository
from gpuwatch.storage.launch_repository import SqlLaunchRepository
from gpuwatch.storage.machine_notes import SqlMachineNoteRepository
from gpuwatch.storage.outbox import Outbox
from gpuwatch.storage.pauses import SqlPauseRepository
from gpuwatch.storage.poll_queries import last_sweep
from gpuwatch.storage.prices_on_sale import prices_on_sale
from gpuwatch.storage.provider_holds import SqlHolds
from gpuwatch.storage.skipped_scopes import SqlSkippedScopes
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.storage.utilisation import SqlUtilisationRepository

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.engine.provider_account import ProviderAccount
    from gpuwatch.ports import Channel, Launcher
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

log = logging.getLogger(__name__)

LAUNCH_FIRST_S = 0.2  # how long the history waits at most for launches that have just started


class Service:
    """The daemon's parts over an open store.

    Args:
        run_now: runs a periodic task, by name, before its next scheduled time.
    """

    def __init__(
        self,
        settings: Settings,
        store: Database,
        http: HttpClient,
        extra_channels: Mapping[str, Channel] | None = None,
        run_now: Callable[[str], None] = lambda name: None,
        time_source: TimeSource = REAL_TIME,
    ) -> None:
        self.settings = settings
        self.time_source = time_source
        self.stopping = threading.Event()
        self.store = store
        self._http = http
        self.uow_factory = SqlDecisionStore(store)
        self.history = SqlHistoryRecorder(store)
        self.obligations = obligation_file(settings, time_source.now)
        self.launch_repository = SqlLaunchRepository(store, self.obligations)
        self.invoices = SqlInvoiceRepository(store)
        self.pauses = SqlPauseRepository(store)
        self.adapters = build_adapters(
            settings, http, stop=self.stopping, time_source=time_source, holds=SqlHolds(store)
        )
        self.channels = {**build_channels(settings, http), **(extra_channels or {})}
        give_buttons(store, self.channels.values())
        routing = build_routing(settings, self.channels)
        self.deliverer = AlertDelivery(Outbox(store), self.channels, routing=routing, log_alert=log_alert)
        self.fallback_alerts = FallbackAlerts(self.channels, new_id, log_alert)
        self._watches = {watch.name: watch for watch in settings.watches}
        self.launch_alerts = LaunchAlerts(new_id, self.adapters)
        self.hooks = build_hooks(settings, store, http, self.stopping, time_source)
        self.slots = LaunchSlots(run_now, ("deliver", *(f"hunt {name}" for name in self.adapters)))
        self.launchers = self._build_launchers()
        self.accounts = {name: provider_account(settings, store, one) for name, one in self.launchers.items()}
        self.balances = {name: BalanceCache(one, time_source.monotonic) for name, one in self.launchers.items()}
        self.guards = {name: self._guard(launcher) for name, launcher in self.launchers.items()}
        self.reconcilers = {
            name: self._reconciler(launcher, self.accounts[name], self.guards[name])
            for name, launcher in self.launchers.items()
        }
        self._follow_previous_keys(http)
        self.gates = build_gates(
            settings, self.adapters, self.launchers, SqlHolds(store), self.launch_repository.enqueue, time_source
        )
        self._contexts = {
            name: self._context(name, launcher) for name, launcher in self.launchers.items() if name in self.adapters
        }
        self.executor = LaunchExecutor(
            self.launch_repository, self._contexts, self.launch_alerts, time_source.now, settings.budget, self.slots
        )
        self.price_ranks = PriceRanks(SqlHourlyLows(store), watched_gpus(settings), REFERENCE_DISK_GB)
        rules = build_rules(settings, tuple(self.adapters), self.price_ranks.rank_of, self._known_accounts)
        self.gathering = QuoteGathering(timedelta(seconds=settings.gather_s), self._ask_soon, self._decide_in)
        self.commands = build_commands(
            settings, self.launch_repository, self.launch_alerts, self.slots, self.stopping, time_source
        )
        rented = self.executor, self.slots, new_id, self.gathering
        self.evaluator = Evaluator(self.uow_factory, rules, *rented, commands=self.commands)
        ledger = ForecastLedger(SqlForecasts(store, commissions_of(settings), settings.watches))
        waits = SqlAutoPriceWaits(store, commissions_of(settings))
        self.auto_prices = AutoPrices(waits, ledger=ledger, new_id=new_id)
        self.reputations = MachineReputations(SqlMachineNoteRepository(store).records)
        self.past_limits = PastLimits(SqlPastPrices(store, all_commissions(settings)), REFERENCE_DISK_GB)
        self.jobs = SqlJobRepository(store)
        kept = self.jobs, self.launch_repository
        self.job_queue = build_job_queue(settings, *kept, self.evaluator.best_usd_gpu_hour)
        seen = self.evaluator.shown, self._with_current_limits
        self.job_runner = build_job_runner(settings, store, *kept, self.launchers, time_source, *seen)
        self.cluster_jobs = build_cluster_jobs(
            settings,
            self.launchers.get(TOOL),
            self.reconcilers.get(TOOL),
            jobs=self.jobs,
            launches=self.launch_repository,
            units=self.uow_factory,
            obligations=self.obligations,
            slots=self.slots,
            clock=time_source.now,
            transitions=TransitionExecutor(self.launch_repository, self.launch_alerts),
            account=lambda: self.accounts[TOOL].account_id,
        )
        polled = {} if settings.rescue else self.adapters  # rescue mode polls no market: a filter may be missing
        self.workers = {name: self._worker(name, adapter) for name, adapter in polled.items()}

    def _follow_previous_keys(self, http: HttpClient) -> None:
        """Follow and end launches under a provider's previous key; nothing is rented with it."""
        former = with_previous_keys(self.settings)
        adapters = build_adapters(former, http, stop=self.stopping, time_source=self.time_source)
        for name, adapter in adapters.items():
            if adapter.launcher is None or name not in self.accounts:
                continue
            account = provider_account(former, self.store, adapter.launcher)
            account.beside, self.accounts[name].beside = self.accounts[name], account
            known_as = f"{name} (previous key)"
            self.guards[known_as] = self._guard(adapter.launcher)
            self.reconcilers[known_as] = self._reconciler(adapter.launcher, account, self.guards[known_as])

    # --- parts --------------------------------------------------------------------------------------------------------

    def _build_launchers(self) -> dict[str, Launcher]:
        """By provider, where gpuwatch can rent: those with a launcher and credentials."""
        found: dict[str, Launcher] = {
            name: adapter.launcher
            for name, adapter in self.adapters.items()
            if adapter.launcher is not None and has_credentials(self.settings.providers[name])
        }
        engine = orchestrator(self.settings, alive=partial(cluster_states, self.launch_repository))
        return found if engine is None else {**found, engine.name: engine}

    def _context(self, name: str, launcher: Launcher) -> ProviderContext:
        return ProviderContext(
            launcher,
            self.adapters[name].market,
            self.settings.providers[name].commission,
            self.balances[name],
            self.reconcilers[name],
            self.obligations,
            why_nothing=self.settings.rescue,
            label_length=label_lengths([name])[name],
            account_id=lambda: self.accounts[name].account_id,
            scopes=SqlSkippedScopes(self.store),
            gate=self.gates.get(name),
            public_key=job_shells(self.settings).public_key,
        )

    def _reconciler(self, launcher: Launcher, account: ProviderAccount, guard: ProviderGuard) -> LaunchReconciler:
        return LaunchReconciler(
            self.launch_repository,
            launcher,
            self.launch_alerts,
            watches=self._watches,
            in_flight=self.slots.in_flight,
            monotonic=self.time_source.monotonic,
            market=self.adapters[launcher.name].market if launcher.name in self.adapters else None,
            freed=self.slots.launch_over,
            guard=guard,
            may_destroy=self.hooks.may_destroy,
            watch_ended=timedelta(seconds=self.settings.watch_ended_s),
            owner=account,
            rents=self.rents,
            obligations=partial(obligations_at, launcher.name, self.obligations, self.store),
        )

    def rents(self) -> bool:
        """Whether anything may be rented: jobs may be queued at any time."""
        watches = (*self.settings.watches, *self.job_queue.watches)
        return not self.settings.dry_run and any(one.action is not Action.ALERT for one in watches)

    def _known_accounts(self) -> Mapping[str, str]:
        return {name: one.account_id for name, one in self.accounts.items() if one.account_id is not None}

    def _guard(self, launcher: Launcher) -> ProviderGuard:
        return ProviderGuard(
            self.launch_repository,
            SqlUtilisationRepository(self.store),
            launcher,
            SshProbe(),
            self.launch_alerts,
            watches=self._watches,
            budget=self.settings.budget,
            zone=ZoneInfo(self.settings.timezone),
            new_id=new_id,
            shown=lambda watch: self.evaluator.shown(watch),  # noqa: PLW0108 it is built later
        )

    def _worker(self, name: str, adapter: Adapter) -> ProviderWorker:
        provider = self.settings.providers[name]
        started_at = self.time_source.now()
        health_monitor = HealthMonitor(name, self.uow_factory, new_id, started_at, provider.base_url)
        prices = PricesOnSale(adapter.info.default_disk_gb) if adapter.info.joins_gpus else None
        recorder = AnswerRecorder(
            name,
            self.history,
            health_monitor,
            DriftDetector(name, self.uow_factory, new_id),
            partial(self.executor.wait_for_started, name, LAUNCH_FIRST_S),
            prices,
        )
        swept = last_sweep(self.store, name)
        return ProviderWorker(
            provider,
            self.history,
            health_monitor,
            recorder,
            self.time_source.now,
            hunter=self._hunter(name, adapter, recorder, prices),
            sweeper=self._sweeper(name, adapter, recorder, swept.rows if swept else None),
            swept_at=swept.at if swept else None,
        )

    def _hunter(
        self, name: str, adapter: Adapter, recorder: AnswerRecorder, prices: PricesOnSale | None
    ) -> Hunter | None:
        mine = [watch for watch in self.settings.watches if is_polled_for(name, watch)]
        if not mine and name not in self.launchers:
            return None
        if prices is not None and len(mine) > 1:
            prices.begin_with(prices_on_sale(self.store, name))
        return Hunter(
            adapter.market,
            mine,
            self.settings.providers[name].commission,
            self.evaluator,
            recorder.record_hunt,
            self.stopping,
            current_limit=self._with_current_limits,
            job_watches=lambda: [watch for watch in self.job_queue.watches if is_polled_for(name, watch)],
            planner=self._planner(name, prices) if prices is not None else None,
        )

    def _with_current_limits(self, watch: Watch, now: datetime) -> Watch:
        limited = self.past_limits.with_past(self.auto_prices.with_current_limit(watch, now), now)
        return self.reputations.with_records(limited, now)

    def _planner(self, name: str, prices: PricesOnSale) -> QueryPlanner:
        def deadline(watch: Watch, now: datetime) -> datetime | None:
            return self.auto_prices.standing(watch, now).deadline if watch.auto is not None else None

        return QueryPlanner(prices, partial(self.price_ranks.arrivals, name), deadline)

    def _sweeper(self, name: str, adapter: Adapter, recorder: AnswerRecorder, rows: int | None) -> Sweeper:
        named = [watch for watch in self.settings.watches if watch.providers is None or name in watch.providers]
        targets = sweep_targets(named, self.settings.record_gpus)  # including list prices, for watches that rent
        return Sweeper(adapter.market, targets, recorder.record_sweep, self.stopping, rows)

    def _ask_soon(self, provider: str, watch: str) -> None:
        """Quotes are being compared: poll a provider as soon as it allows."""
        worker = self.workers.get(provider)
        if worker is None or worker.hunter is None or self.gathering.is_starting(provider):
            return
        threading.Thread(
            target=self._ask_for_quotes, args=(worker.hunter, provider, watch), name="gather", daemon=True
        ).start()

    def _ask_for_quotes(self, hunter: Hunter, provider: str, watch: str) -> None:
        """On a separate thread: a slow provider may be in the middle of a long request."""
        if not hunter.ask_for_best(watch, self.settings.gather_s, self.time_source.now):
            hunter.ask_soon(watch)
            self.slots.run_now(f"hunt {provider}")

    def _decide_in(self, seconds: float) -> None:
        """Decide for watches that wait for quotes, even if providers have not answered."""
        timer = threading.Timer(seconds, self._decide_gathered)
        timer.daemon = True
        timer.start()

    def _decide_gathered(self) -> None:
        if self.stopping.is_set():
            return
        try:
            self.evaluator.decide_gathered(self.time_source.now())
        except StoreError as error:  # the next poll decides
            log.error("cannot store a decision: %s", error)  # noqa: TRY400

    # --- launches -----------------------------------------------------------------------------------------------------

    def unmanaged(self, settings: Settings) -> list[Launch]:
        """Active launches that these settings could not manage: the provider or its key is gone."""
        alive = self.launch_repository.alive()
        known = providers_to_follow(settings, self._http, {launch.provider for launch in alive})
        return [launch for launch in alive if launch.provider not in known and not launch.is_by_command]

    def account_faults(self, settings: Settings) -> list[str]:
        """Why these settings could not reach launches that are reachable now: their keys belong to other accounts."""
        alive = self.launch_repository.alive()
        reached = [one for one in alive if one.provider in self.accounts and self._is_reached(one)]
        return account_faults(settings, self.store, self._http, reached, self.time_source.now())

    def _is_reached(self, launch: Launch) -> bool:
        account = self.accounts[launch.provider]
        return account.owns(launch) or (account.beside is not None and account.beside.owns(launch))

    def close(self) -> None:
        """Give work in progress a short time to reach a recorded state."""
        self.stopping.set()
        self.job_runner.close()
        self.executor.shutdown()
        self.commands.close(within_s=3.0)
        self.hooks.close(within_s=1.5)
        with suppress(StoreError):  # then the next start logs it
            self.deliverer.route_new(self.time_source.now())
        self.deliverer.close(timeout_s=1.0)


@contextmanager
def build_service(
    settings: Settings,
    store: Database,
    extra_channels: Mapping[str, Channel] | None = None,
    run_now: Callable[[str], None] = lambda name: None,
    time_source: TimeSource = REAL_TIME,
) -> Iterator[Service]:
    """The service over an open, upgraded database; closed at the end."""
    with http_client(settings) as http:
        if not settings.rescue:  # a watch missing from rescued settings may still exist
            settle_watches(settings, store, time_source.now())
        service = Service(settings, store, http, extra_channels, run_now, time_source)
        try:
            yield service
        finally:
            service.close()
