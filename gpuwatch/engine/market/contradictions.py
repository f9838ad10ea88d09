"""Contradictory answers of a provider: reported once a day if they last."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.errors import StoreError
from gpuwatch.ports import AlertQueue

log = logging.getLogger(__name__)

_OFTEN = 3  # a list that lags briefly is not reported


class Contradictions:
    """Counts contradictions by launch.

    Args:
        monotonic: seconds.
    """

    def __init__(self, alert_queue: AlertQueue, launch_alerts: LaunchAlerts, monotonic: Callable[[], float]) -> None:
        self._alert_queue = alert_queue
        self._launch_alerts = launch_alerts
        self._monotonic = monotonic
        self._noted: dict[str, tuple[float, int]] = {}  # launch → since when, how often
        self._reported: dict[str, datetime] = {}

    def note(self, launch: Launch, why: str, lasting_s: float, now: datetime) -> None:
        """Note that two answers about a launch contradict each other; report it after `lasting_s`."""
        since_s, times = self._noted.get(launch.launch_id, (self._monotonic(), 0))
        self._noted[launch.launch_id] = since_s, times + 1
        reported_at = self._reported.get(launch.launch_id)
        reported_today = reported_at is not None and reported_at.date() == now.date()
        if times + 1 < _OFTEN or self._monotonic() - since_s < lasting_s or reported_today:
            return
        try:
            self._alert_queue.enqueue(self._launch_alerts.contradiction(launch, why, now))
            self._reported = {one: at for one, at in self._reported.items() if at.date() == now.date()}
            self._reported[launch.launch_id] = now
        except StoreError as error:
            log.warning("launch %s: cannot report a contradiction yet: %s", launch.launch_id, error)

    def clear(self, launch: Launch) -> None:
        """Note that the answers agree again."""
        self._noted.pop(launch.launch_id, None)
