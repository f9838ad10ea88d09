"""When may we believe that something does not exist? An empty list is not evidence: absence must prove itself.

Source of the rules: a marketplace that answered "no instances" while it billed three made other schedulers rent on and
on; a list that lags shows a new instance only after a while. So: only whole listings count, every instance that is
believed alive must be in them (the canary), some time must have passed since the order, several in a row must agree.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

ABSENCE_WAIT_S = 600.0  # nobody publishes how late a create can land; on the safe side
LISTINGS_NEEDED = 3


class AbsenceVerdict(StrEnum):
    """What the looks so far say."""

    LOOKING = "looking"
    ABSENT = "absent"
    CANNOT_PROVE = "cannot prove"


class AbsenceEvidence(msgspec.Struct, frozen=True):
    """What was seen of one instance that is looked for. Kept in memory: a restart begins anew, which is the safe side.

    `since_s` is a monotonic clock's, so that no step of the wall clock shortens the wait; it starts with the first
    look, which is never before the order.
    """

    since_s: float
    missed: int = 0  # whole listings in a row without it, canary included, after the wait
    without_canary: int = 0  # whole listings after the wait that prove nothing: no canary


def count_missing(
    evidence: AbsenceEvidence, canary: bool, tick_s: float, wait_s: float = ABSENCE_WAIT_S
) -> AbsenceEvidence:
    """One more whole listing without it."""
    if tick_s - evidence.since_s < wait_s:
        return evidence
    if canary:
        return AbsenceEvidence(evidence.since_s, evidence.missed + 1, evidence.without_canary)
    return AbsenceEvidence(evidence.since_s, 0, evidence.without_canary + 1)


def count_failed_listing(evidence: AbsenceEvidence) -> AbsenceEvidence:
    """A listing failed, or was odd: what was counted in a row is not in a row any more."""
    return AbsenceEvidence(evidence.since_s, 0, evidence.without_canary)


def absence_verdict(evidence: AbsenceEvidence, tick_s: float, wait_s: float = ABSENCE_WAIT_S) -> AbsenceVerdict:
    """Absent, still looking, or: it will not be proven, somebody must decide.

    Without any usable listing the matter goes to the owner after three times the wait.
    """
    if evidence.missed >= LISTINGS_NEEDED:
        return AbsenceVerdict.ABSENT
    if evidence.without_canary >= LISTINGS_NEEDED or tick_s - evidence.since_s >= 3 * wait_s:
        return AbsenceVerdict.CANNOT_PROVE
    return AbsenceVerdict.LOOKING


def has_canary(listed: Collection[str], believed_alive: Collection[str], foreign_before: Collection[str]) -> bool:
    """Does a listing show that it is to be believed?

    Args:
        listed: the instance ids in it.
        believed_alive: ids of ours that run or start as far as we know: every one of them must be listed.
        foreign_before: other instances of the account that an earlier listing held: one will do, if none is ours.
    """
    if not set(believed_alive) <= set(listed):
        return False
    return bool(believed_alive) or not set(foreign_before).isdisjoint(listed)
