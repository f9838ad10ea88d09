"""Stopping a machine with its disk kept, and starting it again: what follows from each listing. Pure.

The launch stays `running`, and its slot and its row stay; `Launch.kept` says what is wanted, `Launch.condition` what
the provider shows. So a request that a crash swallowed is sent again at the next listing, and sending it twice does no
harm. Only the proof that it stopped moves its end to that of `keep_disk_for`: until then the end of its run applies.
If gpuwatch was away at that end, the stop begins when it is back, and has two minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from gpuwatch.domain.alerts import kept_texts as texts
from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.end_rules import EndCause, billed_rates, overdue, stopped_rates
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.kept_disk import KeptDisk
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, Launch, LaunchState, PriceSpan
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    ClockReading,
    Halt,
    KeepRequested,
    Notification,
    Resume,
    Transition,
    TransitionResult,
    WatchTerms,
)
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import format_moment

HALT_WITHIN = timedelta(minutes=2)  # until a list shows it stopped; begun that long before the end of its run
START_WITHIN_S = 900.0  # of a launch without `ready_within`
_SOON = timedelta(hours=6)  # before a kept disk is destroyed
_EARLY_SHARE = 0.25  # of a short run, at most: it is not halved for a stop that takes seconds
_KEEPING = frozenset({EndReason.MAX_RUNTIME, EndReason.IDLE})
_ON = frozenset({InstanceState.RUNNING, InstanceState.STARTING})


def halt_begins_at(launch: Launch, keep_s: float | None, hook_s: float) -> datetime | None:
    """Return when `on_end = "stop"` begins to stop it, so that it is proven before its end; None: it does not.

    Args:
        keep_s: how long the disk is kept; None: it is not.
        hook_s: how long the stop may wait for `before_stop`.
    """
    end = latest_end(launch)
    is_running = launch.state is LaunchState.RUNNING and launch.kept is None
    if keep_s is None or not is_running or end is None or launch.max_runtime_s is None:
        return None
    early = HALT_WITHIN + timedelta(seconds=hook_s)
    return end - min(early, timedelta(seconds=launch.max_runtime_s * _EARLY_SHARE))


def begins_to_halt(launch: Launch, terms: WatchTerms, now: datetime) -> EndCause | None:
    """Return an end cause once its stop must begin to be proven before its end."""
    begins_at = halt_begins_at(launch, terms.keep_s, terms.hook_s)
    return (EndReason.MAX_RUNTIME, "") if begins_at is not None and now >= begins_at else None


def kept_after_end_s(launch: Launch, on_end_s: float | None) -> float:
    """Return for how many seconds after the end of its run its disk is kept; 0: it is destroyed at that end.

    Args:
        on_end_s: `keep_disk_for` with `on_end = "stop"`; None: its watch destroys it, or its provider keeps no disks.
    """
    end, kept = latest_end(launch), launch.kept
    if launch.state is not LaunchState.RUNNING:
        return 0.0
    if kept is None:
        return on_end_s or 0.0 if launch.condition is None else 0.0
    if not kept.is_starting:
        return kept.keep_s if kept.stopped_at is None else 0.0
    was_kept = timedelta(0) if end is None else (launch.condition_since or end) + timedelta(seconds=kept.keep_s) - end
    return max(on_end_s or 0.0, was_kept.total_seconds())  # trying to start it must not end its disk earlier


def keeps_disk_at(launch: Launch, fault: EndCause, terms: WatchTerms, now: datetime) -> bool:
    """Return whether this end begins to stop it with its disk kept; otherwise it is destroyed.

    Nothing goes on past its end that this process tried to stop before. What it finds later, it tries to stop once.
    """
    if fault[0] not in _KEEPING or not _is_disk_wanted(launch, terms, now):
        return False
    kept = launch.kept
    return kept is None or kept.is_starting or not (kept.is_late or terms.is_halt_sent)


def at_end_of_run(launch: Launch, state: InstanceState | None, terms: WatchTerms, now: datetime) -> EndCause | None:
    """Return an end cause if its time is over, or if it cannot be stopped.

    Args:
        state: as listed; None: no list shows it.
    """
    due = overdue(launch, now)
    if due is not None and launch.kept is not None and _is_disk_wanted(launch, terms, now):
        if state is InstanceState.STOPPED:
            return None  # that is the proof
        due = None if launch.kept.is_late else due
    return due or _not_stopped(launch, terms, now)


def _is_disk_wanted(launch: Launch, terms: WatchTerms, now: datetime) -> bool:
    end, keep_s = latest_end(launch), kept_after_end_s(launch, terms.keep_s)
    return keep_s > 0 and (end is None or now < end + timedelta(seconds=keep_s))


def halting(launch: Launch, why: str, keep_s: float, clock: ClockReading) -> TransitionResult:
    """Begin to stop it. Its GPUs are billed until a list shows that it stopped."""
    end = latest_end(launch)
    kept = KeptDisk(keep_s=keep_s, why=why, is_late=end is not None and clock.at_least >= end)
    changes: dict[str, Any] = {}
    if launch.kept is not None and launch.kept.is_starting:  # it runs, but no list in time had shown that
        changes |= _condition(launch, None, (launch.listed_microusd_hour, launch.price_microusd_hour), clock)
    changes |= {"kept": kept, "condition_since": clock.now}
    step = Transition(to_state=LaunchState.RUNNING, cause=f"stopping it with its disk kept: {why}", changes=changes)
    return TransitionResult(step, (Halt(launch.instance_id or ""),))


def keep_requested(launch: Launch, event: KeepRequested, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Begin to stop it, for its owner."""
    is_running = launch.state is LaunchState.RUNNING and launch.kept is None and launch.instance_id is not None
    if not is_running or launch.condition is not None:
        return NO_TRANSITION
    return halting(launch, event.why, event.keep_s, clock)


