"""Instances that belong to no launch and that an order with a lost answer may have created. Pure.

Their label may be missing: it can be edited in the provider's console, or be set slightly late.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.pricing import MICRO

_CLOCKS_DIFFER = timedelta(minutes=2)  # between the provider's clock and ours
_SAME_PRICE = 0.02  # relative difference from rounding or another disk size


def may_be_its_instance(launch: Launch, instance: Instance, first_listed_at: datetime) -> bool:
    """Whether the order of this launch may have created the instance.

    Args:
        instance: an instance that belongs to no launch.
        first_listed_at: when a list first showed it; after a restart, this is later than its creation.
    """
    ordered_at = launch.requested_at or launch.intended_at
    if instance.started_at is not None:
        is_older = instance.started_at < ordered_at - _CLOCKS_DIFFER
    else:
        is_older = first_listed_at < ordered_at
    if is_older:
        return False
    on_its_machine = launch.machine_id is not None and instance.machine_id == launch.machine_id
    return on_its_machine or _is_alike(launch, instance)


def _is_alike(launch: Launch, instance: Instance) -> bool:
    if (instance.gpu, instance.gpu_count) != (launch.gpu, launch.gpu_count):
        return False
    return instance.listed_usd_hour is None or _is_its_price(launch, instance.listed_usd_hour)


def _is_its_price(launch: Launch, listed_usd_hour: float) -> bool:
    return abs(listed_usd_hour * MICRO - launch.listed_microusd_hour) <= launch.listed_microusd_hour * _SAME_PRICE
