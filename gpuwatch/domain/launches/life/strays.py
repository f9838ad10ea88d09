"""Turn an instance with a gpuwatch label that belongs to no launch into a launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.labels import label_of
from gpuwatch.domain.launches.launch import Launch, LaunchState, PriceSpan, Promise
from gpuwatch.domain.launches.life.launch_record import terms_of
from gpuwatch.domain.market.pricing import MICRO, Commission, threshold_microusd
from gpuwatch.domain.watches.watch import LaunchSpec, Watch

ADOPTED_OFFER = "adopted:"  # the offer is unknown; the instance id follows and keeps it unique


def adopted_launch(  # noqa: PLR0913 - independent facts
    instance: Instance,
    *,
    launch_id: str,
    watch: Watch,
    alive: Sequence[Launch],
    provider: str,
    commission: Commission,
    now: datetime,
) -> Launch:
    """Return the launch of an instance as if it had been rented now: its `max_runtime` counts from now.

    Args:
        alive: the launches of the watch that are alive. The new one takes their lowest free slot, even beyond
            `max_active`, because it exists already.

    Raises:
        ValueError: the provider does not give a price, so no budget could count it.
    """
    if instance.listed_usd_hour is None:
        raise ValueError("the provider does not report its price per hour")
    spec = watch.launch or LaunchSpec()
    rate = commission.on_top_rate(None)
    taken = {launch.slot for launch in alive}
    found = Launch(
        launch_id=launch_id,
        watch=watch.name,
        slot=next(slot for slot in range(len(taken) + 1) if slot not in taken),
        provider=provider,
        offer_id=ADOPTED_OFFER + instance.instance_id[:50],
        machine_id=instance.machine_id,
        gpu=instance.gpu or instance.gpu_wire or "unknown",
        state=LaunchState.STARTING,
        dry_run=False,
        label=instance.label or label_of(launch_id),
        max_runtime_s=spec.max_runtime_s,
        ready_within_s=spec.ready_within_s,
        instance_id=instance.instance_id,
        intended_at=now,
        requested_at=now,
        promised=Promise(commission_rate=float(rate)),
        terms=terms_of(watch),
        **_priced(instance, instance.listed_usd_hour, spec, rate),
    )
    if not has_stopped_running(instance):
        return found
    disk = found.disk_microusd_hour
    spans = (PriceSpan(now, disk, round(disk * (1 + rate))),)
    return msgspec.structs.replace(found, state=LaunchState.RUNNING, running_at=now, spans=spans)


def has_stopped_running(instance: Instance) -> bool:
    """Return whether it ran before but does not run now. Waiting for it to start would end with its destruction."""
    return instance.state in {InstanceState.STOPPED, InstanceState.OFFLINE, InstanceState.UNKNOWN}


def _priced(instance: Instance, listed_usd_hour: float, spec: LaunchSpec, rate: Decimal) -> dict[str, Any]:
    """The type, size and prices of the instance; a bid may be raised to its maximum."""
    listed = round(listed_usd_hour * MICRO)
    price = round(listed * (1 + rate))
    count, spot = max(instance.gpu_count or 1, 1), bool(instance.spot)
    most = threshold_microusd(spec.bid.max_usd_gpu_hour, count) if spot and spec.bid else 0
    bid = instance.bid_usd_hour if spot else None
    return {
        "gpu_count": count,
        "spot": spot,
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
        "disk_microusd_hour": min(round((instance.stopped_usd_hour or 0) * MICRO), listed),
        "most_microusd_hour": max(price, most),
        "bid_microusd_hour": None if bid is None else round(bid * MICRO),
    }
