"""The daemon's process: starts the keeper and the service, reloads settings on SIGHUP, exits on SIGTERM."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_fixed

import gpuwatch
from gpuwatch.bootstrap import (
    build_channels,
    http_client,
    lease_clock,
    log_alert,
    new_id,
    open_store,
    real_monotonic,
    real_now,
)
from gpuwatch.bootstrap.service import Service, build_service
from gpuwatch.bootstrap.settings_loading import load_or_rescue, load_settings
from gpuwatch.daemon import logs
from gpuwatch.daemon.keeper_thread import KeeperThread, running_keeper
from gpuwatch.daemon.scheduler import TaskScheduler, repeating_thread
from gpuwatch.daemon.service_manager import REFRESH_EVERY_S, Notifier, SignalHandler, StatusLine
from gpuwatch.daemon.task_progress import PeriodicTask, TaskProgress
from gpuwatch.daemon.task_supervisor import TaskSupervisor, reload_accepted_alert, reload_refused_alert
from gpuwatch.daemon.tasks import log_start_up_warnings, periodic_tasks
from gpuwatch.engine.alerts.channel_failures import FallbackAlerts
from gpuwatch.engine.setup.failpoint import leads_always
from gpuwatch.engine.setup.leadership import CHECK_EVERY_S, Leadership, role_of
from gpuwatch.engine.setup.malloc_arenas import share_malloc_arenas
from gpuwatch.errors import SettingsError, StoreDiskFailed, StoreError, StoreInUse
from gpuwatch.ports import Alert, AlertKind, Channel, OutboxAlert
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings, store_last_good
from gpuwatch.storage.alerts.alert_rows import EventFilter, events
from gpuwatch.storage.setup.backup import require_intact
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, HostIdentity, Lease, claim_daemon, release_leases
from gpuwatch.storage.setup.database import Database, open_database, sqlite_path
from gpuwatch.storage.setup.migrate import upgrade

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 7.0  # SIGTERM must end it within 10 seconds, even if something hangs
SIGNAL_CHECK_S = 5.0
STORE_RETRY_S = 10.0
ORDER_CHECK_S = 0.2
MAX_SPACING_S = 10.0  # a host that ends lets another one lead within this time
Opened = TypeVar("Opened")


# Gives people or programs access to a running service; it runs while its block does, and nothing waits for it.
Interface = Callable[[Service, TaskProgress], AbstractContextManager[object]]


def serve(
    config: str | None, log_format: str = "auto", verbose: bool = False, interfaces: Sequence[Interface] = ()
) -> int:
    """Run until SIGTERM; return the exit code.

    Args:
        interfaces: opened for each service, and again after a reload.

    Raises:
        SettingsError: the first settings are invalid and no launch is active; with an active one it starts in rescue
            mode. Later invalid settings are rejected, and the old ones stay.
        StoreError: the database cannot be used, or another daemon uses it.
    """
    share_malloc_arenas()
    signals = SignalHandler()
    notifier = Notifier.from_env(os.environ)
    progress = TaskProgress(real_now, real_monotonic)
    logs.configure(style=log_format, level=logging.DEBUG if verbose else logging.INFO, redact=redact)
    loaded = load_or_rescue(config)
    settings = loaded.settings
    for line in loaded.lines:
        log.warning("%s", line)
    with (
        claim_store(settings.database_url),
        running_keeper(settings, progress, notifier) as keeper,
        entered_with_retry(
            partial(_open_store, settings, signals, keeper), settings, keeper, signals, notifier
        ) as lead,
    ):
        while lead is not None:
            term, store = lead.lease.term, lead.open_for_role()
            keeper.set_store(store, lead.lease)
            keeper.apply_settings(settings)
            run = partial(running_service, settings, store, progress=progress, notifier=notifier, lease=lead.lease)
            with entered_with_retry(run, settings, keeper, signals, notifier) as service, ExitStack() as stack:
                if service is None:
                    break
                for interface in interfaces:
                    stack.enter_context(interface(service, progress))
                notifier.ready()
                _record_start(settings, store)
                new_settings = _wait_for_signals(service, keeper, signals, notifier, config, term)
                if new_settings is None:
                    notifier.stopping()
                    log.info("stopping")
            if new_settings is None:
                break
            lead.hand_over(_spacing_s(settings))
            settings = new_settings
            lead.note_rescue(bool(settings.rescue))
    return 0


@contextmanager
def claim_store(url: str) -> Iterator[None]:
    """Claim the database for this process, and create SQLite's file if possible."""
    with claim_daemon(url):
        path = sqlite_path(url)
        if path is not None and not path.exists():
            run_in_child(lambda: _create(url))
        yield


def _create(url: str) -> None:
    database = open_database(url)
    upgrade(database)
    database.close()


def _record_start(settings: Settings, store: Database) -> None:
    log.info("watching", extra={"watches": len(settings.watches), "providers": list(settings.providers)})
    if settings.rescue:
        log.critical("%s", settings.rescue)
        return
    store_last_good(settings, os.environ)
    log_start_up_warnings(settings, store)


