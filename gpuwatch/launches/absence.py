"""When may we believe that something does not exist? An empty list is not evidence: absence must prove itself.

Source of the rules: a marketplace that answered "no instances" while it billed three made other schedulers rent on and
on; a list that lags shows a new instance only after a while. So: only whole listings count, every instance that is
believed alive must be in them (the canary), some time must have passed since the order, several in a row must agree.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

WAIT_S = 600.0  # nobody publishes how late a create can land; on the safe side
LISTINGS = 3


class Verdict(StrEnum):
    """What the looks so far say."""

    LOOKING = "looking"
    ABSENT = "absent"
    CANNOT_PROVE = "cannot prove"


class Looks(msgspec.Struct, frozen=True):
    """What was seen of one instance that is looked for. Kept in memory: a restart begins anew, which is the safe side.

    `since_s` is a monotonic clock's, so that no step of the wall clock shortens the wait; it starts with the first
    look, which is never before the order.
    """

    since_s: float
    missed: int = 0  # whole listings in a row without it, canary included, after the wait
    blank: int = 0  # whole listings after the wait that prove nothing: no canary


def missed(looks: Looks, canary: bool, tick_s: float, wait_s: float = WAIT_S) -> Looks:
    """One more whole listing without it."""
    if tick_s - looks.since_s < wait_s:
        return looks
    if canary:
        return Looks(looks.since_s, looks.missed + 1, looks.blank)
    return Looks(looks.since_s, 0, looks.blank + 1)


def failed_look(looks: Looks) -> Looks:
    """A listing failed, or was odd: what was counted in a row is not in a row any more."""
    return Looks(looks.since_s, 0, looks.blank)


def verdict(looks: Looks, tick_s: float, wait_s: float = WAIT_S) -> Verdict:
    """Absent, still looking, or: it will not be proven, somebody must decide.

    Without any usable listing the matter goes to the owner after three times the wait.
    """
    if looks.missed >= LISTINGS:
        return Verdict.ABSENT
    if looks.blank >= LISTINGS or tick_s - looks.since_s >= 3 * wait_s:
        return Verdict.CANNOT_PROVE
    return Verdict.LOOKING


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
