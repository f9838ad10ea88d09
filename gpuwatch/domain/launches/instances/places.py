"""Places at which a launch failed lately: after a failed start, another place or another offer comes first. Pure.

The place of stock is what an order can choose: a machine type in a region or a zone, from which the provider takes any
machine. A failure there says nothing about other places, and little about the next machine of the same place. So the
place is not refused, as a machine is (`machines`), but tried last for a while; and if nothing else is left, it rests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.launches.instances.avoided_machines import MACHINE_FAULTS
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.reputation import ProviderMachine

OTHERS_FIRST_FOR = timedelta(hours=1)  # after a failed start
FAILURES_OF_A_PLACE = 3  # within a day; then it is tried once per `PLACE_RESTS`: each try may be billed
PLACE_RESTS = timedelta(hours=1)
_COUNTED_FOR = timedelta(days=1)
# A crash is the command's own; it would crash anywhere.
_BILLED_FAULTS = tuple(end for end in MACHINE_FAULTS if end is not EndReason.CRASHED)
_PLACE_FAULTS = (*_BILLED_FAULTS, EndReason.NO_CAPACITY, EndReason.BID_LOST)


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
