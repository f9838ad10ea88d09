"""Events of a launch, and the result of one. Pure.

An event is an answer to its order, a listing, or a request by its owner, with its time and the watch's terms. Its
result is one durable transition, and the effects after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.alerts.launch_texts import OVER
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.absence import AbsenceVerdict
from gpuwatch.domain.launches.instances.end_rules import EndCause, longest_hook_s
from gpuwatch.domain.launches.interruption import InterruptionNotice
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.computed_limits import ceiling_microusd
from gpuwatch.domain.watches.launch_spec import BidSpec, EndPolicy, PriceIncreasePolicy
from gpuwatch.domain.watches.watch import Action, Watch


class InstanceCreated(msgspec.Struct, frozen=True):
    """The provider accepted the order, so a contract exists. `starts` is False if it will not run (a lost bid)."""

    instance_id: str
    starts: bool = True


class AnswerLost(msgspec.Struct, frozen=True):
    """The order was sent, and its result is unknown."""

    words: str
    instance_id: str | None = None


class NothingCreated(msgspec.Struct, frozen=True):
    """The provider refused, or the order was never sent. `reason` starts with an `EndReason`."""

    reason: str


class InstanceListed(msgspec.Struct, frozen=True):
    """A complete listing shows the instance.

    Args:
        fault: the guard's finding; the state machine evaluates the listing itself.
        verified: it is known to match its offer.
    """

    instance: Instance
    fault: EndCause | None = None
    verified: bool = True


class InstanceUnlisted(msgspec.Struct, frozen=True):
    """A complete listing does not show the instance.

    Args:
        fault: why it must end nevertheless.
        words: the basis of the verdict.
        candidate: an instance that belongs to no launch and that the order may have created.
    """

    verdict: AbsenceVerdict
    fault: EndCause | None = None
    words: str = ""
    candidate: str | None = None


class ListUnavailable(msgspec.Struct, frozen=True):
    """The provider returned no usable list. `fault`: why it must end nevertheless."""

    verdict: AbsenceVerdict
    fault: EndCause | None = None


class EndRequested(msgspec.Struct, frozen=True):
    """The owner, or a job that no longer needs it, requested its end; the alert follows once it has ended."""

    end: EndReason
    words: str = ""


class OwnerFoundNothing(msgspec.Struct, frozen=True):
    """The owner checked that nothing of it is left. `end`: the reason to record."""

    end: EndReason
    words: str = ""


class OwnerAdopted(msgspec.Struct, frozen=True):
    """The owner checked that this instance belongs to it. `is_stopped`: it does not run any more."""

    instance_id: str
    is_stopped: bool


class SentAgain(msgspec.Struct, frozen=True):
    """An order that provably created nothing is sent once more, under the same launch."""

    words: str


class BidRaised(msgspec.Struct, frozen=True):
    """The provider accepted a higher bid (listed, GPUs only)."""

    bid_microusd_hour: int


class InterruptionNoticed(msgspec.Struct, frozen=True):
    """The machine itself reads its provider's notice."""

    notice: InterruptionNotice


class InstanceReturned(msgspec.Struct, frozen=True):
    """The instance of a launch that is over is listed. `end_wanted`: its end had been requested."""

    instance_id: str
    end_wanted: bool


class KeepRequested(msgspec.Struct, frozen=True):
    """The owner wants it stopped with its disk kept for so long. `why`: the rest of a sentence."""

    keep_s: float
    why: str


LifecycleEvent = (
    InstanceCreated
    | AnswerLost
    | NothingCreated
    | InstanceListed
    | InstanceUnlisted
    | ListUnavailable
    | EndRequested
    | OwnerFoundNothing
    | OwnerAdopted
    | SentAgain
    | BidRaised
    | InstanceReturned
    | KeepRequested
    | InterruptionNoticed
)


class ClockReading(msgspec.Struct, frozen=True):
    """Two clock readings: the time to record, and a time for deadlines that never goes back."""

    now: datetime
    at_least: datetime


