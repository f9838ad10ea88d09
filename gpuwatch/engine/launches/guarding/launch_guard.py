"""The port for rules about a rented instance beyond what the list shows, and the functions that call it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import InstanceListed
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports import Instance, InstanceState

log = logging.getLogger(__name__)
T = TypeVar("T")


class LaunchGuard(Protocol):
    """Rules about an instance beyond what the list shows; implemented by `guard`."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Return why it must end, or None."""

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Return why it must end, listed or not, or None."""

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """Return True if it matches its offer, False if that is not yet known, or the end cause."""


class NoGuard:
    """A guard that allows everything."""

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Find no fault."""
        return None

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """End nothing."""
        return None

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """Trust it."""
        return True


def listed_event(guard: LaunchGuard, launch: Launch, instance: Instance, now: datetime) -> InstanceListed:
    """Let the guard check active launches, and verify an instance before it counts as running."""
    if launch.state not in {LaunchState.STARTING, LaunchState.RUNNING}:
        return InstanceListed(instance)
    fault = _asked(launch, lambda: guard.fault(launch, instance, now))
    if fault is not None or launch.state is LaunchState.RUNNING or instance.state is not InstanceState.RUNNING:
        return InstanceListed(instance, fault)
    checked = _asked(launch, lambda: guard.verified(launch, instance, now))
    found = True if checked is None else checked
    return InstanceListed(instance, verified=found) if isinstance(found, bool) else InstanceListed(instance, found)


def due_cause(guard: LaunchGuard, launch: Launch, now: datetime) -> EndCause | None:
    """Return why it must end, listed or not, or None."""
    return _asked(launch, lambda: guard.due(launch, now))


def _asked(launch: Launch, check: Callable[[], T]) -> T | None:
    """Contain errors: a guard that raises ends nothing, and does not stop what the launch's own time ends."""
    try:
        return check()
    except GpuwatchError as error:
        log.warning("launch %s: guard: %s", launch.launch_id, error)
    except Exception:
        log.exception("launch %s: its guard failed", launch.launch_id)
    return None
