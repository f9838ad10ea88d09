"""The keeper's thread: every second it checks overdue launches, the watchdog and the heartbeat, and never waits.

It alone feeds systemd's watchdog, and only while the essential tasks and the main loop make progress.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

from gpuwatch.bootstrap import open_http, real_monotonic, real_now
from gpuwatch.bootstrap.keeper_building import build_keeper, obligation_file
from gpuwatch.daemon.scheduler import repeating_thread
from gpuwatch.daemon.service_manager import Heartbeat, Notifier
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.engine.launches.guarding.keeper import Keeper
from gpuwatch.errors import StoreError
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.keeper_mark import KeeperMark
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease
from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
FEED_INTERVAL_S = 5.0
MAIN_LOOP_TIMEOUT_S = 300.0  # it wakes every few seconds; reloading settings takes longer
MAIN_LOOP = "main loop"
FOLLOW_TIMEOUT_S = 45.0  # then the keeper itself looks: a return must be noticed in two minutes


class KeeperThread:
    """The work of the keeper's thread, and the other threads' reports to it. No call waits for another."""

    def __init__(self, settings: Settings, progress: TaskProgress, notifier: Notifier, mark: KeeperMark) -> None:
        self._mark = mark
        self._progress = progress
        self._notifier = notifier
        self._main_loop_s: float | None = None
        self._store: Database | None = None
        self._store_error: str | None = None  # the error of opening it
        self._lease = NO_LEASE
        self._next_feed_s = 0.0
        self._keeper, self._heartbeat = self._build(settings)

    # --- reports of the main loop -------------------------------------------------------------------------------------

    def apply_settings(self, settings: Settings) -> None:
        """Apply new settings."""
        self._keeper, heartbeat = self._build(settings)
        if heartbeat is None or self._heartbeat is None or heartbeat.url != self._heartbeat.url:
            self._heartbeat = heartbeat

    def set_store(self, store: Database, lease: Lease) -> None:
        """Note the open store, whose last error is read, and who leads: neither ever waits."""
        self._store, self._lease = store, lease

    def set_store_error(self, error: str) -> None:
        """Note that the store could not be opened; the main loop retries."""
        self._store_error = error

    def note_main_loop(self) -> None:
        """Note that the main loop is not stuck."""
        self._main_loop_s = real_monotonic()

    @property
    def has_obligations(self) -> bool:
        """Whether any launch may have to be ended, according to the keeper's file."""
        return self._keeper.open_count > 0

    # --- the thread ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check everything; runs once a second."""
        try:
            self._keeper.check(real_now())
            self._mark.touch(real_monotonic())
            self._progress.round_done("keeper")
        except Exception:
            log.exception("the keeper failed; retrying")
        tick_s = real_monotonic()
        stalled = self.stalled(tick_s)
        if not stalled and tick_s >= self._next_feed_s:
            self._next_feed_s = tick_s + min(
                FEED_INTERVAL_S, (self._notifier.watchdog_every_s or FEED_INTERVAL_S * 4) / 4
            )
            self._notifier.watchdog()
        if self._heartbeat is not None and (self._store or self._store_error):  # else it is still being opened
            self._heartbeat.report(not stalled and self._store_fault() is None, tick_s)

    def stalled(self, tick_s: float) -> list[str]:
        """Return what makes no progress; if there is anything, the watchdog is not fed."""
        is_late = self._main_loop_s is not None and tick_s - self._main_loop_s > MAIN_LOOP_TIMEOUT_S
        return [*self._progress.stalled(tick_s), *([MAIN_LOOP] if is_late else [])]

    def _build(self, settings: Settings) -> tuple[Keeper, Heartbeat | None]:
        url = settings.watchdog.heartbeat_url
        heartbeat = Heartbeat(url.reveal(), lambda: open_http(settings)) if url else None
        return build_keeper(settings, self._daemon_fault, self._is_followed), heartbeat

    def _store_fault(self) -> str | None:
        return self._store_error or "it is not open yet" if self._store is None else self._store.fault

    def _is_followed(self, provider: str) -> bool:
        """Whether the launches of a provider were followed recently, here or by the leader."""
        if self._store_fault() is not None:
            return False
        if not self._lease.leads:
            return self._lease.is_led
        age_s = self._progress.success_age_s(f"follow {provider}")
        return age_s is not None and age_s < FOLLOW_TIMEOUT_S

    def _daemon_fault(self) -> str | None:
        """Return why the daemon may be unable to end instances or to send alerts, or None."""
        if (fault := self._store_fault()) is not None:
            return f"database: {fault}"
        faults = self._progress.faults(real_monotonic())
        essential = [one for one in faults if self._progress.is_essential(one.task)]
        return f"task {essential[0].task} {essential[0].kind.value}: {essential[0].cause}" if essential else None


@contextmanager
def running_keeper(settings: Settings, progress: TaskProgress, notifier: Notifier) -> Iterator[KeeperThread]:
    """Run the keeper's thread from before the database is opened until the process ends.

    Raises:
        StoreError: its file cannot be written, and nothing in it must be ended.
    """
    file, fault = obligation_file(settings), None
    try:
        file.require_writable()
        file.compact(timedelta(seconds=settings.launching.watch_ended_s))
    except StoreError as error:
        fault = error
    mark = KeeperMark(file.path)
    keeper = KeeperThread(settings, progress, notifier, mark)
    keeper.check()
    if fault is not None and not keeper.has_obligations:
        raise fault
    if fault is not None:
        log.critical("%s; launches end on time, and no order is sent", fault)
    with closing(mark), repeating_thread("keeper", keeper.check, CHECK_INTERVAL_S):
        yield keeper
