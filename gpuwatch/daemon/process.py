"""The daemon's process: starts the keeper and the service, reloads settings on SIGHUP, exits on SIGTERM."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime

from gpuwatch.bootstrap import open_store, real_monotonic, real_now
from gpuwatch.bootstrap.rescue import first_settings
from gpuwatch.bootstrap.service import Service, build_service
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.daemon import logs
from gpuwatch.daemon.keeper_thread import KeeperThread, keeping
from gpuwatch.daemon.notify_socket import Notifier
from gpuwatch.daemon.repeating import repeating
from gpuwatch.daemon.scheduler import TaskScheduler
from gpuwatch.daemon.start_up import log_start_up_warnings
from gpuwatch.daemon.status_line import REFRESH_EVERY_S, StatusLine
from gpuwatch.daemon.task_progress import PeriodicTask, TaskProgress
from gpuwatch.daemon.task_supervisor import TaskSupervisor
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.errors import SettingsError, StoreError, StoreInUse
from gpuwatch.ports import Alert, AlertKind, Channel
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings, store_last_good
from gpuwatch.storage.daemon_lock import claim_daemon
from gpuwatch.storage.database import Database, open_database, require_intact, sqlite_path
from gpuwatch.storage.events import EventFilter, events
from gpuwatch.storage.migrate import upgrade

log = logging.getLogger(__name__)

STOP_WITHIN_S = 7.0  # SIGTERM must end it within 10 seconds, even if something hangs
GIVE_UP_AFTER_S = 9.0  # then it exits anyway: the next start continues the work from the rows
WATCH_EVERY_S = 5.0
STORE_AGAIN_S = 10.0


class SignalHandler:
    """Handles SIGTERM and SIGINT (stop) and SIGHUP (reload the settings).

    A signal wakes the waiting thread through a pipe, to which the interpreter writes as soon as the signal arrives.
    The handlers run later, when the main thread runs again: it may be about to wait, or another thread may have
    received the signal.
    """

    def __init__(self) -> None:
        self._wake_reader, self._wake_writer = os.pipe()
        for end in (self._wake_reader, self._wake_writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)  # if it is full, the thread wakes anyway
        self.stop = False
        self.reload = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a signal arrives or the time is over."""
        if select.select([self._wake_reader], [], [], timeout_s)[0]:
            os.read(self._wake_reader, 4096)

    def _on_stop(self, *_: object) -> None:
        if not self.stop:
            last = threading.Timer(GIVE_UP_AFTER_S, _give_up)
            last.daemon = True
            last.start()
        self.stop = True

    def _on_reload(self, *_: object) -> None:
        self.reload = True


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
    signals = SignalHandler()
    notifier = Notifier.from_env(os.environ)
    progress = TaskProgress(real_now, real_monotonic)
    rehearse(lambda: load_settings(config))
    first = first_settings(config)
    settings = first.settings
    logs.configure(style=log_format, level=logging.DEBUG if verbose else logging.INFO, redact=redact)
    for line in first.lines:
        log.warning("%s", line)
    with (
        claimed_store(settings.database_url),
        keeping(settings, progress, notifier) as keeper,
        awaited_store(settings, keeper, signals, notifier) as store,
    ):
        while store is not None:
            keeper.use(settings)
            with running(settings, store, progress=progress, notifier=notifier) as service, ExitStack() as beside:
                for interface in interfaces:
                    beside.enter_context(interface(service, progress))
                notifier.ready()
                _begun(settings, store)
                fresh = _wait_for_signals(service, keeper, signals, notifier, config)
                if fresh is None:
                    notifier.stopping()
                    log.info("stopping")
            if fresh is None:
                break
            settings = fresh
    return 0


@contextmanager
def claimed_store(url: str) -> Iterator[None]:
    """Claim the database for this process, and create SQLite's file if possible."""
    with claim_daemon(url):
        path = sqlite_path(url)
        if path is not None and not path.exists():
            rehearse(lambda: _create(url))
        yield


def _create(url: str) -> None:
    created = open_database(url)
    upgrade(created)
    created.close()


def _begun(settings: Settings, store: Database) -> None:
    log.info("watching", extra={"watches": len(settings.watches), "providers": list(settings.providers)})
    if settings.rescue:
        log.critical("%s", settings.rescue)
        return
    store_last_good(settings, os.environ)
    log_start_up_warnings(settings, store)


def _give_up() -> None:
    log.warning("a thread hangs: exiting without waiting for it; the next start continues its work")
    logging.shutdown()
    os._exit(0)


