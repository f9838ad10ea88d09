"""What follows from decisions about a launch that no provider's answer makes: its owner's, and its job's. Pure.

They are rules of `state_machine`, so that they do what every other change does: event, alert, hook, free slot.
"""

from __future__ import annotations

from typing import Any

from gpuwatch.domain.launches.launch import LOST_STATES, Launch, LaunchState, PriceSpan
from gpuwatch.domain.launches.life.launch_events import (
    ClockReading,
    EndRequested,
    OwnerAdopted,
    OwnerFoundNothing,
    SentAgain,
    WatchTerms,
)
from gpuwatch.domain.launches.life.transitions import NO_TRANSITION, Notification, Transition, TransitionResult, over

S = LaunchState


def end_requested(launch: Launch, event: EndRequested, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Mark it; the reconciler destroys it, after the owner's hook, as often as needed."""
    if launch.state is S.STOPPING:
        return NO_TRANSITION
    reason = event.end.text(event.words)
    return TransitionResult(Transition(to_state=S.STOPPING, cause=reason, changes={"end_reason": reason}))


def found_nothing(launch: Launch, event: OwnerFoundNothing, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """End it; without a known instance it never ran."""
    reason = event.end.text(event.words)
    state = S.FAILED if launch.instance_id is None else S.ENDED
    return over(state, reason, clock.now, Notification(state.value, reason))


def adopted(launch: Launch, event: OwnerAdopted, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Continue with the owner's instance. Its time counts from now: while it was held, all of it may have passed."""
    cause, why = "adopted by the owner", f"The owner assigned instance {event.instance_id} to it."
    changes: dict[str, Any] = {"instance_id": event.instance_id}
    if launch.state is S.STOPPING:
        notify = Notification("adopted by the owner; ending it", why)
        return TransitionResult(Transition(to_state=S.STOPPING, cause=cause, changes=changes, notify=notify))
    changes |= {"intended_at": clock.now, "requested_at": clock.now}
    notify = Notification("adopted by the owner", why)
    if not event.is_stopped:
        return TransitionResult(Transition(to_state=S.STARTING, cause=cause, changes=changes, notify=notify))
    disk = launch.disk_microusd_hour
    changes |= {"running_at": clock.now, "spans": (PriceSpan(clock.now, disk, launch.with_commission(disk)),)}
    return TransitionResult(Transition(to_state=S.RUNNING, cause=cause, changes=changes, notify=notify))


def sent_again(launch: Launch, event: SentAgain, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Count the try."""
    if launch.instance_id is not None or launch.state not in LOST_STATES:
        return NO_TRANSITION
    changes = {"tries": launch.tries + 1, "requested_at": clock.now}
    return TransitionResult(Transition(to_state=launch.state, cause=event.words, changes=changes))
