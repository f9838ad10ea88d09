"""Remind the owner once a day of what waits for a decision: an alert can be overlooked, a bill cannot."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.ports import LaunchRepository

log = logging.getLogger(__name__)
STILL_BACK = "its instance was back after its end; it is billed"
LISTED_AGAIN = "The provider listed it again. It counts in budgets and limits until it is over."
STILL_HELD = "It still needs your decision. Its budget stays reserved and its slot taken."


def send_reminders(
    repository: LaunchRepository, launch_alerts: LaunchAlerts, keyed: Collection[str], now: datetime
) -> int:
    """Report launches that are held, and those that gpuwatch cannot manage; return how many there are. Raises
    StoreError.

    Args:
        keyed: providers that are configured with a key.
    """
    alive = repository.alive()
    held = [launch for launch in alive if launch.state is LaunchState.HELD]
    alone = [launch for launch in alive if launch.provider not in keyed and not launch.is_by_command]
    for launch in repository.reopened():
        repository.enqueue(launch_alerts.returned(launch, STILL_BACK, LISTED_AGAIN, now))
    for launch in held:
        repository.enqueue(launch_alerts.held(launch, STILL_HELD, now))
    for launch in alone:
        log.error("launch %s: %s is not in the settings or has no key", launch.launch_id, launch.provider)
        repository.enqueue(launch_alerts.unmanaged(launch, now))
    return len(held) + len(alone)
