"""The rules of admission for a launch: pause, checklist, breaker, slot, machine, cooldown, money. Pure.

The repository calls it in its transaction with the state of the tables (`storage.launch_admission`), the backtest with
simulated launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.instances.avoided_machines import AvoidedMachine, offer_machine_refusal
from gpuwatch.domain.launches.instances.places import (
    concerning,
    failed_places,
    is_at_failed_place,
    others_first,
    place_refusal,
)
from gpuwatch.domain.launches.launch import (
    Intent,
    Launch,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
    new_launch,
    place_of,
)
from gpuwatch.domain.launches.life.checklist import checklist_refusal
from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker, breaker_refusal
from gpuwatch.domain.launches.life.pause import Pause, pause_refusal
from gpuwatch.domain.launches.life.refused_scopes import SkippedScope, scope_refusal, scopes_in_force
from gpuwatch.domain.launches.life.watch_limits import (
    cooldown_refusal,
    free_offer_slot,
    free_slot,
    per_day_refusal,
    replaced_launch_id,
)
from gpuwatch.domain.launches.money.budget import all_budgets_refusal
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.reputation import ProviderMachine
from gpuwatch.domain.watches.watch import Budget, LaunchSpec, Watch


class AdmissionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an admission depends on. Parts that need a query of their own are read only when needed."""

    known: Callable[[], Sequence[Launch]]  # of all watches: alive, or ended this month or recently
    total: Callable[[], int]  # all launches that the watch ever rented, as counted by `free_slot`
    avoided: Callable[
        [Sequence[Launch]], Mapping[ProviderMachine, AvoidedMachine]
    ]  # the machines that the watch must not rent
    unknown: Callable[[], Mapping[str, LaunchRefusal]] = dict  # providers with an unclaimed instance
    ticked: Callable[[], Collection[str]] = tuple  # ticked items of the watch's checklist
    pauses: Sequence[Pause] = ()
    breaker: CircuitBreaker | None = None
    scopes: Callable[[], Sequence[SkippedScope]] = tuple  # scopes of recently refused orders
    install_id: str | None = None
    watch_id: str | None = None


def admit_launch(
    intent: Intent, standing: AdmissionState, budget: Budget, now: datetime
) -> tuple[Launch, Match] | LaunchRefusal:
    """Return the launch to record and its match if there is a slot, an offer and money for it; else the refusal."""
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
    if isinstance(slot, LaunchRefusal):
        return slot
    if (enough := per_day_refusal(watch, known, now)) is not None:
        return enough
    failed = _remembered(known, breaker)
    unknown = {} if intent.dry_run else standing.unknown()

    def rest_of(offer: Offer) -> LaunchRefusal | None:
        return unknown.get(offer.provider) or _rest_refusal(failed, watch, offer, now)

    skipped = scopes_in_force(standing.scopes(), now, breaker)
    matches = others_first((intent.match, *intent.alternatives), failed_places(failed, now))
    match = _first_free(matches, watch, known, standing.avoided(known), rest_of, skipped)
    if isinstance(match, LaunchRefusal):
        return match
    launch = new_launch(msgspec.structs.replace(intent, match=match), slot, now, standing.install_id, standing.watch_id)
    launch = msgspec.structs.replace(
        launch,
        relaunch_of=replaced_launch_id(spec, watch.name, known, now),
        offer_slot=free_offer_slot(alive_launches(known), match.offer, watch) or 0,
    )
    return all_budgets_refusal(launch, known, budget, watch.budget, now) or (launch, match)


def alive_launches(known: Sequence[Launch]) -> list[Launch]:
    """Return the launches that are not over."""
    return [launch for launch in known if not launch.is_over]


def rest_refusal(
    known: Sequence[Launch], breaker: CircuitBreaker | None, watch: Watch, offer: Offer, now: datetime
) -> LaunchRefusal | None:
    """Return why a watch must wait after failures at a provider or a place, or None; see `cooldown_refusal`."""
    return _rest_refusal(_remembered(known, breaker), watch, offer, now)


def failed_place_refusal(
    known: Sequence[Launch], breaker: CircuitBreaker | None, offer: Offer, now: datetime
) -> LaunchRefusal | None:
    """Return why a launch must not change to this offer, or None: other places come first after a failed start."""
    if not is_at_failed_place(failed_places(_remembered(known, breaker), now), offer):
        return None
    text = f"a launch failed at {offer.machine_id or offer.offer_id} within an hour; other places come first"
    return LaunchRefusal(RefusalReason.MACHINE_FAILED, text)


def _rest_refusal(failed: Sequence[Launch], watch: Watch, offer: Offer, now: datetime) -> LaunchRefusal | None:
    if not failed:
        return None
    place = place_of(watch, offer)[0]
    mine = [launch for launch in failed if launch.watch == watch.name]
    return cooldown_refusal(concerning(failed, offer), watch.name, place, now) or place_refusal(mine, offer, now)


def _remembered(known: Sequence[Launch], breaker: CircuitBreaker | None) -> list[Launch]:
    """The failures, except those that the owner, or a launch that ran, has cleared since."""
    failed = [launch for launch in known if launch.state is LaunchState.FAILED]
    if breaker is None or not breaker.is_closed:
        return failed
    return [
        launch
        for launch in failed
        if launch.watch != breaker.watch or launch.ended_at is None or launch.ended_at > breaker.at
    ]


def _first_free(
    matches: Sequence[Match],
    watch: Watch,
    known: Sequence[Launch],
    machines: Mapping[ProviderMachine, AvoidedMachine],
    rest_of: Callable[[Offer], LaunchRefusal | None],
    skipped: Sequence[SkippedScope],
) -> Match | LaunchRefusal:
    """The first match that may be ordered. A provider or place that rests does not delay the others."""
    alive = alive_launches(known)
    reason = LaunchRefusal(RefusalReason.OFFER_TAKEN, "another of your launches already has every matching offer")
    for match in matches:
        if free_offer_slot(alive, match.offer, watch) is None:
            continue
        refused = offer_machine_refusal(machines, match.offer) or rest_of(match.offer)
        refused = refused or scope_refusal(skipped, match.offer, watch.name)
        if refused is None:
            return match
        if reason.reason is not RefusalReason.COOLING:  # a cooldown ends soon
            reason = refused
    return reason
