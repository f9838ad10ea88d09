"""What others see of the daemon: systemd its state and a line, an external monitor its heartbeat; and its signals.

Protocol: sd_notify(3), without a library. No error here affects the daemon: without a working socket, nothing is sent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch import __version__
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.setup.durations import format_moment, is_recent
from gpuwatch.engine.watches.provider_worker import ProviderWorker
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.http import HttpClient, NetError
from gpuwatch.storage.alerts.pauses import PauseTable

log = logging.getLogger(__name__)

EXIT_AFTER_S = 9.0  # then it exits anyway: the next start continues the work from the rows


# --- systemd's notification socket ------------------------------------------------------------------------------------


class Notifier:
    """Sends lines to the service manager. Without an address every call does nothing."""

    def __init__(
        self,
        address: str | None = None,
        watchdog_every_s: float | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._address = address
        self._watchdog_every_s = watchdog_every_s
        self._monotonic_ns = monotonic_ns

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Notifier:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; invalid values count as unset."""
        return cls(_address(env.get("NOTIFY_SOCKET", "")), _watchdog_every_s(env))

    @property
    def has_manager(self) -> bool:
        """Whether there is a service manager."""
        return self._address is not None

    @property
    def watchdog_every_s(self) -> float | None:
        """The seconds within which the manager expects `watchdog`; None: it expects none."""
        return self._watchdog_every_s

    def ready(self) -> None:
        """Report that the start or the reload is complete."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send one line for `systemctl status`."""
        self._send(f"STATUS={clean(text)}")

    def watchdog(self) -> None:
        """Report that the process is alive; call it well within `watchdog_every_s`."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Report that the settings are being reloaded; `ready` reports the end of that."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._monotonic_ns() // 1000}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)  # a manager with a full queue must not delay a hunt
            line.sendto(message.encode(), self._address)


def _address(name: str) -> str | None:
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_every_s(env: Mapping[str, str]) -> float | None:
    usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0:
        return None
    return int(usec) / 1_000_000 if pid in {"", str(os.getpid())} else None


# --- the line that `systemctl status` shows ---------------------------------------------------------------------------


REFRESH_EVERY_S = 5.0
STALE_AFTER = timedelta(seconds=30)


class _StoredState(msgspec.Struct, frozen=True):
    """The values from the database, and when they were read."""

    at: datetime
    alive: int = 0
    pauses: str | None = None


class StatusLine:
    """Builds one line about a running daemon, from memory: a database that hangs cannot delay it.

    Args:
        now: time of the start.
    """

    def __init__(self, service: Service, progress: TaskProgress, now: datetime) -> None:
        self._service = service
        self._progress = progress
        self._stored: _StoredState | None = None
        self._started_at = now

    def refresh(self, now: datetime) -> None:
        """Read the database; called by a periodic task. Raises StoreError."""
        alive = len(self._service.launch_repository.own_alive())
        self._stored = _StoredState(now, alive, pause_summary(self._service.pauses.load(), now))

    def text(self, now: datetime, tick_s: float) -> str:
        """Return the line.

        Args:
            tick_s: now, on the monotonic clock.
        """
        parts = [] if self._service.lease.leads else ["stands by: another host leads"]
        parts += [_worker_status(worker, now) for worker in self._service.polling.workers.values()]
        if self._stored is not None:
            parts.append(f"{count_text(self._stored.alive, 'launch', 'launches')} alive")
            parts += [self._stored.pauses] if self._stored.pauses else []
        stored_at = self._stored.at if self._stored else self._started_at
        if not is_recent(stored_at, now, STALE_AFTER):
            parts.append(f"the database has not answered since {stored_at:%H:%M} UTC")
        parts += [f"task {fault.task} {fault.kind}" for fault in self._progress.faults(tick_s)]
        rescue = self._service.settings.rescue
        subject = rescue or f"{count_text(len(self._service.settings.watches), 'watch', 'watches')}"
        return f"gpuwatch {__version__}: {'; '.join((subject, *parts))}"


def _worker_status(worker: ProviderWorker, now: datetime) -> str:
    lanes = worker.health_monitor.lanes
    blind = {lane: health.blind_since for lane, health in lanes.items() if health.blind_since is not None}
    if blind:
        return f"{worker.name} BLIND since {min(blind.values()):%H:%M} UTC ({', '.join(blind)})"
    complete_at = max((health.complete_at for health in lanes.values() if health.complete_at), default=None)
    if complete_at is None:
        return f"{worker.name} not polled yet"
    return f"{worker.name} polled {(now - complete_at).total_seconds():.0f} s ago"


def pause_summary(pauses: PauseTable, now: datetime) -> str | None:
    """Describe pauses: "renting PAUSED until 2026-11-21 14:00 UTC", "1 watch rests after failures"."""
    parts = []
    for pause in pauses.in_force(now):
        until = "" if pause.until is None else f" until {format_moment(pause.until)}"
        parts.append(f"{'renting' if pause.watch is None else pause.watch} PAUSED{until}")
    if open_breakers := len(pauses.open_breakers()):
        parts.append(f"{open_breakers} {'watch rests' if open_breakers == 1 else 'watches rest'} after failures")
    return ", ".join(parts) or None


# --- the heartbeat ----------------------------------------------------------------------------------------------------


INTERVAL_S = 60.0
_TIMEOUT_S = 10.0
_MAX_BYTES = 64 * 1024


class Heartbeat:
    """Pings a URL, so that its monitor notices when gpuwatch, its machine or its network fails. Waits for no answer.

    As healthchecks.io expects: URL/start, URL every healthy minute, URL/fail.

    Args:
        url: secret; it is never shown.
        http: opens a client at the first ping.
    """

    def __init__(self, url: str, http: Callable[[], HttpClient]) -> None:
        self.url = url
        self._open_client = http
        self._http: HttpClient | None = None
        self._was_healthy: bool | None = None  # None: nothing was sent yet
        self._next_s = 0.0
        self.is_busy = False
        self._has_failed = False

    def report(self, is_healthy: bool, tick_s: float) -> None:
        """Ping once a minute, or at once when gpuwatch becomes unhealthy.

        Args:
            tick_s: now, on the monotonic clock.
        """
        has_changed = self._was_healthy is not is_healthy
        if self.is_busy or not (has_changed or tick_s >= self._next_s):
            return
        suffix = "start" if self._was_healthy is None and is_healthy else "" if is_healthy else "fail"
        self._was_healthy, self._next_s, self.is_busy = is_healthy, tick_s + INTERVAL_S, True
        threading.Thread(target=self._send, args=(suffix,), name="heartbeat", daemon=True).start()

    def _send(self, suffix: str) -> None:
        try:
            if self._http is None:
                self._http = self._open_client()
            url = f"{self.url}/{suffix}" if suffix else self.url
            reply = self._http.ask("GET", url, deadline_s=_TIMEOUT_S, max_bytes=_MAX_BYTES)
            if reply.status >= 400:
                raise NetError(f"its server answers {reply.status}")
        except GpuwatchError as error:
            if not self._has_failed:
                log.warning("cannot send the heartbeat: %s", error)
            self._has_failed = True
        else:
            if self._has_failed:
                log.info("the heartbeat works again")
            self._has_failed = False
        finally:
            self.is_busy = False


# --- signals ----------------------------------------------------------------------------------------------------------


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
        """Sleep until a signal or a call of `wake`, or until the time is over."""
        if select.select([self._wake_reader], [], [], timeout_s)[0]:
            os.read(self._wake_reader, 4096)

    def wake(self) -> None:
        """End the sleep of the main thread."""
        with contextlib.suppress(BlockingIOError):  # it is full: the thread wakes anyway
            os.write(self._wake_writer, b"\0")

    def _on_stop(self, *_: object) -> None:
        if not self.stop:
            exit_timer = threading.Timer(EXIT_AFTER_S, _force_exit)
            exit_timer.daemon = True
            exit_timer.start()
        self.stop = True

    def _on_reload(self, *_: object) -> None:
        self.reload = True


def _force_exit() -> None:
    log.warning("a thread hangs: exiting without waiting for it; the next start continues its work")
    logging.shutdown()
    os._exit(0)
