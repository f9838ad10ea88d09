"""Why a rented instance must end, derived from its row and the provider's list. Pure.

An unknown status is never a reason.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.market.pricing import MICRO

EndCause = tuple[EndReason, str]  # with the provider's own text
_EXIT_CODE = re.compile(r"\bexited \(([0-9]{1,9})\)", re.IGNORECASE)  # docker's format; most providers send none
_NEVER_STARTS = frozenset({InstanceState.OFFLINE, InstanceState.ENDING, InstanceState.ENDED})
_PRICE_SLACK = 0.005  # a listed price may have more digits, or include a disk rounded up to the minimum size


def end_cause(
    launch: Launch, instance: Instance, now: datetime, ceiling_microusd: int | None = None
) -> EndCause | None:
    """Return why a listed instance must end, or None.

    Args:
        ceiling_microusd: the watch's threshold for the whole offer with commission; None: the watch was removed.
    """
    if launch.spot and instance.spot is False:
        return EndReason.WRONG_TYPE, "it is billed at the on-demand price"
    if _is_dearer(launch, instance, ceiling_microusd):
        return EndReason.DEARER, f"{instance.listed_usd_hour:.4f} $/h listed"
    if instance.state is InstanceState.FAILED:
        return (EndReason.BROKEN if instance.is_placed else EndReason.NO_CAPACITY), instance.status
    if instance.state is InstanceState.EXITED:
        return _self_ended(launch, instance), instance.status
    if launch.state is LaunchState.STARTING and launch.running_at is None:
        return _failed_start(launch, instance, now)
    return late_start(launch, instance.status, now) or overdue(launch, now)


def _self_ended(launch: Launch, instance: Instance) -> EndReason:
    """The cause if it ended by itself: after running, its work is done, unless its exit code shows a failure."""
    if launch.state is not LaunchState.RUNNING:
        return EndReason.BROKEN
    return EndReason.CRASHED if exit_code(instance.status) else EndReason.FINISHED


def exit_code(words: str) -> int | None:
    """Return the exit code in a provider's message; None: there is none."""
    found = _EXIT_CODE.search(words)
    return None if found is None else int(found[1])


def _failed_start(launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
    """What keeps the instance from starting. It is in time if it runs in the first listing after `ready_within`."""
    if instance.state is InstanceState.ENDED and not instance.is_placed:
        return EndReason.NO_CAPACITY, instance.status
    if instance.state in _NEVER_STARTS:
        return EndReason.BROKEN, instance.status
    if instance.state is InstanceState.STOPPED:  # the contract exists but cannot start; its disk is billed
        return EndReason.BID_LOST if launch.spot else EndReason.BROKEN, instance.status
    return None if instance.state is InstanceState.RUNNING else late_start(launch, instance.status, now)


def late_start(launch: Launch, words: str, now: datetime) -> EndCause | None:
    """Check whether it was not running, or running but not verified, within `ready_within`."""
    requested_at = launch.requested_at or launch.intended_at
    if launch.state is not LaunchState.STARTING or launch.ready_within_s is None:
        return None
    if now - requested_at <= timedelta(seconds=launch.ready_within_s):
        return None
    return (EndReason.NOT_READY if launch.running_at is None else EndReason.NO_SSH), words


def overdue(launch: Launch, now: datetime) -> EndCause | None:
    """Check whether it is past its `max_runtime`, or past the deadline that its instance was given.

    The deadline also covers time in which the instance was not observed: gpuwatch's machine slept, or no list arrived.
    """
    if launch.state not in {LaunchState.STARTING, LaunchState.RUNNING} or launch.max_runtime_s is None:
        return None
    ends = [launch.deadline] if launch.deadline is not None else []
    if launch.state is LaunchState.RUNNING and launch.running_at is not None:
        ends.append(launch.running_at + timedelta(seconds=launch.max_runtime_s))
    return (EndReason.MAX_RUNTIME, "") if any(now >= end for end in ends) else None


def billed_rates(launch: Launch, instance: Instance) -> tuple[int, int]:
    """Return listed and effective price in micro-dollars an hour from the provider's list, else as admitted."""
    admitted = launch.listed_microusd_hour, launch.price_microusd_hour
    shown = instance.listed_usd_hour
    if shown is None or not math.isfinite(shown) or not launch.listed_microusd_hour:
        return admitted
    listed = round(shown * MICRO)
    if abs(listed - launch.listed_microusd_hour) <= launch.listed_microusd_hour * _PRICE_SLACK:
        return admitted
    return listed, launch.with_commission(listed)


def _is_dearer(launch: Launch, instance: Instance, ceiling_microusd: int | None) -> bool:
    """Check whether the provider's own price is above the threshold, while it is recent enough for this order."""
    if launch.state is not LaunchState.STARTING:
        return False
    ceiling = launch.price_microusd_hour if ceiling_microusd is None else ceiling_microusd
    return billed_rates(launch, instance)[1] > max(ceiling, launch.price_microusd_hour)
