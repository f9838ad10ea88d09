"""What stands between a decision and an intent: pause, checklist, breaker, slot, machine, rest, money. Pure.

The ledger asks in its transaction, with what its tables say (`storage.reserve`); the backtest with what it made up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from gpuwatch.launches.admission import cooling, free_offer_slot, free_slot, relaunched
from gpuwatch.launches.breaker import Breaker, breaker_refusal
from gpuwatch.launches.budget import admit_all
from gpuwatch.launches.checklist import checklist_refusal
from gpuwatch.launches.launch import Intent, Launch, LaunchState, Refusal, RefusalReason, new_launch
from gpuwatch.launches.machines import Avoided, Machine, offer_refused
from gpuwatch.launches.pause import Pause, pause_refusal
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Budget, LaunchSpec


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """All that a reservation depends on, as it stands. What costs a question of its own is asked only when needed."""

    known: Callable[[], Sequence[Launch]]  # of any watch: alive, or over this month or lately
    total: Callable[[], int]  # what the watch ever rented, as `free_slot` counts it
    avoided: Callable[[Sequence[Launch]], Mapping[Machine, Avoided]]  # the machines that the watch must not rent
    ticked: Callable[[], Collection[str]] = tuple  # items of the watch's checklist
    pauses: Sequence[Pause] = ()
    breaker: Breaker | None = None


def reserved(intent: Intent, standing: Standing, budget: Budget, now: datetime) -> Launch | Refusal:
    """A free slot of the watch, an offer that nobody has, the money for it: the launch to write down, or why not."""
    watch, spec = intent.watch, intent.watch.launch or LaunchSpec()
    unready = pause_refusal(standing.pauses, watch.name, now) or checklist_refusal(watch, standing.ticked())
    if unready is not None:
        return unready
    known, breaker = standing.known(), standing.breaker
    mine = [launch for launch in known if launch.watch == watch.name and not launch.is_over]
    resting = breaker_refusal(breaker, mine, now)
    if resting is not None:
        return resting
    slot = free_slot(spec, watch.name, mine, standing.total())
    if isinstance(slot, Refusal):
        return slot
    failed = _remembered(known, breaker)
    sellers = {one.offer.provider for one in (intent.match, *intent.others)}
    rests = {provider: cooling(failed, watch.name, provider, now) for provider in sellers}
    match = _first_free(intent, known, standing.avoided(known), rests)
    if isinstance(match, Refusal):
        return match
    launch = new_launch(msgspec.structs.replace(intent, match=match), slot, now)
    launch = msgspec.structs.replace(
        launch,
        relaunch_of=relaunched(spec, watch.name, known, now),
        offer_slot=free_offer_slot(alive_of(known), match.offer) or 0,
    )
    return admit_all(launch, known, budget, watch.budget, now) or launch


def alive_of(known: Sequence[Launch]) -> list[Launch]:
    """Those that are not over."""
    return [launch for launch in known if not launch.is_over]


def _remembered(known: Sequence[Launch], breaker: Breaker | None) -> list[Launch]:
    """What failed, without what the watch's owner, or a launch that ran, has made good since."""
    failed = [launch for launch in known if launch.state is LaunchState.FAILED]
    if breaker is None or not breaker.is_closed:
        return failed
    return [one for one in failed if one.watch != breaker.watch or one.ended_at is None or one.ended_at > breaker.at]


def _first_free(
    intent: Intent,
    known: Sequence[Launch],
    machines: Mapping[Machine, Avoided],
    rests: Mapping[str, Refusal | None],
) -> Match | Refusal:
    """The cheapest that may be asked for: a provider that rests after failures keeps nobody from the others."""
    alive = alive_of(known)
    reason = Refusal(RefusalReason.OFFER_TAKEN, "another launch of yours has every offer that fits")
    for match in (intent.match, *intent.others):
        if free_offer_slot(alive, match.offer) is None:
            continue
        refused = offer_refused(machines, match.offer) or rests[match.offer.provider]
        if refused is None:
            return match
        if reason.reason is not RefusalReason.COOLING:  # that is over soon
            reason = refused
    return reason