def rent_ceiling_microusd(watch: Watch, launch: Launch) -> int:
    """Return the highest rent per hour that its watch allows for a launch: its limit without the traffic in it."""
    ceiling = ceiling_microusd(watch, launch.gpu, launch.gpu_count, spot=launch.spot)
    return ceiling if watch.traffic is None else max(0, ceiling - watch.traffic.microusd_hour(launch.promised))


class WatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The current terms of the launch's watch. If the watch was removed, the launch continues as it was admitted."""

    ceiling_microusd: int | None = None  # threshold for the whole offer, commission included
    bid: BidSpec | None = None
    relaunch: bool = False
    on_increase: PriceIncreasePolicy = PriceIncreasePolicy.ALERT
    keep_s: float | None = None  # at the end of its runtime and when idle, its disk is kept for so long
    hook_s: float = 0.0  # how long a stop may wait for `before_stop`
    is_halt_sent: bool = False  # this process has tried to stop it


def watch_terms(watch: Watch | None, launch: Launch, keeps_disks: bool = False) -> WatchTerms:
    """Return the terms of a launch from its watch in the current settings.

    Args:
        keeps_disks: whether its provider can stop an instance and keep its disk.
    """
    if watch is None:
        return WatchTerms()
    ceiling = rent_ceiling_microusd(watch, launch)
    if watch.action is Action.ASK or (watch.auto and launch.state is LaunchState.STARTING):
        # the owner approved only that price; a limit from the history was valid when it was computed
        ceiling = min(ceiling, launch.bound_microusd_hour)
    spec = watch.launch
    if spec is None:
        return WatchTerms(ceiling_microusd=ceiling)
    return WatchTerms(
        ceiling_microusd=ceiling,
        bid=spec.bid,
        relaunch=spec.relaunch,
        on_increase=spec.on_price_increase,
        keep_s=on_end_keep_s(watch) if keeps_disks else None,
        hook_s=longest_hook_s(spec),
    )


def on_end_keep_s(watch: Watch | None) -> float | None:
    """Return for how long its watch keeps the disk at the end of a run, in seconds; None: it destroys it."""
    return None if watch is None or watch.on_end is not EndPolicy.STOP else watch.keep_disk_for_s


class Notification(msgspec.Struct, frozen=True):
    """The alert for the owner, recorded in the transaction of the transition. `fields`: the values that it names."""

    spec: AlertSpec
    fields: Mapping[str, Any] = {}


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One durable state change.

    Args:
        words: the provider's own text, cleaned.
        notify: the alert for the owner.
        hook: the owner's hook to run.
    """

    to_state: LaunchState
    cause: str
    words: str | None = None
    changes: Mapping[str, Any] = {}
    notify: Notification | None = None
    hook: str | None = None


class Destroy(msgspec.Struct, frozen=True):
    """End this instance at the provider. Repeating it is harmless."""

    instance_id: str


class RaiseBid(msgspec.Struct, frozen=True):
    """Raise the bid to this amount (listed, GPUs only)."""

    instance_id: str
    bid_microusd_hour: int


class Halt(msgspec.Struct, frozen=True):
    """Stop this instance at the provider, and keep its disk. Repeating it is harmless."""

    instance_id: str


class Resume(msgspec.Struct, frozen=True):
    """Start this stopped instance again. Repeating it is harmless."""

    instance_id: str


class SlotFreed(msgspec.Struct, frozen=True):
    """The launch is over, so its slot is free."""


Effect = Destroy | RaiseBid | Halt | Resume | SlotFreed


class TransitionResult(msgspec.Struct, frozen=True):
    """First the transition is stored, then the effects are carried out. Without either, nothing follows."""

    transition: Transition | None = None
    effects: tuple[Effect, ...] = ()


NO_TRANSITION = TransitionResult()


def over(
    state: LaunchState, reason: str, now: datetime, notify: Notification | None = None, words: str = ""
) -> TransitionResult:
    """Return what every end does: the reason, the owner's alert and hook, and the free slot."""
    changes = {"ended_at": now, "end_reason": reason}
    notify = notify or Notification(OVER, {"end": state.value, "reason": reason})
    step = Transition(
        to_state=state, cause=reason, words=words or None, changes=changes, notify=notify, hook="on_ended"
    )
    return TransitionResult(step, (SlotFreed(),))
