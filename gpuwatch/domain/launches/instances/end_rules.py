"""Why and when a rented instance must end, and which alerts come before. Pure.

- From its row and the provider's list: `end_cause` and its parts. An unknown status is never a reason.
- `before_stop`: how long it may take, and when it must start so that no instance outlives its end because of it.
- The clock and the host: windows, `max_runtime`, the contract, changed conditions, a raised price.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.interruption import is_taken_back
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, Launch, LaunchState
from gpuwatch.domain.market.money import MAX_USD_HOUR, MICRO, per_hour
from gpuwatch.domain.watches.launch_spec import LaunchSpec, PriceIncreasePolicy
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.windows import is_open

EndCause = tuple[EndReason, str]  # with the provider's own text
_EXIT_CODE = re.compile(r"\bexited \(([0-9]{1,9})\)", re.IGNORECASE)  # docker's format; most providers send none
_NEVER_STARTS = frozenset({InstanceState.OFFLINE, InstanceState.ENDING, InstanceState.ENDED})
_PRICE_SLACK = 0.005  # a listed price may have more digits, or include a disk rounded up to the minimum size

HOOK_MARGIN_S = 10.0  # added to a hook's own time, to kill and record it
AFTER_END_S = (
    60.0  # an instance may wait for its hook this long past its end; the destroy takes part of the second minute
)

CLOSING_SOON = timedelta(minutes=10)
RUNTIME_SHARE = 0.8
RUNTIME_LEAST = timedelta(minutes=10)
END_BEFORE = timedelta(minutes=10)  # confirming an end takes some time
OFFLINE_PATIENCE = timedelta(minutes=15)
REMIND_AFTER = timedelta(minutes=15)  # the change itself is reported immediately, its cost only if it lasts
_LAST_CALL = timedelta(hours=1)
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)


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
        return EndReason.DEARER, f"{per_hour(instance.listed_usd_hour or 0)} listed"
    if instance.state is InstanceState.FAILED and is_taken_back(launch.interruption, instance.interruption):
        return EndReason.TAKEN_BACK, instance.status
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
    end = EndReason.KEPT if launch.is_kept else EndReason.MAX_RUNTIME
    return (end, "") if any(now >= at for at in ends) else None


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


def stopped_rates(launch: Launch, instance: Instance) -> tuple[int, int]:
    """Return listed and effective price in micro-dollars an hour of its disk alone."""
    listed, shown = launch.disk_microusd_hour, instance.stopped_usd_hour
    if shown is not None and 0 <= shown <= MAX_USD_HOUR:
        listed = round(shown * MICRO)
    return listed, launch.with_commission(listed)


def _is_dearer(launch: Launch, instance: Instance, ceiling_microusd: int | None) -> bool:
    """Check whether the provider's own price is above the threshold, while it is recent enough for this order."""
    if launch.state is not LaunchState.STARTING:
        return False
    ceiling = launch.price_microusd_hour if ceiling_microusd is None else ceiling_microusd
    return billed_rates(launch, instance)[1] > max(ceiling, launch.price_microusd_hour)


def longest_hook_s(spec: LaunchSpec | None) -> float:
    """The longest time that a destroy may have to wait for `before_stop`; 0 without that hook."""
    return 0.0 if spec is None or spec.before_stop is None else spec.hook_timeout_s + HOOK_MARGIN_S


def hook_must_begin(launch: Launch, watch: Watch, now: datetime) -> EndCause | None:
    """Return an end cause once `before_stop` must start, so that it is over at most one minute past the end."""
    if launch.state is not LaunchState.RUNNING or launch.running_at is None or launch.max_runtime_s is None:
        return None
    early_s = longest_hook_s(watch.launch) - AFTER_END_S
    ends_at = launch.running_at + timedelta(seconds=launch.max_runtime_s)
    if launch.deadline is not None:
        ends_at = min(ends_at, launch.deadline)
    if early_s <= 0 or now < ends_at - timedelta(seconds=early_s):
        return None
    return EndReason.MAX_RUNTIME, f"before_stop starts {early_s:.0f} s early, to finish in time"


# --- windows ----------------------------------------------------------------------------------------------------------
def outside_windows(watch: Watch, now: datetime, zone: tzinfo) -> EndCause | None:
    """Return an end cause if its windows are closed and it must end with them."""
    if not _ends_with_windows(watch) or is_open(watch.active, now, zone):
        return None
    return EndReason.OUTSIDE, ", ".join(watch.active)


