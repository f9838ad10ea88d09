"""Reminds the owner once a day of pending decisions: an alert can be overlooked, a bill cannot."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.ports import LaunchRepository

log = logging.getLogger(__name__)
STILL_BACK = "its instance reappeared after its end; it is billed"
LISTED_AGAIN = "The provider lists it again. It counts against budgets and limits until it ends."
STILL_HELD = "It still needs your decision. Its budget stays reserved and its slot occupied."


def send_reminders(
    repository: LaunchRepository, launch_alerts: LaunchAlerts, keyed: Collection[str], now: datetime
) -> int:
    """Report launches that are held or that gpuwatch cannot manage; return how many there are. Raises
    StoreError.

    Args:
        keyed: providers with a configured key.
    """
    alive = repository.alive()
    held = [launch for launch in alive if launch.state is LaunchState.HELD]
    alone = [launch for launch in alive if launch.provider not in keyed and not launch.is_by_command]
    for launch in repository.reopened():
        repository.enqueue(launch_alerts.returned(launch, STILL_BACK, LISTED_AGAIN, now))
    for launch in held:
        repository.enqueue(launch_alerts.held(launch, STILL_HELD, now))
    for launch in alone:
        log.error("launch %s: %s is not configured or has no key", launch.launch_id, launch.provider)
        repository.enqueue(launch_alerts.unmanaged(launch, now))
    return len(held) + len(alone)
