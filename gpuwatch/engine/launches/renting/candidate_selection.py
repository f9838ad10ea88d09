"""Selects which accepted offers can be rented now, and describes the selection for the alert.

`StartsLaunches` is the port to what rents them. An offer is left out if its provider cannot be rented at with these
settings (`UnavailableProviders`), or is not ready for an order now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import Protocol

import msgspec

from gpuwatch.domain.alerts import offer_texts as texts
from gpuwatch.domain.launches.launch import Launch, LaunchRefusal
from gpuwatch.domain.watches.decide import Decision, Match
from gpuwatch.domain.watches.watch import Watch

# (provider, micro-dollars per hour, name of the watch) → why nothing can be rented there now
WhyNotReady = Callable[[str, int, str], str | None]


class StartsLaunches(Protocol):
    """Rents a reserved launch (see `launch_executor`)."""

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        """Return why nothing can be rented there at this price for this watch now, or None. Raises StoreError."""

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        """Rent it on another thread; the reserved candidate comes first."""


class UnavailableProviders(msgspec.Struct, frozen=True, kw_only=True):
    """Providers at which gpuwatch cannot rent with these settings."""

    no_launcher: Collection[str] = frozenset()
    no_key: Collection[str] = frozenset()

    def why_not(self, provider: str) -> str | None:
        """Return the reason as a clause; None: it can rent there."""
        if provider in self.no_launcher:
            return f"gpuwatch cannot rent at {provider}"
        return f"there is no key for {provider}" if provider in self.no_key else None

    def able(self, found: Sequence[Match], dry_run: bool) -> list[Match]:
        """Return the matches that can be rented, in the same order.

        A dry run without any key still shows what it would rent with a key.
        """
        keyed = [match for match in found if self.why_not(match.offer.provider) is None]
        if keyed or not dry_run:
            return keyed
        return [match for match in found if match.offer.provider not in self.no_launcher]

    def why_none(self, found: Sequence[Match]) -> str:
        """Return why none of these matches can be rented, by provider: "gpuwatch cannot rent at azure"."""
        reasons = dict.fromkeys(self.why_not(match.offer.provider) for match in found)
        return "; ".join(reason for reason in reasons if reason)


def select_candidates(
    found: Sequence[Match], unable: UnavailableProviders, not_ready: WhyNotReady, dry_run: bool, watch: str
) -> tuple[list[Match], str]:
    """Return the matches that can be rented now, cheapest first. A dry run needs no balance and no instance list.

    Args:
        found: at least one match, cheapest first.

    Returns:
        The candidates, and a text: why there are none, or why cheaper matches are left out, or "".
    """
    able = unable.able(found, dry_run)
    are_able = {id(match) for match in able}
    if not able:
        return [], unable.why_none(found)
    checked = [(m, None if dry_run else not_ready(m.offer.provider, m.price.price_microusd_hour, watch)) for m in able]
    ready = [match for match, why in checked if why is None]
    if not ready:
        reasons = [why for _, why in checked if why is not None]
        beyond = unable.why_none([match for match in found if id(match) not in are_able])
        return [], "; ".join(dict.fromkeys([reasons[0], *([beyond] if beyond else [])]))
    cheaper = [match for match in takewhile(lambda match: match is not ready[0], found) if id(match) not in are_able]
    return ready, unable.why_none(cheaper)


def is_same_offer(match: Match, reserved: Match) -> bool:
    """Whether both are one offer. A spot twin counts as the same: a machine is rented once."""
    one, other = match.offer, reserved.offer
    return (one.provider, one.offer_id) == (other.provider, other.offer_id)


def reserved_first(reserved: Match, left: Sequence[Match]) -> tuple[Match, ...]:
    """Return the candidates of a launch: the reserved offer, then the next best of any provider."""
    return (reserved, *(match for match in left if match is not reserved))


def with_rented_offer_first(decision: Decision, rented: Match | None) -> Decision:
    """Return the decision with the rented offer first, because the alert is about it. None: unchanged."""
    if rented is None or not decision.matches or decision.matches[0] is rented:
        return decision
    others = [match for match in decision.matches if match is not rented]
    return msgspec.structs.replace(decision, matches=(rented, *others))


def reservation_summary(started: Sequence[Launch], refusal: LaunchRefusal | None, left_out: str) -> str:
    """Describe in a sentence or two what was done about the matches; empty: there was nothing to do.

    Args:
        started: the launches; the offer of the first one is the first in the alert.
        left_out: why cheaper matches are left out.
    """
    if not started:
        return texts.NOT_RENTED.format(why=refusal.said) if refusal else ""
    text = texts.RENTING if len(started) == 1 else texts.RENTING_SEVERAL
    if started[0].dry_run:
        text = texts.DRY_RUN
    text = text.format(count=len(started), ids=", ".join(launch.launch_id for launch in started))
    return texts.CHEAPER_SKIPPED.format(text=text, why=left_out) if left_out else text
