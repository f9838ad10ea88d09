"""A launch that is over but whose instance is listed again: it runs, it is billed, and it is ours. Pure.

Observed at marketplaces: a destroy is acknowledged or answered with 404, lists no longer show the instance, and later
they show it again; a list omits an instance for a long time; an order takes effect after it was given up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import ClockReading, InstanceReturned
from gpuwatch.domain.launches.life.transitions import (
    Destroy,
    Notification,
    NotificationTopic,
    Transition,
    TransitionResult,
)

WATCH_ENDED = timedelta(days=7)  # an instance belongs to its launch for this long after the launch's end


def may_reopen(launch: Launch, instance: Instance, now: datetime, within: timedelta = WATCH_ENDED) -> bool:
    """Whether the instance belongs to the launch named in its label, and the launch ended only a short time ago."""
    if not launch.is_over or launch.dry_run or launch.instance_id not in {None, instance.instance_id}:
        return False
    return launch.ended_at is not None and now - launch.ended_at <= within


def reopened(launch: Launch, event: InstanceReturned, clock: ClockReading) -> TransitionResult:
    """Return to its end if that was requested; otherwise resume it. From now on it counts in budgets and limits."""
    was = f"it had ended ({launch.end_reason})"
    changes: dict[str, Any] = {"ended_at": None, "instance_id": event.instance_id}
    if event.end_wanted:
        notify = Notification("its instance reappeared after its end; ending it again", was, NotificationTopic.RETURNED)
        step = Transition(
            to_state=LaunchState.STOPPING, cause="listed again after its end", changes=changes, notify=notify
        )
        return TransitionResult(step, (Destroy(event.instance_id),))
    changes |= {"end_reason": None, "condition": None, "condition_since": None}
    notify = Notification("its instance reappeared; gpuwatch follows it again", was, NotificationTopic.RETURNED)
    if launch.running_at is not None:
        return TransitionResult(
            Transition(to_state=LaunchState.RUNNING, cause="listed again", changes=changes, notify=notify)
        )
    changes["requested_at"] = clock.now  # `ready_within` counts from now; its deadline stays
    return TransitionResult(
        Transition(to_state=LaunchState.STARTING, cause="listed after all", changes=changes, notify=notify)
    )
