"""The clockwork: which beat runs when. Alone knows APScheduler, and works around its two known gaps.

APScheduler 3.11 falls silent when the clock steps back (its next run lies in what is now the future) and has no word
for a beat that was skipped; a guard compares the wall clock with the monotonic one and sets every job anew after a
jump, and listeners turn what was missed into log lines. Jobs live in memory and are made anew at every start.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.bootstrap.service import Service, build_service
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.daemon import logs
from gpuwatch.daemon.notify_socket import Notifier
from gpuwatch.engine.periodic_task import PeriodicTask
from gpuwatch.errors import GpuwatchError, SettingsError, StoreError
from gpuwatch.ports import Channel
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings
from gpuwatch.storage.daemon_lock import claim_daemon
from gpuwatch.storage.database import Database
from gpuwatch.storage.integrity_check import require_intact

log = logging.getLogger(__name__)

JUMP_S = 5.0  # a wall clock this far off the monotonic one has jumped, or the machine slept
GUARD_EVERY_S = 2.0


class TaskScheduler:
    """Runs periodic tasks on threads until it is stopped. One that hangs delays no other."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._tasks: Sequence[PeriodicTask] = ()
        self._now = now
        self._monotonic = monotonic
        self._stopped = threading.Event()
        self._guard = threading.Thread(target=self._watch_clock, name="clock-guard", daemon=True)
        self._scheduler = BackgroundScheduler(timezone="UTC")
        for chatty in ("apscheduler.executors.default", "apscheduler.scheduler"):
            logging.getLogger(chatty).setLevel(logging.CRITICAL)  # `_tell` says the same, in one line
        told = EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
        self._scheduler.add_listener(_log_event, told)

    def start(self, tasks: Sequence[PeriodicTask]) -> None:
        """Run every task at once, then at its interval."""
        self._tasks = tasks
        self._scheduler.add_executor(ThreadPoolExecutor(max_workers=len(tasks) + 1))
        for task in tasks:
            self._scheduler.add_job(
                task.run,
                IntervalTrigger(seconds=task.every_s, jitter=task.jitter_s or None, timezone="UTC"),
                id=task.name,
                name=task.name,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,
                next_run_time=self._now(),
            )
        self._scheduler.start()
        self._guard.start()

    def stop(self, wait_s: float) -> None:
        """No beat starts any more; those that run get `wait_s` to end."""
        self._stopped.set()
        self._scheduler.pause()
        ending = threading.Thread(target=self._scheduler.shutdown, kwargs={"wait": True}, daemon=True)
        ending.start()
        ending.join(wait_s)
        if ending.is_alive():
            log.warning(
                "a beat did not end within %.0f s; its work is kept in rows and taken up at the next start", wait_s
            )

    def run_now(self, name: str) -> None:
        """Run a task now instead of at its next time; before `start` there is nothing to run."""
        if not self._stopped.is_set() and self._scheduler.get_job(name):
            self._scheduler.modify_job(name, next_run_time=self._now())

    def _watch_clock(self) -> None:
        offset = self._offset()
        while not self._stopped.wait(GUARD_EVERY_S):
            moved = self._offset() - offset
            if abs(moved) > JUMP_S:
                offset += moved
                log.warning("the clock moved by %+.0f s against its own pace; all beats are set anew", moved)
                self._set_anew()

    def _offset(self) -> float:
        return self._now().timestamp() - self._monotonic()

    def _set_anew(self) -> None:
        for task in self._tasks:
            self.run_now(task.name)


_overrunning: set[str] = set()  # beats that took longer than their interval
_last_error: dict[str, str] = {}  # beat → the error of ours that it met last


def _log_event(event: JobEvent) -> None:
    if event.code == EVENT_JOB_EXECUTED:
        _overrunning.discard(event.job_id)
        if _last_error.pop(event.job_id, None):
            log.info("beat %s works again", event.job_id)
    elif event.code == EVENT_JOB_ERROR and isinstance(event.exception, GpuwatchError):
        if _last_error.get(event.job_id) != str(event.exception):  # once, not every second
            log.error("beat %s: %s", event.job_id, event.exception)
        _last_error[event.job_id] = str(event.exception)
    elif event.code == EVENT_JOB_ERROR:
        log.error("beat %s failed and runs again at its next time", event.job_id, exc_info=event.exception)
    elif event.code == EVENT_JOB_MISSED:
        log.warning("beat %s was missed", event.job_id)
    elif event.job_id not in _overrunning:  # once, until it ends
        _overrunning.add(event.job_id)
        log.info("beat %s still runs at its next time; that run is left out", event.job_id)


