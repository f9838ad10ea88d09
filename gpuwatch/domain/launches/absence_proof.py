"""Proof that an instance does not exist. An empty list is not evidence.

Source of the rules: a marketplace that answered "no instances" while it billed three made other schedulers rent again
and again, and a lagging list shows a new instance only after a while. So only complete listings count. Every instance
that is believed to be alive must be in them (the canary), some time must have passed since the order, and several
listings in a row must agree.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

ABSENCE_WAIT_S = 600.0  # no provider documents how late a create can take effect; a safe guess
LISTINGS_NEEDED = 3


class AbsenceVerdict(StrEnum):
    """What the listings so far prove."""

    LOOKING = "looking"
    ABSENT = "absent"
    CANNOT_PROVE = "cannot prove"


class AbsenceEvidence(msgspec.Struct, frozen=True):
    """What the listings have shown about one missing instance.

    Kept in memory: a restart starts again, which is the safe side. `since_s` is a reading of a monotonic clock, so that
    no change of the wall clock shortens the wait. It starts at the first listing, which is never before the order.
    """

    since_s: float
    missed: int = 0  # complete listings in a row without it, with a canary, after the wait
    without_canary: int = 0  # complete listings after the wait that prove nothing: no canary


def count_missing(
    evidence: AbsenceEvidence, canary: bool, tick_s: float, wait_s: float = ABSENCE_WAIT_S
) -> AbsenceEvidence:
    """Count one more complete listing without the instance."""
    if tick_s - evidence.since_s < wait_s:
        return evidence
    if canary:
        return AbsenceEvidence(evidence.since_s, evidence.missed + 1, evidence.without_canary)
    return AbsenceEvidence(evidence.since_s, 0, evidence.without_canary + 1)


def count_failed_listing(evidence: AbsenceEvidence) -> AbsenceEvidence:
    """Count a listing that failed or was incomplete: the row of agreeing listings starts again."""
    return AbsenceEvidence(evidence.since_s, 0, evidence.without_canary)


def absence_verdict(evidence: AbsenceEvidence, tick_s: float, wait_s: float = ABSENCE_WAIT_S) -> AbsenceVerdict:
    """Return whether the instance is absent, still being looked for, or will never be proven absent.

    Without any usable listing the owner is asked after three times the wait.
    """
    if evidence.missed >= LISTINGS_NEEDED:
        return AbsenceVerdict.ABSENT
    if evidence.without_canary >= LISTINGS_NEEDED or tick_s - evidence.since_s >= 3 * wait_s:
        return AbsenceVerdict.CANNOT_PROVE
    return AbsenceVerdict.LOOKING


def has_canary(listed: Collection[str], believed_alive: Collection[str], foreign_before: Collection[str]) -> bool:
    """Return whether a listing can be trusted.

    Args:
        listed: the instance ids in it.
        believed_alive: ids of our own running or starting instances; every one of them must be listed.
        foreign_before: other instances of the account that an earlier listing showed; one is enough if none is ours.
    """
    if not set(believed_alive) <= set(listed):
        return False
    return bool(believed_alive) or not set(foreign_before).isdisjoint(listed)
