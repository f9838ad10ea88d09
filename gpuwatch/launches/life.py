"""The life of a launch, as one pure function: what was observed, and when → where it goes, and what is to be done.

    requested → starting → running → stopping → ended
        └→ unknown → held        └────────────→ failed

Whoever observes something (the answer to an order, a listing, the owner's word) tells it to the row as it is now:
`step` says what follows, or that nothing does. So no order of answers, crashes and restarts needs a case of its own.
Rules of when an instance must end are in `faults` and `guard`; when something is absent, in `absence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from gpuwatch.launches.absence import Verdict
from gpuwatch.launches.faults import Fault, billed, fault_of, is_late, overdue
from gpuwatch.launches.instance import Instance, InstanceState
from gpuwatch.launches.launch import LOST, Condition, End, Launch, LaunchState, Span
from gpuwatch.launches.observed import (
    AnswerLost,
    BidRaised,
    EndWanted,
    Listed,
    Made,
    NoList,
    NothingMade,
    Observation,
    Terms,
    Unlisted,
    When,
)
from gpuwatch.launches.outcome import NOTHING, About, Destroy, Freed, Move, Outcome, RaiseBid, Tell
from gpuwatch.launches.rebid import next_bid
from gpuwatch.market.pricing import MICRO, money, usd
from gpuwatch.watches.watch import OnIncrease

S = LaunchState
OUTBID_PATIENCE = timedelta(minutes=2)  # so long a bid that is high enough may take to win again
_UNFIT = (End.NOT_READY, End.NO_SSH, End.TOO_SLOW, End.NOT_AS_PROMISED)  # it never was what was wanted


def step(launch: Launch, seen: Observation, when: When, terms: Terms = Terms()) -> Outcome:  # noqa: B008 a frozen value
    """What follows from an observation. What is over stays over, whatever is seen of it (`reconcile` tells)."""
    if launch.is_over:
        return NOTHING
    return _RULES[type(seen)](launch, seen, when, terms)


# --- the order's answer -----------------------------------------------------------------------------------------------
def _made(launch: Launch, seen: Made, when: When, terms: Terms) -> Outcome:
    if launch.instance_id not in {None, seen.instance_id}:
        return NOTHING  # another one was found by its label meanwhile; that there are two is told by `reconcile`
    if not seen.starts:
        why = "The provider made a contract that does not start. It is billed for its disk, so it is being destroyed."
        changes = {"instance_id": seen.instance_id, "end_reason": End.BID_LOST.text()}
        tell = Tell("rented, but it does not start", why)
        move = Move(to_state=S.STOPPING, cause=End.BID_LOST.text(), changes=changes, tell=tell)
        return Outcome(move, (Destroy(seen.instance_id),))
    if launch.instance_id is not None:
        return NOTHING  # it was found by its label meanwhile
    state = S.STOPPING if launch.state is S.STOPPING else S.STARTING  # its end was wanted meanwhile: that holds
    effects = (Destroy(seen.instance_id),) if state is S.STOPPING else ()
    return Outcome(Move(to_state=state, cause="created", changes={"instance_id": seen.instance_id}), effects)


def _answer_lost(launch: Launch, seen: AnswerLost, when: When, terms: Terms) -> Outcome:
    if launch.state is not S.REQUESTED or launch.instance_id is not None:
        return NOTHING
    changes = {"instance_id": seen.instance_id}
    return Outcome(Move(to_state=S.UNKNOWN, cause="the answer was lost", words=seen.words, changes=changes))


def _nothing_made(launch: Launch, seen: NothingMade, when: When, terms: Terms) -> Outcome:
    if launch.instance_id is not None or launch.state not in LOST | {S.INTENDED, S.STOPPING}:
        return NOTHING
    tell = Tell("not rented", seen.reason, About.NOT_RENTED)
    return _over(S.FAILED, seen.reason, when, tell)


# --- the instance is listed -------------------------------------------------------------------------------------------
def _listed(launch: Launch, seen: Listed, when: When, terms: Terms) -> Outcome:
    instance = seen.instance
    if launch.instance_id is None:
        return _adopted(launch, instance)
    if launch.state in LOST:
        return Outcome(Move(to_state=S.STARTING, cause="found by its id"))
    if launch.state is S.STOPPING:
        return Outcome(None, (Destroy(instance.instance_id),))
    fault = seen.fault or fault_of(launch, instance, when.at_least, terms.ceiling_microusd)
    if fault is not None:
        return _ending(launch, *fault)
    if launch.state is S.STARTING:
        return _starting(launch, seen, when)
    return _running(launch, instance, when, terms)


def _adopted(launch: Launch, instance: Instance) -> Outcome:
    """Found by its label. If its end was wanted meanwhile, that still holds."""
    to_end = launch.end_reason is not None
    why = "The answer to the request was lost; the instance was found by its label. Nothing was sent twice."
    tell = Tell("found by its label; it is being ended" if to_end else "rented; found by its label", why)
    changes = {"instance_id": instance.instance_id}
    state = S.STOPPING if to_end else S.STARTING
    words, effects = instance.status, (Destroy(instance.instance_id),) if to_end else ()
    return Outcome(Move(to_state=state, cause="found by its label", words=words, changes=changes, tell=tell), effects)


def _starting(launch: Launch, seen: Listed, when: When) -> Outcome:
    """From its first running moment on it is billed; it is its owner's when it is what was promised."""
    if seen.instance.state is not InstanceState.RUNNING:
        return NOTHING
    changes: dict[str, Any] = {}
    if launch.running_at is None:
        listed, price = billed(launch, seen.instance)
        changes = {"running_at": when.now, "spans": (Span(when.now, listed, price),)}
        changes |= {"listed_microusd_hour": listed, "price_microusd_hour": price}
    if seen.verified:
        tell, words = Tell("running", "The instance came to life."), seen.instance.status
        move = Move(to_state=S.RUNNING, cause="running", words=words, changes=changes, tell=tell, hook="on_running")
        return Outcome(move)
    if launch.running_at is None:
        cause = "came to life, and is being verified"
        return Outcome(Move(to_state=S.STARTING, cause=cause, words=seen.instance.status, changes=changes))
    return NOTHING


