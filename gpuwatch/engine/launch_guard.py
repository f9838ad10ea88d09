"""The port to the rules about a rented instance beyond what the list shows, and how they are asked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from gpuwatch.domain.launches.end_rules import EndCause
from gpuwatch.domain.launches.events import InstanceListed
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports import Instance, InstanceState

log = logging.getLogger(__name__)
T = TypeVar("T")


class LaunchGuard(Protocol):
    """Rules about an instance beyond what the list shows; implemented by `guard`."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Why it must end, or None."""

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Why it must end whether a list shows it or not, or None."""

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """Whether it matches its offer; False: not yet known."""


class NoGuard:
    """No guard."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Nothing is wrong."""
        return None

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Nothing ends it."""
        return None

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """It is trusted."""
        return True


def listed_event(guard: LaunchGuard, launch: Launch, instance: Instance, now: datetime) -> InstanceListed:
    """The guard checks living launches, and verifies an instance before it counts as running."""
    if launch.state not in {LaunchState.STARTING, LaunchState.RUNNING}:
        return InstanceListed(instance)
    fault = _asked(launch, lambda: guard.fault(launch, instance, now))
    if fault is not None or launch.state is LaunchState.RUNNING or instance.state is not InstanceState.RUNNING:
        return InstanceListed(instance, fault)
    checked = _asked(launch, lambda: guard.verified(launch, instance, now))
    found = True if checked is None else checked
    return InstanceListed(instance, verified=found) if isinstance(found, bool) else InstanceListed(instance, found)


def due_cause(guard: LaunchGuard, launch: Launch, now: datetime) -> EndCause | None:
    """Why it must end whether a list shows it or not, or None."""
    return _asked(launch, lambda: guard.due(launch, now))


def _asked(launch: Launch, check: Callable[[], T]) -> T | None:
    """A guard that raises ends nothing, and holds up nothing that the launch's own time ends."""
    try:
        return check()
    except GpuwatchError as error:
        log.warning("launch %s: guard: %s", launch.launch_id, error)
    except Exception:
        log.exception("launch %s: its guard failed", launch.launch_id)
    return None
