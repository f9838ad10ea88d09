"""Effects of the clock and the host on a launch: when its owner gets an alert, and when it must end. Pure."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, Launch, LaunchState
from gpuwatch.domain.market.pricing import MAX_USD_HOUR, MICRO
from gpuwatch.domain.watches.watch import PriceIncreasePolicy, Watch
from gpuwatch.domain.watches.windows import is_open

CLOSING_SOON = timedelta(minutes=10)
RUNTIME_SHARE = 0.8
RUNTIME_LEAST = timedelta(minutes=10)
END_BEFORE = timedelta(minutes=10)  # confirming an end takes some time
OFFLINE_PATIENCE = timedelta(minutes=15)
REMIND_AFTER = timedelta(minutes=15)  # the change itself is reported immediately, its cost only if it lasts
_LAST_CALL = timedelta(hours=1)
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)


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
