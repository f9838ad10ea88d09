"""Builds the engine that multi-node jobs are submitted to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.remote.dstack import Dstack

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import LaunchState
    from gpuwatch.ports import LaunchReader
    from gpuwatch.settings import Settings


def orchestrator(
    settings: Settings, name: str = TOOL, launch_states: Callable[[], Mapping[str, LaunchState]] = dict
) -> Dstack | None:
    """The engine of this name; None: not configured.

    Args:
        launch_states: the states of active launches, by label.
    """
    config = settings.orchestrator
    if not config.tool or config.tool != name:
        return None
    return Dstack(config.program, config.project, os.environ, timeout_s=config.timeout_s, launch_states=launch_states)


def cluster_states(launches: LaunchReader) -> dict[str, LaunchState]:
    """The states of active cluster launches, by label. Raises StoreError."""
    return {one.label: one.state for one in launches.alive(TOOL)}
