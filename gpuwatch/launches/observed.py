"""What may be observed of a launch: an answer to its order, a listing, its owner's word; when, and on which terms."""

from __future__ import annotations

from datetime import datetime

import msgspec

from gpuwatch.launches.absence import Verdict
from gpuwatch.launches.faults import Fault
from gpuwatch.launches.instance import Instance
from gpuwatch.launches.launch import End, Launch, LaunchState
from gpuwatch.watches.job_cost import ceiling_microusd
from gpuwatch.watches.watch import Action, BidSpec, OnIncrease, Watch


class Made(msgspec.Struct, frozen=True):
    """The provider answered the order: there is a contract. `starts` False: it will not run (a lost bid)."""

    instance_id: str
    starts: bool = True


class AnswerLost(msgspec.Struct, frozen=True):
    """The order was sent, and nobody knows what came of it."""

    words: str
    instance_id: str | None = None


class NothingMade(msgspec.Struct, frozen=True):
    """The provider refused, or was never asked. `reason` starts with an `End`."""

    reason: str


class Listed(msgspec.Struct, frozen=True):
    """A whole listing shows its instance.

    Args:
        fault: what the guard found; what the listing itself says is judged here.
        verified: it is known to be what was promised.
    """

    instance: Instance
    fault: Fault | None = None
    verified: bool = True


class Unlisted(msgspec.Struct, frozen=True):
    """A whole listing does not show its instance. `fault`: why it must end all the same."""

    verdict: Verdict
    fault: Fault | None = None


class NoList(msgspec.Struct, frozen=True):
    """The provider gave no usable list. `fault`: why it must end all the same."""

    verdict: Verdict
    fault: Fault | None = None


class EndWanted(msgspec.Struct, frozen=True):
    """The owner, or a rule of the owner's, wants its end."""

    end: End
    words: str = ""


class BidRaised(msgspec.Struct, frozen=True):
    """The provider took a higher bid (listed, GPUs alone)."""

    bid_microusd_hour: int


Observation = Made | AnswerLost | NothingMade | Listed | Unlisted | NoList | EndWanted | BidRaised


class When(msgspec.Struct, frozen=True):
    """Two clocks: what is written down, and a wall clock that never ran backwards, for what must end in time."""

    now: datetime
    at_least: datetime


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the launch's watch says; without it (the watch left the settings) the launch goes on as it was admitted."""

    ceiling_microusd: int | None = None  # threshold for the whole offer, commission included
    bid: BidSpec | None = None
    relaunch: bool = False
    on_increase: OnIncrease = OnIncrease.ALERT


def terms_of(watch: Watch | None, launch: Launch) -> Terms:
    """The terms of a launch, by its watch as the settings have it now."""
    if watch is None:
        return Terms()
    ceiling = ceiling_microusd(watch, launch.gpu, launch.gpu_count, spot=launch.spot)
    if watch.action is Action.ASK or (watch.auto and launch.state is LaunchState.STARTING):
        # its owner approved that price, and no other; a limit out of the history was that of its own moment
        ceiling = min(ceiling, launch.bound_microusd_hour)
    spec = watch.launch
    if spec is None:
        return Terms(ceiling_microusd=ceiling)
    return Terms(ceiling_microusd=ceiling, bid=spec.bid, relaunch=spec.relaunch, on_increase=spec.on_price_increase)
