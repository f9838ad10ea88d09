"""The line that `systemctl status` shows. It is built from memory, so that a database that hangs cannot delay it."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.setup.durations import format_moment, is_recent
from gpuwatch.engine.watches.provider_worker import ProviderWorker
from gpuwatch.storage.alerts.pauses import PauseTable

REFRESH_EVERY_S = 5.0
STALE_AFTER = timedelta(seconds=30)


class _StoredState(msgspec.Struct, frozen=True):
    """The values from the database, and when they were read."""

    at: datetime
    alive: int = 0
    pauses: str | None = None


class StatusLine:
    """Builds one line about a running daemon.

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
        alive = len(self._service.launch_repository.alive())
        self._stored = _StoredState(now, alive, pause_summary(self._service.pauses.load(), now))

    def text(self, now: datetime, tick_s: float) -> str:
        """Return the line.

        Args:
            tick_s: now, on the monotonic clock.
        """
        parts = [_worker_status(worker, now) for worker in self._service.polling.workers.values()]
        if self._stored is not None:
            parts.append(f"{count_text(self._stored.alive, 'launch', 'launches')} alive")
            parts += [self._stored.pauses] if self._stored.pauses else []
        stored_at = self._stored.at if self._stored else self._started_at
        if not is_recent(stored_at, now, STALE_AFTER):
            parts.append(f"the database has not answered since {stored_at:%H:%M} UTC")
        parts += [f"task {fault.task} {fault.kind}" for fault in self._progress.faults(tick_s)]
        rescue = self._service.settings.rescue
        subject = rescue or f"{count_text(len(self._service.settings.watches), 'watch', 'watches')}"
        return "; ".join((subject, *parts))


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
