"""The admission of a launch: pause, checklist, breaker, slot, machine, cooldown, money. Pure.

The repository calls `admit_launch` in its transaction with the state of the tables, the backtest with simulated
launches. `WatchBlock` says for a person what keeps a watch from acting on its matches: a refusal of the admission, or a
reason before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

import msgspec

from gpuwatch.domain.launches.instances.machines_and_places import (
    LOST_SPOT,
    AvoidedMachine,
    concerning,
    failed_places,
    is_at_failed_place,
    offer_machine_refusal,
    others_first,
    place_refusal,
)
from gpuwatch.domain.launches.launch import (
    EndReason,
    Intent,
    Launch,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
    new_launch,
    place_of,
)
from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker, breaker_refusal
from gpuwatch.domain.launches.life.owner_decisions import (
    Pause,
    checklist_refusal,
    pause_refusal,
    pauses_in_force,
    unticked,
)
from gpuwatch.domain.launches.life.refused_scopes import SkippedScope, scope_refusal, scopes_in_force
from gpuwatch.domain.launches.money.budgets import DAY, all_budget_checks
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.launches.rule_check import RuleCheck
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match, waits_until
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.domain.watches.past_limits import ProviderMachine
from gpuwatch.domain.watches.watch import Watch

_UNTIL_FIXED = timedelta(hours=1)  # no credit, a rejected key or an invalid order: only a person can fix it
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 3600.0
_NEEDS_A_PERSON = (EndReason.NO_CREDIT, EndReason.KEY)


class BlockReason(StrEnum):
    """Reasons that no admission knows; other programs read these names, and those of `RefusalReason`."""

    NOT_READY = "not_ready"  # nothing can be rented at the provider now: key, balance, prerequisites, instances
    OUTSIDE_ACTIVE = "outside_active"  # outside the watch's windows
    HOLD_FOR = "hold_for"  # not at or under the limit for long enough
    WAITS_FOR_SPOT = "waits_for_spot"  # a watch with spot = "first" waits for a spot offer
    IN_STOCK = "in_stock"  # a watch with `restock` waits until its offers were gone
    APPROVAL = "approval"  # it waits for the owner's approval
    DENIED = "denied"  # the owner denied these offers recently
    DRY_RUN = "dry_run"


class WatchBlock(msgspec.Struct, frozen=True):
    """Why a watch does not act. `text` is one line for a person, without a full stop."""

    reason: RefusalReason | BlockReason
    text: str
    check: RuleCheck | None = None  # the figures of a refusal
    until: datetime | None = None  # when it ends by itself, if a decision of the watch says so

    @property
    def sentence(self) -> str:
        """The text as a sentence."""
        return f"{self.text[:1].upper()}{self.text[1:]}."


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


def refused(refusal: LaunchRefusal, check: RuleCheck | None = None) -> WatchBlock:
    """Return the block of a refusal."""
    return WatchBlock(refusal.reason, refusal.text, check)


def block_of_decision(watch: Watch, decision: Decision, zone: tzinfo = UTC) -> WatchBlock | None:
    """Return why a watch that has matches does not fire for a reason of its own settings, or None."""
    if (until := waits_until(watch, decision)) is not None:
        text = f"waits for a spot offer until {format_moment(until, zone)}"
        return WatchBlock(BlockReason.WAITS_FOR_SPOT, text, until=until)
    if decision.reason is DecisionReason.OUTSIDE_WINDOW:
        return WatchBlock(BlockReason.OUTSIDE_ACTIVE, f"outside its active windows ({', '.join(watch.active)})")
    if decision.reason is DecisionReason.HOLDING:
        span = format_duration(watch.hold_for_s)
        return WatchBlock(BlockReason.HOLD_FOR, f"not at or under its limit for {span} yet (hold_for)")
    if decision.reason is DecisionReason.IN_STOCK:
        return WatchBlock(BlockReason.IN_STOCK, "its offers were not out of stock before (restock = true)")
    return None


def admit_launch(
    intent: Intent, standing: AdmissionState, budget: Budget, now: datetime
) -> tuple[Launch, Match] | LaunchRefusal:
    """Return the launch to record and its match if there is a slot, an offer and money for it; else the refusal."""
    admission = Admission(intent, standing, budget, now)
    return first_refusal(admission.checks()) or (admission.launch, admission.match)


class Admission:
    """The rules of an admission, in their order; what admits a launch and what shows the rules to a person read them.

    A rule is examined when it is reached. After one that refuses, the later ones say what they would say without it.

    Attributes:
        match: the offer to rent.
        launch: the launch to record, once all rules are examined and none refused.
    """

    launch: Launch

    def __init__(self, intent: Intent, standing: AdmissionState, budget: Budget, now: datetime) -> None:
        self._intent, self._standing, self._budget, self._now = intent, standing, budget, now
        self._watch, self._spec = intent.watch, intent.watch.launch or LaunchSpec()
        self.match = intent.match

    def checks(self) -> Iterator[RuleCheck]:
        """Yield each rule that applies to this watch."""
        watch, now, standing = self._watch, self._now, self._standing
        yield self._pause()
        if watch.require:
            refusal = checklist_refusal(watch, ticked := standing.ticked())
            used, limit = len(watch.require) - len(unticked(watch, ticked)), len(watch.require)
            yield RuleCheck(rule=RefusalReason.CHECKLIST, refusal=refusal, used=used, limit=limit)
        known, breaker = standing.known(), standing.breaker
        mine = [launch for launch in known if launch.watch == watch.name and not launch.is_over]
        until, why = (breaker.until, breaker.why) if breaker is not None and not breaker.is_closed else (None, "")
        refusal = breaker_refusal(breaker, mine, now)
        yield RuleCheck(rule=RefusalReason.BREAKER, refusal=refusal, until=until, why=why)
        yield active_check(self._spec, watch.name, mine)
        total = standing.total()
        if self._spec.max_total:
            yield total_check(self._spec, watch.name, total)
        if watch.max_per_day is not None:
            yield per_day_check(watch, known, now)
        yield self._offer(known)
        self.launch = self._new_launch(known, mine)
        yield from all_budget_checks(self.launch, known, self._budget, watch.budget, now)

    def _pause(self) -> RuleCheck:
        rule, watch = RefusalReason.PAUSED, self._watch.name
        for pause in pauses_in_force(self._standing.pauses, watch, self._now):
            refusal = pause_refusal([pause], watch, self._now)
            is_own = pause.watch is not None
            return RuleCheck(rule=rule, refusal=refusal, until=pause.until, why=pause.why, of_watch=is_own)
        return RuleCheck(rule=rule)

    def _offer(self, known: Sequence[Launch]) -> RuleCheck:
        standing, watch, now = self._standing, self._watch, self._now
        failed = _remembered(known, standing.breaker)
        unknown = {} if self._intent.dry_run else standing.unknown()

        def rest_of(offer: Offer) -> LaunchRefusal | None:
            return unknown.get(offer.provider) or _rest_refusal(failed, watch, offer, now)

        skipped = scopes_in_force(standing.scopes(), now, standing.breaker)
        matches = others_first((self._intent.match, *self._intent.alternatives), failed_places(failed, now))
        found = _first_free(matches, watch, known, standing.avoided(known), rest_of, skipped)
        if isinstance(found, LaunchRefusal):
            return RuleCheck(rule=found.reason, refusal=found)
        self.match = found
        return RuleCheck(rule=RefusalReason.OFFER_TAKEN)

    def _new_launch(self, known: Sequence[Launch], mine: Sequence[Launch]) -> Launch:
        intent = msgspec.structs.replace(self._intent, match=self.match)
        slot = free_slot_number(self._spec, mine) or 0
        launch = new_launch(intent, slot, self._now, self._standing.install_id, self._standing.watch_id)
        return msgspec.structs.replace(
            launch,
            relaunch_of=replaced_launch_id(self._spec, self._watch.name, known, self._now),
            offer_slot=free_offer_slot(alive_launches(known), self.match.offer, self._watch) or 0,
        )


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


def alive_launches(known: Sequence[Launch]) -> list[Launch]:
    """Return the launches that are not over."""
    return [launch for launch in known if not launch.is_over]


def free_offer_slot(alive: Sequence[Launch], offer: Offer, watch: Watch) -> int | None:
    """Return the lowest free number for launches of this offer, or None if another launch has its only machine."""
    place = place_of(watch, offer)
    taken = {launch.offer_slot for launch in alive if (launch.provider, launch.offer_id) == place}
    if taken and not offer.terms.fungible:
        return None
    return next(number for number in range(len(taken) + 1) if number not in taken)


def free_slot(spec: LaunchSpec, watch: str, active: Sequence[Launch], total: int) -> int | LaunchRefusal:
    """Return the lowest free slot of a watch, or the refusal if there is none.

    Args:
        active: the launches of this watch that are alive.
        total: the number of launches it ever rented, including `active`. With `relaunch`, launches that ended because
            they were outbid do not count: each may have one replacement, which does.
    """
    checks = (active_check(spec, watch, active), total_check(spec, watch, total))
    return first_refusal(checks) or free_slot_number(spec, active) or 0


def free_slot_number(spec: LaunchSpec, active: Sequence[Launch]) -> int | None:
    """Return the lowest free slot of a watch, or None. A launch whose disk is kept has a slot that does not count."""
    taken = {launch.slot for launch in active}
    kept = sum(launch.is_kept for launch in active)
    return next((slot for slot in range(spec.max_active + kept) if slot not in taken), None)


def active_check(spec: LaunchSpec, watch: str, active: Sequence[Launch]) -> RuleCheck:
    """Check how many launches of a watch may be alive. Arguments as `free_slot`."""
    rule, count, refusal = RefusalReason.MAX_ACTIVE, sum(not launch.is_kept for launch in active), None
    if count >= spec.max_active:
        text = f"active launches of watch {watch!r}: {count} (max_active = {spec.max_active})"
        refusal = LaunchRefusal(rule, text)
    return RuleCheck(rule=rule, refusal=refusal, used=count, cost=1, limit=spec.max_active)


def total_check(spec: LaunchSpec, watch: str, total: int) -> RuleCheck:
    """Check how many launches a watch may have in total. Arguments as `free_slot`."""
    rule, refusal = RefusalReason.MAX_TOTAL, None
    if spec.max_total and total >= spec.max_total:
        text = f"watch {watch!r} has rented {total} in total (max_total = {spec.max_total})"
        refusal = LaunchRefusal(rule, text)
    return RuleCheck(rule=rule, refusal=refusal, used=total, cost=1, limit=spec.max_total or None)


def per_day_check(watch: Watch, known: Sequence[Launch], now: datetime) -> RuleCheck:
    """Check whether a watch may create another instance on this UTC day. Failed launches count.

    Args:
        known: launches of any watch that are alive or ended on this day.
    """
    rule, limit, refusal = RefusalReason.MAX_PER_DAY, watch.max_per_day, None
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    made = sum(launch.watch == watch.name and launch.was_created and launch.intended_at >= day for launch in known)
    if limit is not None and made >= limit:
        text = f"launches of watch {watch.name!r} today: {made}, including failed ones (max_per_day = {limit})"
        refusal = LaunchRefusal(rule, f"{text}; the next day begins at 00:00 UTC")
    return RuleCheck(rule=rule, refusal=refusal, used=made, cost=1, limit=limit, until=day + DAY)


def cooldown_refusal(failed: Sequence[Launch], watch: str, provider: str, now: datetime) -> LaunchRefusal | None:
    """Return why a watch must wait at a provider after failures there, or None.

    After one failure the next offer is tried at once. From the second failure within an hour on, the wait doubles from
    30 seconds.

    Args:
        failed: launches of any watch that failed within the last hour. Those of another owner do not count: they say
            nothing about this one's key and balance.
    """
    recent = [launch for launch in failed if launch.ended_at is not None and launch.ended_at > now - _UNTIL_FIXED]
    owner = owner_of(watch)
    recent = [launch for launch in recent if launch.provider == provider and owner_of(launch.watch) == owner]
    for launch in recent:
        theirs = launch.ended_because(*_NEEDS_A_PERSON)
        ours = launch.watch == watch and launch.ended_because(EndReason.BAD_ORDER)
        if theirs or ours:
            return LaunchRefusal(
                RefusalReason.COOLING, f"launch {launch.launch_id} failed: {launch.end_reason}; retrying hourly"
            )
    ended = [launch.ended_at for launch in recent if launch.watch == watch and launch.ended_at is not None]
    if len(ended) < 2:
        return None
    rest_s = min(_FIRST_REST_S * 2 ** (len(ended) - 2), _LONGEST_REST_S)
    again_at = max(ended) + timedelta(seconds=rest_s)
    if now >= again_at:
        return None
    return LaunchRefusal(
        RefusalReason.COOLING,
        f"{count_text(len(ended), 'launch', 'launches')} failed within an hour; the next attempt is at "
        f"{again_at:%H:%M:%S} UTC",
    )


def replaced_launch_id(spec: LaunchSpec, watch: str, known: Sequence[Launch], now: datetime) -> str | None:
    """Return the launch that a new one replaces: the newest one outbid within a day that has no replacement yet.

    Args:
        known: launches of any watch that are alive or ended within the last day.
    """
    if not spec.relaunch:
        return None
    replaced = {launch.relaunch_of for launch in known if launch.state is not LaunchState.FAILED}
    outbid = [
        launch
        for launch in known
        if launch.watch == watch
        and launch.state is LaunchState.ENDED
        and launch.ended_because(*LOST_SPOT)
        and launch.ended_at is not None
        and launch.ended_at > now - DAY
        and launch.launch_id not in replaced
    ]
    return max(outbid, key=lambda launch: launch.ended_at or now).launch_id if outbid else None
