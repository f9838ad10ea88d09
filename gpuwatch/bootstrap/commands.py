"""Builds the part that runs the commands of watches with `action = "command"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.engine.launch_commands import LaunchCommands
from gpuwatch.hooks.launch_command import LaunchCommandRunner

if TYPE_CHECKING:
    from gpuwatch.bootstrap.essentials import Essentials


def build_commands(base: Essentials) -> LaunchCommands:
    """The commands of launches; setting `base.stopping` ends running ones."""
    from gpuwatch.storage.database import sqlite_path

    return LaunchCommands(
        base.launches,
        base.launch_alerts,
        LaunchCommandRunner(base.stopping),
        base.slots,
        clock=base.time_source.now,
        monotonic=base.time_source.monotonic,
        is_alone=sqlite_path(base.settings.database_url) is not None,
        renting_fault=base.settings.rescue,
    )