def _running(launch: Launch, instance: Instance, when: When, terms: Terms) -> Outcome:
    condition = _condition_of(launch, instance)
    if condition is not launch.condition:
        return _befallen(launch, instance, condition, when)
    if condition is Condition.OUTBID:
        return _outbid(launch, instance, when, terms)
    if instance.state is InstanceState.RUNNING and billed(launch, instance)[0] != launch.listed_microusd_hour:
        return _repriced(launch, instance, when, terms)
    return NOTHING


def _condition_of(launch: Launch, instance: Instance) -> Condition | None:
    """A word of the provider that we do not know changes nothing."""
    if instance.state is InstanceState.STOPPED:
        return Condition.OUTBID if launch.spot else Condition.STOPPED
    if instance.state is InstanceState.OFFLINE:
        return Condition.OFFLINE
    if instance.state is InstanceState.RUNNING or launch.condition is Condition.UNLISTED:
        return None
    return launch.condition


_BEFALLEN = {
    Condition.OUTBID: ("outbid", "Somebody bids more. It is stopped until its bid wins again; its disk is billed."),
    Condition.STOPPED: (
        "stopped at the provider",
        "Somebody stopped it there, or the balance ran out. Its disk is billed until it is destroyed.",
    ),
    Condition.OFFLINE: ("its host is offline", "The provider lost contact with the machine; it may come back."),
    None: ("runs again", "The provider lists it as running."),
}


def _befallen(launch: Launch, instance: Instance, condition: Condition | None, when: When) -> Outcome:
    """What befell it, and what is billed from now on."""
    headline, why = _BEFALLEN[condition]
    listed, price = billed(launch, instance) if condition is None else _stopped_rates(launch, instance)
    changes: dict[str, Any] = {
        "condition": condition,
        "condition_since": None if condition is None else when.now,
        "spans": (*launch.spans, Span(when.now, listed, price)),
    }
    if condition is None:
        changes |= {"listed_microusd_hour": listed, "price_microusd_hour": price}
    tell = Tell(headline, why, About.BEFALLEN)
    move = Move(to_state=S.RUNNING, cause=headline, words=instance.status, changes=changes, tell=tell)
    return Outcome(move)