def kept_listed(launch: Launch, instance: Instance, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Return what follows from a listing of a launch that is to be stopped, is, or is to start again."""
    assert launch.kept is not None
    if launch.kept.is_starting:
        return _starts_again(launch, launch.kept, instance, clock)
    if instance.state is InstanceState.STOPPED:
        return NO_TRANSITION if launch.is_kept else _stopped(launch, launch.kept, instance, clock)
    if launch.is_kept:
        return _runs_unasked(launch, instance, clock) if instance.state in _ON else NO_TRANSITION
    return halt_again(launch, clock, terms)


def halt_again(launch: Launch, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Send the stop again; after some time, let it run to its end or, if it ran unasked, end it."""
    assert launch.kept is not None
    within = HALT_WITHIN + timedelta(seconds=terms.hook_s)
    if clock.at_least - (launch.condition_since or clock.at_least) <= within:
        return TransitionResult(None, (Halt(launch.instance_id or ""),))
    if launch.kept.stopped_at is not None or launch.kept.is_late:
        return NO_TRANSITION  # `at_end_of_run` ends it
    notify = Notification(texts.NOT_HALTED, {"why": launch.kept.why, "minutes": within // timedelta(minutes=1)})
    changes = {"kept": None, "condition_since": None}
    step = Transition(to_state=LaunchState.RUNNING, cause="it could not be stopped", changes=changes, notify=notify)
    return TransitionResult(step)


def _not_stopped(launch: Launch, terms: WatchTerms, now: datetime) -> EndCause | None:
    """Return an end cause if it should be stopped by now, and cannot be."""
    kept = launch.kept
    if not launch.is_halted or launch.is_kept or kept is None or (kept.stopped_at is None and not kept.is_late):
        return None
    within = HALT_WITHIN + timedelta(seconds=terms.hook_s if kept.is_late else 0.0)
    is_long = now - (launch.condition_since or now) > within
    return (EndReason.NOT_STOPPED, "its GPUs are billed") if is_long else None


def _stopped(launch: Launch, kept: KeptDisk, instance: Instance, clock: ClockReading) -> TransitionResult:
    """Only its disk is billed from now on. The first time, its end becomes that of `keep_disk_for`.

    That counts from the end of its run at the latest, whenever gpuwatch finds it stopped.
    """
    changes: dict[str, Any] = _condition(launch, InstanceCondition.STOPPED, stopped_rates(launch, instance), clock)
    if kept.stopped_at is None:
        changes |= {
            "kept": replace(kept, stopped_at=clock.now),
            "max_runtime_s": _ran_s(launch, min(clock.now, latest_end(launch) or clock.now)) + kept.keep_s,
        }
    notify = Notification(texts.STOPPED_KEEPING, {"why": kept.why})
    return _step("stopped, its disk is kept", changes, notify, instance)


def _runs_unasked(launch: Launch, instance: Instance, clock: ClockReading) -> TransitionResult:
    changes = _condition(launch, None, billed_rates(launch, instance), clock) | {"condition_since": clock.now}
    found = _step("runs although it was stopped", changes, Notification(texts.RUNS_UNASKED), instance)
    return replace(found, effects=(Halt(instance.instance_id),))


def _starts_again(launch: Launch, kept: KeptDisk, instance: Instance, clock: ClockReading) -> TransitionResult:
    """Send the start again until it runs; after `ready_within` take it back, at the disk's earlier end."""
    since = launch.condition_since or clock.now
    if instance.state is InstanceState.RUNNING:
        changes = _condition(launch, None, billed_rates(launch, instance), clock)
        changes |= {"kept": None, "max_runtime_s": _ran_s(launch, clock.now) + (kept.runtime_s or 0.0)}
        return _step("running again", changes, Notification(texts.STARTED_AGAIN), instance)
    if (clock.at_least - since).total_seconds() <= start_within_s(launch):
        return TransitionResult(None, (Resume(instance.instance_id),))
    changes = {
        "kept": replace(kept, is_starting=False, runtime_s=None),
        "condition_since": clock.now,
        "max_runtime_s": _ran_s(launch, since) + kept.keep_s,
    }
    found = _step("could not be started again", changes, Notification(texts.NOT_STARTED), instance)
    return replace(found, effects=(Halt(instance.instance_id),))


def started_again(launch: Launch, runtime_s: float, now: datetime) -> Launch:
    """Return a stopped launch as it is to start again. Its longest runtime counts once it runs.

    Args:
        runtime_s: how long it may run.
    """
    assert launch.kept is not None
    left_s = max(0.0, ((latest_end(launch) or now) - now).total_seconds())
    return replace(
        launch,
        kept=replace(launch.kept, is_starting=True, keep_s=left_s, runtime_s=runtime_s),
        condition_since=now,
        max_runtime_s=_ran_s(launch, now) + start_within_s(launch) + runtime_s,
    )


def start_within_s(launch: Launch) -> float:
    """Return how long a start may wait for its GPUs."""
    return launch.ready_within_s or START_WITHIN_S


def kept_ends_soon(launch: Launch, now: datetime) -> bool:
    """Return whether a disk that was kept for longer than a few hours is destroyed within the next ones."""
    end = latest_end(launch)
    is_long = launch.kept is not None and launch.kept.keep_s > _SOON.total_seconds() * 2
    return launch.is_kept and is_long and end is not None and end - now <= _SOON


def kept_fields(launch: Launch) -> dict[str, Any]:
    """Return the fields that the texts about a kept disk name, of any launch."""
    end = latest_end(launch)
    disk = launch.spans[-1].price_microusd_hour if launch.is_kept and launch.spans else _disk_price(launch)
    return {
        "kept_until": "" if end is None else format_moment(end),
        "disk_day": f"{dollars(usd(disk * 24))} a day",
        "start_minutes": int(start_within_s(launch) // 60),
        "kept_since": launch.condition_since,
    }


def _disk_price(launch: Launch) -> int:
    return launch.with_commission(launch.disk_microusd_hour)


def _condition(
    launch: Launch, condition: InstanceCondition | None, rates: tuple[int, int], clock: ClockReading
) -> dict[str, Any]:
    since = None if condition is None else clock.now
    spans = (*launch.spans, PriceSpan(clock.now, *rates))
    return {"condition": condition, "condition_since": since, "spans": spans}


def _ran_s(launch: Launch, now: datetime) -> float:
    return (now - (launch.running_at or now)).total_seconds()


def _step(cause: str, changes: Mapping[str, Any], notify: Notification, instance: Instance) -> TransitionResult:
    words = instance.status
    return TransitionResult(
        Transition(to_state=LaunchState.RUNNING, cause=cause, words=words, changes=changes, notify=notify)
    )
