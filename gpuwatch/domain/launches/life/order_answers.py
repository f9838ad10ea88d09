"""What follows from the answer to an order, or from its absence. Pure: rules of `state_machine`."""

from __future__ import annotations

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.launches.launch import LOST_STATES, EndReason, Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    AnswerLost,
    ClockReading,
    Destroy,
    InstanceCreated,
    NothingCreated,
    Notification,
    Transition,
    TransitionResult,
    WatchTerms,
    over,
)


def created(launch: Launch, event: InstanceCreated, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Follow the instance; one that does not start is billed, so it is ended."""
    if launch.instance_id not in {None, event.instance_id}:
        return NO_TRANSITION  # another instance was found by its label; the listing reports this one
    if not event.starts:
        end = EndReason.BID_LOST if launch.spot else EndReason.BROKEN
        changes = {"instance_id": event.instance_id, "end_reason": end.text()}
        notify = Notification(texts.DOES_NOT_START)
        step = Transition(to_state=LaunchState.STOPPING, cause=end.text(), changes=changes, notify=notify)
        return TransitionResult(step, (Destroy(event.instance_id),))
    if launch.instance_id is not None:
        return NO_TRANSITION  # it was found by its label in the meantime
    # its end was requested in the meantime, which still applies
    state = LaunchState.STOPPING if launch.state is LaunchState.STOPPING else LaunchState.STARTING
    effects = (Destroy(event.instance_id),) if state is LaunchState.STOPPING else ()
    return TransitionResult(
        Transition(to_state=state, cause="created", changes={"instance_id": event.instance_id}), effects
    )


def answer_lost(launch: Launch, event: AnswerLost, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Look for its instance by the label."""
    if launch.state is not LaunchState.REQUESTED or launch.instance_id is not None:
        return NO_TRANSITION
    changes = {"instance_id": event.instance_id}
    return TransitionResult(
        Transition(to_state=LaunchState.UNKNOWN, cause="the answer was lost", words=event.words, changes=changes)
    )


def nothing_created(launch: Launch, event: NothingCreated, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Close it: nothing of it is left."""
    if launch.instance_id is not None or launch.state not in LOST_STATES | {LaunchState.INTENDED, LaunchState.STOPPING}:
        return NO_TRANSITION
    return over(LaunchState.FAILED, event.reason, clock.now, Notification(texts.NOT_RENTED, {"why": event.reason}))
