"""An instance that was ended, and that the provider lists again: it runs, it is billed, and its end was wanted.

Seen at marketplaces: a destroy is acknowledged or answered 404, lists no longer show the instance, and later they do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import InstanceLookup, Launcher, LaunchRepository

log = logging.getLogger(__name__)


def was_ended(launch: Launch, instance_id: str) -> bool:
    """Whether gpuwatch ended this very instance. What was only gone at the provider, the owner decides about."""
    return launch.is_over and launch.instance_id == instance_id and not launch.ended_because(EndReason.GONE)


def end_again(
    repository: LaunchRepository,
    launcher: Launcher,
    launch_alerts: LaunchAlerts,
    returned: Sequence[Launch],
    now: datetime,
) -> None:
    """Send the destroy again for launches that are over, and whose instances are listed under their id and label.

    Raises:
        StoreError: the alert cannot be stored; the next listing tries again.
    """
    for launch in returned:
        instance_id = launch.instance_id
        if instance_id is None or not _is_alive(launcher, instance_id):
            continue
        try:
            launcher.destroy(instance_id)
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: listed again, and not destroyed yet: %s", launch.launch_id, error)
        repository.enqueue(launch_alerts.returned(launch, now))


def _is_alive(launcher: Launcher, instance_id: str) -> bool:
    """Lists lag: where the provider can be asked for one instance, it has to confirm what the list shows."""
    if not isinstance(launcher, InstanceLookup):
        return True
    try:
        return launcher.get(instance_id) is not None
    except ProviderError as error:
        log.warning("instance %s: listed again, and not found out by its id: %s", instance_id, error)
        return False
