"""Which of the offers that a watch accepts may be rented where they are, and what its owner is told of the choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import takewhile

import msgspec

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal
from gpuwatch.domain.watches.decide import Decision, Match

WhyNotReady = Callable[[str, int], str | None]


class UnavailableProviders(msgspec.Struct, frozen=True, kw_only=True):
    """Providers where gpuwatch cannot rent as it is set up, whatever is on offer there."""

    no_launcher: Collection[str] = frozenset()
    no_key: Collection[str] = frozenset()

    def why_not(self, provider: str) -> str | None:
        """One clause; None: it can."""
        if provider in self.no_launcher:
            return f"gpuwatch cannot rent at {provider}"
        return f"there is no key for {provider}" if provider in self.no_key else None

    def able(self, found: Sequence[Match], dry_run: bool) -> list[Match]:
        """Those that could be rented, in the same order.

        A dry run without any key still shows what would be rented with one.
        """
        keyed = [match for match in found if self.why_not(match.offer.provider) is None]
        if keyed or not dry_run:
            return keyed
        return [match for match in found if match.offer.provider not in self.no_launcher]

    def why_none(self, found: Sequence[Match]) -> str:
        """Where these are, and why none of them can be rented: "gpuwatch cannot rent at azure"."""
        reasons = dict.fromkeys(self.why_not(match.offer.provider) for match in found)
        return "; ".join(reason for reason in reasons if reason)


class CandidateSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What may be rented now, cheapest first; if nothing, `why_none`. `passed_over`: why a cheaper one is not."""

    matches: tuple[Match, ...]
    why_none: str = ""
    why_skipped: str = ""


def select_candidates(
    found: Sequence[Match], unable: UnavailableProviders, not_ready: WhyNotReady, dry_run: bool
) -> CandidateSelection:
    """From matches, cheapest first and at least one. A dry run needs no balance and no list of instances."""
    able = unable.able(found, dry_run)
    are_able = {id(match) for match in able}
    if not able:
        return CandidateSelection(matches=(), why_none=unable.why_none(found))
    looked = [(m, None if dry_run else not_ready(m.offer.provider, m.price.price_microusd_hour)) for m in able]
    ready = tuple(match for match, why in looked if why is None)
    reasons = [why for _, why in looked if why is not None]
    if not ready:
        beyond = [match for match in found if id(match) not in are_able]
        return CandidateSelection(matches=(), why_none="; ".join(dict.fromkeys([reasons[0], *_told(beyond, unable)])))
    cheaper = [match for match in takewhile(lambda match: match is not ready[0], found) if id(match) not in are_able]
    return CandidateSelection(matches=ready, why_skipped="; ".join(_told(cheaper, unable)))


def _told(matches: Sequence[Match], unable: UnavailableProviders) -> list[str]:
    text = unable.why_none(matches)
    return [text] if text else []


def is_reserved_offer(match: Match, launch: Launch) -> bool:
    """Is this the offer that a launch is reserved for?"""
    return (match.offer.provider, match.offer.offer_id) == (launch.provider, launch.offer_id)


def with_rented_offer_first(decision: Decision, launch: Launch | None) -> Decision:
    """The decision with the offer that is rented in front: it is what the owner is told of. None: as it is."""
    if launch is None or not decision.matches or is_reserved_offer(decision.matches[0], launch):
        return decision
    mine = [match for match in decision.matches if is_reserved_offer(match, launch)]
    others = [match for match in decision.matches if not is_reserved_offer(match, launch)]
    return msgspec.structs.replace(decision, matches=(*mine, *others))


def reservation_summary(begun: Sequence[Launch], refusal: LaunchRefusal | None, choice: CandidateSelection) -> str:
    """What was done about the matches, a sentence or two; empty: nothing was to be done.

    Args:
        begun: of these the first is "it": the alert is headed by its offer.
    """
    if not begun:
        return f"Not rented: {refusal.text}." if refusal else ""
    why = f" A cheaper one is left: {choice.why_skipped}." if choice.why_skipped else ""
    if begun[0].dry_run:
        return f"Dry run: would rent it now (dry_run = true).{why}"
    ids = ", ".join(launch.launch_id for launch in begun)
    if len(begun) == 1:
        return f"Renting it now, launch {ids}.{why}"
    return f"Renting {len(begun)} now, launches {ids}.{why}"
