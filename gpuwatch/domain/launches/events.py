"""What may be observed of a launch: an answer to its order, a listing, its owner's word; when, and on which terms."""

from __future__ import annotations

from datetime import datetime

import msgspec

from gpuwatch.domain.launches.absence_proof import AbsenceVerdict
from gpuwatch.domain.launches.end_rules import EndCause
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.job_cost import ceiling_microusd
from gpuwatch.domain.watches.watch import (
    Action,
    BidSpec,
    OnIncrease,
    Watch,
)


class InstanceCreated(msgspec.Struct, frozen=True):
    """The provider answered the order: there is a contract. `starts` False: it will not run (a lost bid)."""

    instance_id: str
    starts: bool = True


class AnswerLost(msgspec.Struct, frozen=True):
    """The order was sent, and nobody knows what came of it."""

    words: str
    instance_id: str | None = None


class NothingCreated(msgspec.Struct, frozen=True):
    """The provider refused, or was never asked. `reason` starts with an `End`."""

    reason: str


class InstanceListed(msgspec.Struct, frozen=True):
    """A whole listing shows its instance.

    Args:
        fault: what the guard found; what the listing itself says is judged here.
        verified: it is known to be what was promised.
    """

    instance: Instance
    fault: EndCause | None = None
    verified: bool = True


class InstanceUnlisted(msgspec.Struct, frozen=True):
    """A whole listing does not show its instance. `fault`: why it must end all the same."""

    verdict: AbsenceVerdict
    fault: EndCause | None = None


class ListUnavailable(msgspec.Struct, frozen=True):
    """The provider gave no usable list. `fault`: why it must end all the same."""

    verdict: AbsenceVerdict
    fault: EndCause | None = None


class EndRequested(msgspec.Struct, frozen=True):
    """The owner, or a rule of the owner's, wants its end."""

    end: EndReason
    words: str = ""


class BidRaised(msgspec.Struct, frozen=True):
    """The provider took a higher bid (listed, GPUs alone)."""

    bid_microusd_hour: int


LifecycleEvent = (
    InstanceCreated
    | AnswerLost
    | NothingCreated
    | InstanceListed
    | InstanceUnlisted
    | ListUnavailable
    | EndRequested
    | BidRaised
)


class ClockReading(msgspec.Struct, frozen=True):
    """Two clocks: what is written down, and a wall clock that never ran backwards, for what must end in time."""

    now: datetime
    at_least: datetime


class WatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the launch's watch says; without it (the watch left the settings) the launch goes on as it was admitted."""

    ceiling_microusd: int | None = None  # threshold for the whole offer, commission included
    bid: BidSpec | None = None
    relaunch: bool = False
    on_increase: OnIncrease = OnIncrease.ALERT


def watch_terms(watch: Watch | None, launch: Launch) -> WatchTerms:
    """The terms of a launch, by its watch as the settings have it now."""
    if watch is None:
        return WatchTerms()
    ceiling = ceiling_microusd(watch, launch.gpu, launch.gpu_count, spot=launch.spot)
    if watch.action is Action.ASK or (watch.auto and launch.state is LaunchState.STARTING):
        # its owner approved that price, and no other; a limit out of the history was that of its own moment
        ceiling = min(ceiling, launch.bound_microusd_hour)
    spec = watch.launch
    if spec is None:
        return WatchTerms(ceiling_microusd=ceiling)
    return WatchTerms(
        ceiling_microusd=ceiling, bid=spec.bid, relaunch=spec.relaunch, on_increase=spec.on_price_increase
    )