def closes_at(watch: Watch, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the minute, within the next ten, at which its windows close and end it; None: they do not."""
    if not _ends_with_windows(watch) or not is_open(watch.active, now, zone):
        return None
    minute = now.replace(second=0, microsecond=0)
    for ahead in range(1, CLOSING_SOON // _MINUTE + 1):
        if not is_open(watch.active, minute + ahead * _MINUTE, zone):
            return minute + ahead * _MINUTE
    return None


def _ends_with_windows(watch: Watch) -> bool:
    return watch.launch is not None and watch.launch.stop_outside and bool(watch.active)


# --- its own time and its contract's ----------------------------------------------------------------------------------
def ends_by_itself_at(launch: Launch) -> datetime | None:
    """Return the end of `max_runtime`; None: it is not set, or the launch does not run yet."""
    if launch.running_at is None or launch.max_runtime_s is None:
        return None
    return launch.running_at + timedelta(seconds=launch.max_runtime_s)


def runtime_nearly_over(launch: Launch, now: datetime) -> bool:
    """Return whether 80 % of `max_runtime` is over, or ten minutes are left, whichever comes first."""
    end = ends_by_itself_at(launch)
    if end is None or launch.running_at is None:
        return False
    whole = end - launch.running_at
    return launch.running_at + min(whole * RUNTIME_SHARE, whole - RUNTIME_LEAST) <= now < end


def contract_too_short(launch: Launch, ends_at: datetime | None, now: datetime) -> str | None:
    """Return whether the host ends the contract before `max_runtime` does (or within a day if that is not set).

    Returns:
        "soon" in the last hour, else "early"; None: it does not.
    """
    if ends_at is None:
        return None
    wanted = ends_by_itself_at(launch) or now + _DAY
    if ends_at >= wanted:
        return None
    return "soon" if ends_at - now <= _LAST_CALL else "early"


# --- changed conditions -----------------------------------------------------------------------------------------------
def due_reminder(launch: Launch, now: datetime) -> int | None:
    """Return which reminder of its condition is due: 0 after 15 minutes, then one a day; None: none."""
    if launch.condition is None or launch.condition is InstanceCondition.UNLISTED or launch.condition_since is None:
        return None
    lasted = now - launch.condition_since
    return None if lasted < REMIND_AFTER else lasted // _DAY


def offline_too_long(launch: Launch, relaunch: bool, now: datetime) -> EndCause | None:
    """Return an end cause if it was offline for 15 minutes and its owner wants the job elsewhere.

    Without `relaunch` it is left alone: its GPUs are not billed meanwhile, hosts often come back, and the data on its
    disk would be lost. `max_runtime` ends it in any case.
    """
    if not relaunch or launch.state is not LaunchState.RUNNING or launch.condition is not InstanceCondition.OFFLINE:
        return None
    since = launch.condition_since
    if since is None or now - since < OFFLINE_PATIENCE:
        return None
    return EndReason.OFFLINE, f"since {since:%H:%M} UTC"


# --- its price --------------------------------------------------------------------------------------------------------
class IncreaseAnswer(StrEnum):
    """The answer to a proposed price."""

    NONE = "none"  # the owner decides
    ACCEPT = "accept"
    REJECT = "reject"  # and end the instance before the new price applies


def raised_microusd_hour(launch: Launch, new_usd_hour: float | None) -> int | None:
    """Return the price of the whole instance at the new GPU price, with disk and commission; None: unknown.

    Args:
        new_usd_hour: listed, for all GPUs, without disk; an impossible number counts as unknown.
    """
    if new_usd_hour is None or not math.isfinite(new_usd_hour) or not 0 <= new_usd_hour <= MAX_USD_HOUR:
        return None
    return launch.with_commission(round(new_usd_hour * MICRO) + launch.disk_microusd_hour)


def increase_answer(
    policy: PriceIncreasePolicy, raised: int | None, ceiling_microusd: int | None, fits_budget: bool
) -> IncreaseAnswer:
    """Return the answer according to the owner's policy.

    Args:
        raised: the new price of the whole instance; None: unknown. Then nothing is accepted, and under `accept_under`
            nothing ends either, because an unanswered proposal never takes effect.
        ceiling_microusd: the watch's `max_price` for all its GPUs; None: the watch was removed.
    """
    if policy is PriceIncreasePolicy.ALERT:
        return IncreaseAnswer.NONE
    if policy is PriceIncreasePolicy.STOP:
        return IncreaseAnswer.REJECT
    if raised is None or ceiling_microusd is None:
        return IncreaseAnswer.NONE
    return IncreaseAnswer.ACCEPT if raised <= ceiling_microusd and fits_budget else IncreaseAnswer.REJECT


def must_end_before_increase(effective_at: datetime | None, now: datetime) -> bool:
    """Return whether the instance must end now, before the new price applies. None: it may apply at any moment."""
    return effective_at is None or now >= effective_at - END_BEFORE


def extra_microusd(launch: Launch, raised: int, effective_at: datetime | None, now: datetime) -> int:
    """Return the extra cost of the new price until the end of `max_runtime` (or for one day if that is not set)."""
    since = max(now, effective_at or now)
    until = ends_by_itself_at(launch) or since + _DAY
    hours = max(timedelta(0), until - since) / timedelta(hours=1)
    return round((raised - launch.price_microusd_hour) * hours)
