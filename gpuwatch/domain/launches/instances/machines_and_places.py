"""Machines and places to avoid after failed launches, and machines that the owner blocked. Pure.

A machine on which a launch failed recently is refused. The place of stock is what an order can choose: a machine type
in a region or a zone, from which the provider takes any machine. A failure there says nothing about other places, and
little about the next machine of the same place. So the place is not refused, but tried last for a while; and if nothing
else is left, it rests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.past_limits import MachineRecord, ProviderMachine

AVOID_FOR = timedelta(days=1)  # otherwise a failing machine stays the cheapest and is rented again and again
MACHINE_FAULTS = (
    EndReason.NOT_READY,
    EndReason.BROKEN,
    EndReason.CRASHED,
    EndReason.WRONG_TYPE,
    EndReason.DEARER,
    EndReason.NOT_AS_PROMISED,
    EndReason.NO_SSH,
    EndReason.TOO_SLOW,
    EndReason.OFFLINE,
)
# Reasons that concern everything the provider sells under that name, whichever machine it takes.
_OF_THE_STOCK = (EndReason.DEARER, EndReason.WRONG_TYPE)
LOST_SPOT = (EndReason.OUTBID, EndReason.TAKEN_BACK)  # a watch with `relaunch` replaces what ended so
RECORDED_FOR = timedelta(days=90)  # a machine's record consists of launches that ended within this time
# Reasons that concern the command, the owner, the market or the provider, and are no evidence about the machine.
_NO_EVIDENCE = (EndReason.CRASHED, *LOST_SPOT, EndReason.GONE, EndReason.DEARER)

OTHERS_FIRST_FOR = timedelta(hours=1)  # after a failed start
FAILURES_OF_A_PLACE = 3  # within a day; then it is tried once per `PLACE_RESTS`: each try may be billed
PLACE_RESTS = timedelta(hours=1)
_COUNTED_FOR = timedelta(days=1)
# A crash is the command's own; it would crash anywhere.
_BILLED_FAULTS = tuple(end for end in MACHINE_FAULTS if end is not EndReason.CRASHED)
_PLACE_FAULTS = (*_BILLED_FAULTS, EndReason.NO_CAPACITY, EndReason.BID_LOST)


class MachineVerdict(StrEnum):
    """The owner's decision on a machine."""

    BLOCKED = "blocked"
    ALLOWED = "allowed"


