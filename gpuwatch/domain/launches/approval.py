"""An ask: a quote that waits for the owner's word until its deadline."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gpuwatch.domain.watches.decide import Match

QUIET_AFTER_DENIAL = timedelta(
    hours=24
)  # a denied offer is not asked again for so long, unless the watch is armed anew
_ID = re.compile(r"[a-z2-7]{12}")


class ApprovalState(StrEnum):
    """Where an ask is. It leaves `open` once, and never comes back."""

    OPEN = "open"
    APPROVED = "approved"  # its launch is written
    DENIED = "denied"
    EXPIRED = "expired"  # nobody answered in time
    REFUSED = "refused"  # what was quoted is no more: dearer, gone, no longer wanted


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the owner. Its id is also the id of the launch that an approval begins: one ask, one launch."""

    ask_id: str
    watch: str
    match: Match  # the quote
    created_at: datetime
    deadline: datetime
    state: ApprovalState = ApprovalState.OPEN
    answered_at: datetime | None = None
    launch_id: str | None = None
    words: str | None = None  # why it was denied or refused

    @property
    def provider(self) -> str:
        """Who offers it."""
        return self.match.offer.provider

    def state_at(self, now: datetime) -> ApprovalState:
        """Its state; an open one is over at its deadline, whether or not somebody wrote that down."""
        if self.state is ApprovalState.OPEN and now >= self.deadline:
            return ApprovalState.EXPIRED
        return self.state


def is_approval_id(text: str) -> bool:
    """Could this be the id of an ask?"""
    return _ID.fullmatch(text) is not None
