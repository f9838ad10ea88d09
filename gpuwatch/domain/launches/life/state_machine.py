"""The state machine of a launch, as one pure function: event and time → next state, and what to do.

    requested → starting → running → stopping → ended
        └→ unknown → held        └────────────→ failed

Whoever learns something (the answer to an order, a listing, the owner's decision) applies it to the current row:
`transition` returns what follows, if anything. So no order of answers, crashes and restarts needs special treatment.
`end_rules` decides when an instance must end, `absence` when something does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.absence import AbsenceVerdict
from gpuwatch.domain.launches.instances.end_rules import (
    EndCause,
    billed_rates,
    end_cause,
    late_start,
    stopped_rates,
)
from gpuwatch.domain.launches.interruption import is_taken_back
from gpuwatch.domain.launches.launch import LOST_STATES, EndReason, InstanceCondition, Launch, LaunchState, PriceSpan
from gpuwatch.domain.launches.life.interruptions import noticed, with_notice
from gpuwatch.domain.launches.life.kept_disks import (
    at_end_of_run,
    begins_to_halt,
    halt_again,
    halting,
    keep_requested,
    keeps_disk_at,
    kept_after_end_s,
    kept_listed,
)
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    AnswerLost,
    BidRaised,
    ClockReading,
    Destroy,
    EndRequested,
    InstanceCreated,
    InstanceListed,
    InstanceReturned,
    InstanceUnlisted,
    InterruptionNoticed,
    KeepRequested,
    LifecycleEvent,
    ListUnavailable,
    NothingCreated,
    Notification,
    OwnerAdopted,
    OwnerFoundNothing,
    RaiseBid,
    SentAgain,
    Transition,
    TransitionResult,
    WatchTerms,
    over,
)
from gpuwatch.domain.launches.life.order_answers import answer_lost, created, nothing_created
from gpuwatch.domain.launches.life.owner_decisions import adopted, end_requested, found_nothing, sent_again
from gpuwatch.domain.launches.life.strays import reopened
from gpuwatch.domain.launches.money.bids_and_relocation import next_bid
from gpuwatch.domain.market.money import price_text, usd
from gpuwatch.domain.watches.launch_spec import PriceIncreasePolicy

OUTBID_PATIENCE = timedelta(minutes=2)  # how long a sufficient bid may take to win again
# it never matched the request, or failed to do it
_UNFIT = (EndReason.NOT_READY, EndReason.NO_SSH, EndReason.TOO_SLOW, EndReason.NOT_AS_PROMISED, EndReason.CRASHED)
_UNKNOWN = TransitionResult(Transition(to_state=LaunchState.UNKNOWN, cause="its answer is not known to this process"))


def transition(
    launch: Launch,
    event: LifecycleEvent,
    clock: ClockReading,
    terms: WatchTerms = WatchTerms(),  # noqa: B008 - frozen
) -> TransitionResult:
    """Return the transition that follows from an event.

    A launch that is over stays over, unless its instance is listed again.
    """
    if launch.is_over != isinstance(event, InstanceReturned):
        return NO_TRANSITION
    return _RULES[type(event)](launch, event, clock, terms)


# --- the instance is listed -------------------------------------------------------------------------------------------
def _listed(launch: Launch, event: InstanceListed, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    instance = event.instance
    if launch.instance_id is None:
        return _adopted(launch, instance)
    if launch.state in LOST_STATES:
        return TransitionResult(Transition(to_state=LaunchState.STARTING, cause="found by its id"))
    if launch.state is LaunchState.STOPPING:
        return TransitionResult(None, (Destroy(instance.instance_id),))
    fault = event.fault or _end_cause(launch, instance, clock, terms)
    if fault is not None:
        return _at_its_end(launch, fault, clock, terms)
    is_starting = launch.state is LaunchState.STARTING
    found = _starting(launch, event, clock) if is_starting else _running(launch, instance, clock, terms)
    return with_notice(launch, instance.interruption, _with_address(launch, instance, found), clock, terms)


def _end_cause(launch: Launch, instance: Instance, clock: ClockReading, terms: WatchTerms) -> EndCause | None:
    if launch.kept is not None:  # that it does not run is no reason
        return at_end_of_run(launch, instance.state, terms, clock.at_least)
    found = end_cause(launch, instance, clock.at_least, terms.ceiling_microusd)
    return found or begins_to_halt(launch, terms, clock.at_least)


def _with_address(launch: Launch, instance: Instance, found: TransitionResult) -> TransitionResult:
    """Record where to log in, along with what else is recorded; of a running launch also alone."""
    if instance.state is not InstanceState.RUNNING or instance.ssh in {None, launch.ssh}:
        return found
    step = found.transition
    if step is None and launch.state is LaunchState.STARTING:
        return found
    step = step or Transition(to_state=launch.state, cause="its SSH address is known")
    return TransitionResult(replace(step, changes={**step.changes, "ssh": instance.ssh}), found.effects)


def _adopted(launch: Launch, instance: Instance) -> TransitionResult:
    """The instance was found by its label. If its end was requested in the meantime, that still applies."""
    to_end = launch.end_reason is not None
    notify = Notification(texts.FOUND_TO_END if to_end else texts.FOUND)
    changes = {"instance_id": instance.instance_id}
    state = LaunchState.STOPPING if to_end else LaunchState.STARTING
    words, effects = instance.status, (Destroy(instance.instance_id),) if to_end else ()
    return TransitionResult(
        Transition(to_state=state, cause="found by its label", words=words, changes=changes, notify=notify),
        effects,
    )


def _starting(launch: Launch, event: InstanceListed, clock: ClockReading) -> TransitionResult:
    """It is billed from its first running moment on, but counts as running only once it is verified."""
    if event.instance.state is not InstanceState.RUNNING:
        return NO_TRANSITION
    changes: dict[str, Any] = {}
    if launch.running_at is None:
        listed, price = billed_rates(launch, event.instance)
        changes = {"running_at": clock.now, "spans": (PriceSpan(clock.now, listed, price),)}
        changes |= {"listed_microusd_hour": listed, "price_microusd_hour": price}
    if event.verified:
        step = Transition(
            to_state=LaunchState.RUNNING,
            cause="running",
            words=event.instance.status,
            changes=changes,
            notify=Notification(texts.RUNNING),
            hook="on_running",
        )
        return TransitionResult(step)
    if launch.running_at is None:
        cause = "started, and is being verified"
        return TransitionResult(
            Transition(to_state=LaunchState.STARTING, cause=cause, words=event.instance.status, changes=changes)
        )
    return NO_TRANSITION


def _running(launch: Launch, instance: Instance, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    if launch.kept is not None:
        return kept_listed(launch, instance, clock, terms)
    condition = _condition_of(launch, instance)
    if condition is not launch.condition:
        return _condition_changed(launch, instance, condition, clock)
    if condition is InstanceCondition.OUTBID:
        return _outbid(launch, instance, clock, terms)
    if instance.state is InstanceState.RUNNING and billed_rates(launch, instance)[0] != launch.listed_microusd_hour:
        return _repriced(launch, instance, clock, terms)
    return NO_TRANSITION


def _condition_of(launch: Launch, instance: Instance) -> InstanceCondition | None:
    """Record a change of status; an unknown status changes nothing."""
    if instance.state is InstanceState.STOPPED:
        return InstanceCondition.OUTBID if launch.spot else InstanceCondition.STOPPED
    if instance.state is InstanceState.OFFLINE:
        return InstanceCondition.OFFLINE
    if instance.state is InstanceState.RUNNING or launch.condition is InstanceCondition.UNLISTED:
        return None
    return launch.condition


_CONDITIONS = {  # the cause as stored, and the alert
    InstanceCondition.OUTBID: ("outbid", texts.OUTBID),
    InstanceCondition.STOPPED: ("stopped at the provider", texts.STOPPED),
    InstanceCondition.OFFLINE: ("its host is offline", texts.OFFLINE),
    None: ("running again", texts.RUNS_AGAIN),
}


def _condition_changed(
    launch: Launch, instance: Instance, condition: InstanceCondition | None, clock: ClockReading
) -> TransitionResult:
    """Record the new condition and the price that is billed from now on."""
    cause, spec = _CONDITIONS[condition]
    listed, price = billed_rates(launch, instance) if condition is None else stopped_rates(launch, instance)
    changes: dict[str, Any] = {
        "condition": condition,
        "condition_since": None if condition is None else clock.now,
        "spans": (*launch.spans, PriceSpan(clock.now, listed, price)),
    }
    if condition is None:
        changes |= {"interruption": None, "listed_microusd_hour": listed, "price_microusd_hour": price}
    step = Transition(
        to_state=LaunchState.RUNNING, cause=cause, words=instance.status, changes=changes, notify=Notification(spec)
    )
    return TransitionResult(step)


def _outbid(launch: Launch, instance: Instance, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Raise the bid as far as the owner allows; otherwise rent elsewhere, if that is wanted; otherwise wait."""
    bid = next_bid(launch, instance, terms.bid)
    if bid is not None:
        return TransitionResult(None, (RaiseBid(instance.instance_id, bid),))
    waited = clock.at_least - (launch.condition_since or clock.at_least)
    if terms.relaunch and waited >= OUTBID_PATIENCE:
        return _ending(launch, EndReason.OUTBID, "its watch rents elsewhere")
    return NO_TRANSITION


