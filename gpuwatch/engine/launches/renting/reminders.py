"""Once a day, launches that wait for a decision, or that gpuwatch cannot manage: an alert can be overlooked."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts.launch_texts import STILL_BACK, STILL_HELD, STILL_HELD_BY_COMMAND, UNMANAGED
from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)


def send_reminders(
    repository: SqlLaunchRepository, launch_alerts: LaunchAlerts, keyed: Collection[str], now: datetime
) -> int:
    """Report launches that are held or that gpuwatch cannot manage; return how many there are. Raises StoreError.

    Args:
        keyed: providers with a configured key.
    """
    alive = repository.own_alive()
    held = [launch for launch in alive if launch.state is LaunchState.HELD]
    alone = [launch for launch in alive if launch.provider not in keyed and not launch.is_by_command]
    for launch in repository.reopened():
        repository.enqueue(launch_alerts.of(STILL_BACK, launch, now))
    for launch in held:
        spec = STILL_HELD_BY_COMMAND if launch.is_by_command else STILL_HELD
        repository.enqueue(launch_alerts.of(spec, launch, now, candidate="INSTANCE"))
    for launch in alone:
        log.error("launch %s: %s is not configured or has no key", launch.launch_id, launch.provider)
        section = "[orchestrator]" if launch.provider == TOOL else f"[providers.{launch.provider}] and its key"
        repository.enqueue(launch_alerts.of(UNMANAGED, launch, now, section=section))
    return len(held) + len(alone)