def _stopped_rates(launch: Launch, instance: Instance) -> tuple[int, int]:
    listed = launch.disk_microusd_hour
    if instance.stopped_usd_hour is not None:
        listed = round(instance.stopped_usd_hour * MICRO)
    return listed, _with_commission(launch, listed)


def _with_commission(launch: Launch, listed: int) -> int:
    if not launch.listed_microusd_hour:
        return listed
    return round(listed * launch.price_microusd_hour / launch.listed_microusd_hour)


def _outbid(launch: Launch, instance: Instance, when: When, terms: Terms) -> Outcome:
    """Bid more while the owner allows it; else go elsewhere, if that is wanted; else wait."""
    bid = next_bid(launch, instance, terms.bid)
    if bid is not None:
        return Outcome(None, (RaiseBid(instance.instance_id, bid),))
    waited = when.at_least - (launch.condition_since or when.at_least)
    if terms.relaunch and waited >= OUTBID_PATIENCE:
        return _ending(launch, End.OUTBID, "it is rented elsewhere")
    return NOTHING


def _bid_raised(launch: Launch, seen: BidRaised, when: When, terms: Terms) -> Outcome:
    if launch.state is not S.RUNNING:
        return NOTHING
    listed = seen.bid_microusd_hour + launch.disk_microusd_hour
    price = _with_commission(launch, listed)
    cause = f"the bid was raised to ${money(usd(seen.bid_microusd_hour))} an hour"
    changes = {
        "bid_microusd_hour": seen.bid_microusd_hour,
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
    }
    tell = Tell("its bid was raised", f"It was outbid; {cause}, listed, without its disk.")
    return Outcome(Move(to_state=S.RUNNING, cause=cause, changes=changes, tell=tell))


def _repriced(launch: Launch, instance: Instance, when: When, terms: Terms) -> Outcome:
    """The provider bills another price than before: the ledger follows, and the owner's policy says what else."""
    listed, price = billed(launch, instance)
    words = f"${money(usd(launch.listed_microusd_hour))} → ${money(usd(listed))} an hour, listed"
    if listed > launch.listed_microusd_hour and _is_refused(price, terms):
        return _ending(launch, End.PRICE_RAISED, words)
    changes = {
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
        "spans": (*launch.spans, Span(when.now, listed, price)),
    }
    headline = "its price rose" if listed > launch.listed_microusd_hour else "its price fell"
    cause = f"{headline}: {words}"
    tell = Tell(headline, f"The provider's list says: {words}.", About.BEFALLEN)
    return Outcome(Move(to_state=S.RUNNING, cause=cause, changes=changes, tell=tell))


def _is_refused(price: int, terms: Terms) -> bool:
    if terms.on_increase is OnIncrease.ACCEPT_UNDER:
        return terms.ceiling_microusd is None or price > terms.ceiling_microusd
    return terms.on_increase is OnIncrease.STOP


# --- the instance is not listed ---------------------------------------------------------------------------------------
def _unlisted(launch: Launch, seen: Unlisted, when: When, terms: Terms) -> Outcome:
    if launch.state is S.HELD:
        return NOTHING  # the owner decides
    if launch.state is S.REQUESTED:
        return Outcome(Move(to_state=S.UNKNOWN, cause="its answer is not known to this process"))
    due = is_late(launch, "it is in no list", when.at_least) or overdue(launch, when.at_least)
    due = due or _of_living(launch, seen.fault)
    if due is not None:
        return _ending(launch, *due)
    if seen.verdict is Verdict.ABSENT:
        return _absent(launch, when)
    return _cannot_prove(launch, when) if seen.verdict is Verdict.CANNOT_PROVE else NOTHING


def _of_living(launch: Launch, fault: Fault | None) -> Fault | None:
    return fault if launch.state in {S.STARTING, S.RUNNING} else None


