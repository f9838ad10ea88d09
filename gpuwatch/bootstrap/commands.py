"""Builds the part that runs the commands of watches with `action = "command"`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gpuwatch.engine.launch_commands import LaunchCommands
from gpuwatch.hooks.launch_command import LaunchCommandRunner

if TYPE_CHECKING:
    from gpuwatch.bootstrap import TimeSource
    from gpuwatch.engine.launch_alerts import LaunchAlerts
    from gpuwatch.engine.launch_slots import LaunchSlots
    from gpuwatch.ports import LaunchRepository
    from gpuwatch.settings import Settings


def build_commands(
    settings: Settings,
    repository: LaunchRepository,
    launch_alerts: LaunchAlerts,
    slots: LaunchSlots,
    stopping: threading.Event,
    time_source: TimeSource,
) -> LaunchCommands:
    """The commands of launches; setting `stopping` ends running ones."""
    from gpuwatch.storage.database import sqlite_path

    return LaunchCommands(
        repository,
        launch_alerts,
        LaunchCommandRunner(stopping),
        slots,
        clock=time_source.now,
        monotonic=time_source.monotonic,
        is_alone=sqlite_path(settings.database_url) is not None,
        why_nothing=settings.rescue,
    )
