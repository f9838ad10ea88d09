"""The states of a launch that the owner's command carries out, as one pure function: event and time → next state.

    requested → running → ended          exit code 0, until max_runtime or the owner's decision
        ├→ failed                        it was not started, or its exit code reports that nothing was rented
        └→ held                          any other end: something may have been rented; the owner decides

gpuwatch does not see what the command rents. So nothing here is ever proven absent, destroyed or retried.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.launches.launch import LOST_STATES, EndReason, Launch, LaunchState, PriceSpan
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    ClockReading,
    Notification,
    Transition,
    TransitionResult,
    WatchTerms,
    over,
)

RENTED_NOTHING: Final = 75  # the exit code that releases the reservation (EX_TEMPFAIL of sysexits.h)


class CommandNotRun(msgspec.Struct, frozen=True):
    """The command was not started. `reason` starts with an `EndReason`."""

    reason: str


class CommandEnded(msgspec.Struct, frozen=True):
    """The command ended with an exit code, or was killed (None). `words`: the end of its output, cleaned."""

    code: int | None
    words: str = ""


class CommandLost(msgspec.Struct, frozen=True):
    """The command is no longer supervised, and its result is unknown."""


class CommandTimePassed(msgspec.Struct, frozen=True):
    """Check whether `max_runtime` is over."""


class OwnerFoundNothingRented(msgspec.Struct, frozen=True):
    """The owner checked that nothing that the command rented is left."""


class OwnerFoundRented(msgspec.Struct, frozen=True):
    """The owner checked that the command did rent. `words`: what."""

    words: str


CommandEvent = (
    CommandNotRun | CommandEnded | CommandLost | CommandTimePassed | OwnerFoundNothingRented | OwnerFoundRented
)


def command_transition(
    launch: Launch, event: CommandEvent, clock: ClockReading, terms: WatchTerms | None = None
) -> TransitionResult:
    """Return the transition that follows from an event; exit code 0 counts no matter how late it comes."""
    if isinstance(event, CommandTimePassed):
        return _time_over(launch, clock)
    if isinstance(event, CommandEnded) and event.code == 0:
        return _started(launch, "the command exited with code 0", event.words, clock)
    if isinstance(event, OwnerFoundRented):
        return _started(launch, f"the owner says that {event.words} is it", "", clock)
    if isinstance(event, OwnerFoundNothingRented):
        return _nothing_left(launch, clock)
    return _not_started(launch, event, clock) if launch.state in LOST_STATES else NO_TRANSITION


def _not_started(
    launch: Launch, event: CommandNotRun | CommandEnded | CommandLost, clock: ClockReading
) -> TransitionResult:
    if isinstance(event, CommandNotRun):
        return _nothing_rented(event.reason, "", clock)
    if isinstance(event, CommandEnded) and event.code == RENTED_NOTHING:
        return _nothing_rented(EndReason.RENTED_NOTHING.text(), event.words, clock)
    return NO_TRANSITION if launch.state is LaunchState.HELD else _unknown(event)


def _unknown(event: CommandEnded | CommandLost) -> TransitionResult:
    if isinstance(event, CommandLost):
        return _held("gpuwatch stopped between the reservation and the end of the command", "")
    if event.code is None:
        return _held("the command was ended: command_timeout expired, or gpuwatch stopped", event.words)
    return _held(f"the command exited with code {event.code}", event.words)


def _started(launch: Launch, cause: str, words: str, clock: ClockReading) -> TransitionResult:
    """From now on the launch counts with the highest price that it may rent at, for its whole `max_runtime`."""
    if launch.state not in LOST_STATES | {LaunchState.FAILED}:
        return NO_TRANSITION
    rate = launch.bound_microusd_hour
    changes = {
        "running_at": clock.now,
        "spans": (PriceSpan(clock.now, rate, rate),),
        "ended_at": None,
        "end_reason": None,
    }
    notify = Notification(texts.STARTED_BY_COMMAND, {"cause": _sentence(cause)})
    return TransitionResult(
        Transition(
            to_state=LaunchState.RUNNING,
            cause=cause,
            words=words or None,
            changes=changes,
            notify=notify,
            hook="on_running",
        )
    )


def _nothing_rented(reason: str, words: str, clock: ClockReading) -> TransitionResult:
    notify = Notification(texts.NOT_RENTED, {"why": f"{reason}: {words}" if words else reason})
    return over(LaunchState.FAILED, reason, clock.now, notify, words)


def _held(cause: str, words: str) -> TransitionResult:
    fields = {"cause": _sentence(cause), "output": words or None, "candidate": "INSTANCE"}
    notify = Notification(texts.HELD_BY_COMMAND, fields)
    return TransitionResult(Transition(to_state=LaunchState.HELD, cause=cause, words=words or None, notify=notify))


def _nothing_left(launch: Launch, clock: ClockReading) -> TransitionResult:
    """Release the reservation: nothing was rented, or it is gone."""
    if launch.is_over:
        return NO_TRANSITION
    is_running = launch.state is LaunchState.RUNNING
    gone = EndReason.STOPPED.text("what its command rented is gone")
    reason, state = (gone, LaunchState.ENDED) if is_running else (EndReason.RESOLVED_ABSENT.text(), LaunchState.FAILED)
    return over(state, reason, clock.now)


def _sentence(cause: str) -> str:
    return f"{cause[0].upper()}{cause[1:]}."


def _time_over(launch: Launch, clock: ClockReading) -> TransitionResult:
    if launch.state is not LaunchState.RUNNING or launch.running_at is None or launch.max_runtime_s is None:
        return NO_TRANSITION
    if clock.at_least < launch.running_at + timedelta(seconds=launch.max_runtime_s):
        return NO_TRANSITION
    return over(LaunchState.ENDED, EndReason.MAX_RUNTIME.text(), clock.now, Notification(texts.COMMAND_TIME_OVER))
