"""A launch as JSON: the output of `gpuwatch launches --json` and the input of the owner's hooks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.billing import cost_microusd
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.pricing import MICRO


def launch_json(launch: Launch, now: datetime) -> dict[str, Any]:
    """Return one launch as JSON; keys may be added, none is renamed. No secrets: neither environment nor script."""
    return {
        "launch_id": launch.launch_id,
        "watch": launch.watch,
        "provider": launch.provider,
        "offer_id": launch.offer_id,
        "instance_id": launch.instance_id,
        "state": launch.state.value,
        "condition": None if launch.condition is None else launch.condition.value,
        "dry_run": launch.dry_run,
        "label": launch.label,
        "price_usd_hour": launch.price_microusd_hour / MICRO,
        "requested_at": rfc3339(launch.requested_at),
        "running_at": rfc3339(launch.running_at),
        "ended_at": rfc3339(launch.ended_at),
        "end_reason": launch.end_reason,
        "cost_usd": cost_microusd(launch, now) / MICRO,
        "listed_usd_hour": launch.listed_microusd_hour / MICRO,
        "listed_cost_usd": cost_microusd(launch, now, listed=True) / MICRO,
        "machine_id": launch.machine_id,
        "gpu": launch.gpu,
        "gpu_count": launch.gpu_count,
        "spot": launch.spot,
        "intended_at": rfc3339(launch.intended_at),
        "account": launch.account_id,
        "install_id": launch.install_id,
        "watch_id": launch.watch_id,
    }
