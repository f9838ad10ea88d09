"""Builds the parts that submit multi-node jobs to an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gpuwatch.bootstrap import new_id, pace
from gpuwatch.bootstrap.jobs import job_variables
from gpuwatch.domain.jobs.cluster import TOOL
from gpuwatch.engine.cluster_jobs import SETTLE_S, ClusterJobs, ClusterParts, ClusterTerms
from gpuwatch.remote.dstack import Dstack

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import LaunchState
    from gpuwatch.engine.launch_reconciler import LaunchReconciler
    from gpuwatch.ports import Launcher, LaunchRepository
    from gpuwatch.settings import Settings


def orchestrator(
    settings: Settings, name: str = TOOL, alive: Callable[[], Mapping[str, LaunchState]] = dict
) -> Dstack | None:
    """The engine of this name; None: not configured.

    Args:
        alive: the states of active launches, by label.
    """
    found = settings.orchestrator
    if not found.tool or found.tool != name:
        return None
    return Dstack(found.program, found.project, os.environ, timeout_s=found.timeout_s, alive=alive)


def cluster_states(launches: LaunchRepository) -> dict[str, LaunchState]:
    """The states of active cluster launches, by label. Raises StoreError."""
    return {one.label: one.state for one in launches.alive(TOOL)}


def build_cluster_jobs(
    settings: Settings, engine: Launcher | None, reconciler: LaunchReconciler | None, **ports: Any
) -> ClusterJobs | None:
    """The multi-node jobs of the daemon; None: no engine is configured.

    Args:
        ports: other fields of `ClusterParts`.
    """
    if not isinstance(engine, Dstack) or reconciler is None:
        return None
    terms = ClusterTerms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=settings.timezone,
        settle=timedelta(seconds=max(SETTLE_S, 2 * settings.orchestrator.timeout_s) / pace()),
    )
    fixed: dict[str, Any] = {"variables": job_variables, "not_ready": reconciler.not_ready, "new_id": new_id}
    return ClusterJobs(ClusterParts(engine=engine, **fixed, **ports), terms)