class MachineNote(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's decision on a machine and its time. `allowed` clears earlier failures."""

    provider: str
    machine_id: str
    verdict: MachineVerdict
    at: datetime
    until: datetime | None = None  # None: until the owner changes it
    why: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether the decision still applies."""
        return self.until is None or now < self.until


class AvoidedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine to avoid now, and the reason."""

    provider: str
    machine_id: str
    by_owner: bool
    why: str  # one line; may contain a provider's text
    since: datetime
    until: datetime | None
    launch_id: str | None = None  # the newest launch that failed on it
    is_of_stock: bool = False  # its price or rental type was wrong, as it would be for any machine of that stock


def find_avoided_machines(
    over: Sequence[Launch], notes: Sequence[MachineNote], now: datetime, relaunching: Collection[str] = ()
) -> Mapping[ProviderMachine, AvoidedMachine]:
    """Return all machines to avoid now. The owner's block takes precedence over failures.

    Args:
        over: launches that ended within the last day; others are ignored.
        relaunching: watches that rent another machine after they were outbid.
    """
    found: dict[ProviderMachine, AvoidedMachine] = {}
    decided = {(note.provider, note.machine_id): note for note in notes}
    for launch in sorted(over, key=lambda launch: launch.ended_at or now):
        failed = _failed(launch, now, relaunching)
        if failed is not None and not _forgiven(decided.get((failed.provider, failed.machine_id)), failed.since):
            found[failed.provider, failed.machine_id] = failed
    for key, note in decided.items():
        if note.verdict is MachineVerdict.BLOCKED and note.holds(now):
            found[key] = AvoidedMachine(
                provider=note.provider,
                machine_id=note.machine_id,
                by_owner=True,
                why=note.why or "blocked by you",
                since=note.at,
                until=note.until,
            )
    return found


def machine_refusal(
    machines: Mapping[ProviderMachine, AvoidedMachine], provider: str, machine_id: str | None
) -> LaunchRefusal | None:
    """Return why this machine must not be rented, or None; always None if the provider does not name a machine."""
    known = None if machine_id is None else machines.get((provider, machine_id))
    if known is None:
        return None
    if known.by_owner:
        machine = known.machine_id
        text = f"you blocked machine {machine}; unblock it with: gpuwatch providers machines allow {machine}"
        return LaunchRefusal(RefusalReason.MACHINE_FAILED, text)
    text = f"machine {known.machine_id}: launch {known.launch_id} failed on it within a day ({known.why})"
    return LaunchRefusal(RefusalReason.MACHINE_FAILED, text)


def offer_machine_refusal(machines: Mapping[ProviderMachine, AvoidedMachine], offer: Offer) -> LaunchRefusal | None:
    """Return why the machine of an offer must not be rented, or None.

    Stock is a different machine each time. So only the owner's block or a wrong price counts.
    """
    refused = machine_refusal(machines, offer.provider, offer.machine_id)
    if refused is None or not offer.terms.fungible:
        return refused
    known = machines[offer.provider, offer.machine_id or ""]
    return refused if known.by_owner or known.is_of_stock else None


def machine_records(
    over: Iterable[Launch], notes: Sequence[MachineNote], now: datetime
) -> dict[ProviderMachine, MachineRecord]:
    """The record of each machine: launches that ended as wanted, and launches that the machine failed.

    Args:
        over: launches that are over; older ones than `RECORDED_FOR` and dry runs are ignored.
        notes: failures that the owner cleared do not count.
    """
    decided = {(note.provider, note.machine_id): note for note in notes}
    found: dict[ProviderMachine, MachineRecord] = {}
    for launch in over:
        if launch.machine_id is None or launch.ended_at is None or launch.dry_run:
            continue
        if launch.ended_at <= now - RECORDED_FOR or launch.ended_because(*_NO_EVIDENCE):
            continue
        failed = launch.ended_because(*MACHINE_FAULTS)
        if not failed and launch.running_at is None:
            continue
        key = launch.provider, launch.machine_id
        if failed and _forgiven(decided.get(key), launch.ended_at):
            continue
        before = found.get(key, MachineRecord())
        found[key] = MachineRecord(before.good + (not failed), before.bad + failed)
    return found


def is_of_any_machine(launch: Launch) -> bool:
    """Return whether it was stock and the next machine there is another one, so that only its place counts.

    A wrong price or rental type would be the same at the next machine.
    """
    return launch.promised.is_stock and not launch.ended_because(*_OF_THE_STOCK)


def _failed(launch: Launch, now: datetime, relaunching: Collection[str]) -> AvoidedMachine | None:
    if launch.machine_id is None or launch.ended_at is None or launch.ended_at <= now - AVOID_FOR:
        return None
    if is_of_any_machine(launch):
        return None
    lost = launch.watch in relaunching and launch.ended_because(*LOST_SPOT)
    if not lost and not launch.ended_because(*MACHINE_FAULTS):
        return None
    return AvoidedMachine(
        provider=launch.provider,
        machine_id=launch.machine_id,
        by_owner=False,
        why=launch.end_reason or "",
        since=launch.ended_at,
        until=launch.ended_at + AVOID_FOR,
        launch_id=launch.launch_id,
        is_of_stock=launch.ended_because(*_OF_THE_STOCK),
    )


def _forgiven(note: MachineNote | None, failed_at: datetime) -> bool:
    return note is not None and note.verdict is MachineVerdict.ALLOWED and failed_at <= note.at


def place_key(launch: Launch) -> ProviderMachine:
    """Return the place of a launch: its machine, or its offer if the provider names none."""
    return launch.provider, launch.machine_id or launch.offer_id


def is_place_fault(launch: Launch) -> bool:
    """Return whether a launch failed because of the place at which it was ordered."""
    return launch.ended_because(*_PLACE_FAULTS)


def failed_places(failed: Iterable[Launch], now: datetime) -> frozenset[ProviderMachine]:
    """Return the places after which others come first now.

    Args:
        failed: failed launches of any watch.
    """
    since = now - OTHERS_FIRST_FOR
    return frozenset(place_key(launch) for launch in failed if _ended(launch, since) and is_place_fault(launch))


def is_at_failed_place(places: frozenset[ProviderMachine], offer: Offer) -> bool:
    """Return whether an offer is stock of one of these places."""
    return bool(places) and offer.terms.fungible and _key_of(offer) in places


def others_first(matches: Sequence[Match], places: frozenset[ProviderMachine]) -> Sequence[Match]:
    """Return the matches in their order, those at places that failed lately last."""
    if not places:
        return matches
    return sorted(matches, key=lambda match: is_at_failed_place(places, match.offer))


def concerning(failed: Sequence[Launch], offer: Offer) -> Sequence[Launch]:
    """Return the failures that say something about an offer: for stock, not those of other places."""
    if not offer.terms.fungible:
        return failed
    key = _key_of(offer)
    return [launch for launch in failed if place_key(launch) == key or not is_place_fault(launch)]


def place_refusal(failed: Sequence[Launch], offer: Offer, now: datetime) -> LaunchRefusal | None:
    """Return why a place rests, or None: launches that cost money failed there again and again.

    Args:
        failed: failed launches of the watch within the last day.
    """
    if len(failed) < FAILURES_OF_A_PLACE or not offer.terms.fungible:
        return None
    key, since = _key_of(offer), now - _COUNTED_FOR
    ends = [
        launch.ended_at
        for launch in failed
        if place_key(launch) == key and launch.ended_because(*_BILLED_FAULTS) and _ended(launch, since)
    ]
    again_at = max((end for end in ends if end is not None), default=now) + PLACE_RESTS
    if len(ends) < FAILURES_OF_A_PLACE or now >= again_at:
        return None
    text = (
        f"{count_text(len(ends), 'launch', 'launches')} failed at {key[1]} within a day; the next "
        f"attempt there is at {again_at:%H:%M:%S} UTC"
    )
    return LaunchRefusal(RefusalReason.COOLING, text)


def _key_of(offer: Offer) -> ProviderMachine:
    return offer.provider, offer.machine_id or offer.offer_id


def _ended(launch: Launch, since: datetime) -> bool:
    return launch.ended_at is not None and launch.ended_at > since
