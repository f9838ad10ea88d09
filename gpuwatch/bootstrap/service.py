"""The daemon's parts, built from the settings and joined; the clockwork drives the beats that come out of here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import (
    build_adapters,
    build_channels,
    http_client,
    monotonic,
    new_id,
    pace,
    real_now,
)
from gpuwatch.bootstrap.hooks import build_hooks
from gpuwatch.bootstrap.provider_access import (
    has_credentials,
    is_polled_for,
    providers_to_follow,
)
from gpuwatch.bootstrap.rules import build_rules, commissions_of
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alert_delivery import AlertDelivery
from gpuwatch.engine.answer_recorder import AnswerRecorder
from gpuwatch.engine.auto_prices import AutoPrices
from gpuwatch.engine.balance_cache import REFRESH_S, BalanceCache
from gpuwatch.engine.candidate_loop import ProviderContext
from gpuwatch.engine.drift_detector import DriftDetector
from gpuwatch.engine.evaluator import Evaluator
from gpuwatch.engine.fallback_alerts import FallbackAlerts
from gpuwatch.engine.guard import ProviderGuard
from gpuwatch.engine.health_monitor import HealthMonitor
from gpuwatch.engine.hunt import Hunter
from gpuwatch.engine.invoices import InvoiceCollector
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.engine.launch_executor import LaunchExecutor
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launch_slots import LaunchSlots
from gpuwatch.engine.periodic_task import PeriodicTask
from gpuwatch.engine.provider_worker import ProviderWorker
from gpuwatch.engine.reminders import send_reminders
from gpuwatch.engine.sweep import Sweeper, sweep_targets
from gpuwatch.providers.toolkit.ssh_probe import SshProbe
from gpuwatch.storage.auto_prices import SqlAutoPriceWaits
from gpuwatch.storage.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.invoices import SqlInvoiceRepository
from gpuwatch.storage.launch_repository import SqlLaunchRepository
from gpuwatch.storage.outbox import Outbox
from gpuwatch.storage.pauses import SqlPauseRepository
from gpuwatch.storage.poll_queries import last_sweep
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.storage.utilisation import SqlUtilisationRepository

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.ports import Channel, Launcher
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 2.0
DELIVER_EVERY_S = 1.0
HEALTH_EVERY_S = 5.0
SWEEP_CHECK_EVERY_S = 15.0
ROLL_UP_EVERY_S = 60.0
GUARD_EVERY_S = 5.0
HOOKS_EVERY_S = 2.0
REMIND_EVERY_S = 3600.0
AUTO_PRICE_EVERY_S = 60.0
LAUNCH_FIRST_S = 0.2  # at most so long the history waits for launches that have just begun
_STUCK_FACTOR = 5  # rounds without an end, after which the watchdog is not fed


class Service:
    """Everything that runs.

    Args:
        run_now: runs a periodic task, by its name, ahead of its time.
    """

    def __init__(
        self,
        settings: Settings,
        store: Database,
        http: HttpClient,
        extra_channels: Mapping[str, Channel] | None = None,
        run_now: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self._store = store
        self._http = http
        self.uow_factory = SqlDecisionStore(store)
        self.history = SqlHistoryRecorder(store)
        self.ledger = SqlLaunchRepository(store)
        self.adapters = build_adapters(settings, http, stop=self.stopping)
        self.channels = {**build_channels(settings, http), **(extra_channels or {})}
        self.deliverer = AlertDelivery(Outbox(store), self.channels)
        self.distress = FallbackAlerts(self.channels, new_id)
        self._watches = {watch.name: watch for watch in settings.watches}
        self._launch_alerts = LaunchAlerts(self._channels_of, new_id)
        self.hooks = build_hooks(settings, store, http, self._channels_of, self.stopping)
        self.slots = LaunchSlots(run_now, ("deliver", *(f"hunt {name}" for name in self.adapters)))
        launchers = self._launchers()
        self._balances = {name: BalanceCache(launcher, monotonic) for name, launcher in launchers.items()}
        self.guards = {name: self._guard(launcher) for name, launcher in launchers.items()}
        self.followers = {name: self._follower(name, launcher) for name, launcher in launchers.items()}
        self._contexts = {name: self._context(name, launcher) for name, launcher in launchers.items()}
        self.actor = LaunchExecutor(
            self.ledger, self._contexts, self._launch_alerts, real_now, settings.budget, self.slots
        )
        rules = build_rules(settings, tuple(self.adapters), tuple(self.channels))
        self.evaluator = Evaluator(self.uow_factory, rules, self.actor, self.slots, new_id)
        self.auto_prices = AutoPrices(SqlAutoPriceWaits(store, commissions_of(settings)))
        self.workers = {name: self._worker(name, adapter) for name, adapter in self.adapters.items()}
        self._progress: dict[str, tuple[int, float]] = {}

    # --- what is built ------------------------------------------------------------------------------------------------

    def _channels_of(self, watch_name: str) -> tuple[str, ...]:
        watch = self._watches.get(watch_name)
        return tuple(self.channels) if watch is None or watch.notify is None else watch.notify

    def _launchers(self) -> dict[str, Launcher]:
        """Where something can be rented: gpuwatch knows how, and there is a key, or the provider finds its own."""
        return {
            name: adapter.launcher
            for name, adapter in self.adapters.items()
            if adapter.launcher is not None and has_credentials(self.settings.providers[name])
        }

    def _context(self, name: str, launcher: Launcher) -> ProviderContext:
        commission = self.settings.providers[name].commission
        return ProviderContext(
            launcher, self.adapters[name].market, commission, self._balances[name], self.followers[name]
        )

    def _follower(self, name: str, launcher: Launcher) -> LaunchReconciler:
        return LaunchReconciler(
            self.ledger,
            launcher,
            self._launch_alerts,
            watches=self._watches,
            in_flight=self.slots.in_flight,
            monotonic=monotonic,
            freed=self.slots.launch_over,
            guard=self.guards[name],
            may_destroy=self.hooks.may_destroy,
        )

    def _guard(self, launcher: Launcher) -> ProviderGuard:
        return ProviderGuard(
            self.ledger,
            SqlUtilisationRepository(self._store),
            launcher,
            SshProbe(),
            self._launch_alerts,
            watches=self._watches,
            budget=self.settings.budget,
            zone=ZoneInfo(self.settings.timezone),
            channels_of=self._channels_of,
            new_id=new_id,
        )

    def _worker(self, name: str, adapter: Adapter) -> ProviderWorker:
        provider, channels = self.settings.providers[name], tuple(self.channels)
        health_monitor = HealthMonitor(name, self.uow_factory, channels, new_id, real_now())
        recorder = AnswerRecorder(
            name,
            self.history,
            health_monitor,
            DriftDetector(name, self.uow_factory, channels, new_id),
            partial(self.actor.wait_for_started, name, LAUNCH_FIRST_S),
        )
        swept = last_sweep(self._store, name)
        return ProviderWorker(
            provider,
            self.history,
            health_monitor,
            recorder,
            real_now,
            hunter=self._hunter(name, adapter, recorder),
            sweeper=self._sweeper(name, adapter, recorder, swept.rows if swept else None),
            swept_at=swept.at if swept else None,
        )

    def _hunter(self, name: str, adapter: Adapter, recorder: AnswerRecorder) -> Hunter | None:
        mine = [watch for watch in self.settings.watches if is_polled_for(name, watch)]
        if not mine:
            return None
        return Hunter(
            adapter.market,
            mine,
            self.settings.providers[name].commission,
            self.evaluator,
            recorder.record_hunt,
            self.stopping,
            current_limit=self.auto_prices.with_current_limit,
        )

    def _sweeper(self, name: str, adapter: Adapter, recorder: AnswerRecorder, rows: int | None) -> Sweeper:
        named = [watch for watch in self.settings.watches if watch.providers is None or name in watch.providers]
        targets = sweep_targets(named, self.settings.record_gpus)  # list prices are kept for those that rent, too
        return Sweeper(adapter.market, targets, recorder.record_sweep, self.stopping, rows)

    # --- launches -----------------------------------------------------------------------------------------------------

    def unmanaged(self, settings: Settings) -> list[Launch]:
        """Launches that are alive and that nobody could follow under these settings: no provider, or no key."""
        alive = self.ledger.alive()
        known = providers_to_follow(settings, self._http, {launch.provider for launch in alive})
        return [launch for launch in alive if launch.provider not in known]

    def _remind(self) -> int:
        return send_reminders(self.ledger, self._launch_alerts, frozenset(self.followers), real_now())

    # --- what the clockwork drives ------------------------------------------------------------------------------------

    def tasks(self) -> list[PeriodicTask]:
        """Every periodic task of the daemon; those of one provider never wait for those of another."""
        found = [
            PeriodicTask(name="deliver", run=self._deliver, every_s=DELIVER_EVERY_S),
            PeriodicTask(name="hooks", run=lambda: self.hooks.run_due(real_now()), every_s=HOOKS_EVERY_S),
            PeriodicTask(name="remind", run=self._remind, every_s=REMIND_EVERY_S),
            PeriodicTask(name="roll-up", run=lambda: self.history.roll_up(real_now()), every_s=ROLL_UP_EVERY_S),
            PeriodicTask(name="auto price", run=self._reckon_limits, every_s=AUTO_PRICE_EVERY_S),
        ]
        for name, worker in self.workers.items():
            poll_s = worker.settings.poll_every_s
            found += [
                PeriodicTask(name=f"hunt {name}", run=worker.hunt, every_s=poll_s, jitter_s=min(1.0, poll_s / 20)),
                PeriodicTask(name=f"sweep {name}", run=worker.sweep_if_due, every_s=self._sweep_look_s(worker)),
                PeriodicTask(name=f"health {name}", run=worker.check_health, every_s=HEALTH_EVERY_S),
            ]
        if self._rents:
            for name, balance in self._balances.items():
                found.append(PeriodicTask(name=f"balance {name}", run=balance.refresh, every_s=REFRESH_S))
        for name, guard in self.guards.items():
            found.append(PeriodicTask(name=f"guard {name}", run=self._look_after(guard), every_s=GUARD_EVERY_S))
        for name, follower in self.followers.items():
            found.append(PeriodicTask(name=f"follow {name}", run=self._follow(follower), every_s=FOLLOW_EVERY_S))
        return found + charge_tasks(self._store, {name: context.launcher for name, context in self._contexts.items()})

    @property
    def _rents(self) -> bool:
        """May anything be rented at all?"""
        return not self.settings.dry_run and any(w.action is not Action.ALERT for w in self.settings.watches)

    def _reckon_limits(self) -> None:
        self.auto_prices.beat(self.settings.watches, real_now())

    def _sweep_look_s(self, worker: ProviderWorker) -> float:
        wanted_s = worker.settings.sweep_every_s
        return SWEEP_CHECK_EVERY_S if wanted_s is None else min(wanted_s, SWEEP_CHECK_EVERY_S)

    def _follow(self, follower: LaunchReconciler) -> Callable[[], bool]:
        def look() -> bool:
            if pace() > 1:  # in a test: at every beat
                follower.run_soon()
            return follower.run_if_due(real_now())

        return look

    def _look_after(self, guard: ProviderGuard) -> Callable[[], None]:
        return lambda: guard.refresh(real_now())

    def _deliver(self) -> int:
        self.distress.check(self._store.fault, real_now())
        return self.deliverer.send_due(real_now())

    # --- how it goes --------------------------------------------------------------------------------------------------

    def progresses(self, tick_s: float) -> bool:
        """Has a round of every hunt ended lately? A provider that fails ends its rounds; a hung daemon does not."""
        fine = True
        for name, worker in self.workers.items():
            beats, since_s = self._progress.get(name, (-1, tick_s))
            if beats != worker.finished_rounds:
                self._progress[name] = (worker.finished_rounds, tick_s)
            elif tick_s - since_s > _STUCK_FACTOR * worker.interval_s + 4 * worker.settings.timeout_s:
                fine = False
        return fine

    def status(self, now: datetime) -> str:
        """One line for `systemctl status`."""
        parts = [_standing(worker, now) for worker in self.workers.values()]
        alive = len(self.ledger.alive())
        paused = pause_summary(self._store, now)
        parts += [f"{alive} launches alive", *([paused] if paused else [])]
        return f"{len(self.settings.watches)} watches; {'; '.join(parts)}"

    def close(self) -> None:
        """Let what is on its way come to a point where its row says so, but not for long."""
        self.stopping.set()
        self.actor.shutdown()
        self.hooks.close(within_s=1.5)
        self.deliverer.close(timeout_s=1.0)


def _standing(worker: ProviderWorker, now: datetime) -> str:
    health = worker.health_monitor.health
    if health.blind_since is not None:
        return f"{worker.name} BLIND since {health.blind_since:%H:%M} UTC"
    if health.complete_at is None:
        return f"{worker.name} not polled yet"
    return f"{worker.name} polled {(now - health.complete_at).total_seconds():.0f} s ago"


@contextmanager
def build_service(
    settings: Settings,
    store: Database,
    extra_channels: Mapping[str, Channel] | None = None,
    run_now: Callable[[str], None] = lambda name: None,
) -> Iterator[Service]:
    """The service over an opened, upgraded database; closed at the end."""
    with http_client(settings) as http:
        service = Service(settings, store, http, extra_channels, run_now)
        try:
            yield service
        finally:
            service.close()


def pause_summary(store: Database, now: datetime) -> str | None:
    """For the daemon's one-line status: "PAUSED until 14:00 UTC", "1 watch resting"; None: all may rent.

    Raises:
        StoreError: the pauses cannot be read.
    """
    found = SqlPauseRepository(store).load()
    parts = []
    for one in found.holding(now):
        until = "" if one.until is None else f" until {one.until:%Y-%m-%d %H:%M} UTC"
        parts.append(f"{'renting' if one.watch is None else one.watch} PAUSED{until}")
    if resting := len(found.open_breakers()):
        parts.append(f"{resting} {'watch rests' if resting == 1 else 'watches rest'} after failures")
    return ", ".join(parts) or None


CHARGES_EVERY_S = 300.0  # is an hour over? The collector itself counts it


def charge_tasks(store: Database, launchers: Mapping[str, Launcher]) -> list[PeriodicTask]:
    """One beat for each provider that rents: it fetches charges, at most once an hour."""
    repository, book = SqlLaunchRepository(store), SqlInvoiceRepository(store)

    def beat(name: str, launcher: Launcher) -> PeriodicTask:
        collector = InvoiceCollector(name, launcher, repository.all, book, monotonic)
        return PeriodicTask(
            name=f"charges {name}", run=lambda: collector.run_if_due(real_now()), every_s=CHARGES_EVERY_S
        )

    return [beat(name, launcher) for name, launcher in launchers.items()]