def _absent(launch: Launch, when: When) -> Outcome:
    if launch.state is S.STOPPING:
        reason = launch.end_reason or End.STOPPED.text()
        return _over(_end_state(launch), reason, when, Tell("ended", reason))
    if launch.state in LOST:
        return _over(S.FAILED, End.ABSENT.text(), when, Tell("nothing was made", End.ABSENT.text()))
    end = End.OUTBID if launch.condition is Condition.OUTBID else End.GONE
    return _over(S.ENDED, end.text(), when, Tell(end.value, end.text()))


def _end_state(launch: Launch) -> LaunchState:
    """Failed: it never was what was wanted, and nothing is left of it, so the next may be tried."""
    if launch.ended_because(End.STOPPED):
        return S.ENDED
    return S.FAILED if launch.running_at is None or launch.ended_because(*_UNFIT) else S.ENDED


def _cannot_prove(launch: Launch, when: When) -> Outcome:
    """What was rented and is in no list may still run, and be wanted: it is told, not destroyed."""
    if launch.state in LOST or launch.instance_id is None:
        return _held(launch)
    if launch.state is not S.RUNNING or launch.condition is Condition.UNLISTED:
        return NOTHING
    why = "An empty list is no proof: it may still run, and be billed. It is left alone; its slot stays taken."
    tell = Tell("the provider does not list it any more", why, About.UNLISTED)
    changes = {"condition": Condition.UNLISTED, "condition_since": when.now}
    return Outcome(Move(to_state=S.RUNNING, cause="no list shows it", changes=changes, tell=tell))


def _held(launch: Launch) -> Outcome:
    """Nothing is sent again; what cannot be proven is the owner's to decide."""
    if launch.state is S.HELD:
        return NOTHING
    if launch.state is S.REQUESTED:
        return Outcome(Move(to_state=S.UNKNOWN, cause="its answer is not known to this process"))
    why = "The request may have been carried out; no list proves that it was not. Its budget stays reserved."
    tell = Tell("held: it could not be proven that nothing was made", why, About.HELD)
    return Outcome(Move(to_state=S.HELD, cause="absence could not be proven", tell=tell))


# --- there is no list -------------------------------------------------------------------------------------------------
def _no_list(launch: Launch, seen: NoList, when: When, terms: Terms) -> Outcome:
    """The list is down, the bill is not: what is overdue is destroyed by its id; what is lost goes to the owner."""
    due = overdue(launch, when.at_least) or _of_living(launch, seen.fault)
    if due is not None:
        return _ending(launch, *due)
    if launch.state is S.STOPPING and launch.instance_id is not None:
        return Outcome(None, (Destroy(launch.instance_id),))
    if launch.instance_id is None and seen.verdict is Verdict.CANNOT_PROVE:
        return _held(launch)
    return NOTHING


# --- the end ----------------------------------------------------------------------------------------------------------
def _end_wanted(launch: Launch, seen: EndWanted, when: When, terms: Terms) -> Outcome:
    return NOTHING if launch.state is S.STOPPING else _ending(launch, seen.end, seen.words)


def _ending(launch: Launch, end: End, words: str) -> Outcome:
    reason = end.text(words)
    tell = Tell(f"is being ended: {end.value}", reason)
    move = Move(to_state=S.STOPPING, cause=end.value, words=words, changes={"end_reason": reason}, tell=tell)
    return Outcome(move, () if launch.instance_id is None else (Destroy(launch.instance_id),))


def _over(state: LaunchState, reason: str, when: When, tell: Tell) -> Outcome:
    changes = {"ended_at": when.now, "end_reason": reason}
    return Outcome(Move(to_state=state, cause=reason, changes=changes, tell=tell, hook="on_ended"), (Freed(),))


_RULES: Mapping[type, Callable[..., Outcome]] = {
    Made: _made,
    AnswerLost: _answer_lost,
    NothingMade: _nothing_made,
    Listed: _listed,
    Unlisted: _unlisted,
    NoList: _no_list,
    EndWanted: _end_wanted,
    BidRaised: _bid_raised,
}