# --- the process ------------------------------------------------------------------------------------------------------

STOP_WITHIN_S = 7.0  # of the 10 seconds that CONTRACT §4.8 allows
WATCH_EVERY_S = 5.0


class SignalHandler:
    """SIGTERM and SIGINT ask for the end, SIGHUP for a fresh look at the settings.

    They wake the waiting one through a pipe: a lock that one signal holds would stop the next one, in the same thread,
    for ever.
    """

    def __init__(self) -> None:
        self._woken, self._waking = os.pipe()
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        self.stop = False
        self.reload = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a signal comes or the time is over."""
        if select.select([self._woken], [], [], timeout_s)[0]:
            os.read(self._woken, 4096)

    def _on_stop(self, *_: object) -> None:
        self.stop = True
        self._wake()

    def _on_reload(self, *_: object) -> None:
        self.reload = True
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full of wakes already
            os.write(self._waking, b"!")


def serve(config: str | None, log_format: str = "auto", verbose: bool = False) -> int:
    """Run until SIGTERM. Returns the exit code.

    Raises:
        SettingsError: the first settings are wrong; later ones are refused, and the old are kept.
        StoreError: the database cannot be used, or another daemon runs on it.
    """
    signals = SignalHandler()
    notifier = Notifier.from_env(os.environ)
    settings = load_settings(config)
    logs.configure(style=log_format, level=logging.DEBUG if verbose else logging.INFO, redact=redact)
    with claim_daemon(settings.database_url), open_store(settings) as store:
        require_intact(store)
        while True:
            with running(settings, store) as service:
                notifier.ready()
                log.info("watching", extra={"watches": len(settings.watches), "providers": list(settings.providers)})
                fresh = _wait_for_signals(service, signals, notifier, config)
                if fresh is None:
                    notifier.stopping()
                    log.info("stopping")
            if fresh is None:
                return 0
            settings = fresh


def _wait_for_signals(
    service: Service, signals: SignalHandler, notifier: Notifier, config: str | None
) -> Settings | None:
    """Stay until the end (None) or until new settings are to be taken up."""
    watchdog_s = notifier.watchdog_every_s or WATCH_EVERY_S * 2
    stuck = False
    while not signals.stop:
        if service.progresses(time.monotonic()):
            notifier.watchdog()
            stuck = False
        elif not stuck:
            stuck = True
            log.error("no hunt has ended for too long; the watchdog is not fed any more")
        notifier.status(_status(service))
        signals.wait(min(WATCH_EVERY_S, watchdog_s / 2))
        if signals.reload and not signals.stop:
            signals.reload = False
            fresh = _reload(notifier, config, service)
            if fresh is not None:
                return fresh
    return None


def _status(service: Service) -> str:
    """One line; a database that is away for a while must not end the daemon: its beats wait for it."""
    try:
        return service.status(real_now())
    except StoreError as error:
        return f"no database: {error}"


def _reload(notifier: Notifier, config: str | None, service: Service) -> Settings | None:
    """New settings, or None if they are wrong, or leave what runs alone: then the old ones stay."""
    notifier.reloading()
    try:
        fresh = load_settings(config)
        faults = _reload_faults(fresh, service)
    except SettingsError as error:
        faults = [*error.faults]
    if not faults:
        log.info("the settings were read again")
        return fresh
    for line in (*faults, "these settings are not taken up; the old ones stay in force"):
        log.error("%s", line)
    notifier.ready()
    return None


def _reload_faults(fresh: Settings, service: Service) -> list[str]:
    """What a daemon that runs cannot take up."""
    faults = []
    if fresh.database_url != service.settings.database_url:
        faults.append("database_url cannot change while the daemon runs")
    for launch in service.unmanaged(fresh):
        faults.append(
            f"launch {launch.launch_id} is alive at {launch.provider}, which is no longer set up, or has no key"
        )
    return faults


@contextmanager
def running(
    settings: Settings, store: Database, extra_channels: Mapping[str, Channel] | None = None
) -> Iterator[Service]:
    """The service with its tasks running; stopped within STOP_WITHIN_S at the end."""
    scheduler = TaskScheduler(real_now, time.monotonic)
    with build_service(settings, store, extra_channels, scheduler.run_now) as service:
        service.hooks.start()
        scheduler.start(service.tasks())
        try:
            yield service
        finally:
            service.stopping.set()
            scheduler.stop(STOP_WITHIN_S)