def rehearse(work: Callable[[], object]) -> None:
    """Do the work in a child process before the real run.

    Validating changed settings loads pydantic, creating the database loads alembic: 12 MB and 8 MB that a daemon would
    keep for weeks. The child leaves the result on disk, where the parent then finds it. Errors and log lines come from
    the parent's own run.
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
    service: Service, keeper: KeeperThread, signals: SignalHandler, notifier: Notifier, config: str | None
) -> Settings | None:
    """Wait for the stop (None) or for new settings. The keeper feeds the watchdog."""
    watchdog_s = notifier.watchdog_every_s or WATCH_EVERY_S * 2
    stalled: list[str] = []
    while not signals.stop:
        keeper.main_loop_runs()
        before, stalled = stalled, keeper.stalled(real_monotonic())
        if stalled and stalled != before:
            log.error("no progress for too long: %s; the watchdog is no longer fed", ", ".join(stalled))
        signals.wait(min(WATCH_EVERY_S, watchdog_s / 2))
        if signals.reload and not signals.stop:
            signals.reload = False
            fresh = _reload(notifier, config, service)
            if fresh is not None:
                return fresh
    return None


@contextmanager
def awaited_store(
    settings: Settings, keeper: KeeperThread, signals: SignalHandler, notifier: Notifier
) -> Iterator[Database | None]:
    """Open the store. If that fails while launches may have to be ended, retry, with the keeper running; None: SIGTERM.

    Raises:
        StoreError: it cannot be opened, and no launch must be ended.
        StoreInUse: another daemon uses it, and ends its launches.
    """
    with ExitStack() as stack:
        store, reported = None, ""
        while store is None and not signals.stop:
            keeper.main_loop_runs()
            try:
                with ExitStack() as attempt:
                    found = attempt.enter_context(open_store(settings, upgrade))
                    require_intact(found)
                    stack.push(attempt.pop_all())
                store = found
                keeper.use_store(store)
            except StoreError as error:
                if isinstance(error, StoreInUse) or not keeper.has_obligations:
                    raise
                if str(error) != reported:
                    log.critical("%s; gpuwatch rents nothing, and ends launches on time", error)
                reported = str(error)
                keeper.store_not_opened(reported)
                notifier.ready()
                notifier.status(f"no database: {error}; launches end on time")
                signals.wait(STORE_AGAIN_S)
        yield store


def _reload(notifier: Notifier, config: str | None, service: Service) -> Settings | None:
    """Return new settings; None: they are invalid or would abandon active launches, and the old ones stay."""
    notifier.reloading()
    try:
        fresh = load_settings(config)
        faults = _reload_faults(fresh, service)
    except SettingsError as error:
        faults = [*error.faults]
    except StoreError as error:
        faults = [f"cannot check them against active launches: {error}"]
    if not faults:
        log.info("reloaded the settings")
        return fresh
    for line in (*faults, "these settings are rejected; the old ones stay in effect"):
        log.error("%s", line)
    notifier.ready()
    return None


def _reload_faults(fresh: Settings, service: Service) -> list[str]:
    """Return why a running daemon cannot apply these settings."""
    faults = []
    if fresh.database_url != service.settings.database_url:
        faults.append("database_url cannot change while the daemon runs")
    for launch in service.unmanaged(fresh):
        faults.append(
            f"launch {launch.launch_id} is active at {launch.provider}, which is no longer configured, or has no key"
        )
    for launch_id in service.commands.running:
        faults.append(f"the command of launch {launch_id} is still running; reload again after it has ended")
    return [*faults, *service.account_faults(fresh)]


@contextmanager
def running(
    settings: Settings,
    store: Database,
    extra_channels: Mapping[str, Channel] | None = None,
    progress: TaskProgress | None = None,
    notifier: Notifier | None = None,
) -> Iterator[Service]:
    """Run the service with its tasks; at the end, stop it within STOP_WITHIN_S.

    Args:
        progress: counts the runs of tasks.
        notifier: receives the status line.
    """
    progress = progress or TaskProgress(real_now, real_monotonic)
    scheduler = TaskScheduler(real_now, real_monotonic, progress=progress)
    with ExitStack() as threads, build_service(settings, store, extra_channels, scheduler.run_now) as service:
        service.hooks.start()
        tasks = periodic_tasks(service)
        threads.enter_context(repeating("supervisor", _supervision(service, progress), WATCH_EVERY_S))
        if notifier is not None and notifier.is_heard:
            status = StatusLine(service, progress, real_now())
            tasks.append(PeriodicTask(name="status", run=lambda: status.refresh(real_now()), every_s=REFRESH_EVERY_S))
            threads.enter_context(repeating("status line", _status_report(status, notifier), WATCH_EVERY_S))
        collect_as_usual()
        scheduler.start(tasks)
        try:
            yield service
        finally:
            service.stopping.set()
            scheduler.stop(STOP_WITHIN_S)
            gc.unfreeze()


def collect_as_usual() -> None:
    """Tune garbage collection for a long run: frequent, and without the permanent objects of the start."""
    gc.freeze()
    gc.set_threshold(700, 10, 10)


def _status_report(status: StatusLine, notifier: Notifier) -> Callable[[], None]:
    return lambda: notifier.status(status.text(real_now(), real_monotonic()))


def _supervision(service: Service, progress: TaskProgress) -> Callable[[], None]:
    """Return the checks that run beside the tasks, because they must not wait for any."""

    def earlier(since: datetime) -> list[Alert]:
        wanted = EventFilter(since=since, kinds=(AlertKind.DAEMON, AlertKind.RECOVERED))
        return [event.alert for event in events(service.store, wanted)]

    supervisor = TaskSupervisor(
        progress,
        enqueue=service.launch_repository.enqueue,
        send_directly=service.fallback_alerts.send,
        earlier=earlier,
        now=real_now,
        monotonic=real_monotonic,
    )

    def check() -> None:
        service.fallback_alerts.check(service.store.fault, real_now())
        supervisor.check()

    return check