def run_in_child(work: Callable[[], object]) -> None:
    """Do the work in a child process before the real run.

    Creating the database loads alembic: 8 MB that a daemon would keep for weeks. The child leaves the result on disk,
    where the parent then finds it. Errors and log lines come from the parent's own run.
    """
    if threading.active_count() > 1:  # a fork copies locks that other threads hold
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        logging.disable()
        work()
    finally:
        os._exit(0)


def _wait_for_signals(
    service: Service, keeper: KeeperThread, signals: SignalHandler, notifier: Notifier, config: str | None, term: int
) -> Settings | None:
    """Wait for the stop (None), for new settings, or for another term. The keeper feeds the watchdog."""
    watchdog_s = notifier.watchdog_every_s or SIGNAL_CHECK_S * 2
    stalled: list[str] = []
    was_refused = False
    while not signals.stop:
        keeper.note_main_loop()
        if service.lease.term != term:
            if service.lease.hands_over:
                _wait_for_orders(service, signals)
            return service.settings
        previously_stalled, stalled = stalled, keeper.stalled(real_monotonic())
        if stalled and stalled != previously_stalled:
            log.error("no progress for too long: %s; the watchdog is no longer fed", ", ".join(stalled))
        signals.wait(min(SIGNAL_CHECK_S, watchdog_s / 2))
        if signals.reload and not signals.stop:
            signals.reload = False
            _wait_for_orders(service, signals)
            new_settings = None if signals.stop else _reload(notifier, config, service)
            if new_settings is not None:
                if was_refused:
                    _report(service, reload_accepted_alert(now=real_now()))
                return new_settings
            was_refused = not signals.stop
    return None


def _wait_for_orders(service: Service, signals: SignalHandler) -> None:
    """Wait until no order is in flight, because a reload closes its connection: its outcome would be unknown."""
    ends_s = real_monotonic() + max((one.timeout_s for one in service.settings.providers.values()), default=0.0)
    while service.slots.in_flight() and not signals.stop and real_monotonic() < ends_s:
        signals.wait(ORDER_CHECK_S)


@contextmanager
def _open_store(settings: Settings, signals: SignalHandler, keeper: KeeperThread) -> Iterator[Leadership]:
    """Open the store for this process, which has claimed it, and take part in the lead. Raises StoreError."""
    with open_store(settings, upgrade) as store:
        require_intact(store)
        release_leases(store)
        identity = HostIdentity(
            holder=new_id(), role=role_of(store.owner), host=socket.gethostname(), version=gpuwatch.__version__
        )
        one = None if leads_always() else identity
        lead = Leadership(store, one, lease_clock, is_rescued=bool(settings.rescue))

        def renew() -> None:
            if lead.renew_if_due(keeper.stalled(real_monotonic())):
                signals.wake()

        try:
            with repeating_thread("lease", renew, CHECK_EVERY_S):
                yield lead
        finally:
            lead.close(_spacing_s(settings))


def _spacing_s(settings: Settings) -> float:
    """Return how long no provider may be searched after the last search of this process."""
    longest = max((one.search_interval_s for one in settings.providers.values()), default=0.0)
    return min(longest, MAX_SPACING_S)


@contextmanager
def entered_with_retry(
    enter: Callable[[], AbstractContextManager[Opened]],
    settings: Settings,
    keeper: KeeperThread,
    signals: SignalHandler,
    notifier: Notifier,
) -> Iterator[Opened | None]:
    """Enter what needs the store; None: SIGTERM. Retry, with the keeper running, if that may help or is necessary.

    It may help if the disk is full or fails; it is necessary while launches may have to be ended. The owner gets an
    alert, past the outbox.

    Raises:
        StoreError: retrying does not help, and no launch must be ended.
        StoreInUse: another daemon uses it, and ends its launches.
    """
    with ExitStack() as stack:
        alerts, reported = None, ""

        def enter_unless_stopped() -> Opened | None:
            keeper.note_main_loop()
            return None if signals.stop else stack.enter_context(enter())

        def may_help(error: BaseException) -> bool:
            is_lost = isinstance(error, StoreError) and not isinstance(error, StoreInUse)
            return is_lost and (isinstance(error, StoreDiskFailed) or keeper.has_obligations)

        def report(state: RetryCallState) -> None:
            nonlocal alerts, reported
            assert state.outcome is not None
            error = str(state.outcome.exception())
            if error != reported:
                log.critical("%s; gpuwatch rents nothing, and ends launches on time", error)
            reported = error
            keeper.set_store_error(error)
            notifier.ready()
            notifier.status(f"no database: {error}; launches end on time")
            if alerts is None:
                channels = build_channels(settings, stack.enter_context(http_client(settings)))
                alerts = FallbackAlerts(channels, new_id, log_alert, settings.language)
            alerts.check(error, real_now())

        retrying = Retrying(
            retry=retry_if_exception(may_help), wait=wait_fixed(STORE_RETRY_S), sleep=signals.wait, before_sleep=report
        )
        yield retrying(enter_unless_stopped)


