"""An approval: a quote that waits for the owner's decision until its deadline."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gpuwatch.domain.watches.decide import Match

QUIET_AFTER_DENIAL = timedelta(hours=24)  # after a denial, unless the watch is re-armed
_ID = re.compile(r"[a-z2-7]{12}")


class ApprovalState(StrEnum):
    """The state of an approval. It leaves `open` once and never returns to it."""

    OPEN = "open"
    APPROVED = "approved"  # its launch is recorded
    DENIED = "denied"
    EXPIRED = "expired"  # nobody answered in time
    REFUSED = "refused"  # the quote no longer holds: more expensive, gone or no longer wanted


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A request for approval. Its id is also that of the launch that an approval starts: one request, one launch."""

    approval_id: str
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
        """The provider that offers it."""
        return self.match.offer.provider

    def state_at(self, now: datetime) -> ApprovalState:
        """Return its state. An open one expires at its deadline, whether or not that was recorded."""
        if self.state is ApprovalState.OPEN and now >= self.deadline:
            return ApprovalState.EXPIRED
        return self.state


def is_approval_id(text: str) -> bool:
    """Return whether this could be the id of an approval."""
    return _ID.fullmatch(text) is not None