def _bid_raised(launch: Launch, event: BidRaised, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    if launch.state is not LaunchState.RUNNING:
        return NO_TRANSITION
    listed = event.bid_microusd_hour + launch.disk_microusd_hour
    price = launch.with_commission(listed)
    bid = price_text(usd(event.bid_microusd_hour))
    cause = f"the bid was raised to ${bid} an hour"
    changes = {
        "bid_microusd_hour": event.bid_microusd_hour,
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
    }
    notify = Notification(texts.BID_RAISED, {"bid": bid})
    return TransitionResult(Transition(to_state=LaunchState.RUNNING, cause=cause, changes=changes, notify=notify))


def _repriced(launch: Launch, instance: Instance, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Record the new price that the provider bills; the owner's policy decides what else happens."""
    listed, price = billed_rates(launch, instance)
    before, after = price_text(usd(launch.listed_microusd_hour)), price_text(usd(listed))
    words = f"${before} → ${after} an hour, listed"
    if listed > launch.listed_microusd_hour and _is_refused(price, terms):
        return _ending(launch, EndReason.PRICE_RAISED, words)
    changes = {
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
        "spans": (*launch.spans, PriceSpan(clock.now, listed, price)),
    }
    rose = listed > launch.listed_microusd_hour
    cause = f"its price {'rose' if rose else 'fell'}: {words}"
    notify = Notification(texts.PRICE_ROSE if rose else texts.PRICE_FELL, {"before": before, "after": after})
    return TransitionResult(Transition(to_state=LaunchState.RUNNING, cause=cause, changes=changes, notify=notify))


def _is_refused(price: int, terms: WatchTerms) -> bool:
    if terms.on_increase is PriceIncreasePolicy.ACCEPT_UNDER:
        return terms.ceiling_microusd is None or price > terms.ceiling_microusd
    return terms.on_increase is PriceIncreasePolicy.STOP


# --- the instance is not listed ---------------------------------------------------------------------------------------
def _unlisted(launch: Launch, event: InstanceUnlisted, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    if launch.state is LaunchState.HELD:
        return NO_TRANSITION  # the owner decides
    if launch.state is LaunchState.REQUESTED:
        return _UNKNOWN
    due = late_start(launch, "it is in no list", clock.at_least) or at_end_of_run(launch, None, terms, clock.at_least)
    due = due or _if_alive(launch, event.fault)
    if due is not None:
        return _at_its_end(launch, due, clock, terms)
    if event.verdict is AbsenceVerdict.ABSENT:
        return _absent(launch, event, clock)
    return _cannot_prove(launch, event, clock) if event.verdict is AbsenceVerdict.CANNOT_PROVE else NO_TRANSITION


def _if_alive(launch: Launch, fault: EndCause | None) -> EndCause | None:
    return fault if launch.state in {LaunchState.STARTING, LaunchState.RUNNING} else None


def _absent(launch: Launch, event: InstanceUnlisted, clock: ClockReading) -> TransitionResult:
    if launch.state is LaunchState.STOPPING:
        reason = launch.end_reason or EndReason.STOPPED.text()
        return over(_end_state(launch), reason, clock.now)
    if launch.state in LOST_STATES:
        reason = EndReason.ABSENT.text()
        notify = Notification(texts.NOTHING_MADE, {"reason": _with(reason, event.words)})
        return over(LaunchState.FAILED, reason, clock.now, notify, event.words)
    end = EndReason.TAKEN_BACK if is_taken_back(launch.interruption) else EndReason.GONE
    end = EndReason.OUTBID if launch.condition is InstanceCondition.OUTBID else end
    notify = Notification(texts.OVER, {"end": end.value, "reason": _with(end.text(), event.words)})
    return over(LaunchState.ENDED, end.text(), clock.now, notify, event.words)


def _with(reason: str, words: str) -> str:
    return f"{reason}: {words}" if words else reason


def _end_state(launch: Launch) -> LaunchState:
    """Fail a launch that never matched the request, or whose command failed, once nothing of it is left."""
    if launch.ended_because(EndReason.STOPPED):
        return LaunchState.ENDED
    return LaunchState.FAILED if launch.running_at is None or launch.ended_because(*_UNFIT) else LaunchState.ENDED


def _cannot_prove(launch: Launch, event: InstanceUnlisted, clock: ClockReading) -> TransitionResult:
    """Report an instance that is missing from the list. It may still run and be wanted, so nothing is destroyed."""
    if launch.state in LOST_STATES or launch.instance_id is None:
        return _held(launch, event.words, event.candidate)
    if launch.state is not LaunchState.RUNNING or launch.condition is InstanceCondition.UNLISTED:
        return NO_TRANSITION
    notify = Notification(texts.UNLISTED)
    changes = {"condition": InstanceCondition.UNLISTED, "condition_since": clock.now}
    return TransitionResult(
        Transition(to_state=LaunchState.RUNNING, cause="no list shows it", changes=changes, notify=notify)
    )


def _held(launch: Launch, words: str = "", candidate: str | None = None) -> TransitionResult:
    """Send nothing again; the owner decides about what cannot be proven."""
    if launch.state is LaunchState.HELD:
        return NO_TRANSITION
    if launch.state is LaunchState.REQUESTED:
        return _UNKNOWN
    if candidate is not None:
        words = texts.MAY_BE_IT.format(candidate=candidate)
    notify = Notification(texts.HELD, {"evidence": words or None, "candidate": candidate or "INSTANCE"})
    return TransitionResult(
        Transition(to_state=LaunchState.HELD, cause="absence could not be proven", words=words or None, notify=notify)
    )


# --- without a list --------------------------------------------------------------------------------------------------
def _no_list(launch: Launch, event: ListUnavailable, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """Handle an unavailable list while the instance is billed.

    An overdue instance is destroyed by its id; a lost one is held.
    """
    due = at_end_of_run(launch, None, terms, clock.at_least) or _if_alive(launch, event.fault)
    if due is not None:
        return _at_its_end(launch, due, clock, terms)
    if launch.is_halted and not launch.is_kept:
        return halt_again(launch, clock, terms)
    if launch.state is LaunchState.STOPPING and launch.instance_id is not None:
        return TransitionResult(None, (Destroy(launch.instance_id),))
    if launch.instance_id is None and event.verdict is AbsenceVerdict.CANNOT_PROVE:
        return _held(launch)
    return NO_TRANSITION


# --- the end ----------------------------------------------------------------------------------------------------------
def _at_its_end(launch: Launch, fault: EndCause, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    if keeps_disk_at(launch, fault, terms, clock.at_least):
        return halting(launch, fault[0].text(fault[1]), kept_after_end_s(launch, terms.keep_s), clock)
    return _ending(launch, *fault)


def _ending(launch: Launch, end: EndReason, words: str) -> TransitionResult:
    reason = end.text(words)
    notify = Notification(texts.ENDING, {"end": end.value, "reason": reason})
    step = Transition(
        to_state=LaunchState.STOPPING, cause=end.value, words=words, changes={"end_reason": reason}, notify=notify
    )
    return TransitionResult(step, () if launch.instance_id is None else (Destroy(launch.instance_id),))


_RULES: Mapping[type, Callable[..., TransitionResult]] = {
    InstanceCreated: created,
    AnswerLost: answer_lost,
    NothingCreated: nothing_created,
    InstanceListed: _listed,
    InstanceUnlisted: _unlisted,
    ListUnavailable: _no_list,
    EndRequested: end_requested,
    OwnerFoundNothing: found_nothing,
    OwnerAdopted: adopted,
    SentAgain: sent_again,
    KeepRequested: keep_requested,
    BidRaised: _bid_raised,
    InterruptionNoticed: noticed,
    InstanceReturned: lambda launch, event, clock, terms: reopened(launch, event, clock),
}