def _reload(notifier: Notifier, config: str | None, service: Service) -> Settings | None:
    """Return new settings; None: they are invalid or would abandon active launches, and the old ones stay."""
    notifier.reloading()
    try:
        new_settings = load_settings(config)
        faults = _reload_faults(new_settings, service)
    except SettingsError as error:
        faults = [*error.faults]
    except StoreError as error:
        faults = [f"cannot check them against active launches: {error}"]
    if not faults:
        log.info("reloaded the settings")
        return new_settings
    for line in (*faults, "these settings are rejected; the old ones stay in effect"):
        log.error("%s", line)
    _report(service, reload_refused_alert(faults, now=real_now()))
    notifier.ready()
    return None


def _report(service: Service, outbox_alert: OutboxAlert) -> None:
    """Put an alert into the outbox, or send it directly if that fails."""
    try:
        service.launch_repository.enqueue(outbox_alert)
    except StoreError as error:
        log.warning("not stored: %s: %s", outbox_alert.alert.headline, error)
        service.fallback_alerts.send(outbox_alert.alert)


def _reload_faults(new_settings: Settings, service: Service) -> list[str]:
    """Return why a running daemon cannot apply these settings."""
    faults = []
    if new_settings.database_url != service.settings.database_url:
        faults.append("database_url cannot change while the daemon runs")
    if new_settings.owner != service.settings.owner:
        faults.append("owner cannot change while the daemon runs")
    for launch in service.unmanaged(new_settings):
        faults.append(
            f"launch {launch.launch_id} is active at {launch.provider}, which is no longer configured, or has no key"
        )
    for launch_id in service.commands.running:
        faults.append(f"the command of launch {launch_id} is still running; reload again after it has ended")
    return [*faults, *service.account_faults(new_settings)]


@contextmanager
def running_service(
    settings: Settings,
    store: Database,
    extra_channels: Mapping[str, Channel] | None = None,
    progress: TaskProgress | None = None,
    notifier: Notifier | None = None,
    lease: Lease = NO_LEASE,
) -> Iterator[Service]:
    """Run the service with its tasks; at the end, stop it within STOP_TIMEOUT_S.

    Args:
        progress: counts the runs of tasks.
        notifier: receives the status line.
        lease: a standby runs only the tasks of every host.
    """
    progress = progress or TaskProgress(real_now, real_monotonic)
    scheduler = TaskScheduler(real_now, real_monotonic, progress=progress, lease=lease)
    build = partial(build_service, settings, store, extra_channels, scheduler.run_now, lease=lease)
    with ExitStack() as supervision, build() as service:
        tasks = periodic_tasks(service)
        if notifier is not None and notifier.has_manager:
            status = StatusLine(service, progress, real_now())
            report = _status_report(status, notifier)  # a task of its own: it does not wait for the database
            for name, work in (("status", lambda: status.refresh(real_now())), ("status line", report)):
                tasks.append(PeriodicTask(name=name, run=work, every_s=REFRESH_EVERY_S, on_every_host=True))
        # not a task of the scheduler: it reports when the scheduler hangs
        supervision.enter_context(repeating_thread("supervisor", _supervision_check(service, progress), SIGNAL_CHECK_S))
        if lease.leads:
            watch = partial(_stop_when_lost, service)
            supervision.enter_context(repeating_thread("lease check", watch, CHECK_EVERY_S))
        configure_gc()
        scheduler.start(tasks)
        try:
            yield service
        finally:
            service.stopping.set()
            scheduler.stop(STOP_TIMEOUT_S)
            gc.unfreeze()


def configure_gc() -> None:
    """Do not look for garbage among what was made at the start and stays for months."""
    gc.freeze()


def _stop_when_lost(service: Service) -> None:
    """Stop what acts once the lease is lost; a new service begins when the database says who leads."""
    if service.stopping.has_lost_lead and not service.stopping.is_woken:
        log.error("this host no longer leads: it polls and rents nothing")
        service.stopping.set()


def _status_report(status: StatusLine, notifier: Notifier) -> Callable[[], None]:
    return lambda: notifier.status(status.text(real_now(), real_monotonic()))


def _supervision_check(service: Service, progress: TaskProgress) -> Callable[[], None]:
    """Return the checks that run beside the tasks, because they must not wait for any."""

    def read_alerts(since: datetime) -> list[Alert]:
        event_filter = EventFilter(since=since, kinds=(AlertKind.DAEMON, AlertKind.RECOVERED))
        return [event.alert for event in events(service.store, event_filter)]

    supervisor = TaskSupervisor(
        progress,
        enqueue=service.launch_repository.enqueue,
        send_directly=service.fallback_alerts.send,
        read_alerts=read_alerts,
        now=real_now,
        monotonic=real_monotonic,
    )

    def check() -> None:
        service.fallback_alerts.check(service.store.fault, real_now())
        supervisor.check()

    return check
