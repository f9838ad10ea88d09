"""A launch that is over, and whose instance is listed again: it runs, it is billed, and it is ours. Pure.

Seen at marketplaces: a destroy is acknowledged or answered 404, lists no longer show the instance, and later they do;
a list omits an instance for long; an order takes effect after everybody gave it up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gpuwatch.domain.launches.events import ClockReading, InstanceReturned
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.transitions import Destroy, Notification, NotificationTopic, Transition, TransitionResult

WATCH_ENDED = timedelta(days=7)  # for so long after its end an instance is taken for its own launch's


def may_reopen(launch: Launch, instance: Instance, now: datetime, within: timedelta = WATCH_ENDED) -> bool:
    """Whether the launch that the label names has this instance, and has been over for a short time only."""
    if not launch.is_over or launch.dry_run or launch.instance_id not in {None, instance.instance_id}:
        return False
    return launch.ended_at is not None and now - launch.ended_at <= within


def reopened(launch: Launch, event: InstanceReturned, clock: ClockReading) -> TransitionResult:
    """Back to its end if that was wanted; else it is resumed. It counts in budgets and limits from this moment on."""
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
    changes["requested_at"] = clock.now  # its time to get ready counts from now; its deadline stays
    return TransitionResult(
        Transition(to_state=LaunchState.STARTING, cause="listed after all", changes=changes, notify=notify)
    )
