"""Launches for the guard's rules: one H100 for 4 $/h in total."""

from __future__ import annotations

from typing import Any

from gpuwatch.domain.launches.launch import Launch, LaunchState
from tests.builders import NOON


def a_running_launch(**changes: Any) -> Launch:
    """Running since noon at 4 $/h: listed 3.333333 with 20 % on top; no disk, no `max_runtime`."""
    plain: dict[str, Any] = {
        "launch_id": "aaaaaaaaaaab",
        "watch": "h100",
        "slot": 0,
        "provider": "vastai",
        "offer_id": "1001",
        "machine_id": "77",
        "gpu": "H100 SXM",
        "gpu_count": 1,
        "spot": False,
        "state": LaunchState.RUNNING,
        "dry_run": False,
        "label": "gpuwatch-aaaaaaaaaaab",
        "listed_microusd_hour": 3_333_333,
        "price_microusd_hour": 4_000_000,
        "instance_id": "9000",
        "intended_at": NOON,
        "requested_at": NOON,
        "running_at": NOON,
    }
    return Launch(**(plain | changes))
