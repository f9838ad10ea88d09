"""Decisions of the owner about renting: approvals, the checklist, launches that nobody else can decide, pauses. Pure.

- An approval is a quote that waits for the owner's decision until its deadline.
- The checklist: items that the owner must tick before a watch rents (`require` in a watch).
- `end_requested` and its neighbours: what follows from decisions that no provider's answer makes: the owner's, and a
  job's. They are rules of `state_machine`, so that they do what every other change does: event, alert, hook, free slot.
- A pause: renting that the owner switched off, for all watches or for one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.alerts.offer_texts import NOT_TICKED
from gpuwatch.domain.launches.launch import LOST_STATES, Launch, LaunchRefusal, LaunchState, PriceSpan, RefusalReason
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    ClockReading,
    EndRequested,
    Notification,
    OwnerAdopted,
    OwnerFoundNothing,
    SentAgain,
    Transition,
    TransitionResult,
    WatchTerms,
    over,
)
from gpuwatch.domain.launches.rent_terms import RentTerms, rent_watch
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import ChecklistPolicy, Watch

QUIET_AFTER_DENIAL = timedelta(hours=24)  # after a denial, unless the watch is re-armed
_ID = re.compile(r"[a-z2-7]{12}")

# Recommended before renting. Owners may add items of their own.
KNOWN_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "dry_epoch": "One epoch ran on 1 % of the data, from loading to a saved checkpoint, so that the job does not "
        "fail after hours of rental.",
        "loss_falls": "The loss fell in that epoch, so the job learns.",
        "util_70": "The GPU was at 70 % or more during that epoch. If not, find what it waits for (data, disk, "
        "CPU) before you rent a more expensive one.",
        "amp": "Mixed precision (BF16 or FP16) is on: 2 to 3 times faster on cards with matrix units, half the memory.",
        "lora": "LoRA or QLoRA was considered instead of training all weights: it needs a fraction of the memory, so "
        "smaller or fewer cards suffice.",
        "grad_checkpoint": "Gradient checkpointing was considered: about a third of the activation memory for "
        "about 20 % more time.",
        "memory_fits": "The job fits in the card's memory with some headroom, so that it does not run out halfway.",
        "tokens_per_s": "Its speed was measured, so that hours and cost are known before you pay for the whole job.",
        "resume": "The job was killed once and resumed from its checkpoint, so that a preemption or failure costs "
        "one checkpoint interval and not the whole job.",
    }
)
# Items that the pilot of a job measures and ticks by itself.
PILOT_ITEMS = frozenset({"dry_epoch", "loss_falls", "util_70", "memory_fits", "tokens_per_s"})
_SHOWN = 5  # items named in an alert; the command shows all
_ITEM_SHOWN = 60  # maximum length of an item in an alert, in characters


class ApprovalState(StrEnum):
    """The state of an approval. It leaves `open` once and never returns to it."""

    OPEN = "open"
    APPROVED = "approved"  # its launch is recorded
    DENIED = "denied"
    EXPIRED = "expired"  # nobody answered in time
    REFUSED = "refused"  # the quote no longer holds: more expensive, gone or no longer wanted


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A request for approval. Its id is also that of the launch that an approval starts: one request, one launch."""

    approval_id: str
    watch: str
    match: Match  # the quote
    created_at: datetime
    deadline: datetime
    state: ApprovalState = ApprovalState.OPEN
    answered_at: datetime | None = None
    launch_id: str | None = None
    words: str | None = None  # why it was denied or refused
    rent: RentTerms | None = None  # a person asked for the offer itself; None: a watch or an agent did

    @property
    def own_watch(self) -> Watch | None:
        """The watch that rents what a person asked for; None: one of the settings or of a job does."""
        return None if self.rent is None else rent_watch(self.watch, self.match.offer, self.rent)

    @property
    def provider(self) -> str:
        """The provider that offers it."""
        return self.match.offer.provider

    def state_at(self, now: datetime) -> ApprovalState:
        """Return its state. An open one expires at its deadline, whether or not that was recorded."""
        if self.state is ApprovalState.OPEN and now >= self.deadline:
            return ApprovalState.EXPIRED
        return self.state


class AgentEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What agents may spend without the owner: `[mcp] max_usd_day`.

    Every approval of an agent counts with what it can cost at most, for a day from then on, whatever becomes of it.
    """

    max_microusd: int

    def refusal(self, used_microusd: int, cost_microusd: int) -> LaunchRefusal | None:
        """Why an approval does not fit beside those of the last day, or None."""
        if used_microusd + cost_microusd <= self.max_microusd:
            return None
        cost, used, most = (dollars(usd(amount)) for amount in (cost_microusd, used_microusd, self.max_microusd))
        text = f"it can cost {cost}, and agents used {used} of {most} in 24 h ([mcp] max_usd_day)"
        return LaunchRefusal(RefusalReason.MAX_USD_DAY, text)


def is_approval_id(text: str) -> bool:
    """Return whether this could be the id of an approval."""
    return _ID.fullmatch(text) is not None


class ChecklistTick(msgspec.Struct, frozen=True, kw_only=True):
    """An item that the owner ticked."""

    item: str
    at: datetime
    words: str | None = None


def unticked(watch: Watch, ticked: Collection[str]) -> tuple[str, ...]:
    """Return the required items that nobody has ticked, in the order of the settings, without duplicates."""
    return tuple(item for item in dict.fromkeys(watch.require) if item not in ticked)


def checklist_refusal(watch: Watch, ticked: Collection[str]) -> LaunchRefusal | None:
    """Return why the checklist does not allow this watch to rent, or None."""
    missing = unticked(watch, ticked)
    if not missing or watch.require_policy is not ChecklistPolicy.BLOCK:
        return None
    return LaunchRefusal(RefusalReason.CHECKLIST, checklist_refusal_text(watch, missing))


def checklist_refusal_text(watch: Watch, missing: Sequence[str]) -> str:
    """Return the missing items and where to find them."""
    return (
        f"the checklist is not complete: {_named(missing)}; see: gpuwatch watches checklist {shlex.quote(watch.name)}"
    )


def checklist_warning(missing: Sequence[str]) -> str:
    """Return a sentence for an alert, with a leading space, or "".

    A watch that is blocked states it in its refusal. A watch that only alerts reminds its owner, who rents by hand.
    """
    if not missing:
        return ""
    return NOT_TICKED.format(items=_named(missing))


def _named(items: Sequence[str]) -> str:
    shown = [item if len(item) <= _ITEM_SHOWN else item[: _ITEM_SHOWN - 1] + "…" for item in items[:_SHOWN]]
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(shown) + more


def end_requested(launch: Launch, event: EndRequested, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Mark it; the reconciler destroys it, after the owner's hook, as often as needed."""
    if launch.state is LaunchState.STOPPING:
        return NO_TRANSITION
    reason = event.end.text(event.words)
    return TransitionResult(Transition(to_state=LaunchState.STOPPING, cause=reason, changes={"end_reason": reason}))


def found_nothing(launch: Launch, event: OwnerFoundNothing, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """End it; without a known instance it never ran."""
    reason = event.end.text(event.words)
    state = LaunchState.FAILED if launch.instance_id is None else LaunchState.ENDED
    return over(state, reason, clock.now)


def adopted(launch: Launch, event: OwnerAdopted, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Continue with the owner's instance. Its time counts from now: while it was held, all of it may have passed."""
    cause, fields = "adopted by the owner", {"assigned": event.instance_id}
    changes: dict[str, Any] = {"instance_id": event.instance_id}
    if launch.state is LaunchState.STOPPING:
        notify = Notification(texts.ADOPTED_TO_END, fields)
        return TransitionResult(Transition(to_state=LaunchState.STOPPING, cause=cause, changes=changes, notify=notify))
    changes |= {"intended_at": clock.now, "requested_at": clock.now}
    notify = Notification(texts.ADOPTED, fields)
    if not event.is_stopped:
        return TransitionResult(Transition(to_state=LaunchState.STARTING, cause=cause, changes=changes, notify=notify))
    disk = launch.disk_microusd_hour
    changes |= {"running_at": clock.now, "spans": (PriceSpan(clock.now, disk, launch.with_commission(disk)),)}
    return TransitionResult(Transition(to_state=LaunchState.RUNNING, cause=cause, changes=changes, notify=notify))


def sent_again(launch: Launch, event: SentAgain, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Count the try."""
    if launch.instance_id is not None or launch.state not in LOST_STATES:
        return NO_TRANSITION
    changes = {"tries": launch.tries + 1, "requested_at": clock.now}
    return TransitionResult(Transition(to_state=launch.state, cause=event.words, changes=changes))


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """No launches from `at` until `until` (None: until resumed)."""

    watch: str | None  # None: all watches
    at: datetime
    until: datetime | None = None
    why: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether it still applies. Setting the clock back makes a pause longer, never shorter."""
        return self.until is None or now < self.until

    def binds(self, watch: str | None) -> bool:
        """Return whether it applies to this watch; None: to renting in general.

        The pause of a recurring job applies to all its runs.
        """
        if self.watch is None or self.watch == watch:
            return True
        series = None if watch is None else Purpose.of(watch).series
        return series is not None and self.watch == Purpose.of_job(series).watch

    def text(self, zone: tzinfo = UTC) -> str:
        """One sentence without a full stop."""
        how_long = "until you resume it" if self.until is None else f"until {format_moment(self.until, zone)}"
        text = f"Renting is paused {how_long}"
        if self.watch is not None:
            job = Purpose.of(self.watch).job
            text = f"Renting by watch {self.watch!r} is paused {how_long}"
            if job is not None:
                text = f"Renting for job {job!r} is paused {how_long}"
        return text + (f" ({self.why})" if self.why else "")


def pause_refusal(pauses: Iterable[Pause], watch: str, now: datetime, zone: tzinfo = UTC) -> LaunchRefusal | None:
    """Return why the pauses do not allow this watch to rent, or None."""
    for pause in pauses_in_force(pauses, watch, now):
        text = pause.text(zone)
        return LaunchRefusal(RefusalReason.PAUSED, text[0].lower() + text[1:], of_watch=pause.watch is not None)
    return None


def pauses_in_force(pauses: Iterable[Pause], watch: str | None, now: datetime) -> Sequence[Pause]:
    """Return the pauses that apply to this watch now, the global one first."""
    found = [pause for pause in pauses if pause.holds(now) and pause.binds(watch)]
    return sorted(found, key=lambda pause: pause.watch or "")
